package outgoing

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
)

// Bounds of a Cache.
const (
	shards      = 16
	maxKept     = 32 << 20 // bytes
	maxWaiting  = 16384    // calls that wait for a credential
	maxFlights  = 4096     // credentials that are made or wait for it
	madeAtOnce  = 128
	madeInOne   = 32 // of these, in one way
	madeWithin  = 15 * time.Second
	sizeOfEntry = 512 // bytes that an entry takes in the heap and in its map, but for its texts and its value
)

// How long a Cache does not ask again.
const (
	refusalKept = 5 * time.Second
	failureKept = time.Second
	leastUse    = time.Second // of a credential, whatever its lifetime
	renewBefore = time.Minute // at most, of its end
	renewAnew   = 30 * time.Second
)

// key is what a credential is kept under. Two tokens of one user may have different rights.
type key struct {
	way             [16]byte
	token           [32]byte // digest of the user's own token
	issuer, subject string   // of the user
	rights          [16]byte // of the user, where the way reads claims: an issuer that is asked may change them while the token stays
}

// Way is how a strategy makes credentials.
type Way struct {
	Strategy string   // type of it, as an MCPExternalAuthConfig has it
	Digest   [16]byte // of all that says how they are made
	Maker    Maker
	Made     func(edge.Made) // hears of every attempt, from several goroutines; nil for nobody
	Asks     bool            // Maker asks somebody, who may say nothing for long
	Claims   bool            // Maker reads the claims of the user
}

// Ask is a question for a credential.
type Ask struct {
	Who     *edge.Identity // whom it is for; not nil
	Subject edge.Secret    // the token that it is made of
	Mark    string         // what else it depends on: one of another mark is another one, and takes its place
	Refused bool           // the backend has just refused the one that is kept
}

// Maker makes the credentials of a strategy.
type Maker interface {
	// Make makes a credential. The error is an *edge.Error as Attach returns it. It ends when
	// ctx does.
	Make(ctx context.Context, a *Ask) (Fresh, error)
}

// Fresh is a credential that has just been made.
type Fresh struct {
	Value   any // a pointer; what it leads to is not changed any more
	Cost    int // bytes that it takes
	Expires time.Time
	Skew    time.Duration // how long before that it is not used any longer
}

// Cache keeps the credentials that strategies make for users: those of one server. For each
// key one is made at a time, however many calls wait for it; in the last tenth of the time
// in which it is used it is made anew, while calls go on with the old one. That one was
// refused is remembered for 5 s, and for 1 s that it could not be made. The cache is bounded
// in bytes; what was used last stays. It is safe for concurrent use.
type Cache struct {
	now   func() time.Time
	start time.Time // what times are counted from: a clock that is set back makes them no longer

	shards      [shards]shard
	budget      int64 // bytes of a shard
	generations atomic.Uint64
	flying      atomic.Int64
	waiting     atomic.Int64
	room        chan struct{} // holds a value for each that is made
	lanesMu     sync.Mutex
	lanes       map[[16]byte]chan struct{} // room of one way, by its digest: as many as the plan has
	over        context.Context
	stop        context.CancelFunc
	flights     sync.WaitGroup
}

type shard struct {
	mu      sync.Mutex
	entries map[key]*entry
	flights map[key]*flight
	list    entry // its next is what was used last
	bytes   int64
	hits    uint64
}

// entry is a credential, or the memory of a refusal, or both. Times are Unix nanoseconds,
// by the clock that nobody sets.
type entry struct {
	key        key
	mark       string
	next, prev *entry
	value      any // nil for none
	generation uint64
	cost       int64
	good       int64 // until when the value is used
	over       int64 // the same by the wall clock, which goes on while the machine sleeps
	renew      int64 // from when on it is made anew
	anew       int64 // when it was last made anew because a backend refused it
	refusal    error // why the last attempt failed; nil for none
	quiet      int64 // until when there is no other attempt
}

// flight is a credential that is being made.
type flight struct {
	done       chan struct{} // closed at its end
	mark       string
	value      any
	generation uint64
	err        error
}

// NewCache returns a cache. now is the clock.
func NewCache(now func() time.Time) *Cache { return newCache(now, maxKept) }

func newCache(now func() time.Time, budget int64) *Cache {
	c := &Cache{now: now, start: now(), budget: budget / shards, room: make(chan struct{}, madeAtOnce), lanes: map[[16]byte]chan struct{}{}}
	c.over, c.stop = context.WithCancel(context.Background())
	for i := range c.shards {
		s := &c.shards[i]
		s.entries, s.flights = map[key]*entry{}, map[key]*flight{}
		s.list.next, s.list.prev = &s.list, &s.list
	}
	return c
}

