package kv

import (
	"container/heap"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
)

// Limits bound what a MemoryStore holds. What is 0 has its default.
type Limits struct {
	Values  int   // values and boxes; 100,000
	Bytes   int64 // of all values, messages and their keys; 64 MiB
	Buckets int   // token buckets; 100,000
	Value   int   // bytes of one value or message; 17 MiB
	Box     int   // messages of one box; 1,024

	// Owner names whose key one is, where there are many owners who do not know of each other;
	// "" for nobody's. The values of one have a quarter of the room. nil for no owners.
	Owner func(key string) string
}

// sweepEvery is how often what has expired gives its memory back. Nobody sees
// an expired value in between.
const sweepEvery = 10 * time.Second

// perEntry is what an entry costs besides its key and value, as far as the
// bound on bytes is concerned.
const perEntry = 128

// MemoryStore is a store in the memory of this process. It never evicts a
// value: one that finds no room is refused, because a value that vanishes
// early may be the mark that something was used up. Buckets are evicted,
// first the one that would be full the soonest.
type MemoryStore struct {
	limits Limits

	mu     sync.Mutex // guards what follows, up to closed
	values map[string]*value
	expiry dues[*value]
	boxes  map[string]*box
	shares map[string]*share // by owner
	bytes  int64
	swept  time.Time // when all boxes were last looked at
	closed bool

	limiter limiter

	full    atomic.Uint64
	expired atomic.Uint64
	calls   atomic.Uint64
	end     chan struct{}
	ended   chan struct{}
}

// value is one value. It is never changed but replaced, so that who holds one
// can tell whether it is still there.
type value struct {
	key     string
	data    []byte
	expires time.Time
	at      int    // in expiry
	of      *share // nil for nobody's
}

// share is what an owner has.
type share struct {
	bytes  int64
	values int
}

func (s *share) add(bytes int64, values int) {
	if s != nil {
		s.bytes, s.values = s.bytes+bytes, s.values+values
	}
}

func (v *value) due() time.Time { return v.expires }
func (v *value) moved(to int)   { v.at = to }
func (v *value) size() int64    { return int64(len(v.key)+len(v.data)) + perEntry }

// Memory returns a store in memory. Close ends its one goroutine.
func Memory(l Limits) *MemoryStore {
	l.Values, l.Buckets = or(l.Values, defaultValues), or(l.Buckets, defaultBuckets)
	l.Bytes, l.Value, l.Box = or(l.Bytes, defaultBytes), or(l.Value, defaultValueBytes), or(l.Box, defaultBoxMessages)
	s := &MemoryStore{
		limits: l,
		values: map[string]*value{},
		boxes:  map[string]*box{},
		shares: map[string]*share{},
		end:    make(chan struct{}),
		ended:  make(chan struct{}),
	}
	s.limiter.most, s.limiter.buckets = l.Buckets, map[string]*bucket{}
	go s.sweep()
	return s
}

// Close ends the store. Listen returns only when its context ends.
func (s *MemoryStore) Close() error {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	s.mu.Unlock()
	if first {
		close(s.end)
	}
	<-s.ended
	return nil
}

// Count returns how many values there are under keys that match.
func (s *MemoryStore) Count(match func(key string) bool) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.values {
		if match(key) {
			n++
		}
	}
	return n
}

// Ready returns nil: memory is there.
func (s *MemoryStore) Ready() error { return nil }

// Counters returns what the store has counted.
func (s *MemoryStore) Counters() Counters {
	return Counters{Calls: s.calls.Load(), Full: s.full.Load(), Expired: s.expired.Load(), Evicted: s.limiter.evictions()}
}

// Get implements edge.Store.
func (s *MemoryStore) Get(_ context.Context, key string) ([]byte, error) {
	if err := checkKey("get", key); err != nil {
		return nil, err
	}
	s.calls.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.live(key)
	if v == nil {
		return nil, nil
	}
	return clone(v.data), nil
}

// Head returns at most the first most bytes of a value; nil for nothing.
func (s *MemoryStore) Head(ctx context.Context, key string, most int) ([]byte, error) {
	value, err := s.Get(ctx, key)
	return value[:min(len(value), most)], err
}

// Put implements edge.Store.
func (s *MemoryStore) Put(_ context.Context, key string, data []byte, ttl time.Duration) error {
	if err := checkKey("put", key); err != nil {
		return err
	}
	if err := checkValue("put", data, s.limits.Value, ttl); err != nil {
		return err
	}
	s.calls.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.set(key, data, ttl); err != nil {
		return fail("put", err)
	}
	return nil
}

// Delete implements edge.Store.
func (s *MemoryStore) Delete(_ context.Context, key string) error {
	if err := checkKey("delete", key); err != nil {
		return err
	}
	s.calls.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(s.values[key])
	return nil
}

