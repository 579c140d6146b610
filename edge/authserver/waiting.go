package authserver

import (
	"sync"
	"time"
)

// Bounds of the requests of this process whose users are at an upstream.
const (
	maxWaiting      = 10_000
	maxWaitingBytes = 16 << 20
)

// waiting counts the requests that wait, each until it is taken or has ended. It is safe for
// concurrent use.
type waiting struct {
	mu    sync.Mutex
	sizes map[string]int // by digest of the state
	bytes int
	queue []due // in the order of their end
}

type due struct {
	key string
	at  time.Time
}

// take reports whether there is room for another request.
func (w *waiting) take(state string, size int, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.expire(now)
	if len(w.queue) >= maxWaiting { // those that were taken still stand in it
		kept := make([]due, 0, len(w.sizes))
		for _, d := range w.queue {
			if _, ok := w.sizes[d.key]; ok {
				kept = append(kept, d)
			}
		}
		w.queue = kept
	}
	if len(w.sizes) >= maxWaiting || w.bytes+size > maxWaitingBytes {
		return false
	}
	if w.sizes == nil {
		w.sizes = map[string]int{}
	}
	key := digest(state)
	w.sizes[key], w.bytes = size, w.bytes+size
	w.queue = append(w.queue, due{key, now.Add(requestLife)})
	return true
}

// give says that a request waits no longer.
func (w *waiting) give(state string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.remove(digest(state))
}

// len is how many requests wait at a time.
func (w *waiting) len(now time.Time) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.expire(now)
	return len(w.sizes)
}

// expire forgets the requests that have ended; w.mu is held.
func (w *waiting) expire(now time.Time) {
	for len(w.queue) > 0 && !w.queue[0].at.After(now) {
		w.remove(w.queue[0].key)
		w.queue = w.queue[1:]
	}
}

// remove is give by the digest; w.mu is held.
func (w *waiting) remove(key string) {
	w.bytes -= w.sizes[key]
	delete(w.sizes, key)
}
