package kv_test

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/kv"
)

func newCache(t testing.TB, budget int64) *kv.Cache {
	t.Helper()
	c, err := kv.NewCache(budget)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func keyOf(name any) edge.Key { return sha256.Sum256(fmt.Append(nil, name)) }

// counted is what a cache counts of the parts of a name.
func counted(c *kv.Cache, part, metric string) (value float64) {
	c.Collect(edge.Emitter{Emit: func(s edge.Sample) {
		if s.Name == metric && (len(s.Labels) == 0 && part == "" || len(s.Labels) == 1 && s.Labels[0] == (edge.Header{Name: "part", Value: part})) {
			value = s.Value
		}
	}})
	return value
}

// TestCacheKeepsApart holds that a value is found under its whole key, in its own
// part, and nowhere else.
func TestCacheKeepsApart(t *testing.T) {
	c := newCache(t, kv.MinCache)
	now := time.Now()
	a, b, again := c.Part("a"), c.Part("b"), c.Part("a")
	key := keyOf("k")
	a.Put(key, "of a", 100, time.Time{})
	b.Put(key, "of b", 100, time.Time{})
	for _, tt := range []struct {
		part *kv.CachePart
		want any
	}{{a, "of a"}, {b, "of b"}, {again, nil}} {
		if got := tt.part.Get(key, now); got != tt.want {
			t.Errorf("%v, want %v", got, tt.want)
		}
	}
	for i := range key { // all that a cache may look at of a key
		other := key
		other[i] ^= 1
		if got := a.Get(other, now); got != nil {
			t.Errorf("a key that differs in byte %d finds %v", i, got)
		}
	}
	// What lies under the same 64 bits as another value is refused, and finds
	// nothing that is not its own.
	other := key
	other[0] ^= 1
	a.Put(other, "another", 100, time.Time{})
	if one, two := a.Get(key, now), a.Get(other, now); one != "of a" || two != nil {
		t.Errorf("%v, %v", one, two)
	}
}

// TestCacheForgets holds when a value is there no longer.
func TestCacheForgets(t *testing.T) {
	c := newCache(t, kv.MinCache)
	p, now := c.Part("p"), time.Now()
	put := func(name string, until time.Time) edge.Key {
		k := keyOf(name)
		p.Put(k, name, 1000, until)
		return k
	}
	over := func(k edge.Key, at time.Time, want bool) {
		t.Helper()
		if got := p.Get(k, at) == nil; got != want {
			t.Errorf("it is over: %v", got)
		}
	}

	// 1. What was forgotten, also before it was looked at.
	k := put("forgotten", time.Time{})
	p.Forget(k)
	over(k, now, true)

	// 2. What is over at the time that is asked for. The key is free then.
	k = put("short", now.Add(time.Minute))
	over(k, now.Add(time.Minute-1), false)
	over(k, now.Add(time.Minute), true)
	put("short", now.Add(time.Hour))
	over(k, now.Add(time.Minute), false)

	// 3. What is over and is not asked for gives its room back.
	put("unasked", now.Add(time.Minute))
	lasting := put("lasting", time.Time{})
	if n := counted(c, "p", "weir_cache_values"); n != 3 {
		t.Errorf("%v values, want 3", n)
	}
	c.RemoveOver(now.Add(2 * time.Hour))
	over(lasting, now.Add(2*time.Hour), false)
	if n, bytes := counted(c, "p", "weir_cache_values"), counted(c, "p", "weir_cache_bytes"); n != 1 || bytes < 1000 || bytes > 2000 {
		t.Errorf("%v values of %v bytes, want 1", n, bytes)
	}

	// 4. A part that has ended, with what comes to it later.
	q := c.Part("p")
	q.Put(k, "stays", 1000, time.Time{})
	p.Close()
	put("late", time.Time{})
	over(lasting, now, true)
	edgetest.Until(t, "the room of a part that ended", func() bool { return counted(c, "p", "weir_cache_values") == 1 })
	if got := q.Get(k, now); got != "stays" {
		t.Errorf("another part of the name lost what it had: %v", got)
	}
}

// TestCacheCounts holds what is counted, and that a value which is there already
// was not refused.
func TestCacheCounts(t *testing.T) {
	c := newCache(t, kv.MinCache)
	p, now := c.Part("p"), time.Now()
	c.Part("other").Get(keyOf(1), now)
	for range 3 {
		p.Put(keyOf(1), 1, 1000, time.Time{})
	}
	for range 5 {
		p.Get(keyOf(1), now)
	}
	p.Get(keyOf(2), now)
	p.Put(keyOf(3), 3, kv.MinCache, time.Time{}) // which cannot have room
	for metric, want := range map[string]float64{"weir_cache_hits": 5, "weir_cache_misses": 1, "weir_cache_refused": 1, "weir_cache_values": 1} {
		if got := counted(c, "p", metric); got != want {
			t.Errorf("%s: %v, want %v", metric, got, want)
		}
	}
	if got := counted(c, "other", "weir_cache_misses"); got != 1 {
		t.Errorf("another part has %v misses", got)
	}
	if got := counted(c, "", "weir_cache_bytes_limit"); got != kv.MinCache {
		t.Errorf("limit %v", got)
	}
}

// heap is how many bytes are reachable.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestCacheBounds holds a cache, with all that it is made of, to its budget,
// whatever the size of values.
func TestCacheBounds(t *testing.T) {
	if _, err := kv.NewCache(kv.MinCache - 1); err == nil {
		t.Error("a smaller budget was taken")
	}
	for _, budget := range []int64{kv.MinCache, 16 << 20} {
		for _, size := range []int{0, 500, 20_000, 200_000} {
			t.Run(fmt.Sprint(budget>>20, " MiB of ", size), func(t *testing.T) {
				before := heap()
				c := newCache(t, budget)
				p, now := c.Part("p"), time.Now()
				for i := range 4 * int(budget) / (size + 320) {
					k := keyOf(i)
					p.Get(k, now)
					p.Put(k, make([]byte, size), int64(size)+24, time.Time{})
				}
				after, bytes := heap()-before, counted(c, "p", "weir_cache_bytes")
				if after > budget*21/20 || int64(bytes) > budget { // a twentieth is for size classes, and what others do
					t.Errorf("%d bytes, %v counted, of %d", after, bytes, budget)
				}
				if int64(bytes) < budget/3 {
					t.Errorf("only %v bytes are used", bytes)
				}
				runtime.KeepAlive(c)
			})
		}
	}
}

// TestCacheCloses holds that a cache may be closed while everybody uses it.
func TestCacheCloses(t *testing.T) {
	for range 20 {
		c := newCache(t, kv.MinCache)
		p, now := c.Part("p"), time.Now()
		var work sync.WaitGroup
		end := make(chan struct{})
		for i := range 4 {
			work.Go(func() {
				for j := 0; ; j++ {
					select {
					case <-end:
						return
					default:
					}
					k := keyOf(i<<32 | j%1000)
					p.Get(k, now)
					p.Put(k, j, 100, now.Add(time.Duration(j%3)))
					if j%7 == 0 {
						p.Forget(k)
					}
				}
			})
		}
		time.Sleep(time.Millisecond)
		c.Close()
		c.Close()
		close(end)
		work.Wait()
		p.Put(keyOf(1), 1, 1, time.Time{})
		if p.Get(keyOf(1), now) != nil {
			t.Error("a closed cache holds something")
		}
		p.Close()
	}
}

// held is what a flood is measured on.
type held interface {
	Get(key edge.Key, now time.Time) any
	Put(key edge.Key, value any, cost int64, until time.Time)
}

// lru is a cache in which the value goes first that was asked for longest ago.
type lru struct {
	room   int64
	values map[edge.Key]*link
	first  link // the ring, from the newest to the oldest
}

type link struct {
	next, last *link
	key        edge.Key
	value      any
	cost       int64
}

func newLRU(budget int64) *lru {
	l := &lru{room: budget, values: map[edge.Key]*link{}}
	l.first.next, l.first.last = &l.first, &l.first
	return l
}

func (l *lru) Get(key edge.Key, _ time.Time) any {
	one := l.values[key]
	if one == nil {
		return nil
	}
	one.last.next, one.next.last = one.next, one.last
	l.add(one)
	return one.value
}

func (l *lru) add(one *link) {
	one.last, one.next = &l.first, l.first.next
	one.last.next, one.next.last = one, one
}

func (l *lru) Put(key edge.Key, value any, cost int64, _ time.Time) {
	one := &link{key: key, value: value, cost: cost}
	l.values[key] = one
	l.add(one)
	for l.room -= cost; l.room < 0; {
		old := l.first.last
		old.last.next, old.next.last = old.next, old.last
		delete(l.values, old.key)
		l.room += old.cost
	}
}

// bytesOfToken is what filters/incoming counts for an ordinary token of 1 KiB.
const bytesOfToken = 3 << 10

// aToken is such a value, as it lies in the heap.
func aToken(i int) *edge.Identity {
	subject := fmt.Sprint("user-", i)
	claims := map[string]any{"iss": "https://login.example.com", "sub": subject, "jti": fmt.Sprint("id-", i), "scope": "tools:read tools:write", "groups": []any{"engineering", "oncall", "everyone"}}
	return &edge.Identity{Issuer: "https://login.example.com", Subject: subject, Claims: claims, Token: edge.Secret(strings.Repeat("t", 1024))}
}

// flood has somebody show tokens, each once, and ten others theirs in between:
// each of them once in apart tokens. It returns which part of the times a busy
// token was remembered.
func flood(c held, tokens, apart int) float64 {
	now := time.Now()
	key := func(busy bool, i int) edge.Key {
		var b [9]byte
		binary.BigEndian.PutUint64(b[1:], uint64(i))
		if busy {
			b[0] = 1
		}
		return sha256.Sum256(b[:])
	}
	show := func(k edge.Key, i int) bool {
		if c.Get(k, now) != nil {
			return true
		}
		c.Put(k, aToken(i), bytesOfToken, now.Add(time.Hour))
		return false
	}
	for range 20 { // they are busy already
		for i := range 10 {
			show(key(true, i), i)
		}
	}
	found, all := 0, 0
	for i := range tokens {
		show(key(false, i), i)
		if i%(apart/10) == 0 {
			if all++; show(key(true, all%10), all%10) {
				found++
			}
		}
	}
	return float64(found) / float64(all)
}

// TestCacheFlood holds that a million tokens that are shown once each do not drive
// out ten that are used, be it seldom: each comes once while 30,000 others do,
// which is more than there is room for. To a cache that keeps what was used last
// none of the ten is known again.
func TestCacheFlood(t *testing.T) {
	t.Parallel()
	const budget = 64 << 20
	c := newCache(t, budget)
	p := c.Part("tokens")
	for _, apart := range []int{100, 30_000} {
		if share := flood(p, floodOf/2, apart); share < floodHas {
			t.Errorf("one use in %d: of the uses of busy tokens %.4f found them remembered, want %.2f", apart, share, floodHas)
		}
	}
	if n := counted(c, "tokens", "weir_cache_values"); n > budget/bytesOfToken || floodOf > 500_000 && n < budget/bytesOfToken/2 {
		t.Errorf("%v values are held", n)
	}
	if share := flood(newLRU(budget), 100_000, 30_000); share > 0.5 {
		t.Errorf("the flood is no test: a list of what was used last finds %.4f", share)
	}
}
