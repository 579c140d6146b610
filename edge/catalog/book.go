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
	// declared, and waits until it has.
	Capabilities(ctx context.Context) ([]byte, error)

	// List sends a list request and returns the JSON text of its result, of
	// which nothing is changed afterwards. id is whose credential to use, nil
	// where the backend is not personal; a nil cursor asks for the first page.
	// An error of kind NoMethod says that the backend has no such list.
	List(ctx context.Context, id *edge.Identity, method string, cursor *string) ([]byte, error)
}

// Config is what a Book is told. Of durations and bounds, 0 stands for the
// default.
type Config struct {
	Rules   *Rules
	Own     Offer    // the edge's own tools: workflows and the like; Backend is ""
	Sources []Source // with names of their own
	Before  *Book    // what it knows of sources that are the same is taken over; nil for nothing

	Overrides edge.Overrides // what programs make of what is offered; nil for none

	// BestEffort lists what there is when backends are down. Without it a list
	// with a backend missing is an error.
	BestEffort bool

	Interval time.Duration // of health checks: lists as old as this are fetched again; those three times as old count no more. 30s
	Wait     time.Duration // for a fetch, from its begin: then a list is answered without it. 5s
	Timeout  time.Duration // of fetching all pages of one list. 30s
	Quiet    time.Duration // between two tellings of changes. 2s

	Bounds Bounds

	// Changed is told which lists clients have to get anew: once per kind and
	// change, and not again before Quiet has passed. It is called from one
	// goroutine and must not wait for the Book. nil for nobody.
	Changed func(Changes)

	Log *slog.Logger
}

