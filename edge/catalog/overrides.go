package catalog

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
)

// Overrides of programs: a catalog built by the rules has variants, one for all
// clients or one for each key by which programs tell clients apart. A variant is
// built when it is first asked for, and again when its catalog has changed;
// programs are asked again only about lists that have changed.

// askAgain is the time until programs that failed are asked again.
const askAgain = time.Second

// variants are the variants of a Book. Book.mu guards all fields but making.
type variants struct {
	making sync.Mutex // taken before Book.mu; one is made at a time
	byKey  map[string]*variant
	clock  uint64
	bytes  int
}

// variant is a catalog as clients of one key see it.
type variant struct {
	of    *Catalog // the catalog that it was made of
	is    *Catalog // nil when programs failed
	lists map[*List]*List
	used  uint64
	size  int

	err   error     // why there is none
	again time.Time // when to ask failed programs again; zero when none failed
}

// variant returns the catalog for an identity. Without programs it is the catalog
// itself. When programs fail it is the last variant for which they did not fail;
// if there is none, the error is theirs.
func (b *Book) variant(c *Catalog, s *listSet, id *edge.Identity) (*Catalog, error) {
	if b.Overrides == nil || c == nil {
		return c, nil
	}
	key := b.Overrides.Key(id)
	if s != b.common {
		key = s.key.issuer + "\x00" + s.key.subject + "\x00" + string(s.key.rights[:]) + key
	}
	if v := b.known(key, c); v != nil {
		return v.is, v.err
	}
	b.variants.making.Lock()
	defer b.variants.making.Unlock()
	if v := b.known(key, c); v != nil { // another goroutine has made it meanwhile
		return v.is, v.err
	}
	b.mu.Lock()
	old := b.variants.byKey[key]
	b.mu.Unlock()
	v := b.newVariant(c, old, id)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.keepVariant(key, v)
	return v.is, v.err
}

// known returns the variant of a catalog under a key; nil if there is none that is
// still valid.
func (b *Book) known(key string, of *Catalog) *variant {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := b.variants.byKey[key]
	if v == nil || v.of != of || !v.again.IsZero() && !time.Now().Before(v.again) {
		return nil
	}
	b.variants.clock++
	v.used = b.variants.clock
	return v
}

// newVariant makes a variant.
func (b *Book) newVariant(c *Catalog, old *variant, id *edge.Identity) *variant {
	v := &variant{of: c, is: &Catalog{rules: c.rules, pages: c.pages, capabilities: c.capabilities}, lists: make(map[*List]*List)}
	for i, t := range c.tables {
		from := slices.Clone(t.from)
		for j, s := range from {
			l, err := b.overridden(old, s, t.thing, id)
			if err != nil {
				v.is, v.err, v.again = nil, err, time.Now().Add(askAgain)
				if old != nil && old.is != nil {
					v.is, v.err, v.lists = old.is, nil, old.lists // their last answers
				}
				return v
			}
			from[j].list, v.lists[s.list] = l, l
		}
		if old != nil && old.is != nil && slices.Equal(from, old.is.tables[i].from) {
			v.is.tables[i] = old.is.tables[i]
			continue
		}
		v.is.tables[i] = newTable(b.Rules, t.thing, from)
	}
	v.is.match = newMatcher(v.is.table(edge.Template))
	return v
}

// overridden returns a list with the changes of programs.
func (b *Book) overridden(old *variant, s source, thing edge.Thing, id *edge.Identity) (*List, error) {
	if old != nil && old.lists[s.list] != nil {
		return old.lists[s.list], nil
	}
	if s.backend == "" {
		return s.list, nil // the edge's own
	}
	said, err := b.Overrides.Override(b.life, id, s.backend, thing, s.list.Items)
	if err != nil || said == nil {
		return s.list, err
	}
	out := &List{TTL: s.list.TTL, Public: s.list.Public && !b.Overrides.Varies(), Down: s.list.Down, overrides: said}
	for i := range said {
		out.Items = append(out.Items, said[i].Item)
	}
	return out, nil
}

// keepVariant stores a variant and evicts the least recently used ones above the
// bounds; mu is held.
func (b *Book) keepVariant(key string, v *variant) {
	all := &b.variants
	if all.byKey == nil {
		all.byKey = make(map[string]*variant)
	}
	if old := all.byKey[key]; old != nil {
		all.bytes -= old.size
	}
	if v.is != nil {
		v.size = v.is.size()
	}
	all.clock++
	v.used = all.clock
	all.byKey[key] = v
	all.bytes += v.size
	for len(all.byKey) > 1 && (len(all.byKey) > b.Bounds.Principals || all.bytes > b.Bounds.Bytes/4) {
		oldest := ""
		for k, o := range all.byKey {
			if k != key && (oldest == "" || o.used < all.byKey[oldest].used) {
				oldest = k
			}
		}
		all.bytes -= all.byKey[oldest].size
		delete(all.byKey, oldest)
	}
	b.settled()
}

// settledVariant returns the variant of the common catalog that all clients see;
// nil if it is not built or differs by client. mu is held.
func (b *Book) settledVariant() *Catalog {
	if b.Overrides.Varies() {
		return nil
	}
	if v := b.variants.byKey[b.Overrides.Key(nil)]; v != nil && v.of == b.common.catalog && v.again.IsZero() {
		return v.is
	}
	return nil
}

// variantOf is variant for a request, whose end becomes an error of kind Gone.
func (b *Book) variantOf(ctx context.Context, s *listSet, c *Catalog, id *edge.Identity) (*Catalog, error) {
	v, err := b.variant(c, s, id)
	if err != nil && ctx.Err() != nil {
		return nil, edge.Errorf(edge.Gone, "list", "%w", context.Cause(ctx))
	}
	return v, err
}
