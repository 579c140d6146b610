// Package turns bounds how many runs compute at once. Whoever computes for long has a place
// of a process meanwhile, and gives it to those who wait from time to time; a run that waits
// for others has none. So what scripts and workflows compute leaves processors for calls
// that compute nothing.
package turns

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// slice is how long a run computes before it gives its place to whoever waits.
const slice = 10 * time.Millisecond

// Places are the places of a process to compute. Holders who wait get them in turn, and the
// runs of one holder in the order in which they came; but one that has not had its slice since
// it last waited behind others goes before them: a run of many calls would else wait for all of
// them at each. They are safe for concurrent use.
type Places struct {
	waiting atomic.Int32

	mu     sync.Mutex
	free   int
	queues map[string][]waiter // of holders who wait, in the order in which they go on
	order  []string            // the holders of queues; the first is next
}

// waiter is a run that waits.
type waiter struct {
	turn chan struct{} // it is told once
	soon bool          // it goes before those that have had their slice
}

// Most is how many places a process has: half as many as processors, so that others find
// the rest.
func Most() int { return max(1, runtime.GOMAXPROCS(0)/2) }

// New returns so many places.
func New(places int) *Places { return &Places{free: places, queues: map[string][]waiter{}} }

// take waits for a place; soon is as in waiter. It fails with the cause of ctx when that ends
// before.
func (p *Places) take(ctx context.Context, holder string, soon bool) error {
	p.mu.Lock()
	if p.free > 0 {
		p.free--
		p.mu.Unlock()
		return nil
	}
	turn := make(chan struct{}, 1)
	if len(p.queues[holder]) == 0 {
		p.order = append(p.order, holder)
	}
	queue := p.queues[holder]
	at := len(queue)
	for soon && at > 0 && !queue[at-1].soon {
		at--
	}
	p.queues[holder] = slices.Insert(queue, at, waiter{turn, soon})
	p.waiting.Add(1)
	p.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	if !p.leave(holder, turn) {
		p.give() // the place came at the same time
	}
	return context.Cause(ctx)
}

// leave takes a run out of its queue. It reports false for one that is not there any more.
func (p *Places) leave(holder string, turn chan struct{}) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	queue := p.queues[holder]
	for i, q := range queue {
		if q.turn != turn {
			continue
		}
		p.waiting.Add(-1)
		if p.queues[holder] = append(queue[:i], queue[i+1:]...); len(queue) > 1 {
			return true
		}
		delete(p.queues, holder)
		for i, h := range p.order {
			if h == holder {
				p.order = append(p.order[:i], p.order[i+1:]...)
				break
			}
		}
		return true
	}
	return false
}

// give gives a place back, to the holder whose turn it is.
func (p *Places) give() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.order) == 0 {
		p.free++
		return
	}
	holder := p.order[0]
	queue := p.queues[holder]
	queue[0].turn <- struct{}{}
	p.waiting.Add(-1)
	p.order = p.order[1:]
	if len(queue) == 1 {
		delete(p.queues, holder)
		return
	}
	p.queues[holder] = queue[1:]
	p.order = append(p.order, holder)
}

// Waiting returns how many runs wait for a place.
func (p *Places) Waiting() int { return int(p.waiting.Load()) }

// Free returns how many places nobody has.
func (p *Places) Free() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.free
}

// Turn is the computing of one run. One goroutine at a time uses it.
type Turn struct {
	places *Places // nil for any number
	holder string
	first  time.Duration // that it computes without a place

	used  time.Duration // until it rested last
	burst time.Duration // of that, since it last waited behind others
	since time.Time     // when it began to compute; zero while it rests
	has   bool          // a place
}

// Turn returns that of a new run, which rests. What it computes at first, in all, takes no
// place: to wait for one would cost a short run more than it computes.
func (p *Places) Turn(holder string, first time.Duration) *Turn {
	return &Turn{places: p, holder: holder, first: first}
}

// Begin begins to compute, with a place if the run needs one. It fails with the cause of ctx
// when that ends before there is one; the run rests then.
func (t *Turn) Begin(ctx context.Context) error {
	if !t.since.IsZero() {
		return nil
	}
	if t.places != nil && t.used >= t.first {
		if err := t.places.take(ctx, t.holder, t.burst < slice); err != nil {
			return err
		}
		if t.burst >= slice {
			t.burst = 0
		}
		t.has = true
	}
	t.since = time.Now()
	return nil
}

// Rest ends to compute, and gives back the place.
func (t *Turn) Rest() {
	if t.since.IsZero() {
		return
	}
	took := time.Since(t.since)
	t.used, t.burst = t.used+took, t.burst+took
	t.since = time.Time{}
	if t.has {
		t.has = false
		t.places.give()
	}
}

// Due reports whether a run that computes should rest, and begin again: it needs a place, or
// has one that others wait for.
func (t *Turn) Due() bool {
	switch {
	case t.places == nil || t.since.IsZero():
		return false
	case t.has:
		return t.places.waiting.Load() > 0 && time.Since(t.since) >= slice
	}
	return t.used+time.Since(t.since) >= t.first
}

// Look rests and begins again if that is due. Whoever computes asks it every few
// milliseconds.
func (t *Turn) Look(ctx context.Context) error {
	if !t.Due() {
		return nil
	}
	t.Rest()
	return t.Begin(ctx)
}

// Heavy says that much is about to be computed, so that a place is needed at once.
func (t *Turn) Heavy(ctx context.Context) error {
	t.first = 0
	return t.Look(ctx)
}

// Used is how long the run has computed.
func (t *Turn) Used() time.Duration {
	if t.since.IsZero() {
		return t.used
	}
	return t.used + time.Since(t.since)
}