// Bounds are what backends may make a Book keep. 0 stands for the default.
type Bounds struct {
	Pages      int // of one list: 1,000
	Items      int // of one list: 20,000
	ListBytes  int // of one list: 16 MiB
	Bytes      int // of all lists and what was made of them: 256 MiB
	Principals int // whose personal lists are kept: 1,000
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

// maxAge is how old a list may be and still count.
func (c *Config) maxAge() time.Duration { return 3 * c.Interval }

// Book has the lists of all backends of a server, and the catalog that is made
// of them. Lists are fetched when somebody asks for what is not there or not
// fresh, each by one fetch at a time; a list that is not fresh but young enough
// is served while it is fetched again. It is safe for concurrent use.
//
// Locks: a shelf's building is taken before variants.making, and that before mu; the press's is taken under
// neither.
type Book struct {
	Config
	press    *press
	personal bool            // some source is
	slots    []chan struct{} // places for fetches, by source

	life context.Context // ends with Close
	end  context.CancelFunc
	work sync.WaitGroup // the goroutines that end with life
	poke chan struct{}  // wakes the keeper

	ready atomic.Pointer[Catalog] // of the common shelf, since every list of it has been tried

	variants variants

	mu      sync.Mutex
	closed  bool
	common  *shelf
	shelves map[who]*list.Element // of *shelf, for principals
	recent  list.List             // asked for last comes first
	bytes   int                   // that all shelves hold
	untried int                   // entries of the common shelf that nobody has an answer for yet
	caps    [][]byte              // by source; nil while unknown
	served  bool                  // somebody knows lists
	pending Changes               // that clients are to be told of
	told    time.Time             // when they were told last
}

// who is a principal.
type who struct{ issuer, subject string }

// shelf holds lists: those that are the same for everybody, or those of one
// principal.
type shelf struct {
	id      *edge.Identity // nil for everybody
	key     who
	entries [][kinds]*entry // by source; nil for those of the other shelf
	gone    bool            // evicted

	building sync.Mutex
	catalog  *Catalog
	changes  int         // of its lists, counted
	built    int         // of these are in the catalog; -1 before there is one
	complete [kinds]bool // each list of the kind had been tried when the catalog was built
	renewing bool        // it is being built beside the calls
	size     int         // bytes of the catalog
}

// Open makes a Book and begins to fetch what is the same for everybody.
func Open(c Config) *Book {
	c.fill()
	b := &Book{
		Config: c, press: newPress(maxSheets, maxPressed), poke: make(chan struct{}, 1),
		shelves: make(map[who]*list.Element), caps: make([][]byte, len(c.Sources)),
	}
	b.life, b.end = context.WithCancel(context.Background())
	for _, s := range c.Sources {
		b.personal = b.personal || s.Personal()
		b.slots = append(b.slots, make(chan struct{}, maxFetches))
	}
	b.common = b.newShelf(nil, who{})
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

// inherit takes over what another book knows of the sources that both have, so
// that nobody waits once more for a backend that has not changed, not even for
// one that does not answer.
func (b *Book) inherit(before *Book) {
	if before == nil {
		return
	}
	before.mu.Lock()
	defer before.mu.Unlock()
	b.served = before.served
	for i, source := range b.Sources {
		// One that has changed is asked anew; until it has said more, calls go by
		// what is known of it.
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

func (b *Book) newShelf(id *edge.Identity, key who) *shelf {
	s := &shelf{id: id, key: key, entries: make([][kinds]*entry, len(b.Sources)), built: -1}
	for i, source := range b.Sources {
		if source.Personal() != (id != nil) {
			continue
		}
		for k := range kinds {
			s.entries[i][k] = &entry{shelf: s, source: i, thing: edge.Thing(k + 1)}
		}
	}
	return s
}

// shelf returns where the lists of an identity are; b.mu is held.
func (b *Book) shelf(id *edge.Identity) *shelf {
	if !b.personal || id == nil {
		return b.common
	}
	key := who{id.Issuer, id.Subject}
	if e := b.shelves[key]; e != nil {
		b.recent.MoveToFront(e)
		s := e.Value.(*shelf)
		s.id = id // its credential is the newest
		return s
	}
	s := b.newShelf(id, key)
	b.shelves[key] = b.recent.PushFront(s)
	for b.recent.Len() > b.Bounds.Principals {
		b.evict(b.recent.Back().Value.(*shelf))
	}
	return s
}

// evict lets go of a principal's shelf; b.mu is held.
func (b *Book) evict(s *shelf) {
	b.recent.Remove(b.shelves[s.key])
	delete(b.shelves, s.key)
	s.gone = true
	b.bytes -= s.size
	s.size = 0
	for i := range s.entries {
		for _, e := range s.entries[i] {
			if e != nil {
				b.bytes -= e.size
				e.size = 0
			}
		}
	}
}

// Settled returns the catalog for an identity when there is nothing to wait for;
// else nil.
func (b *Book) Settled(id *edge.Identity) *Catalog {
	if b.personal && id != nil {
		return nil
	}
	return b.ready.Load()
}

// Catalog returns the catalog for an identity, for calls: it waits, within
// bounds, for lists of the kind that nobody has asked for yet, and for nothing
// else. While a changed list is taken in, calls go by the catalog before; no
// list tells of what it does not have. NoThing waits for none. The error is of
// kind Gone, for ctx has ended, or that of Overrides.
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

// plain is Catalog without what programs make of it.
func (b *Book) plain(ctx context.Context, id *edge.Identity, thing edge.Thing) (*Catalog, *shelf, error) {
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
// nobody had asked them yet. With BestEffort it is so only when nothing is there
// at all.
func (b *Book) List(ctx context.Context, id *edge.Identity, thing edge.Thing, era mcp.Era, view edge.View, cursor string) ([]byte, error) {
	s, missing, err := b.settle(ctx, id, thing, true)
	if err != nil {
		return nil, err
	}
	if len(missing) > 0 {
		own := b.Own.list(thing)
		if !b.BestEffort || len(missing) == len(b.Sources) && (own == nil || len(own.Items) == 0) {
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

// absent is the error of a list with backends missing.
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

// settle has the lists of a kind fetched that have to be, and waits for those
// that are worth it. It returns the shelf of the identity and the backends that
// have no list that counts. With fresh false it cares for lists alone that were
// never there.
func (b *Book) settle(ctx context.Context, id *edge.Identity, thing edge.Thing, fresh bool) (*shelf, []string, error) {
	var limit time.Time // of all waiting, whatever backends do meanwhile
	for {
		now := time.Now()
		if limit.IsZero() {
			limit = now.Add(b.Wait)
		}
		b.mu.Lock()
		s := b.shelf(id)
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

// each calls f for the entries of a kind that count for a shelf; mu is held.
func (b *Book) each(s *shelf, thing edge.Thing, f func(*entry)) {
	if thing == edge.NoThing {
		return
	}
	for i := range b.Sources {
		e := b.common.entries[i][thing-1]
		if e == nil {
			e = s.entries[i][thing-1]
		}
		if e != nil { // else it is personal, and nobody in particular asks
			f(e)
		}
	}
}

// current returns the catalog of a shelf, built anew when a list has changed.
func (b *Book) current(s *shelf) *Catalog {
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
	if s.built == s.changes { // somebody else has built it meanwhile
		defer b.mu.Unlock()
		return s.catalog
	}
	offers, old, changes := b.offers(s), s.catalog, s.changes
	var complete [kinds]bool
	for k := range kinds {
		complete[k] = true
		b.each(s, edge.Thing(k+1), func(e *entry) { complete[k] = complete[k] && e.tried })
	}
	b.mu.Unlock()
	c := build(b.Rules, offers, old, b.press)
	if b.Overrides != nil && !b.Overrides.Varies() && s == b.common {
		_, _ = b.variant(c, s, nil) // whoever asks for it next hears of a failure
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s.catalog, s.built, s.complete = c, changes, complete
	if !s.gone {
		size := c.size()
		b.bytes += size - s.size
		s.size = size
		b.makeRoom(s)
	}
	if old != nil && b.served && !b.personal {
		b.pending.Add(Diff(old, c))
		b.wake()
	}
	b.settled()
	return c
}

// settled makes the common catalog the one that calls find without looking
// further, once there is nothing to wait for; b.mu is held.
func (b *Book) settled() {
	if b.untried > 0 || b.common.built != b.common.changes {
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

// offers is what the sources offer, as far as a shelf and the common one know;
// b.mu is held.
func (b *Book) offers(s *shelf) []Offer {
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

// touch marks the catalogs that a list is part of as out of date; b.mu is held.
func (b *Book) touch(s *shelf) {
	s.changes++
	if s != b.common {
		return
	}
	for e := b.recent.Front(); e != nil; e = e.Next() {
		e.Value.(*shelf).changes++
	}
	b.wake()
}

// makeRoom lets go of the principals that asked longest ago until the rest is
// within bounds, and reports whether it is; b.mu is held.
func (b *Book) makeRoom(keep *shelf) bool {
	for b.bytes > b.Bounds.Bytes {
		e := b.recent.Back()
		if e != nil && e.Value.(*shelf) == keep {
			e = e.Prev()
		}
		if e == nil {
			return false
		}
		b.evict(e.Value.(*shelf))
	}
	return true
}

// Retry says that a backend answers again: those of its lists that could not be
// fetched, or are no longer fresh, are fetched at once, and are worth waiting for.
func (b *Book) Retry(backend string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	shelves := []*shelf{b.common}
	for e := b.recent.Front(); e != nil; e = e.Next() {
		shelves = append(shelves, e.Value.(*shelf))
	}
	now := time.Now()
	for i, source := range b.Sources {
		if source.Name() != backend {
			continue
		}
		for _, s := range shelves {
			for _, e := range s.entries[i] {
				if e != nil {
					b.retry(e, now)
				}
			}
		}
	}
	b.wake()
}

// Drop says that a backend's lists have changed, or may have: all of them when
// no kind is named. What is the same for everybody is fetched at once, what is
// personal when its principal asks next.
func (b *Book) Drop(backend string, things ...edge.Thing) {
	b.mu.Lock()
	defer b.mu.Unlock()
	shelves := []*shelf{b.common}
	for e := b.recent.Front(); e != nil; e = e.Next() {
		shelves = append(shelves, e.Value.(*shelf))
	}
	for i, source := range b.Sources {
		if source.Name() != backend {
			continue
		}
		for _, s := range shelves {
			for k, e := range s.entries[i] {
				if e != nil && (len(things) == 0 || slices.Contains(things, edge.Thing(k+1))) {
					b.drop(e)
				}
			}
		}
	}
	b.wake()
}
