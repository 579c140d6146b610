package main

import (
	"context"
	"strconv"
	"sync"
	"time"
)

const (
	serviceTime = 20 * time.Millisecond // of the backend
	goodWithin  = 40 * time.Millisecond // what counts as goodput
)

// runOverload is G26 and P14: three times what the edge may carry, open loop:
// calls come by the clock, whether or not earlier ones have been answered.
func runOverload(ctx context.Context, s *storm) error {
	hold := s.span(s.length, 60*time.Second, 5*time.Second, "load")
	b, err := s.newBackend(modern, nil)
	if err != nil {
		return err
	}
	probe, err := s.start(ctx, []string{b.addr})
	if err != nil {
		return err
	}
	var n numbers
	most, err := s.ceiling(ctx, probe.addr, &n)
	probe.stop()
	if err != nil {
		return probe.fault(err)
	}
	// Three times the capacity must be well below what the machine can carry, or
	// it would be the load itself that is overloaded.
	slots := min(max(int(float64(most)/3*0.3*serviceTime.Seconds()), 2), 16)
	capacity := int(float64(slots) / serviceTime.Seconds())
	e, err := s.start(ctx, []string{b.addr}, "--max-inflight", strconv.Itoa(slots))
	if err != nil {
		return err
	}
	gun := &openLoop{addr: e.addr, work: work{Ms: int(serviceTime.Milliseconds())}, numbers: &n}
	defer gun.close()

	// 1. Half of what it can carry, to warm up and for the memory.
	gun.run(ctx, capacity/2, 2*time.Second)
	base, err := resident(e.pid())
	if err != nil {
		return e.fault(err)
	}
	// 2. Three times.
	top := peak(e.pid())
	storm := gun.run(ctx, 3*capacity, hold)
	ended := time.Now()
	// 3. Half again: from when on are all calls answered in time?
	const after = 6 * time.Second
	calm := gun.run(ctx, capacity/2, after)
	highest := top()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	recovery := recovered(calm, ended)

	good, shed, late, failed := sortShots(storm)
	goodput := float64(good) / hold.Seconds()
	s.bar(goodput >= 0.8*float64(capacity), "80 %", "capacity %d a second (--max-inflight %d, backend %s), offered %d: goodput %.0f within %s, %.0f %%", capacity, slots, serviceTime, 3*capacity, goodput, goodWithin, 100*goodput/float64(capacity))
	s.bar(failed == 0, "0", "%d of %d shed with 503, %d late, %d failed in another way", shed, len(storm), late, failed)
	s.bar(highest-base <= 64<<20, "+ 64 MiB", "resident %.0f MiB at the most, %.0f before", mib(highest), mib(base))
	s.bar(recovery >= 0 && recovery <= 5*time.Second, "5 s", "every call answered in time from %.1f s after", recovery.Seconds())
	var took []time.Duration
	for _, one := range storm {
		if one.err == nil && one.took > 0 {
			took = append(took, one.took)
		}
	}
	s.tell("of those served p50 %.1f ms, p99 %.1f ms; %d connections", millis(percentile(took, 0.5)), millis(percentile(took, 0.99)), gun.opened)
	return nil
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// shot is one call of an open loop.
type shot struct {
	number int64         // of the call
	at     time.Time     // when it was due
	took   time.Duration // from when it was due until it was answered
	err    error
}

// sortShots counts shots by how they ended.
func sortShots(shots []shot) (good, shed, late, failed int) {
	for _, one := range shots {
		switch {
		case one.err == nil && one.took <= goodWithin:
			good++
		case one.err == nil:
			late++
		case one.err == errBusy:
			shed++
		default:
			failed++
		}
	}
	return good, shed, late, failed
}

// recovered is how long after a moment the last call was due that was not
// answered in time; -1 when that was so to the end, or nothing was due.
func recovered(shots []shot, from time.Time) time.Duration {
	last, end := time.Duration(0), time.Duration(0)
	for _, one := range shots {
		end = max(end, one.at.Sub(from))
		if one.err != nil || one.took > 5*goodWithin {
			last = max(last, one.at.Sub(from))
		}
	}
	if len(shots) == 0 || end-last < time.Second {
		return -1
	}
	return last
}

// openLoop sends calls by the clock, each on a connection that no other call
// is on.
type openLoop struct {
	addr    string
	work    work
	numbers *numbers

	mu     sync.Mutex
	free   []*client
	opened int
}

// maxShots bounds the calls under way: beyond it the load is no longer open,
// and what is due is counted as failed.
const maxShots = 4000

// run sends rate calls a second for as long as d, and waits for their ends.
func (g *openLoop) run(ctx context.Context, rate int, d time.Duration) []shot {
	shots := make([]shot, int(float64(rate)*d.Seconds()))
	places := make(chan struct{}, maxShots)
	var wait sync.WaitGroup
	began := time.Now()
	for i := range shots {
		at := began.Add(time.Duration(float64(i) / float64(rate) * float64(time.Second)))
		if early := time.Until(at); early > 0 {
			time.Sleep(early)
		}
		one := &shots[i]
		one.at = at
		if ctx.Err() != nil {
			one.err = ctx.Err()
			continue
		}
		select {
		case places <- struct{}{}:
		default:
			one.err = errWrong
			continue
		}
		wait.Go(func() {
			defer func() { <-places }()
			one.err = g.shoot(ctx, one)
			one.took = time.Since(one.at)
		})
	}
	wait.Wait()
	return shots
}

func (g *openLoop) shoot(ctx context.Context, s *shot) error {
	g.mu.Lock()
	var c *client
	if n := len(g.free); n > 0 {
		c = g.free[n-1]
		g.free = g.free[:n-1]
	} else {
		g.opened++
	}
	from := g.opened
	g.mu.Unlock()
	if c == nil {
		var err error
		if c, err = dial(ctx, g.addr, modern, dialOptions{from: from}); err != nil {
			return err
		}
	}
	s.number = g.numbers.next()
	text := strconv.FormatInt(s.number, 10)
	one := g.work
	one.Text = text
	c.wait(patience)
	closes, err := c.call(text, one)
	if closes || err != nil && err != errBusy {
		c.close()
		return err
	}
	g.mu.Lock()
	g.free = append(g.free, c)
	g.mu.Unlock()
	return err
}

func (g *openLoop) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	closeAll(g.free)
	g.free = nil
}
