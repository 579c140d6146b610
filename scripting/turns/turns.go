// Package turns bounds how many runs compute at once. Whoever computes for long has a place
// of a process meanwhile, and gives it to those who wait from time to time; a run that waits
// for others has none. So what scripts and workflows compute leaves processors for calls
// that compute nothing.
package turns

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// slice is how long a run computes before it gives its place to whoever waits.
const slice = 10 * time.Millisecond

// short is how much a run may have computed to count as a short one.
const short = 10 * slice

// Places are the places of a process to compute. Holders who wait get them in turn. Of the
// runs of one holder, short ones and long ones get its turns alternately: the short ones in
// the order in which they wait, the long ones in the order in which they began. So a short
// run waits for few others, and a long one for those alone that began before it, however
// often it waits. They are safe for concurrent use.
type Places struct {
	waiting atomic.Int32
	begun   atomic.Uint64 // runs

	mu     sync.Mutex
	free   int
	queues map[string]*queue // of holders who wait
	order  []string          // the holders of queues; the first is next
}

// queue are the runs of one holder that wait. One of its lists holds a run at least.
type queue struct {
	short, long []waiter // in the order in which they go on
	longNext    bool     // where both wait
}

// waiter is a run that waits.
type waiter struct {
	turn chan struct{} // it is told once
	run  uint64        // its number, which is less than those of runs that began after it
}

// Most is how many places a process has: half as many as processors, so that others find
// the rest.
func Most() int { return max(1, runtime.GOMAXPROCS(0)/2) }

// New returns so many places.
func New(places int) *Places { return &Places{free: places, queues: map[string]*queue{}} }

// take waits for a place for a run of a holder, a long one or a short one. It fails with the
// cause of ctx when that ends before.
func (p *Places) take(ctx context.Context, holder string, run uint64, long bool) error {
	p.mu.Lock()
	if p.free > 0 {
		p.free--
		p.mu.Unlock()
		return nil
	}
	q := p.queues[holder]
	if q == nil {
		q = &queue{}
		p.queues[holder], p.order = q, append(p.order, holder)
	}
	w := waiter{make(chan struct{}, 1), run}
	if long {
		at, _ := slices.BinarySearchFunc(q.long, run, func(w waiter, run uint64) int { return cmp.Compare(w.run, run) })
		q.long = slices.Insert(q.long, at, w)
	} else {
		q.short = append(q.short, w)
	}
	p.waiting.Add(1)
	p.mu.Unlock()
	select {
	case <-w.turn:
		return nil
	case <-ctx.Done():
	}
	if !p.leave(holder, w.turn) {
		p.give() // the place came at the same time
	}
	return context.Cause(ctx)
}

// leave takes a run out of its queue. It reports false for one that is not there any more.
func (p *Places) leave(holder string, turn chan struct{}) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := p.queues[holder]
	if q == nil {
		return false
	}
	for _, list := range []*[]waiter{&q.short, &q.long} {
		at := slices.IndexFunc(*list, func(w waiter) bool { return w.turn == turn })
		if at < 0 {
			continue
		}
		*list = slices.Delete(*list, at, at+1)
		p.waiting.Add(-1)
		if q.empty() {
			delete(p.queues, holder)
			at := slices.Index(p.order, holder)
			p.order = slices.Delete(p.order, at, at+1)
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
	p.order = p.order[1:]
	q := p.queues[holder]
	q.next().turn <- struct{}{}
	p.waiting.Add(-1)
	if q.empty() {
		delete(p.queues, holder)
		return
	}
	p.order = append(p.order, holder)
}

func (q *queue) empty() bool { return len(q.short)+len(q.long) == 0 }

// next takes the run that goes on.
func (q *queue) next() waiter {
	list := &q.short
	if len(q.short) == 0 || len(q.long) > 0 && q.longNext {
		list = &q.long
	}
	q.longNext = list == &q.short
	w := (*list)[0]
	*list = (*list)[1:]
	return w
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
	run    uint64
	first  time.Duration // that it computes without a place

	used  time.Duration // until it rested last
	since time.Time     // when it began to compute; zero while it rests
	has   bool          // a place
}

// Turn returns that of a new run, which rests. What it computes at first, in all, takes no
// place: to wait for one would cost a short run more than it computes.
func (p *Places) Turn(holder string, first time.Duration) *Turn {
	t := &Turn{places: p, holder: holder, first: first}
	if p != nil {
		t.run = p.begun.Add(1)
	}
	return t
}

// Begin begins to compute, with a place if the run needs one. It fails with the cause of ctx
// when that ends before there is one; the run rests then.
func (t *Turn) Begin(ctx context.Context) error {
	if !t.since.IsZero() {
		return nil
	}
	if t.places != nil && t.used >= t.first {
		if err := t.places.take(ctx, t.holder, t.run, t.used >= short); err != nil {
			return err
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
	t.used += time.Since(t.since)
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
