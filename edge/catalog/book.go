package catalog

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// Source is a backend as a Book sees it. It is safe for concurrent use.
type Source interface {
	Name() string

	// Personal reports whether what the backend offers depends on whose
	// credential it is asked with. It does not change.
	Personal() bool

	// Capabilities returns JSON text of the capabilities that the backend
	// declared, and waits until it has. id is as in List.
	Capabilities(ctx context.Context, id *edge.Identity) ([]byte, error)

	// List sends a list request and returns the JSON text of its result, of
	// which nothing is changed afterwards. id is whose credential to use, nil
	// where the backend is not personal; a nil cursor asks for the first page.
	// An error of kind NoMethod says that the backend has no such list.
	List(ctx context.Context, id *edge.Identity, method string, cursor *string) ([]byte, error)
}

// Config configures a Book. A duration or bound of 0 stands for the default.
type Config struct {
	Rules   *Rules
	Own     Offer    // the edge's own tools: workflows and the like; Backend is ""
	Sources []Source // with names of their own
	Before  *Book    // its lists of the same sources are taken over; nil for none

	Overrides edge.Overrides // changes of programs to offers; nil for none

	// BestEffort lists the things of the other backends when some are down.
	// Without it a list with a backend missing is an error.
	BestEffort bool

	Interval time.Duration // of health checks: lists of this age are fetched again; those of three times this age no longer count. 30s
	Wait     time.Duration // for a fetch, from its start; after it a list is answered without that backend. 5s
	Timeout  time.Duration // of fetching all pages of one list. 30s
	Quiet    time.Duration // between two calls of Changed. 2s

	Bounds Bounds

	// Changed is called with the lists that clients have to fetch again: once per
	// kind and change, and not again before Quiet has passed. It is called from one
	// goroutine and must not wait for the Book. nil for nobody.
	Changed func(Changes)

	Log *slog.Logger
}

// Bounds limit the memory that backends can make a Book use. 0 stands for the
// default.
type Bounds struct {
	Pages      int // of one list: 1,000
	Items      int // of one list: 20,000
	ListBytes  int // of one list: 16 MiB
	Bytes      int // of all lists and the catalogs built of them: 256 MiB
	Principals int // whose personal lists are kept, each once for each of the rights that its tokens have: 1,000
}

func (c *Config) fill() {
	c.Interval = cmp.Or(c.Interval, 30*time.Second)
	c.Wait = cmp.Or(c.Wait, 5*time.Second)
	c.Timeout = cmp.Or(c.Timeout, 30*time.Second)
	c.Quiet = cmp.Or(c.Quiet, 2*time.Second)
	b := &c.Bounds
	b.Pages = cmp.Or(b.Pages, 1000)
	b.Items = cmp.Or(b.Items, 20_000)
	b.ListBytes = cmp.Or(b.ListBytes, 16<<20)
	b.Bytes = cmp.Or(b.Bytes, 256<<20)
	b.Principals = cmp.Or(b.Principals, 1000)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
}

// Book keeps the lists of all backends of a server and the catalog built of
// them. A list is fetched when it is asked for and is missing or not fresh, by
// one fetch at a time; a list that is not fresh but younger than three intervals
// is served while it is fetched again. A Book is safe for concurrent use.
//
// Locks: a list set's building is taken before variants.making, and that before mu; the page cache's is taken
// under none of them.
type Book struct {
	Config
	pages    *pageCache
	personal bool            // some source is personal
	slots    []chan struct{} // places for fetches, by source

	life context.Context // ends with Close
	end  context.CancelFunc
	work sync.WaitGroup // the goroutines that end with life
	poke chan struct{}  // wakes the keeper

	ready atomic.Pointer[Catalog] // of common, once each of its lists was tried

	variants variants

	mu          sync.Mutex
	closed      bool
	common      *listSet
	byPrincipal map[who]*list.Element // of *listSet, for principals
	recent      list.List             // the last used first
	owned       map[[2]string]int     // how many each principal has
	bytes       int                   // that all list sets hold
	untried     int                   // entries of common without an answer so far
	caps        [][]byte              // by source; nil while unknown
	served      bool                  // a client was sent a list
	pending     Changes               // to tell clients of
	told        time.Time             // when Changed was called last
}

