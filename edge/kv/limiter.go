package kv

import (
	"container/heap"
	"math"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
)

// limiter holds token buckets in memory. A bucket that is full again is as
// good as one that never was, and is forgotten.
type limiter struct {
	most int

	mu      sync.Mutex // guards what follows
	buckets map[string]*bucket
	fill    dues[*bucket]
	evicted uint64
}

// bucket is what is left in a token bucket.
type bucket struct {
	key    string
	tokens float64
	last   time.Time // when tokens were counted
	full   time.Time // when it is full again, if nothing more is taken

	// queued is the place in fill by. It is never later than full, because
	// tokens that are taken only make a bucket full later: the order is put
	// right when the bucket comes up.
	queued time.Time
	at     int // in fill
}

func (b *bucket) due() time.Time { return b.queued }
func (b *bucket) moved(to int)   { b.at = to }

// take takes a token from every bucket or from none; it returns as
// edge.Store.Take does.
func (l *limiter) take(now time.Time, buckets []edge.Bucket) (wait time.Duration, short int) {
	var room [maxBuckets]float64
	have := room[:len(buckets)]
	short = -1

	l.mu.Lock()
	defer l.mu.Unlock()

	// 1. See what every bucket has. One that is named twice gives twice.
	for i := range buckets {
		b := &buckets[i]
		have[i] = l.tokens(now, b)
		for j := range i {
			if buckets[j].Key == b.Key {
				have[i] = have[j] - 1
			}
		}
		if have[i] >= almost {
			continue
		}
		w := time.Duration(math.Ceil((1 - have[i]) * float64(b.Refill) / float64(b.Capacity)))
		if w = max(w, 1); w > wait {
			wait, short = w, i
		}
	}
	if short >= 0 {
		return wait, short
	}

	// 2. All have one: take it.
	for i := range buckets {
		l.keep(now, &buckets[i], max(have[i]-1, 0))
	}
	return 0, -1
}

// tokens is what a bucket has now. l.mu is held.
func (l *limiter) tokens(now time.Time, b *edge.Bucket) float64 {
	full := float64(b.Capacity)
	k := l.buckets[b.Key]
	if k == nil {
		return full
	}
	gained := max(float64(now.Sub(k.last)), 0) * full / float64(b.Refill)
	return min(k.tokens+gained, full)
}

// keep writes down what is left in a bucket. l.mu is held.
func (l *limiter) keep(now time.Time, b *edge.Bucket, left float64) {
	missing := (float64(b.Capacity) - left) / float64(b.Capacity)
	full := now.Add(time.Duration(missing * float64(b.Refill)))
	k := l.buckets[b.Key]
	if k == nil {
		if len(l.buckets) >= l.most {
			l.evict(now)
		}
		k = &bucket{key: b.Key, queued: full}
		l.buckets[b.Key] = k
		heap.Push(&l.fill, k)
	}
	k.tokens, k.last, k.full = left, now, full
	if full.Before(k.queued) { // the bucket has been given another size
		k.queued = full
		heap.Fix(&l.fill, k.at)
	}
}

// evict makes room for one bucket: the one that is full the soonest loses the
// least. Whoever takes from many new buckets thus evicts his own. l.mu is held.
func (l *limiter) evict(now time.Time) {
	b := l.next()
	if b.full.After(now) {
		l.evicted++
	}
	l.drop(b)
}

// next is the bucket that is full the soonest. l.mu is held, and there is one.
func (l *limiter) next() *bucket {
	for {
		b := l.fill[0]
		if !b.queued.Before(b.full) {
			return b
		}
		b.queued = b.full
		heap.Fix(&l.fill, 0)
	}
}

func (l *limiter) drop(b *bucket) {
	heap.Remove(&l.fill, b.at)
	delete(l.buckets, b.key)
}

// forget drops the buckets that are full, some at a time, so that nobody waits
// for all of it.
func (l *limiter) forget(now time.Time) {
	const some = 1000
	for l.forgetSome(now, some) {
	}
}

// forgetSome drops up to n full buckets and reports whether there may be more.
func (l *limiter) forgetSome(now time.Time, n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for range n {
		if len(l.fill) == 0 {
			return false
		}
		b := l.next()
		if b.full.After(now) {
			return false
		}
		l.drop(b)
	}
	return true
}

func (l *limiter) evictions() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.evicted
}
