package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// tally is how the calls of a load ended. It is safe for concurrent use.
type tally struct {
	sent    atomic.Int64 // calls whose request was written
	right   atomic.Int64 // answered with their own answer
	busy    atomic.Int64 // answered with 503
	refused atomic.Int64 // connections that were refused
	ended   atomic.Int64 // calls in a session that a new process does not know; the client begins another
	dials   atomic.Int64 // connections that were opened

	mu     sync.Mutex
	wrong  []string // answers that are not right
	lost   []int64  // numbers of calls that were sent and got no answer
	reason map[string]int
	took   []time.Duration
	said   []time.Duration // how long answers took that are not right
	keep   bool            // when each call was answered, too; set before the load
	stamps []stamp
}

// stamp is when a call was answered, and how long that took.
type stamp struct {
	at   time.Time
	took time.Duration
}

// count takes how a call ended.
func (t *tally) count(number int64, took time.Duration, err error) {
	switch {
	case err == nil:
		t.right.Add(1)
		t.mu.Lock()
		t.took = append(t.took, took)
		if t.keep {
			t.stamps = append(t.stamps, stamp{time.Now(), took})
		}
		t.mu.Unlock()
	case errors.Is(err, kit.ErrBusy):
		t.busy.Add(1)
	case errors.Is(err, kit.ErrNoSession):
		t.ended.Add(1)
	case errors.Is(err, kit.ErrWrong):
		t.mu.Lock()
		t.wrong = append(t.wrong, err.Error())
		t.said = append(t.said, took)
		t.mu.Unlock()
	default:
		t.mu.Lock()
		t.lost = append(t.lost, number)
		t.because(cause(err))
		t.mu.Unlock()
	}
}

// noConnection counts a connection that could not be opened.
func (t *tally) noConnection(err error) {
	t.refused.Add(1)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.because("no connection: " + cause(err))
}

// because counts a reason; t.mu is held.
func (t *tally) because(reason string) {
	if t.reason == nil {
		t.reason = map[string]int{}
	}
	t.reason[reason]++
}

// cause is the innermost text of an error, without the addresses, which differ
// from call to call.
func cause(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}

// failed is how many calls were not answered as they should have been.
func (t *tally) failed() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.lost) + len(t.wrong) + int(t.busy.Load())
}

// reasons tells of what failed, for a note; "" when nothing did.
func (t *tally) reasons() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := ""
	add := func(format string, args ...any) {
		if out != "" {
			out += ", "
		}
		out += fmt.Sprintf(format, args...)
	}
	if n := t.busy.Load(); n > 0 {
		add("%d × 503", n)
	}
	if len(t.wrong) > 0 {
		add("%d wrong, such as %s", len(t.wrong), t.wrong[0])
	}
	for _, what := range slices.Sorted(maps.Keys(t.reason)) {
		add("%d × %s", t.reason[what], what)
	}
	return out
}

// percentile is the duration that so many of a thousand calls did not exceed.
func (t *tally) percentile(permille int) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return kit.Percentile(t.took, permille)
}

// refusals is the duration that 99 % of the answers that are not right did not
// exceed.
func (t *tally) refusals() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return kit.Percentile(t.said, 990)
}

// pace is a steady load: so many connections share a rate, each of them sends
// its next call when its turn has come and its last call is answered.
type pace struct {
	addr    string
	era     func(worker int) kit.Era
	conns   int
	rate    int // calls a second, all connections together; 0 for as fast as they are answered
	work    kit.Work
	once    bool // a connection for each call
	from    int  // the first host that the connections come from
	numbers *kit.Numbers

	tool func(worker int) string // that the connections call; nil for work

	token func() string // that a call carries; nil for none
}

// each has every worker take its turns until ctx ends, spread over the time
// between two turns of one of them. A worker whose last turn took longer is late
// for its next, and takes it at once.
func (p pace) each(ctx context.Context, turn func(worker int)) {
	var wait sync.WaitGroup
	began := time.Now()
	for w := range p.conns {
		wait.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				if p.rate > 0 {
					at := began.Add(time.Duration(float64(n*p.conns+w) / float64(p.rate) * float64(time.Second)))
					if early := time.Until(at); early > 0 && !kit.Sleep(ctx, early) {
						return
					}
				}
				turn(w)
			}
		})
	}
	wait.Wait()
}

