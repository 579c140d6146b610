package optimizer

import (
	"sync"
	"time"
)

// When the breaker before a service opens, and for how long.
const (
	failuresToOpen = 5 // in a row
	firstRest      = 30 * time.Second
	longestRest    = 5 * time.Minute
)

// breaker stops requests to a service that fails. When it has been open for a while one
// request is let through, on whose outcome it depends what follows.
type breaker struct {
	rest time.Duration // how long it is open first

	mu     sync.Mutex
	failed int           // in a row
	open   time.Time     // until when it is; zero for closed
	last   time.Duration // how long it was open the last time
	trial  bool          // one request is under way that decides
	why    *failure      // of the last failure; nil after a success
}

// permit says whether a request may be made.
type permit int

const (
	refused permit = iota
	granted
	onTrial // its outcome decides whether others may follow
)

// allows reports whether a request may be made; then done has to be told of it, or left.
func (b *breaker) allows(now time.Time) permit {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.open.IsZero():
		return granted
	case b.trial || now.Before(b.open):
		return refused
	}
	b.trial = true
	return onTrial
}

// weight is how much a failure counts.
type weight int

const (
	light weight = iota // not at all: what was asked is asked again in parts
	plain               // several in a row open the breaker
	heavy               // it opens the breaker
)

// done takes the outcome of a request; err is nil for a success.
func (b *breaker) done(now time.Time, p permit, err *failure, w weight) {
	b.mu.Lock()
	defer b.mu.Unlock()
	tried := p == onTrial
	if tried {
		b.trial = false
	}
	if err == nil {
		b.failed, b.open, b.last, b.why = 0, time.Time{}, 0, nil
		return
	}
	if !tried && !b.open.IsZero() {
		return // it was under way when the breaker opened: of many that fail at once each would add to the rest
	}
	b.why = err
	switch {
	case w == light && !tried:
		return
	case err.after > 0:
		b.open = now.Add(min(err.after, longestRest))
		return
	}
	b.failed++
	if b.failed >= failuresToOpen || tried || w == heavy {
		b.last = min(max(2*b.last, b.rest), longestRest)
		b.open = now.Add(b.last)
	}
}

// left gives back what allows gave, for a request that was not made to its end.
func (b *breaker) left(p permit) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p == onTrial {
		b.trial = false
	}
}

// state is 0 for closed, 1 for open, 2 for one that waits for the outcome of a request.
func (b *breaker) state(now time.Time) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.open.IsZero():
		return 0
	case b.trial || !now.Before(b.open):
		return 2
	}
	return 1
}

// wait is how long no request is let through; 0 for not at all.
func (b *breaker) wait(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(0, b.open.Sub(now))
}

// fault is the last failure, and whether requests are stopped because of it.
func (b *breaker) fault() (why *failure, open bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.why, !b.open.IsZero()
}