// Open makes a Book and begins to fetch the lists that are the same for everybody.
func Open(c Config) *Book {
	c.fill()
	b := &Book{
		Config: c, pages: newPageCache(maxEncoded, maxEncodedBytes), poke: make(chan struct{}, 1),
		byPrincipal: make(map[who]*list.Element), owned: make(map[[2]string]int), caps: make([][]byte, len(c.Sources)),
	}
	b.life, b.end = context.WithCancel(context.Background())
	for _, s := range c.Sources {
		b.personal = b.personal || s.Personal()
		b.slots = append(b.slots, make(chan struct{}, maxFetches))
	}
	b.common = b.newListSet(nil, who{})
	b.inherit(c.Before)
	b.Before = nil
	b.mu.Lock()
	for i := range b.common.entries {
		for _, e := range b.common.entries[i] {
			if e == nil || e.list != nil {
				continue
			}
			if !e.tried {
				b.untried++
			}
			b.begin(e, time.Now())
		}
	}
	b.mu.Unlock()
	b.work.Go(b.keeper)
	return b
}

// inherit takes over the lists of the sources that both books have, so that no
// client waits again for a backend that has not changed, not even for one that
// does not answer.
func (b *Book) inherit(before *Book) {
	if before == nil {
		return
	}
	before.mu.Lock()
	defer before.mu.Unlock()
	b.served = before.served
	for i, source := range b.Sources {
		// A source that has changed is asked again; until it answers, calls use the
		// lists before.
		changed := false
		j := slices.Index(before.Sources, source)
		if j < 0 {
			changed = true
			j = slices.IndexFunc(before.Sources, func(o Source) bool { return o.Name() == source.Name() })
		}
		if j < 0 {
			continue
		}
		b.caps[i] = before.caps[j]
		for k, e := range b.common.entries[i] {
			old := before.common.entries[j][k]
			if e == nil || old == nil {
				continue
			}
			e.list, e.sum, e.size, e.got = old.list, old.sum, old.size, old.got
			e.due, e.tried, e.late, e.tries, e.retry, e.failed = changed || old.due || old.fetch != nil && old.list != nil, old.tried && !changed || old.list != nil, old.late, old.tries, old.retry, old.failed
			b.bytes += e.size
		}
	}
	b.common.changes++
}

// Close ends the fetches that are under way and the keeper, and waits for them.
func (b *Book) Close() error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.end()
	b.work.Wait()
	return nil
}