// run puts the load on until ctx ends. Each worker then finishes the call that
// it has begun. A connection that the peer has closed, or that it said it would
// close, is opened again; while nobody listens the worker waits for its next
// turn.
func (p pace) run(ctx context.Context, t *tally) {
	workers := make([]worker, p.conns)
	defer func() {
		for _, w := range workers {
			w.c.Close()
		}
	}()
	p.each(ctx, func(w int) { workers[w].turn(ctx, &p, t, w) })
}

// worker is one connection of a load.
type worker struct {
	c       *kit.Client // nil for none
	session string      // outlives the connection
}

func (one *worker) turn(ctx context.Context, p *pace, t *tally, w int) {
	if one.c != nil && one.c.Closed() {
		one.hangUp()
	}
	if one.c == nil && !one.connect(ctx, p, t, w) {
		return
	}
	c := one.c
	number := p.numbers.Next()
	work := p.work
	work.Text = strconv.FormatInt(number, 10)
	if p.token != nil {
		c.Token = p.token()
	}
	c.Wait(kit.Patience)
	sent := time.Now()
	t.sent.Add(1)
	closes, err := c.Call(work.Text, work)
	t.count(number, time.Since(sent), err)
	if errors.Is(err, kit.ErrNoSession) {
		one.session = ""
	}
	if err != nil && !errors.Is(err, kit.ErrBusy) || closes || p.once {
		one.hangUp()
	}
}

func (one *worker) hangUp() {
	one.c.Close()
	one.c = nil
}

// connect opens a connection, and begins a session on it unless there is one;
// false when it cannot.
func (one *worker) connect(ctx context.Context, p *pace, t *tally, w int) bool {
	// One that has been begun is not given up when the load ends: that would look
	// as if it had been refused.
	c, err := kit.Dial(context.WithoutCancel(ctx), p.addr, p.era(w), kit.DialOptions{From: p.from + w})
	if err != nil {
		t.noConnection(err)
		if p.rate == 0 {
			kit.Sleep(ctx, 10*time.Millisecond)
		}
		return false
	}
	t.dials.Add(1)
	one.c, c.Session = c, one.session
	if p.tool != nil {
		c.Tool = p.tool(w)
	}
	if p.token != nil {
		c.Token = p.token()
	}
	if one.session == "" {
		if err := c.Begin("steady"); err != nil {
			t.count(0, 0, err)
			one.hangUp()
			return false
		}
		one.session = c.Session
	}
	return true
}

func only(e kit.Era) func(int) kit.Era { return func(int) kit.Era { return e } }

// among spreads the connections over the tools of some backends, two that follow
// each other with the same, so that each gets clients of both eras.
func among(first, count int) func(int) string {
	names := make([]string, count)
	for i := range names {
		names[i] = toolOf(first + i)
	}
	return func(w int) string { return names[w/2%count] }
}

// ceiling measures how many calls a second go through the edge, closed loop,
// with 16 connections. prefixed is how many backends there are whose tools are
// called by prefixed names; none where there is one tool.
func (s *storm) ceiling(ctx context.Context, addr string, n *kit.Numbers, prefixed ...int) int {
	p := pace{addr: addr, era: only(kit.Modern), numbers: n}
	if len(prefixed) > 0 {
		p.tool = among(0, prefixed[0])
	}
	d := 2 * time.Second
	if s.quick {
		d = 700 * time.Millisecond
	}
	return p.ceiling(ctx, d)
}

// ceiling measures how many calls a second of a load go through, closed loop.
func (p pace) ceiling(ctx context.Context, d time.Duration) int {
	p.conns = 16
	var t tally
	during(ctx, d, func(ctx context.Context) { p.run(ctx, &t) })
	if f := t.failed(); f > 0 {
		kit.Fail("ceiling: %d calls failed: %s", f, t.reasons())
	}
	return int(float64(t.right.Load()) / d.Seconds())
}

// steady decides the rate of a steady load: what was asked for, or what the
// goal says, but no more than 70 % of the ceiling. It says so on the line.
func (s *storm) steady(ceiling, goal int) int {
	if s.rate > 0 {
		s.scale("%d of %d calls a second", s.rate, goal)
		return s.rate
	}
	rate := min(goal, ceiling*7/10)
	if s.quick {
		rate = min(rate, goal/4)
	}
	if rate != goal {
		s.scale("%d of %d calls a second, ceiling %d", rate, goal, ceiling)
	}
	return max(rate, 1)
}
