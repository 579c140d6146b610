package wasm

import (
	"sync"
	"sync/atomic"
	"time"
)

// A guest that fails crashes times one after the other, within crashWindow and
// with no success in between, is left alone for restMin; twice as long each
// time that the next call fails too, up to restMax. One that fails now and
// then, however often, is not: its failures are those of its messages.
const (
	crashes     = 5
	crashWindow = 10 * time.Second
	restMin     = time.Second
	restMax     = time.Minute
)

// breaker notices crash loops.
type breaker struct {
	trouble atomic.Bool // the rest is of interest

	mu    sync.Mutex
	row   int       // failures without a success
	first time.Time // the first of them
	rest  time.Duration
	until time.Time // left alone; zero for not
	trial bool      // one call is under way to see whether it works again
}

// allow says whether a call may be made.
func (b *breaker) allow() bool {
	if !b.trouble.Load() {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.until.IsZero():
		return true
	case b.trial || time.Now().Before(b.until):
		return false
	}
	b.trial = true
	return true
}

func (b *breaker) success() {
	if !b.trouble.Load() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.row, b.rest, b.until, b.trial = 0, 0, time.Time{}, false
	b.trouble.Store(false)
}

// failure counts a failure of the guest, and reports whether it is left alone
// from now on.
func (b *breaker) failure() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.trouble.Store(true)
	if b.row == 0 || b.rest == 0 && now.Sub(b.first) > crashWindow {
		b.row, b.first = 0, now
	}
	b.row++
	if !b.until.IsZero() && !b.trial {
		return false // a call that was under way when the rest began
	}
	if b.row < crashes {
		return false
	}
	b.rest = min(max(2*b.rest, restMin), restMax)
	b.until, b.trial = now.Add(b.rest), false
	return true
}

// undecided ends a trial that showed nothing, such as one whose message was
// canceled.
func (b *breaker) undecided() {
	if !b.trouble.Load() {
		return
	}
	b.mu.Lock()
	b.trial = false
	b.mu.Unlock()
}

// open says whether the guest is left alone.
func (b *breaker) open() bool {
	if !b.trouble.Load() {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.until.IsZero()
}
