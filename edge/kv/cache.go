package kv

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dgraph-io/ristretto/v2"

	"github.com/weir-edge/weir/edge"
)

const (
	// MinCache is the smallest budget of a Cache in bytes.
	MinCache = 1 << 20

	// cacheItem is what a value costs besides itself: its entry, and its places in
	// the two maps of ristretto.
	cacheItem = 320

	// cacheFixed is what an empty Cache takes, but for its counters: above all the
	// queue of ristretto, of 32,768 pointers, and its 256 maps.
	cacheFixed = 416 << 10

	// cacheCounter is for how many bytes of the budget there is a counter of how
	// often a key is asked for, which takes 4 bytes. There should be some ten for
	// each value.
	cacheCounter = 512

	// cacheSweep is how often values that are over are removed.
	cacheSweep = time.Minute

	// cacheStripes is a power of two.
	cacheStripes = 16
)

// Cache is what an edge has of memory for what it can do without, in parts that
// share one budget. Which values stay is decided by how often they are asked for
// (TinyLFU): one that nobody has asked for twice drives out none that somebody
// asks for all the time, whatever the number of those that come. Ristretto finds
// values by 64 bits; each carries its part and its whole key, and one that is of
// another is none.
type Cache struct {
	held   *ristretto.Cache[uint64, *cached]
	guards [cacheStripes]guard
	budget int64
	sweep  chan struct{} // a part has ended
	end    chan struct{}
	ended  chan struct{}

	mu     sync.Mutex
	counts map[string]*cacheCounts // by the name of the part
}

// guard keeps ristretto open while somebody is in it. It has cache lines of its
// own, so that those who look for different keys do not meet.
type guard struct {
	mu     sync.RWMutex
	closed bool
	_      [96]byte
}

// cacheCounts is what the parts of one name count together.
type cacheCounts struct {
	name  string
	asked [cacheStripes]struct {
		hits, misses atomic.Uint64
		_            [112]byte
	}
	refused atomic.Uint64
	bytes   atomic.Int64
	values  atomic.Int64
}

// cached is a value as it is held.
type cached struct {
	part  *CachePart
	key   edge.Key
	value any
	cost  int64
	until time.Time // the zero time for never
}

// over reports whether the value is not good any longer.
func (v *cached) over(now time.Time) bool {
	return v.part.closed.Load() || !v.until.IsZero() && !now.Before(v.until)
}

// NewCache returns a cache that holds at most so many bytes, itself included.
func NewCache(budget int64) (*Cache, error) {
	if budget < MinCache {
		return nil, fmt.Errorf("cache: %d bytes are less than %d", budget, MinCache)
	}
	counters := budget / cacheCounter
	c := &Cache{
		budget: budget, counts: map[string]*cacheCounts{},
		sweep: make(chan struct{}, 1), end: make(chan struct{}), ended: make(chan struct{}),
	}
	var err error
	c.held, err = ristretto.NewCache(&ristretto.Config[uint64, *cached]{
		NumCounters: counters,
		MaxCost:     budget - cacheFixed - 4*counters,
		BufferItems: 64, // how many looks are counted in one go
		KeyToHash:   func(word uint64) (uint64, uint64) { return word, 0 },

		IgnoreInternalCost: true, // which cacheItem is
		// One that is there stays, so that each value comes once and goes once.
		ShouldUpdate: func(_, _ *cached) bool { return false },
		Cost:         c.looked,
		OnReject:     c.refused,
		OnExit:       c.left,
	})
	if err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	go c.keep()
	return c, nil
}

// looked is called when ristretto begins to decide over a value, and returns what
// it costs.
func (c *Cache) looked(v *cached) int64 {
	v.part.counts.bytes.Add(v.cost)
	v.part.counts.values.Add(1)
	return v.cost
}

// refused is called with a value that was not admitted, before left is. One that
// lies there already was not refused.
func (c *Cache) refused(i *ristretto.Item[*cached]) {
	if _, there := c.held.GetTTL(i.Key); !there {
		i.Value.part.counts.refused.Add(1)
	}
}

// left is called with every value that looked was called with, when ristretto has
// it no longer, and with nil for one that was gone before.
func (c *Cache) left(v *cached) {
	if v == nil {
		return
	}
	v.part.counts.bytes.Add(-v.cost)
	v.part.counts.values.Add(-1)
}

// keep removes what is over, until the cache is closed.
func (c *Cache) keep() {
	defer close(c.ended)
	tick := time.NewTicker(cacheSweep)
	defer tick.Stop()
	for {
		select {
		case <-c.end:
			return
		case <-tick.C:
		case <-c.sweep:
		}
		c.removeOver(time.Now())
	}
}

