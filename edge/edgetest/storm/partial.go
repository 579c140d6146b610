package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"
)

// What the configuration of partial says.
const (
	sickTimeout    = time.Second     // of a call
	probeTimeout   = time.Second     // healthCheckTimeout
	breakerAfter   = 5               // failureThreshold
	breakerTimeout = 5 * time.Second // circuitBreaker.timeout
	partialSetup   = "{timeouts: {default: 1s}, failureHandling: {partialFailureMode: best_effort, healthCheckTimeout: 1s, circuitBreaker: {enabled: true, failureThreshold: 5, timeout: 5s}}}"
)

// ailment is something that befalls a backend.
type ailment struct {
	name string
	ill  func(*backend)
	heal func(*backend) error
}

func ailments() []ailment {
	feels := func(m mood) func(*backend) { return func(b *backend) { b.mood.Store(int32(m)) } }
	recovers := func(b *backend) error { b.mood.Store(int32(well)); return nil }
	return []ailment{
		{"dead", (*backend).down, (*backend).up},
		{"slow (30 s)", feels(slow), recovers},
		{"resetting", feels(resets), recovers},
	}
}

// runPartial is G06: one of five backends is dead, slow, or resets connections,
// and the others must not feel it.
func runPartial(ctx context.Context, s *storm) error {
	for _, e := range []era{modern, legacy} {
		if s.quick && e == legacy {
			s.scale("the sick backend of the modern era alone")
			break
		}
		for _, a := range ailments() {
			if err := s.partialBy(ctx, e, a); err != nil {
				return fmt.Errorf("%s, %s backend: %w", a.name, e, err)
			}
		}
	}
	return nil
}

func (s *storm) partialBy(ctx context.Context, sick era, a ailment) error {
	const count = 5
	hold := s.span(s.length, 10*time.Second, 2*time.Second, "load")
	p := plan{prefixed: true, operational: partialSetup}
	var last *backend
	for i := range count {
		e := both(i)
		if i == count-1 {
			e = sick
		}
		b, err := s.newBackend(e, nil)
		if err != nil {
			return err
		}
		last = b
		p.backends = append(p.backends, seat{"backend-" + strconv.Itoa(i+1), b.addr})
	}
	sickName := p.backends[count-1].name
	e, err := s.startPlan(ctx, p)
	if err != nil {
		return err
	}
	defer e.stop()
	var n numbers
	most, err := s.ceiling(ctx, e.addr, &n, count)
	if err != nil {
		return e.fault(err)
	}
	rate := s.steady(most, 1000)
	others := pace{addr: e.addr, era: both, conns: 32, rate: rate * (count - 1) / count, tool: among(0, count-1), numbers: &n}
	sicks := pace{addr: e.addr, era: both, conns: 32, rate: max(rate/count, 1), from: 500, tool: among(count-1, 1), numbers: &n}
	circuit := func() (backendStatus, error) {
		now, err := e.status(ctx)
		return now.backend(sickName), err
	}

	// 1. All is well.
	var base, baseSick tally
	during(ctx, hold, func(ctx context.Context) { others.run(ctx, &base) }, func(ctx context.Context) { sicks.run(ctx, &baseSick) })
	if f := base.failed() + baseSick.failed(); f > 0 || ctx.Err() != nil {
		return e.fault(fmt.Errorf("%d calls failed while all was well: %s %s", f, base.reasons(), baseSick.reasons()))
	}

	// 2. It falls ill. One client calls it, one call after the other, until its
	// breaker is open; then as many as before.
	var with, withSick tally
	loading, unload := context.WithCancel(ctx)
	defer unload()
	var load sync.WaitGroup
	load.Go(func() { others.run(loading, &with) })
	before, err := circuit()
	if err != nil {
		return err
	}
	one, err := dial(ctx, e.addr, modern, dialOptions{from: 999})
	if err != nil {
		return err
	}
	defer func() { one.close() }()
	one.tool = toolOf(count - 1)
	a.ill(last)
	made := 0
	now := before
	for ; made < 4*breakerAfter && now.CircuitBreakerState != "open"; made++ {
		if one, err = again(ctx, one, &n); err != nil && ctx.Err() != nil {
			return ctx.Err()
		}
		if now, err = circuit(); err != nil {
			return err
		}
	}
	let := now.Calls - before.Calls
	during(ctx, hold, func(ctx context.Context) { sicks.run(ctx, &withSick) })
	if now, err = circuit(); err != nil {
		return err
	}
	through := now.Calls - before.Calls - let
	unload()
	load.Wait()

	// 3. It is well again.
	if err := a.heal(last); err != nil {
		return err
	}
	healed := time.Now()
	recovery := time.Duration(-1)
	for time.Since(healed) < 4*breakerTimeout && ctx.Err() == nil {
		if one, err = again(ctx, one, &n); err == nil {
			recovery = time.Since(healed)
			break
		}
		if !sleep(ctx, 20*time.Millisecond) {
			return ctx.Err()
		}
	}
	var after tally
	during(ctx, time.Second, func(ctx context.Context) { sicks.run(ctx, &after) })

	who := fmt.Sprintf("%s, %s: ", a.name, sick)
	failed := with.failed() + int(with.refused.Load()) + int(with.ended.Load())
	s.bar(failed == 0 && with.right.Load() > 0, "0", "%s%d of %d calls to the other four failed, at %d rps in all", who, failed, with.sent.Load(), rate)
	p0, p1 := base.percentile(0.99), with.percentile(0.99)
	s.tell("%stheir p99 %.1f ms, %.1f ms before: %+.0f %% (aim ±10 %%)", who, millis(p1), millis(p0), 100*(float64(p1)/float64(max(p0, 1))-1))
	s.bar(let <= breakerAfter+1 && made < 4*breakerAfter, "threshold 5 + 1", "%sthe breaker let %d calls through and opened", who, let)
	s.bar(recovery >= 0 && recovery <= breakerTimeout+probeTimeout, "timeout 5 s + 1 probe of 1 s", "%swell again %.1f s after it was healed", who, recovery.Seconds())
	s.bar(after.failed() == 0 && after.right.Load() > 0, "0", "%s%d of %d calls to it failed then", who, after.failed(), after.sent.Load())
	s.tell("%swhile it was open %d of %d calls were let through; refused within p99 %.1f ms", who, through, withSick.sent.Load(), millis(withSick.refusals()))
	if failed > 0 || after.failed() > 0 {
		s.note("%s%s %s", who, with.reasons(), after.reasons())
	}
	return nil
}

// again makes a call, on a new connection when the one before has ended; the
// error says how the call ended.
func again(ctx context.Context, c *client, n *numbers) (*client, error) {
	if c.closed() {
		next, err := dial(ctx, c.addr, c.era, dialOptions{from: 999})
		if err != nil {
			return c, err
		}
		c.close()
		next.tool, next.session = c.tool, c.session
		c = next
	}
	text := strconv.FormatInt(n.next(), 10)
	c.wait(patience)
	closes, err := c.call(text, work{Text: text})
	if closes {
		c.close()
	}
	return c, err
}

// during does things at the same time until some time has passed.
func during(ctx context.Context, length time.Duration, things ...func(context.Context)) {
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	var work sync.WaitGroup
	for _, f := range things {
		work.Go(func() { f(ctx) })
	}
	work.Wait()
}
