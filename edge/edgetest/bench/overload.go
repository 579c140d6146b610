package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"
)

const (
	serviceTime  = 20 * time.Millisecond // of the backend
	goodWithin   = 40 * time.Millisecond // what counts as goodput
	overloadHold = 10 * time.Second
	maxShots     = 4000 // calls under way; what is due beyond it is counted as failed
)

// overloadRow is the line of P14.
type overloadRow struct {
	capacity, offered        int // calls a second
	good, shed, late, failed int
	seconds                  float64
}

func (o overloadRow) verdict() verdict {
	rate := float64(o.good) / o.seconds
	v := verdict{
		"P14", fmt.Sprintf("goodput within %s of %d calls a second, capacity %d (backend %s)", goodWithin, o.offered, o.capacity, serviceTime),
		fmt.Sprintf("%.0f a second; %d shed with 503, %d late, %d failed", rate, o.shed, o.late, o.failed), fmt.Sprint(o.capacity), "–", "≥ 80 % of the capacity", "–",
	}
	if o.capacity > 0 {
		share := rate / float64(o.capacity)
		v.ratio, v.reached = fmt.Sprintf("%.2f", share), yesNo(share >= 0.8 && o.failed == 0)
	}
	return v
}

// runOverload is P14: three times what --max-inflight lets through, open loop.
func (b *bench) runOverload(ctx context.Context) {
	if b.floors {
		return
	}
	if err := b.overload(ctx); err != nil {
		b.fail("P14", err)
	}
}

func (b *bench) overload(ctx context.Context) error {
	backend, err := b.startBackend(ctx, modern, "json", "--slow", serviceTime.String())
	if err != nil {
		return err
	}
	defer backend.stop()
	// 1. What the machine can carry. The capacity is a tenth of it, or it would be
	// the load itself that is overloaded.
	probe, err := b.startEdge(ctx, backend.addrs)
	if err != nil {
		return err
	}
	f, err := openFleet(ctx, probe.addr, modern, 16)
	var r run
	if err == nil {
		r, err = f.drive(ctx, "echo", 5000)
		f.hangUp()
	}
	probe.stop()
	if err != nil {
		return probe.fault(err)
	}
	slots := min(max(int(5000/r.elapsed.Seconds()*0.1*serviceTime.Seconds()), 2), 16)
	// 2. The edge, at half of what it carries and then at three times.
	e, err := b.startEdge(ctx, backend.addrs, "--max-inflight", strconv.Itoa(slots))
	if err != nil {
		return err
	}
	defer e.stop()
	row := overloadRow{capacity: int(float64(slots) / serviceTime.Seconds()), seconds: overloadHold.Seconds()}
	row.offered = 3 * row.capacity
	g := &gun{addr: e.addr}
	defer g.close()
	g.number = firstNumber
	g.fire(ctx, row.capacity/2, time.Second)
	for _, s := range g.fire(ctx, row.offered, overloadHold) {
		switch {
		case s.err == nil && s.took <= goodWithin:
			row.good++
		case s.err == nil:
			row.late++
		case errors.Is(s.err, errShed):
			row.shed++
		default:
			row.failed++
			err = s.err
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	b.report.overload = append(b.report.overload, row)
	b.say("P14: %s", row.verdict().value)
	return e.fault(err)
}

// gun sends calls by the clock, each on a connection that no other call is on.
type gun struct {
	addr string

	mu     sync.Mutex
	free   []*client
	opened int
	number uint64
}

// shot is one call of an open loop.
type shot struct {
	took time.Duration // from when it was due
	err  error
}

var (
	errShed = errors.New("answered with 503")
	errFull = fmt.Errorf("more than %d calls under way", maxShots)
)

// fire sends rate calls a second for as long as d, and waits for their ends.
func (g *gun) fire(ctx context.Context, rate int, d time.Duration) []shot {
	shots := make([]shot, int(float64(rate)*d.Seconds()))
	places := make(chan struct{}, maxShots)
	var all sync.WaitGroup
	began := time.Now()
	for i := range shots {
		due := began.Add(time.Duration(float64(i) / float64(rate) * float64(time.Second)))
		time.Sleep(time.Until(due))
		if ctx.Err() != nil {
			return shots[:i]
		}
		select {
		case places <- struct{}{}:
		default:
			shots[i].err = errFull
			continue
		}
		all.Go(func() {
			defer func() { <-places }()
			err := g.shoot(ctx)
			shots[i] = shot{time.Since(due), err}
		})
	}
	all.Wait()
	return shots
}

func (g *gun) shoot(ctx context.Context) error {
	g.mu.Lock()
	var c *client
	if n := len(g.free); n > 0 {
		c, g.free = g.free[n-1], g.free[:n-1]
	} else {
		g.opened++
	}
	g.number++
	number, opened := g.number, g.opened
	g.mu.Unlock()
	if c == nil {
		var err error
		if c, err = dial(ctx, g.addr, modern, opened); err != nil {
			return err
		}
		if err := c.open(); err != nil {
			c.conn.Close()
			return err
		}
	}
	c.deadline(handshakeLimit)
	err := c.call("slow", number)
	if c.answer.status == 503 {
		err = errShed
	}
	if c.answer.closes || err != nil && !errors.Is(err, errShed) {
		c.conn.Close()
		return err
	}
	g.mu.Lock()
	g.free = append(g.free, c)
	g.mu.Unlock()
	return err
}

func (g *gun) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.free {
		c.conn.Close()
	}
}