// Settled returns what Catalog does for an identity if nothing is to be done and no
// list of the kind has to be waited for, else nil.
func (b *Book) Settled(id *edge.Identity, thing edge.Thing) *Catalog {
	if !b.personal || id == nil {
		return b.ready.Load()
	}
	if b.Overrides != nil || thing == edge.NoThing {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.byPrincipal[whoIs(id)]
	if e == nil {
		return nil
	}
	s, ok := e.Value.(*listSet)
	if !ok || s.catalog == nil || s.built != s.changes || !s.complete[thing-1] {
		return nil
	}
	for i := range b.Sources {
		e := b.common.entries[i][thing-1]
		if e == nil {
			e = s.entries[i][thing-1]
		}
		if e.list == nil {
			return nil // it may be tried again
		}
	}
	b.use(e, id)
	return s.catalog
}

// Catalog returns the catalog for an identity, for calls: it waits, within
// bounds, for lists of the kind that nobody has asked for yet, and for nothing
// else. While the catalog is rebuilt for a changed list, calls use the one
// before. NoThing waits for none. The error is of kind Gone if ctx has ended, or
// that of Overrides.
func (b *Book) Catalog(ctx context.Context, id *edge.Identity, thing edge.Thing) (*Catalog, error) {
	if c := b.ready.Load(); c != nil && (!b.personal || id == nil) {
		return c, nil
	}
	c, s, err := b.plain(ctx, id, thing)
	if err != nil {
		return nil, err
	}
	return b.variantOf(ctx, s, c, id)
}

// Latest is the catalog of the lists that there are, for calls that one before had nothing for: it
// waits for no list, and is built anew where one has come.
func (b *Book) Latest(ctx context.Context, id *edge.Identity) (*Catalog, error) {
	b.mu.Lock()
	s := b.setOf(id)
	b.mu.Unlock()
	return b.variantOf(ctx, s, b.current(s), id)
}

// plain is Catalog without the changes of programs.
func (b *Book) plain(ctx context.Context, id *edge.Identity, thing edge.Thing) (*Catalog, *listSet, error) {
	s, _, err := b.settle(ctx, id, thing, false)
	if err != nil {
		return nil, nil, err
	}
	b.mu.Lock()
	c := s.catalog
	if c == nil || thing != edge.NoThing && !s.complete[thing-1] {
		b.mu.Unlock()
		return b.current(s), s, nil
	}
	defer b.mu.Unlock()
	b.settled()
	if s.built != s.changes && !s.renewing && !b.closed {
		s.renewing = true
		b.work.Go(func() {
			b.current(s)
			b.mu.Lock()
			s.renewing = false
			b.mu.Unlock()
		})
	}
	return c, s, nil
}

// List answers a list request: see Catalog.List. It waits, within bounds, for
// lists that are not there or known to have changed. When backends are missing
// the error is of kind Unavailable and names them in its data: at once, unless
// nobody had asked them yet. With BestEffort that is an error only when all
// backends are missing and the edge has no tools of its own.
func (b *Book) List(ctx context.Context, id *edge.Identity, thing edge.Thing, era mcp.Era, view edge.View, cursor string) ([]byte, error) {
	s, missing, err := b.settle(ctx, id, thing, true)
	if err != nil {
		return nil, err
	}
	if len(missing) > 0 {
		own := b.Own.list(thing)
		if !b.BestEffort || len(missing) == len(b.Sources) && (own == nil || len(own.Items) == 0) {
			for _, name := range missing {
				switch err := b.Fault(id, name, thing); edge.KindOf(err) {
				case edge.Unauthenticated, edge.Denied: // the user is why, and not the backend
					return nil, err
				}
			}
			return nil, absent(missing)
		}
	}
	b.mu.Lock()
	b.served = true
	b.mu.Unlock()
	c, err := b.variantOf(ctx, s, b.current(s), id)
	if err != nil {
		return nil, err
	}
	return c.List(thing, era, view, cursor)
}

// absent returns the error for a list with backends missing.
func absent(missing []string) error {
	slices.Sort(missing)
	text := fmt.Sprintf("backend %q unavailable", missing[0])
	if len(missing) > 1 {
		quoted := make([]string, len(missing))
		for i, name := range missing {
			quoted[i] = fmt.Sprintf("%q", name)
		}
		text = fmt.Sprintf("backends %s unavailable", strings.Join(quoted, ", "))
	}
	data := []byte(`{"missing":[`)
	for i, name := range missing {
		if i > 0 {
			data = append(data, ',')
		}
		data = mcp.AppendString(data, name)
	}
	return &edge.Error{Kind: edge.Unavailable, Op: "list", Err: errors.New(text), Data: append(data, "]}"...)}
}

// settle begins the fetches that the lists of a kind need, and waits for those
// that are worth it. It returns the list set of the identity and the names of
// the backends without a list that counts. If fresh is false only lists that were
// never fetched are fetched, and no names are returned.
func (b *Book) settle(ctx context.Context, id *edge.Identity, thing edge.Thing, fresh bool) (*listSet, []string, error) {
	var limit time.Time // of all waits together
	for {
		now := time.Now()
		if limit.IsZero() {
			limit = now.Add(b.Wait)
		}
		b.mu.Lock()
		s := b.setOf(id)
		var wait *fetch
		b.each(s, thing, func(e *entry) {
			if f := b.tend(e, now, fresh); wait == nil {
				wait = f
			}
		})
		if wait == nil || !now.Before(limit) {
			var missing []string
			if fresh {
				b.each(s, thing, func(e *entry) {
					if b.absent(e, now) {
						missing = append(missing, b.Sources[e.source].Name())
					}
				})
			}
			b.mu.Unlock()
			return s, missing, nil
		}
		b.mu.Unlock()
		until := wait.began.Add(b.Wait)
		if limit.Before(until) {
			until = limit
		}
		t := time.NewTimer(until.Sub(now))
		select {
		case <-wait.done:
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, nil, edge.Errorf(edge.Gone, "list", "%w", context.Cause(ctx))
		}
		t.Stop()
	}
}

// each calls f for the entries of a kind that belong to the catalog of a list
// set, those of common included; mu is held.
func (b *Book) each(s *listSet, thing edge.Thing, f func(*entry)) {
	if thing == edge.NoThing {
		return
	}
	for i := range b.Sources {
		e := b.common.entries[i][thing-1]
		if e == nil {
			e = s.entries[i][thing-1]
		}
		if e != nil { // nil: it is personal, and no principal asks
			f(e)
		}
	}
}

// current returns the catalog of a list set, and rebuilds it first if a list has
// changed.
func (b *Book) current(s *listSet) *Catalog {
	b.mu.Lock()
	if s.built == s.changes {
		defer b.mu.Unlock()
		b.settled()
		return s.catalog
	}
	b.mu.Unlock()
	s.building.Lock()
	defer s.building.Unlock()
	b.mu.Lock()
	if s.built == s.changes { // another goroutine has built it meanwhile
		defer b.mu.Unlock()
		return s.catalog
	}
	offers, old, changes := b.offers(s), s.catalog, s.changes
	var complete [kinds]bool
	for k := range kinds {
		complete[k] = true
		// A principal's own list that could not be had may be there by the next call, as after a
		// new login: that call is to find it, and does not go on with the catalog of before.
		b.each(s, edge.Thing(k+1), func(e *entry) { complete[k] = complete[k] && e.tried && (e.list != nil || e.set == b.common) })
	}
	b.mu.Unlock()
	c := build(b.Rules, offers, old, b.pages)
	if b.Overrides != nil && !b.Overrides.Varies() && s == b.common {
		_, _ = b.variant(c, s, nil) // the next request for it reports a failure
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	// Clients may have had their lists of another process, before this one or beside it: what
	// changes is told once all lists of before were known, and not only after a list.
	if old != nil && !b.personal && (b.served || s.complete == [kinds]bool{true, true, true, true}) {
		b.pending.Add(Diff(old, c))
		b.wake()
	}
	s.catalog, s.built, s.complete = c, changes, complete
	if !s.gone {
		size := c.size()
		b.bytes += size - s.size
		s.size = size
		b.makeRoom(s)
	}
	b.settled()
	return c
}

// settled publishes the common catalog in ready, once each of its lists was
// tried; b.mu is held. The first one has them all. A later one is newer than what it
// takes the place of, also where lists have changed again since: they may do so sooner
// than a catalog is built, every time.
func (b *Book) settled() {
	if b.untried > 0 || b.common.built != b.common.changes && b.ready.Load() == nil {
		return
	}
	c := b.common.catalog
	if b.Overrides != nil {
		c = b.settledVariant()
	}
	if c != nil {
		b.ready.Store(c)
	}
}

// offers returns the offers of the sources, from the lists in a set and in common;
// b.mu is held.
func (b *Book) offers(s *listSet) []Offer {
	offers := []Offer{b.Own}
	for i, source := range b.Sources {
		row := b.common.entries[i]
		if source.Personal() {
			row = s.entries[i]
		}
		o := Offer{Backend: source.Name(), Capabilities: b.caps[i]}
		for k, e := range row {
			if e == nil {
				continue
			}
			switch edge.Thing(k + 1) {
			case edge.Tool:
				o.Tools = e.list
			case edge.Prompt:
				o.Prompts = e.list
			case edge.Resource:
				o.Resources = e.list
			case edge.Template:
				o.Templates = e.list
			}
		}
		offers = append(offers, o)
	}
	return offers
}

// Retry is called when a backend answers again: its lists that could not be
// fetched, or are no longer fresh, are fetched at once, and requests wait for them.
func (b *Book) Retry(backend string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	sets := []*listSet{b.common}
	for e := b.recent.Front(); e != nil; e = e.Next() {
		sets = append(sets, e.Value.(*listSet))
	}
	now := time.Now()
	for i, source := range b.Sources {
		if source.Name() != backend {
			continue
		}
		for _, s := range sets {
			for _, e := range s.entries[i] {
				if e != nil {
					b.retry(e, now)
				}
			}
		}
	}
	b.wake()
}

// Drop is called when lists of a backend have changed or may have; no kinds stand
// for all. Lists that are the same for everybody are fetched at once, personal
// ones when their principal asks next.
func (b *Book) Drop(backend string, things ...edge.Thing) {
	b.mu.Lock()
	defer b.mu.Unlock()
	sets := []*listSet{b.common}
	for e := b.recent.Front(); e != nil; e = e.Next() {
		sets = append(sets, e.Value.(*listSet))
	}
	for i, source := range b.Sources {
		if source.Name() != backend {
			continue
		}
		for _, s := range sets {
			for k, e := range s.entries[i] {
				if e != nil && (len(things) == 0 || slices.Contains(things, edge.Thing(k+1))) {
					b.drop(e)
				}
			}
		}
	}
	b.wake()
}
