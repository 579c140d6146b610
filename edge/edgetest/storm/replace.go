package main

import (
	"context"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// runReplace is G03: processes take over the sockets of each other under load,
// on the same addresses. Clients keep their connections, and open a new one
// when the edge says that it closes theirs; others open a connection for each
// call. They are of the modern era, whose requests belong to no session: a
// session of a legacy client ends with the process that has it.
func runReplace(ctx context.Context, s *storm) {
	times := s.size(s.count, 5, 1, "replacements")
	hold := s.span(s.length, 4*time.Second, 1500*time.Millisecond, "between two of them")
	book := newLedger()
	b := s.newBackend(kit.Modern, func(b *kit.Backend) { b.Arrived = book.arrived })
	manifest := s.write(kit.PlanOf(b.Addr))
	seat := kit.Must(kit.FreeSeat())
	flags := flagsOfHandOver(manifest)
	old := s.startAt(ctx, manifest, seat, flags...)
	var n kit.Numbers
	most := s.ceiling(ctx, seat.Addr, &n)
	rate := s.steady(most, 2000)
	fresh := s.fresh(most)

	var kept, once tally
	loading, unload := context.WithCancel(ctx)
	defer unload()
	var load sync.WaitGroup
	load.Go(func() {
		pace{addr: seat.Addr, era: only(kit.Modern), conns: 32, rate: rate, numbers: &n}.run(loading, &kept)
	})
	load.Go(func() {
		pace{addr: seat.Addr, era: only(kit.Modern), conns: 32, rate: fresh, once: true, from: 1000, numbers: &n}.run(loading, &once)
	})
	var asked, refused, notReady int
	load.Go(func() {
		for kit.Sleep(loading, 10*time.Millisecond) {
			status, _ := old.Get(loading, "/readyz", time.Second)
			asked++
			switch {
			case loading.Err() != nil:
			case status == 0:
				refused++
			case status != 200:
				notReady++
			}
		}
	})
	slowest := time.Duration(0)
	last := old
	for i := range times {
		kit.Pause(ctx, hold/2)
		young := s.launch(manifest, seat, flags...)
		// Nobody tells the old one to end but the new one, once it serves. Until
		// then either of the two may answer at the addresses.
		if !last.AwaitEnd(kit.ReadyLimit + drainTimeout) {
			kit.Fail("the old process does not end")
		}
		took := time.Since(young.Began)
		kit.Check(young.AwaitReady(ctx, young.Admin))
		slowest = max(slowest, took)
		s.say("replacement %d: the old one is gone %s after the start of the new one", i+1, took)
		last = young
		kit.Pause(ctx, hold/2)
	}
	unload()
	load.Wait()

	keptFailed := kept.failed() + int(kept.refused.Load())
	onceFailed := once.failed() + int(once.refused.Load())
	s.bar(keptFailed == 0 && kept.right.Load() > 0, "0", "%d replacements at %d rps: %d of %d calls on connections that stay open failed", times, rate, keptFailed, kept.sent.Load())
	s.bar(onceFailed == 0 && once.right.Load() > 0, "0", "%d of %d on new connections failed, %d connections in all", onceFailed, once.sent.Load(), kept.dials.Load()+once.dials.Load())
	s.bar(slowest <= drainTimeout, drainTimeout.String(), "an old one is gone %.1f s after the start of the new one at most", slowest.Seconds())
	s.tell("/readyz on the common admin address, every 10 ms: asked %d times, %d × not ready, %d × no answer", asked, notReady, refused)
	for _, t := range []struct {
		what  string
		tally *tally
	}{{"connections that stay open", &kept}, {"new connections", &once}} {
		if t.tally.failed() > 0 || t.tally.refused.Load() > 0 {
			ran, unseen := book.ran(t.tally.lost)
			s.note("%s: %d calls without an answer ran, %d never reached the backend, %d connections refused (%s)", t.what, ran, unseen, t.tally.refused.Load(), t.tally.reasons())
		}
	}
}

// fresh decides how many connections a second are opened for one call each:
// 500, or an eighth of the ceiling where that is less.
func (s *storm) fresh(ceiling int) int {
	const goal = 500
	n := min(goal, ceiling/8)
	if s.quick {
		n = min(n, goal/4)
	}
	n = max(n, 1)
	if n != goal {
		s.scale("%d of %d new connections a second", n, goal)
	}
	return n
}