// Update implements edge.Store. change runs without a lock, so that it may be
// slow or use the store; when the value has changed meanwhile it runs again.
func (s *MemoryStore) Update(ctx context.Context, key string, ttl time.Duration, change func([]byte) ([]byte, error)) error {
	if err := checkKey("update", key); err != nil {
		return err
	}
	s.calls.Add(1)
	for {
		s.mu.Lock()
		seen := s.live(key)
		s.mu.Unlock()
		var old []byte
		if seen != nil {
			old = clone(seen.data)
		}
		data, err := change(old)
		if err != nil {
			return err
		}
		if data != nil {
			if err := checkValue("update", data, s.limits.Value, ttl); err != nil {
				return err
			}
		}
		if done, err := s.swap(key, seen, data, ttl); done || err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return fail("update", err)
		}
	}
}

// swap puts data in the place of the value that was seen, if that is still
// the one.
func (s *MemoryStore) swap(key string, seen *value, data []byte, ttl time.Duration) (done bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live(key) != seen {
		return false, nil
	}
	if data == nil {
		s.drop(seen)
		return true, nil
	}
	if err := s.set(key, data, ttl); err != nil {
		return false, fail("update", err)
	}
	return true, nil
}

// live returns the value under key, nil when there is none. s.mu is held.
func (s *MemoryStore) live(key string) *value {
	v := s.values[key]
	if v != nil && !v.expires.After(time.Now()) {
		s.drop(v)
		return nil
	}
	return v
}

// share returns what the owner of a key has; nil for nobody's. s.mu is held.
func (s *MemoryStore) share(key string) *share {
	if s.limits.Owner == nil || s.limits.Owner(key) == "" {
		return nil
	}
	owner := s.limits.Owner(key)
	if s.shares[owner] == nil {
		s.shares[owner] = &share{}
	}
	return s.shares[owner]
}

// set keeps a value, for which there has to be room. s.mu is held.
func (s *MemoryStore) set(key string, data []byte, ttl time.Duration) error {
	now := time.Now()
	v := &value{key: key, data: clone(data), expires: now.Add(ttl), of: s.share(key)}
	old := s.live(key)
	need, more := v.size(), 1
	if old != nil {
		need, more = need-old.size(), 0
	}
	if err := s.room(now, need, more, v.of); err != nil {
		return err
	}
	s.drop(s.values[key])
	s.values[key] = v
	s.bytes += v.size()
	v.of.add(v.size(), 1)
	heap.Push(&s.expiry, v)
	return nil
}

// room returns why so many more bytes and entries, of a share or of nobody's, do
// not fit once what has expired is gone. s.mu is held.
func (s *MemoryStore) room(now time.Time, bytes int64, entries int, of *share) error {
	spent := func() bool {
		return of != nil && (of.bytes+bytes > s.limits.Bytes/4 || of.values+entries > s.limits.Values/4)
	}
	fits := func() bool {
		return !spent() && s.bytes+bytes <= s.limits.Bytes && len(s.values)+len(s.boxes)+entries <= s.limits.Values
	}
	if fits() {
		return nil
	}
	s.forget(now)
	if !fits() && now.Sub(s.swept) >= time.Second { // all boxes are much to look at
		s.forgetMessages(now)
	}
	if fits() {
		return nil
	}
	s.full.Add(1)
	if spent() {
		return edge.ErrShare
	}
	return errFull
}

// drop removes a value. s.mu is held.
func (s *MemoryStore) drop(v *value) {
	if v == nil {
		return
	}
	heap.Remove(&s.expiry, v.at)
	delete(s.values, v.key)
	s.bytes -= v.size()
	v.of.add(-v.size(), -1)
}

// forget removes the values that have expired. s.mu is held.
func (s *MemoryStore) forget(now time.Time) {
	for len(s.expiry) > 0 && !s.expiry[0].expires.After(now) {
		s.drop(s.expiry[0])
	}
}

// sweep gives memory back until the store is closed.
func (s *MemoryStore) sweep() {
	defer close(s.ended)
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.end:
			return
		case now := <-tick.C:
			s.mu.Lock()
			s.forget(now)
			s.forgetMessages(now)
			s.mu.Unlock()
			s.limiter.forget(now)
		}
	}
}

// Take implements edge.Store.
func (s *MemoryStore) Take(_ context.Context, buckets ...edge.Bucket) (time.Duration, int, error) {
	if err := checkBuckets(buckets); err != nil {
		return 0, -1, err
	}
	wait, short := s.limiter.take(time.Now(), buckets)
	return wait, short, nil
}

func clone(b []byte) []byte { return append(make([]byte, 0, len(b)), b...) }

// dues is a heap of what is due, the first one on top.
type dues[T interface {
	due() time.Time
	moved(to int)
}] []T

func (d dues[T]) Len() int           { return len(d) }
func (d dues[T]) Less(i, j int) bool { return d[i].due().Before(d[j].due()) }

func (d dues[T]) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].moved(i)
	d[j].moved(j)
}

// Push is for container/heap.
func (d *dues[T]) Push(v any) {
	v.(T).moved(len(*d))
	*d = append(*d, v.(T))
}

// Pop is for container/heap.
func (d *dues[T]) Pop() any {
	var none T
	last := len(*d) - 1
	v := (*d)[last]
	(*d)[last] = none
	*d = (*d)[:last]
	return v
}