// Close ends what is being made, and waits for that.
func (c *Cache) Close() {
	c.stop()
	c.flights.Wait()
}

// Get returns the credential for a, which is kept or is made in a way, and its generation:
// another number for each that was made. It waits until there is one or ctx ends; that ends
// nobody else's wait. The error is an *edge.Error.
func (c *Cache) Get(ctx context.Context, w *Way, a *Ask) (any, uint64, error) {
	k := key{way: w.Digest, token: a.Who.Digest(), issuer: a.Who.Issuer, subject: a.Who.Subject}
	if w.Claims {
		k.rights = a.Who.Rights
	}
	for {
		value, generation, f, err := c.look(ctx, w, a, &k)
		if f == nil {
			return value, generation, err
		}
		if err := c.wait(ctx, f); err != nil {
			return nil, 0, err
		}
		if f.mark == a.Mark {
			return f.value, f.generation, f.err
		}
	}
}

// look finds what is kept, or the flight to wait for.
func (c *Cache) look(ctx context.Context, w *Way, a *Ask, k *key) (any, uint64, *flight, error) {
	wall := c.now()
	now := c.at(wall)
	s := &c.shards[(k.token[0]^k.way[0])%shards]
	s.mu.Lock()
	defer s.mu.Unlock()
	e, f := s.entries[*k], s.flights[*k]
	if e != nil && e.mark != a.Mark {
		e = nil
	}
	if e != nil {
		s.touch(e)
	}
	good := e != nil && e.value != nil && now < e.good && wall.UnixNano() < e.over
	switch {
	case good && a.Refused && f == nil && now-e.anew >= int64(renewAnew) && now >= e.quiet:
		e.anew = now
	case good && (!a.Refused || f == nil):
		s.hits++
		if now >= e.renew && now >= e.quiet && f == nil {
			_, _ = c.begin(ctx, s, w, a, k) // where there is no room, the next call tries again
		}
		return e.value, e.generation, nil, nil
	case f != nil:
		return nil, 0, f, nil
	case e != nil && now < e.quiet:
		return nil, 0, nil, e.refusal
	}
	f, err := c.begin(ctx, s, w, a, k)
	return nil, 0, f, err
}

// begin begins to make a credential; s.mu is held.
func (c *Cache) begin(ctx context.Context, s *shard, w *Way, a *Ask, k *key) (*flight, error) {
	if c.over.Err() != nil {
		return nil, unavailable(errors.New("outgoing: its server has ended"))
	}
	if c.flying.Add(1) > maxFlights {
		c.flying.Add(-1)
		return nil, crowded("too many credentials are being made")
	}
	f := &flight{done: make(chan struct{}), mark: strings.Clone(a.Mark)}
	own := *a
	own.Mark = f.mark
	kept := *k // whose texts may be parts of larger ones
	kept.issuer, kept.subject = strings.Clone(k.issuer), strings.Clone(k.subject)
	s.flights[kept] = f
	c.flights.Go(func() { c.fly(context.WithoutCancel(ctx), s, w, &own, kept, f) }) // ends within madeWithin, or with Close
	return f, nil
}

// lane is the room of one way, so that a service which says nothing holds up no other's. It does
// not keep others of the way from trying after a failure: one user's token may be what it fails of.
func (c *Cache) lane(w *Way) chan struct{} {
	c.lanesMu.Lock()
	defer c.lanesMu.Unlock()
	room := c.lanes[w.Digest]
	if room == nil {
		room = make(chan struct{}, madeInOne)
		c.lanes[w.Digest] = room
	}
	return room
}

func crowded(what string) error {
	return &edge.Error{Kind: edge.Overload, Op: "outgoing: " + what, After: time.Second, Err: errors.New("too many calls wait for a credential")}
}

// wait waits for the end of a flight.
func (c *Cache) wait(ctx context.Context, f *flight) error {
	defer c.waiting.Add(-1)
	if c.waiting.Add(1) > maxWaiting {
		return crowded("too many calls wait for a credential")
	}
	select {
	case <-f.done:
		return nil
	case <-ctx.Done():
		return ended(ctx.Err())
	}
}

// ended is the error of a call that ended while it waited.
func ended(cause error) error {
	kind := edge.Gone
	if errors.Is(cause, context.DeadlineExceeded) {
		kind = edge.Timeout
	}
	return fault(kind, false, fmt.Errorf("outgoing: wait for a credential: %w", cause))
}

