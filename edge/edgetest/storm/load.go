package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

func isEOF(err error) bool { return errors.Is(err, io.EOF) }

// numbers gives every call of a run a number of its own, of ten digits, which
// is its id and stands in its text.
type numbers struct{ last atomic.Int64 }

func (n *numbers) next() int64 { return 1_000_000_000 + n.last.Add(1) }

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
	case errors.Is(err, errBusy):
		t.busy.Add(1)
	case errors.Is(err, errNoSession):
		t.ended.Add(1)
	case errors.Is(err, errWrong):
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

// percentile is the duration that the share p of the calls did not exceed.
func (t *tally) percentile(p float64) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return percentile(t.took, p)
}

// refusals is the duration that 99 % of the answers that are not right did not
// exceed.
func (t *tally) refusals() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return percentile(t.said, 0.99)
}

// percentile is the smallest of the values that a share p of them does not
// exceed; 0 for none. The values are sorted.
func percentile(values []time.Duration, p float64) time.Duration {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	i := int(p*float64(len(values))+0.999999) - 1
	return values[min(max(i, 0), len(values)-1)]
}

// pace is a steady load: so many connections share a rate, each of them sends
// its next call when its turn has come and its last call is answered.
type pace struct {
	addr    string
	era     func(worker int) era
	conns   int
	rate    int // calls a second, all connections together; 0 for as fast as they are answered
	work    work
	once    bool // a connection for each call
	from    int  // the first host that the connections come from
	numbers *numbers

	tool func(worker int) string // that the connections call; nil for work

	token func() string // that a call carries; nil for none
}

// run puts the load on until ctx ends. Each worker then finishes the call that
// it has begun. A connection that the peer has closed, or that it said it would
// close, is opened again; while nobody listens the worker waits for its next
// turn.
func (p pace) run(ctx context.Context, t *tally) {
	var wait sync.WaitGroup
	began := time.Now()
	for w := range p.conns {
		wait.Go(func() { p.worker(ctx, t, w, began) })
	}
	wait.Wait()
}

func (p pace) worker(ctx context.Context, t *tally, w int, began time.Time) {
	var c *client
	session := "" // outlives the connection
	defer func() {
		if c != nil {
			c.close()
		}
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for turn := 0; ctx.Err() == nil; turn++ {
		if p.rate > 0 {
			// The turns of the workers are spread over the time between two
			// turns of one of them.
			at := began.Add(time.Duration(float64(turn*p.conns+w) / float64(p.rate) * float64(time.Second)))
			if late := time.Since(at); late < 0 {
				timer.Reset(-late)
				select {
				case <-timer.C:
				case <-ctx.Done():
					return
				}
			}
		}
		if c != nil && c.closed() {
			c.close()
			c = nil
		}
		if c == nil {
			var err error
			// One that has been begun is not given up when the load ends: that
			// would look as if it had been refused.
			if c, err = dial(context.WithoutCancel(ctx), p.addr, p.era(w), dialOptions{from: p.from + w}); err != nil {
				t.noConnection(err)
				c = nil
				if p.rate == 0 && !sleep(ctx, 10*time.Millisecond) {
					return
				}
				continue
			}
			t.dials.Add(1)
			c.session = session
			if p.tool != nil {
				c.tool = p.tool(w)
			}
			if p.token != nil {
				c.token = p.token()
			}
			if session == "" {
				if err := c.begin("steady"); err != nil {
					t.count(0, 0, err)
					c.close()
					c = nil
					continue
				}
				session = c.session
			}
		}
		number := p.numbers.next()
		one := p.work
		one.Text = strconv.FormatInt(number, 10)
		if p.token != nil {
			c.token = p.token()
		}
		c.wait(patience)
		sent := time.Now()
		t.sent.Add(1)
		closes, err := c.call(one.Text, one)
		t.count(number, time.Since(sent), err)
		if errors.Is(err, errNoSession) {
			session = ""
		}
		if err != nil && !errors.Is(err, errBusy) || closes || p.once {
			c.close()
			c = nil
		}
	}
}

func only(e era) func(int) era { return func(int) era { return e } }

// among spreads the connections over the tools of some backends, two that follow
// each other with the same, so that each gets clients of both eras.
func among(first, count int) func(int) string {
	names := make([]string, count)
	for i := range names {
		names[i] = toolOf(first + i)
	}
	return func(w int) string { return names[w/2%count] }
}

// both alternates between the eras.
func both(w int) era {
	if w%2 == 0 {
		return modern
	}
	return legacy
}

// ceiling measures how many calls a second go through the edge, closed loop,
// with 16 connections. prefixed is how many backends there are whose tools are
// called by prefixed names; none where there is one tool.
func (s *storm) ceiling(ctx context.Context, addr string, n *numbers, prefixed ...int) (int, error) {
	const conns = 16
	d := 2 * time.Second
	if s.quick {
		d = 700 * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var t tally
	p := pace{addr: addr, era: only(modern), conns: conns, work: work{}, numbers: n}
	if len(prefixed) > 0 {
		p.tool = among(0, prefixed[0])
	}
	p.run(ctx, &t)
	if f := t.failed(); f > 0 {
		return 0, fmt.Errorf("ceiling: %d calls failed: %s", f, t.reasons())
	}
	return int(float64(t.right.Load()) / d.Seconds()), nil
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
