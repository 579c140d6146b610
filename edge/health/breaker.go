package health

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
)

// Circuit is the state of a breaker, in the words of
// status.discoveredBackends[].circuitBreakerState; "" for a backend without one.
type Circuit string

// The states of a breaker, by the exchanges that it lets through.
const (
	Closed   Circuit = "closed"    // all
	Open     Circuit = "open"      // none
	HalfOpen Circuit = "half-open" // one, the trial
)

// Breaker lets exchanges through to a backend for as long as they succeed. It
// is safe for concurrent use. A nil Breaker is disabled and lets everything
// through.
type Breaker struct {
	threshold int32
	timeout   time.Duration
	refusal   error // the error for a refused caller

	// word is the number of the turn, shifted by two, and the position. Each
	// change of position begins a turn, so that the result of an exchange of an
	// earlier turn is recognized and ignored.
	word     atomic.Uint64
	failures atomic.Int32 // in a row, in this turn; written under mu

	mu      sync.Mutex // guards changes of word, and the fields below
	since   time.Time  // of the position
	until   time.Time  // open: when a trial may be made; half-open: when the one under way is given up
	trial   bool       // half-open: one is under way
	changed chan struct{}
}

// Positions, the low two bits of Breaker.word.
const (
	closed = iota
	open
	halfOpen
	positions = 3
)

// NewBreaker makes a closed breaker for the backend called name, after
// failureHandling.circuitBreaker: threshold failures in a row open it (5 when
// threshold is below 1), and timeout is how long it stays open before a trial
// (60 s when it is not above 0).
func NewBreaker(name string, threshold int, timeout time.Duration) *Breaker {
	if threshold < 1 {
		threshold = 5
	}
	if timeout <= 0 {
		timeout = time.Minute
	}
	return &Breaker{
		threshold: int32(min(threshold, 1<<30)),
		timeout:   timeout,
		refusal:   fmt.Errorf("backend %q unavailable", name),
		since:     time.Now(),
		changed:   make(chan struct{}, 1),
	}
}

// Pass is the permission for one exchange with the backend. Its holder must call Done
// once with the result of the exchange. The zero Pass belongs to no breaker.
type Pass struct {
	breaker *Breaker
	word    uint64
}

// Allow permits one exchange, or returns an *edge.Error of kind Unavailable at
// once, whose After says when to try again: when the breaker next lets one
// through, or in a second while that one is under way.
func (b *Breaker) Allow() (Pass, error) {
	if b == nil {
		return Pass{}, nil
	}
	if word := b.word.Load(); word&positions == closed {
		return Pass{b, word}, nil
	}
	return b.allow()
}

// allow is Allow for a breaker that is not closed. A trial that has not ended
// after the timeout, because its call is slow or was forgotten, no longer blocks a
// second one; the first of the two to end decides.
func (b *Breaker) allow() (Pass, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	switch b.word.Load() & positions {
	case closed:
		return Pass{b, b.word.Load()}, nil
	case open:
		if wait := b.until.Sub(now); wait > 0 {
			return Pass{}, b.refuse(wait)
		}
		b.turn(halfOpen, now)
	case halfOpen:
		if b.trial && now.Before(b.until) {
			return Pass{}, b.refuse(time.Second)
		}
	}
	b.trial, b.until = true, now.Add(b.timeout)
	return Pass{b, b.word.Load()}, nil
}

func (b *Breaker) refuse(after time.Duration) error {
	return &edge.Error{Kind: edge.Unavailable, Op: "breaker", After: after, Err: b.refusal}
}

// Done tells the breaker how the exchange ended. For a closed breaker and a
// success it costs two loads.
func (p Pass) Done(o Outcome) {
	b := p.breaker
	switch {
	case b == nil:
	case p.word&positions == closed && (o == Neutral || o == Success && b.failures.Load() == 0):
	default:
		b.done(p.word, o)
	}
}

func (b *Breaker) done(word uint64, o Outcome) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if word != b.word.Load() {
		return // of an earlier turn: its result no longer matters
	}
	now := time.Now()
	switch {
	case word&positions == closed && o == Success:
		b.failures.Store(0)
	case word&positions == closed:
		if b.failures.Add(1) >= b.threshold {
			b.turn(open, now)
		}
	case o == Success:
		b.turn(closed, now)
	case o == Failure:
		b.turn(open, now)
	default: // the trial was inconclusive: the next one decides
		b.trial = false
		b.tell()
	}
}

// turn begins a turn in another position. The caller holds mu.
func (b *Breaker) turn(position uint64, now time.Time) {
	b.since, b.until, b.trial = now, now.Add(b.timeout), false
	b.failures.Store(0)
	b.word.Store((b.word.Load()>>2+1)<<2 | position)
	b.tell()
}

func (b *Breaker) tell() {
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

// State returns the state and when it began. It is "" and the zero time for a
// nil Breaker. A breaker stays Open after its timeout until Allow is called.
func (b *Breaker) State() (Circuit, time.Time) {
	if b == nil {
		return "", time.Time{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return [...]Circuit{closed: Closed, open: Open, halfOpen: HalfOpen}[b.word.Load()&positions], b.since
}

// Wait returns the time until Allow may permit an exchange, as far as is known now; 0
// if it may at once.
func (b *Breaker) Wait() time.Duration {
	if b == nil || b.word.Load()&positions == closed {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch position := b.word.Load() & positions; {
	case position == open, position == halfOpen && b.trial:
		return max(0, time.Until(b.until))
	}
	return 0
}

// Changed returns a channel that holds a value after the state has changed, or
// a trial was inconclusive. One reader gets the value; several changes may be
// joined in one. It is nil for a nil Breaker.
func (b *Breaker) Changed() <-chan struct{} {
	if b == nil {
		return nil
	}
	return b.changed
}