// fly makes a credential and keeps it.
func (c *Cache) fly(ctx context.Context, s *shard, w *Way, a *Ask, k key, f *flight) {
	ctx, cancel := context.WithTimeout(ctx, madeWithin)
	defer cancel()
	defer context.AfterFunc(c.over, cancel)()
	began := c.now()
	fresh, err := c.make(ctx, w, a)
	if w.Made != nil {
		w.Made(edge.Made{Strategy: w.Strategy, Who: a.Who, Began: began, Took: c.now().Sub(began), Err: err, Context: ctx})
	}
	s.mu.Lock()
	f.value, f.err = fresh.Value, err
	if err == nil {
		f.generation = c.generations.Add(1)
	}
	c.keep(s, k, f, fresh, began)
	delete(s.flights, k)
	s.mu.Unlock()
	c.flying.Add(-1)
	close(f.done)
}

// make has a credential made once there is room for it, in its way and at all; what asks nobody
// needs none.
func (c *Cache) make(ctx context.Context, w *Way, a *Ask) (fresh Fresh, err error) {
	if w.Asks {
		for _, room := range []chan struct{}{c.lane(w), c.room} {
			select {
			case room <- struct{}{}:
				defer func() { <-room }()
			case <-ctx.Done():
				return Fresh{}, ended(ctx.Err())
			}
		}
	}
	defer func() {
		if r := recover(); r != nil {
			fresh, err = Fresh{}, unavailable(fmt.Errorf("outgoing: panic: %v", r))
		}
	}()
	fresh, err = w.Maker.Make(ctx, a)
	if err == nil && fresh.Value == nil {
		err = unavailable(errors.New("outgoing: nothing was made"))
	}
	return fresh, err
}

// keep keeps what became of a flight; s.mu is held. A credential that is still good
// outlives an attempt to make it anew.
func (c *Cache) keep(s *shard, k key, f *flight, fresh Fresh, began time.Time) {
	e := s.entries[k]
	if e == nil {
		e = &entry{key: k, mark: f.mark}
		s.entries[k] = e
	} else {
		s.drop(e)
	}
	if e.mark != f.mark {
		*e = entry{key: k, mark: f.mark}
	}
	if f.err == nil {
		e.value, e.generation, e.refusal, e.quiet = fresh.Value, f.generation, nil, 0
		e.cost = int64(fresh.Cost)
		from := time.Unix(0, c.at(began))
		e.good, e.renew = use(from, from.Add(fresh.Expires.Sub(began)), fresh.Skew)
		e.over = began.UnixNano() + e.good - c.at(began)
	} else {
		e.refusal, e.quiet = f.err, c.at(c.now().Add(quiet(f.err)))
	}
	s.add(e)
	for s.bytes > c.budget && s.list.prev != &s.list {
		oldest := s.list.prev
		s.drop(oldest)
		delete(s.entries, oldest.key)
	}
}

// at is a time as the entries have it.
func (c *Cache) at(t time.Time) int64 { return c.start.UnixNano() + int64(t.Sub(c.start)) }

// use returns until when a credential is used that was asked for at a time, and from when
// on it is made anew. It is used for a second at least: however short-lived, or however
// long its skew, no more than one a second is made for a key.
func use(asked, expires time.Time, skew time.Duration) (good, renew int64) {
	life := expires.Sub(asked)
	used := max(life-min(max(skew, 0), life/2), leastUse)
	good = asked.Add(used).UnixNano()
	renew = good - int64(min(used/10, renewBefore))
	return good, max(renew, asked.Add(leastUse).UnixNano())
}

// quiet is how long there is no other attempt after one that failed.
func quiet(err error) time.Duration {
	if isRefusal(err) {
		return refusalKept
	}
	return failureKept
}

func (e *entry) size() int64 {
	return sizeOfEntry + int64(len(e.key.issuer)+len(e.key.subject)+len(e.mark)) + e.cost
}

func (s *shard) touch(e *entry) {
	if s.list.next != e {
		e.next.prev, e.prev.next = e.prev, e.next
		s.link(e)
	}
}

func (s *shard) link(e *entry) {
	e.prev, e.next = &s.list, s.list.next
	e.next.prev, e.prev.next = e, e
}

func (s *shard) add(e *entry) {
	s.link(e)
	s.bytes += e.size()
}

func (s *shard) drop(e *entry) {
	s.bytes -= e.size()
	e.next.prev, e.prev.next = e.prev, e.next
}

// CacheStats is what a Cache holds.
type CacheStats struct {
	Entries int
	Bytes   int64
	Hits    uint64 // calls that went on with what was kept
}

// Stats returns what the cache holds.
func (c *Cache) Stats() (all CacheStats) {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		all.Entries += len(s.entries)
		all.Bytes += s.bytes
		all.Hits += s.hits
		s.mu.Unlock()
	}
	return all
}
