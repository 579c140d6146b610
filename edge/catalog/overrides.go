package catalog

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
)

// How programs change what is offered: of a catalog as the rules make it there
// are variants, one for all clients or one for each key that programs tell
// clients apart by. A variant is made when somebody first asks for it, and anew
// when the catalog that it is made of has changed; of lists that have not,
// programs are not asked again.

// askAgain is how long it takes until programs are asked again that failed.
const askAgain = time.Second

// variants are the variants of a Book. What it does not say for itself,
// Book.mu guards.
type variants struct {
	making sync.Mutex // taken before Book.mu; one is made at a time
	byKey  map[string]*variant
	clock  uint64
	bytes  int
}

// variant is a catalog as clients of one key see it.
type variant struct {
	of    *Catalog // what it was made of
	is    *Catalog // nil when programs failed
	lists map[*List]*List
	used  uint64
	size  int

	err   error     // why there is none
	again time.Time // when to ask programs again that failed; zero when they did not
}

// variant returns the catalog that is for an identity. Without programs it is
// the catalog itself. When programs fail it is the last that they did not fail
// for; without one the error says why there is none.
func (b *Book) variant(c *Catalog, s *shelf, id *edge.Identity) (*Catalog, error) {
	if b.Overrides == nil || c == nil {
		return c, nil
	}
	key := b.Overrides.Key(id)
	if s != b.common {
		key = s.key.issuer + "\x00" + s.key.subject + "\x00" + key
	}
	if v := b.known(key, c); v != nil {
		return v.is, v.err
	}
	b.variants.making.Lock()
	defer b.variants.making.Unlock()
	if v := b.known(key, c); v != nil { // somebody else has made it meanwhile
		return v.is, v.err
	}
	b.mu.Lock()
	old := b.variants.byKey[key]
	b.mu.Unlock()
	v := b.dress(c, old, id)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.keepVariant(key, v)
	return v.is, v.err
}

// known returns the variant of a catalog that is there and still good.
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

// dress makes a variant.
func (b *Book) dress(c *Catalog, old *variant, id *edge.Identity) *variant {
	v := &variant{of: c, is: &Catalog{rules: c.rules, press: c.press, capabilities: c.capabilities}, lists: make(map[*List]*List)}
	for i, t := range c.tables {
		from := slices.Clone(t.from)
		for j, s := range from {
			l, err := b.overridden(old, s, t.thing, id)
			if err != nil {
				v.is, v.err, v.again = nil, err, time.Now().Add(askAgain)
				if old != nil && old.is != nil {
					v.is, v.err, v.lists = old.is, nil, old.lists // what they said last
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

// overridden returns a list as programs want it.
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

// keepVariant takes a variant in and lets go of those that were asked for
// longest ago; mu is held.
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

// settledVariant is the one that all clients see, when it is that of the common
// catalog; mu is held.
func (b *Book) settledVariant() *Catalog {
	if b.Overrides.Varies() {
		return nil
	}
	if v := b.variants.byKey[b.Overrides.Key(nil)]; v != nil && v.of == b.common.catalog && v.again.IsZero() {
		return v.is
	}
	return nil
}

// variantOf is variant for a Book that is asked on behalf of a client.
func (b *Book) variantOf(ctx context.Context, s *shelf, c *Catalog, id *edge.Identity) (*Catalog, error) {
	v, err := b.variant(c, s, id)
	if err != nil && ctx.Err() != nil {
		return nil, edge.Errorf(edge.Gone, "list", "%w", context.Cause(ctx))
	}
	return v, err
}