// removeOver removes what is over.
func (c *Cache) removeOver(now time.Time) {
	var words []uint64
	c.held.IterValues(func(v *cached) bool {
		if v.over(now) {
			words = append(words, v.part.word(&v.key))
		}
		return false
	})
	for _, word := range words {
		c.held.Del(word)
	}
}

// Close ends the cache. Its parts may still be used: they hold nothing.
func (c *Cache) Close() {
	select {
	case <-c.end:
		return
	default:
	}
	close(c.end)
	<-c.ended
	for i := range c.guards {
		g := &c.guards[i]
		g.mu.Lock()
		g.closed = true
		g.mu.Unlock()
	}
	c.held.Close()
}

// Part returns a part that nobody else has: what another part has under the same
// key is not in it, also when it has the same name. Parts of one name are counted
// together; names come from the code.
func (c *Cache) Part(name string) *CachePart {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.counts[name]
	if n == nil {
		n = &cacheCounts{name: name}
		c.counts[name] = n
	}
	return &CachePart{cache: c, counts: n, salt: rand.Uint64()}
}

// CachePart is an edge.Cache.
type CachePart struct {
	cache  *Cache
	counts *cacheCounts
	salt   uint64 // keeps the same key of two parts apart
	closed atomic.Bool
}

// word is what ristretto knows a key by.
func (p *CachePart) word(key *edge.Key) uint64 { return binary.LittleEndian.Uint64(key[24:]) ^ p.salt }

// Get is edge.Cache.Get.
func (p *CachePart) Get(key edge.Key, now time.Time) any {
	word := p.word(&key)
	stripe := word % cacheStripes
	g := &p.cache.guards[stripe]
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.closed {
		return nil
	}
	v, ok := p.cache.held.Get(word)
	if !ok || v.part != p || v.key != key {
		p.counts.asked[stripe].misses.Add(1)
		return nil
	}
	if v.over(now) {
		p.cache.held.Del(word)
		p.counts.asked[stripe].misses.Add(1)
		return nil
	}
	p.counts.asked[stripe].hits.Add(1)
	return v.value
}

// Put is edge.Cache.Put.
func (p *CachePart) Put(key edge.Key, value any, cost int64, until time.Time) {
	c, word := p.cache, p.word(&key)
	g := &c.guards[word%cacheStripes]
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.closed || p.closed.Load() {
		return
	}
	v := &cached{part: p, key: key, value: value, cost: max(cost, 0) + cacheItem, until: until}
	if !c.held.Set(word, v, 0) {
		p.counts.refused.Add(1)
		return
	}
	// Who has put a value finds it with the next look, and only so many values are
	// on their way in as there are that put one.
	c.held.Wait()
}

// Forget is edge.Cache.Forget.
func (p *CachePart) Forget(key edge.Key) {
	word := p.word(&key)
	g := &p.cache.guards[word%cacheStripes]
	g.mu.RLock()
	defer g.mu.RUnlock()
	if !g.closed {
		p.cache.held.Del(word)
	}
}

// Close ends the part: it holds nothing from now on, and the room that its values
// took is given back in the background.
func (p *CachePart) Close() {
	p.closed.Store(true)
	select {
	case p.cache.sweep <- struct{}{}:
	default: // somebody else's is due
	}
}

// Collect is edge.Collector.Collect.
func (c *Cache) Collect(m edge.Emitter) {
	m.Gauge("weir_cache_bytes_limit", "How many bytes the cache may take.", float64(c.budget))
	c.mu.Lock()
	var all []*cacheCounts
	for _, n := range c.counts {
		all = append(all, n)
	}
	c.mu.Unlock()
	slices.SortFunc(all, func(a, b *cacheCounts) int { return cmp.Compare(a.name, b.name) })
	for _, n := range all {
		m := m.With("part", n.name)
		var hits, misses uint64
		for i := range n.asked {
			hits, misses = hits+n.asked[i].hits.Load(), misses+n.asked[i].misses.Load()
		}
		m.Counter("weir_cache_hits", "Looks into the cache that found what they wanted.", float64(hits))
		m.Counter("weir_cache_misses", "Looks into the cache that did not.", float64(misses))
		m.Counter("weir_cache_refused", "Values that the cache had no room for, for the sake of others.", float64(n.refused.Load()))
		m.Gauge("weir_cache_bytes", "Bytes that the cache holds.", float64(n.bytes.Load()))
		m.Gauge("weir_cache_values", "Values that the cache holds.", float64(n.values.Load()))
	}
}
