package main

import (
	"context"
	"sync"
	"syscall"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/port"
)

// runReplace is G03: processes take over one address from each other under
// load. Clients keep their connections, and open a new one when the edge says
// that it closes theirs; others open a connection for each call. They are of
// the modern era, whose requests belong to no session: a session of a legacy
// client ends with the process that has it.
func runReplace(ctx context.Context, s *storm) error {
	times := s.size(s.count, 5, 1, "replacements")
	hold := s.span(s.length, 4*time.Second, 1500*time.Millisecond, "between two of them")
	book := newLedger()
	b, err := s.newBackend(modern, func(b *backend) { b.arrived = book.arrived })
	if err != nil {
		return err
	}
	manifest, err := s.manifest([]string{b.addr})
	if err != nil {
		return err
	}
	addr, err := port.Free()
	if err != nil {
		return err
	}
	next := func() (*edge, error) {
		admin, err := port.Free()
		if err != nil {
			return nil, err
		}
		return s.startAt(ctx, manifest, addr, admin, "--reuse-port", "--drain-timeout", drainTimeout.String())
	}
	old, err := next()
	if err != nil {
		return err
	}
	var n numbers
	most, err := s.ceiling(ctx, addr, &n)
	if err != nil {
		return old.fault(err)
	}
	rate := s.steady(most, 2000)
	fresh := 500
	if fresh > most/8 || s.quick {
		fresh = max(min(most/8, 125), 1)
		s.scale("%d of 500 new connections a second", fresh)
	}

	var kept, once tally
	loading, unload := context.WithCancel(ctx)
	defer unload()
	var load sync.WaitGroup
	load.Go(func() {
		pace{addr: addr, era: only(modern), conns: 32, rate: rate, numbers: &n}.run(loading, &kept)
	})
	load.Go(func() {
		pace{addr: addr, era: only(modern), conns: 32, rate: fresh, once: true, from: 1000, numbers: &n}.run(loading, &once)
	})
	slowest := time.Duration(0)
	for i := range times {
		if !sleep(ctx, hold/2) {
			return ctx.Err()
		}
		young, err := next()
		if err != nil {
			return err
		}
		told := time.Now()
		old.signal(syscall.SIGTERM)
		if !old.awaitEnd(drainTimeout + 5*time.Second) {
			return old.fault(ctx.Err())
		}
		slowest = max(slowest, time.Since(told))
		s.say("replacement %d: the new one ready after %s, the old one gone after %s", i+1, young.ready, time.Since(told))
		old = young
		if !sleep(ctx, hold/2) {
			return ctx.Err()
		}
	}
	unload()
	load.Wait()

	keptFailed := kept.failed() + int(kept.refused.Load())
	onceFailed := once.failed() + int(once.refused.Load())
	opened := kept.dials.Load() + once.dials.Load()
	s.bar(keptFailed == 0, "0", "%d replacements at %d rps: %d of %d calls on connections that stay open failed", times, rate, keptFailed, kept.sent.Load())
	s.bar(onceFailed*10_000 <= int(opened), "1 per 10,000 new connections", "%d of %d on new connections, %d connections in all", onceFailed, once.sent.Load(), opened)
	s.bar(slowest <= drainTimeout, drainTimeout.String(), "an old one is gone after %.1f s at most", slowest.Seconds())
	for _, t := range []struct {
		what  string
		tally *tally
	}{{"connections that stay open", &kept}, {"new connections", &once}} {
		if t.tally.failed() > 0 || t.tally.refused.Load() > 0 {
			ran, unseen := book.ran(t.tally.lost)
			s.note("%s: %d calls without an answer ran, %d never reached the backend, %d connections refused (%s)", t.what, ran, unseen, t.tally.refused.Load(), t.tally.reasons())
		}
	}
	return nil
}
