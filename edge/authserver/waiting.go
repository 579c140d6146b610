package authserver

import (
	"sync"
	"time"
)

// Bounds of the requests of this process whose users are at an upstream.
const (
	maxWaiting      = 10_000
	maxWaitingBytes = 16 << 20
	waitingShare    = 8 // the part of both that one network address takes at most
)

// waiting counts the requests that wait, each until it is taken or has ended. It is safe for
// concurrent use.
type waiting struct {
	mu    sync.Mutex
	all   map[string]waits // by digest of the state
	bytes int
	of    map[string]share // by network address
	queue []due            // in the order of their end
}

// waits is a request that waits.
type waits struct {
	who  string // the network address that it came from
	size int
}

// share is what waits of one network address.
type share struct{ n, bytes int }

type due struct {
	key string
	at  time.Time
}

// take reports whether there is room for another request of a network address.
func (w *waiting) take(state, who string, size int, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.expire(now)
	if len(w.queue) >= maxWaiting { // those that were taken still stand in it
		kept := make([]due, 0, len(w.all))
		for _, d := range w.queue {
			if _, ok := w.all[d.key]; ok {
				kept = append(kept, d)
			}
		}
		w.queue = kept
	}
	own := w.of[who]
	if len(w.all) >= maxWaiting || w.bytes+size > maxWaitingBytes || own.n >= maxWaiting/waitingShare || own.bytes+size > maxWaitingBytes/waitingShare {
		return false
	}
	if w.all == nil {
		w.all, w.of = map[string]waits{}, map[string]share{}
	}
	key := digest(state)
	w.all[key], w.bytes = waits{who, size}, w.bytes+size
	w.of[who] = share{own.n + 1, own.bytes + size}
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
	return len(w.all)
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
	one, ok := w.all[key]
	if !ok {
		return
	}
	delete(w.all, key)
	w.bytes -= one.size
	if own := w.of[one.who]; own.n > 1 {
		w.of[one.who] = share{own.n - 1, own.bytes - one.size}
	} else {
		delete(w.of, one.who)
	}
}
