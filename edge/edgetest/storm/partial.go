package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
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
	ill  func(*kit.Backend)
	heal func(*kit.Backend) error
}

func ailments() []ailment {
	feels := func(m int32) func(*kit.Backend) { return func(b *kit.Backend) { b.Mood.Store(m) } }
	recovers := func(b *kit.Backend) error { b.Mood.Store(kit.Well); return nil }
	return []ailment{
		{"dead", (*kit.Backend).Down, (*kit.Backend).Up},
		{"slow (30 s)", feels(kit.Stuck), recovers},
		{"resetting", feels(kit.Resets), recovers},
	}
}

// runPartial is G06: one of five backends is dead, slow, or resets connections,
// and the others must not feel it.
func runPartial(ctx context.Context, s *storm) {
	for _, e := range []kit.Era{kit.Modern, kit.Legacy} {
		if s.quick && e == kit.Legacy {
			s.scale("the sick backend of the modern era alone")
			break
		}
		for _, a := range ailments() {
			s.partialBy(ctx, e, a)
		}
	}
}

func (s *storm) partialBy(ctx context.Context, sick kit.Era, a ailment) {
	const count = 5
	hold := s.span(s.length, 10*time.Second, 2*time.Second, "load")
	var last *kit.Backend
	var addrs []string
	for i := range count {
		e := kit.Mixed(i)
		if i == count-1 {
			e = sick
		}
		last = s.newBackend(e, nil)
		addrs = append(addrs, last.Addr)
	}
	p := kit.PlanOf(addrs...)
	p.Prefixed, p.Config = true, operational(partialSetup)
	e := s.startPlan(ctx, p)
	defer e.Stop()
	var n kit.Numbers
	most := s.ceiling(ctx, e.Addr, &n, count)
	rate := s.steady(most, 1000)
	others := pace{addr: e.Addr, era: kit.Mixed, conns: 32, rate: rate * (count - 1) / count, tool: among(0, count-1), numbers: &n}
	sicks := pace{addr: e.Addr, era: kit.Mixed, conns: 32, rate: max(rate/count, 1), from: 500, tool: among(count-1, 1), numbers: &n}
	circuit := func() (kit.BackendStatus, error) {
		now, err := e.Status(ctx)
		return now.Backend(kit.NameOf(count - 1)), err
	}

	// 1. All is well.
	var base, baseSick tally
	during(ctx, hold, func(ctx context.Context) { others.run(ctx, &base) }, func(ctx context.Context) { sicks.run(ctx, &baseSick) })
	if f := base.failed() + baseSick.failed(); f > 0 || ctx.Err() != nil {
		kit.Fail("%d calls failed while all was well: %s %s", f, base.reasons(), baseSick.reasons())
	}

	// 2. It falls ill. One client calls it, one call after the other, until its
	// breaker is open; then as many as before.
	var with, withSick tally
	loading, unload := context.WithCancel(ctx)
	defer unload()
	var load sync.WaitGroup
	load.Go(func() { others.run(loading, &with) })
	before := kit.Must(circuit())
	one := kit.Must(kit.Dial(ctx, e.Addr, kit.Modern, kit.DialOptions{From: 999}))
	defer func() { one.Close() }()
	one.Tool = toolOf(count - 1)
	a.ill(last)
	made := 0
	now := before
	for ; made < 4*breakerAfter && now.CircuitBreakerState != "open"; made++ {
		one, _ = again(ctx, one, &n)
		kit.Check(ctx.Err())
		now = kit.Must(circuit())
	}
	let := now.Calls - before.Calls
	during(ctx, hold, func(ctx context.Context) { sicks.run(ctx, &withSick) })
	now = kit.Must(circuit())
	through := now.Calls - before.Calls - let
	unload()
	load.Wait()

	// 3. It is well again.
	kit.Check(a.heal(last))
	healed := time.Now()
	recovery := time.Duration(-1)
	for time.Since(healed) < 4*breakerTimeout && ctx.Err() == nil {
		var err error
		if one, err = again(ctx, one, &n); err == nil {
			recovery = time.Since(healed)
			break
		}
		kit.Pause(ctx, 20*time.Millisecond)
	}
	var after tally
	during(ctx, time.Second, func(ctx context.Context) { sicks.run(ctx, &after) })

	who := fmt.Sprintf("%s, %s: ", a.name, sick)
	failed := with.failed() + int(with.refused.Load()) + int(with.ended.Load())
	s.bar(failed == 0 && with.right.Load() > 0, "0", "%s%d of %d calls to the other four failed, at %d rps in all", who, failed, with.sent.Load(), rate)
	p0, p1 := base.percentile(990), with.percentile(990)
	s.tell("%stheir p99 %.1f ms, %.1f ms before: %+.0f %% (aim ±10 %%)", who, kit.Millis(p1), kit.Millis(p0), 100*(float64(p1)/float64(max(p0, 1))-1))
	s.bar(let <= breakerAfter+1 && made < 4*breakerAfter, "threshold 5 + 1", "%sthe breaker let %d calls through and opened", who, let)
	s.bar(recovery >= 0 && recovery <= breakerTimeout+probeTimeout, "timeout 5 s + 1 probe of 1 s", "%swell again %.1f s after it was healed", who, recovery.Seconds())
	s.bar(after.failed() == 0 && after.right.Load() > 0, "0", "%s%d of %d calls to it failed then", who, after.failed(), after.sent.Load())
	s.tell("%swhile it was open %d of %d calls were let through; refused within p99 %.1f ms", who, through, withSick.sent.Load(), kit.Millis(withSick.refusals()))
	if failed > 0 || after.failed() > 0 {
		s.note("%s%s %s", who, with.reasons(), after.reasons())
	}
}

// again makes a call, on a new connection when the one before has ended; the
// error says how the call ended.
func again(ctx context.Context, c *kit.Client, n *kit.Numbers) (*kit.Client, error) {
	if c.Closed() {
		next, err := kit.Dial(ctx, c.Addr, c.Era, kit.DialOptions{From: 999})
		if err != nil {
			return c, err
		}
		c.Close()
		next.Tool, next.Session = c.Tool, c.Session
		c = next
	}
	text := strconv.FormatInt(n.Next(), 10)
	c.Wait(kit.Patience)
	closes, err := c.Call(text, kit.Work{Text: text})
	if closes {
		c.Close()
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
