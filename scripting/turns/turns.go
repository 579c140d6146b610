// Package turns bounds how many runs compute at once, and how many bytes their values take.
// Whoever computes for long has a place of a process meanwhile, and gives it to those who wait
// from time to time; a run that waits for others has none. So what scripts and workflows
// compute leaves processors for calls that compute nothing.
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

// slice is how long a run computes before it gives its place to whoever waits. A run that
// makes many calls waits for some slices of others after each.
const slice = 2 * time.Millisecond

// credit is how much a holder that has been away may compute before those that were not: as
// much as it saves, however long it was away.
const credit = 10 * time.Millisecond

// short is how much a run may have computed to count as a short one.
const short = 100 * time.Millisecond

// Places are the places of a process to compute. Of the holders who wait, the one that has
// computed least gets the next place (start-time fair queueing, Goyal, Vin and Cheng 1996): a
// run that computes little between its waits goes on after the slice that is under way,
// whatever others compute. Of the runs of one holder, short ones and long ones get its turns
// alternately: the short ones in the order in which they wait, the long ones in the order in
// which they began. So a short run waits for few others, and a long one for those alone that
// began before it, however often it waits. They are safe for concurrent use.
type Places struct {
	waiting atomic.Int32
	begun   atomic.Uint64 // runs

	mu      sync.Mutex
	free    int
	holders map[string]*holder // those who wait, and whoever else has computed more than who comes anew
	clock   time.Duration      // the most that a holder had computed when it got a place
	came    uint64             // counts those who begin to wait

	memory, share int64 // bytes of values: of all runs, and of those of one holder
	room          sync.Mutex
	taken         int64
	held          map[string]int64 // by holder
}

// holder has runs that compute, or wait.
type holder struct {
	computed    time.Duration // when it began to wait, the credit less than the clock at the least
	came        uint64        // of two that have computed the same, the one that came first is next
	short, long []waiter      // its runs that wait, in the order in which they go on
	longNext    bool          // where both wait
}

// waiter is a run that waits.
type waiter struct {
	turn chan struct{} // it is told once
	run  uint64        // its number, which is less than those of runs that began after it
}

// Most is how many places a process has: half as many as processors, so that others find
// the rest.
func Most() int { return max(1, runtime.GOMAXPROCS(0)/2) }

// New returns so many places for runs whose values may take so many bytes together; memory 0
// is for any number.
func New(places int, memory int64) *Places {
	return &Places{free: places, holders: map[string]*holder{}, memory: memory, share: memory / 4, held: map[string]int64{}}
}

// take waits for a place for a run of a holder, a long one or a short one. It fails with the
// cause of ctx when that ends before.
func (p *Places) take(ctx context.Context, name string, run uint64, long bool) error {
	p.mu.Lock()
	if p.free > 0 {
		p.free--
		p.mu.Unlock()
		return nil
	}
	h := p.holder(name)
	if !h.waits() {
		h.computed = max(h.computed, p.clock-credit)
		p.queue(h)
	}
	w := waiter{make(chan struct{}, 1), run}
	if long {
		at, _ := slices.BinarySearchFunc(h.long, run, func(w waiter, run uint64) int { return cmp.Compare(w.run, run) })
		h.long = slices.Insert(h.long, at, w)
	} else {
		h.short = append(h.short, w)
	}
	p.waiting.Add(1)
	p.mu.Unlock()
	select {
	case <-w.turn:
		return nil
	case <-ctx.Done():
	}
	if !p.leave(name, w.turn) {
		p.give(name, 0) // the place came at the same time
	}
	return context.Cause(ctx)
}

// holder returns that of a name, which may be new.
func (p *Places) holder(name string) *holder {
	h := p.holders[name]
	if h == nil {
		h = &holder{computed: p.clock - slice}
		p.holders[name] = h
	}
	return h
}

// queue puts a holder behind those that have computed as much.
func (p *Places) queue(h *holder) {
	p.came++
	h.came = p.came
}

// leave takes a run out of its queue. It reports false for one that is not there any more.
func (p *Places) leave(name string, turn chan struct{}) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.holders[name]
	if h == nil {
		return false
	}
	for _, list := range []*[]waiter{&h.short, &h.long} {
		if at := slices.IndexFunc(*list, func(w waiter) bool { return w.turn == turn }); at >= 0 {
			*list = slices.Delete(*list, at, at+1)
			p.waiting.Add(-1)
			return true
		}
	}
	return false
}

// give gives a place back that a holder has computed in for a while, to the holder whose turn
// it is.
func (p *Places) give(name string, used time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holder(name).computed += used
	next := p.next()
	if next == nil { // nobody competes, so nothing is to be remembered
		clear(p.holders)
		p.free++
		return
	}
	p.clock = max(p.clock, next.computed)
	next.next().turn <- struct{}{}
	p.waiting.Add(-1)
	p.queue(next)
	for name, h := range p.holders {
		if !h.waits() && h.computed <= p.clock-credit {
			delete(p.holders, name)
		}
	}
}

// next returns the holder that gets the next place; nil when nobody waits. There are no more
// holders than runs, of which there are some dozens.
func (p *Places) next() (next *holder) {
	for _, h := range p.holders {
		if h.waits() && (next == nil || cmp.Or(cmp.Compare(h.computed, next.computed), cmp.Compare(h.came, next.came)) < 0) {
			next = h
		}
	}
	return next
}

func (h *holder) waits() bool { return len(h.short)+len(h.long) > 0 }

// next takes the run that goes on.
func (h *holder) next() waiter {
	list := &h.short
	if len(h.short) == 0 || len(h.long) > 0 && h.longNext {
		list = &h.long
	}
	h.longNext = list == &h.short
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

	bytes int64 // that it holds
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
	used := time.Since(t.since)
	t.used += used
	t.since = time.Time{}
	if t.has {
		t.has = false
		t.places.give(t.holder, used)
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

// Hold counts bytes of values that the run makes, until Free. It reports false where the runs
// of its holder, or all runs together, have as many as they may: who waited for others to end
// would keep what it has from them.
func (t *Turn) Hold(bytes int64) bool {
	p := t.places
	if p == nil || p.memory == 0 {
		return true
	}
	p.room.Lock()
	defer p.room.Unlock()
	if p.taken+bytes > p.memory || p.held[t.holder]+bytes > p.share {
		return false
	}
	p.taken += bytes
	p.held[t.holder] += bytes
	t.bytes += bytes
	return true
}

// Free gives back what the run has held.
func (t *Turn) Free() {
	if t.bytes == 0 {
		return
	}
	p := t.places
	p.room.Lock()
	defer p.room.Unlock()
	p.taken -= t.bytes
	if p.held[t.holder] -= t.bytes; p.held[t.holder] == 0 {
		delete(p.held, t.holder)
	}
	t.bytes = 0
}

// Used is how long the run has computed.
func (t *Turn) Used() time.Duration {
	if t.since.IsZero() {
		return t.used
	}
	return t.used + time.Since(t.since)
}
