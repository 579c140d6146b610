package kv

import (
	"sync"
	"sync/atomic"
	"time"
)

// breaker knows whether a store is worth asking. It opens after so many
// failures in a row, so that a store that is silent costs its deadline a few
// times and not once for every call. While it is open one probe at a time asks
// the store, and the first that is answered closes it.
type breaker struct {
	most int32 // failures in a row that open it

	isOpen atomic.Bool
	fails  atomic.Int32
	opened atomic.Uint64
	heard  atomic.Int64 // when the store last answered, Unix nanoseconds; 0 for never

	mu      sync.Mutex // guards what follows, and the changes of isOpen
	cause   error      // of the last failure
	since   time.Time  // of the present state
	tripped chan struct{}
	closed  chan struct{} // closed when the breaker closes
}

func newBreaker(most int) *breaker {
	return &breaker{most: int32(most), since: time.Now(), tripped: make(chan struct{}, 1), closed: make(chan struct{})}
}

// allows reports whether a call may ask the store.
func (b *breaker) allows() bool { return !b.isOpen.Load() }

// answered notes a call that the store answered. An answer to a call that was
// under way when the breaker opened does not close it: the probe does.
func (b *breaker) answered() {
	b.heard.Store(time.Now().UnixNano())
	if b.fails.Load() != 0 {
		b.fails.Store(0)
	}
}

// failed notes a call that the store did not serve, and reports whether that
// opened the breaker. What lasts opens it at once: other calls, which the store
// goes on to answer, would hide it.
func (b *breaker) failed(cause error, lasts bool) bool {
	n := b.fails.Add(1)
	if lasts {
		n = b.most
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cause = cause
	if n < b.most || b.isOpen.Load() {
		return false
	}
	b.isOpen.Store(true)
	b.since = time.Now()
	b.opened.Add(1)
	select {
	case b.tripped <- struct{}{}:
	default:
	}
	return true
}

// mend notes a probe that the store answered. It returns how long the breaker
// was open, 0 when it was not.
func (b *breaker) mend() time.Duration {
	b.answered()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cause = nil
	if !b.isOpen.Load() {
		return 0
	}
	was := time.Since(b.since)
	b.since = time.Now()
	b.isOpen.Store(false)
	close(b.closed)
	b.closed = make(chan struct{})
	return max(was, 1)
}

// mended is closed when the breaker closes next.
func (b *breaker) mended() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

// state returns what the breaker knows; cause is nil when the last call was
// answered.
func (b *breaker) state() (open bool, since time.Time, cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	open = b.isOpen.Load()
	if open || b.fails.Load() > 0 {
		cause = b.cause
	}
	return open, b.since, cause
}
