package main

import (
	"context"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// runReload is G01: the configuration changes under load. Clients of both eras
// call two backends; between them and a third the configuration alternates:
// there is a new backend, it is gone again, a backend that is called has another
// timeout and is thus opened anew. Each of the three ways to reload has its
// turn: the file changes, SIGHUP, POST /-/reload.
func runReload(ctx context.Context, s *storm) {
	times := s.size(s.count, 50, 8, "reloads")
	hold := s.span(s.length, 60*time.Second, 9600*time.Millisecond, "load")
	book := newLedger()
	var addrs []string
	for _, e := range []kit.Era{kit.Modern, kit.Legacy, kit.Modern} {
		b := s.newBackend(e, func(b *kit.Backend) { b.Arrived = book.arrived })
		addrs = append(addrs, b.Addr)
	}
	sets := reloadSets(addrs)
	manifest := s.write(sets[0])
	e := s.startOn(ctx, manifest)
	var n kit.Numbers
	most := s.ceiling(ctx, e.Addr, &n, 2)
	rate, fresh := s.steady(most, 5000), s.fresh(most)

	load := func(length time.Duration, kept, once *tally) (wait func()) {
		ctx, cancel := context.WithTimeout(ctx, length)
		var parts sync.WaitGroup
		parts.Go(func() {
			pace{addr: e.Addr, era: kit.Mixed, conns: 32, rate: rate, tool: among(0, 2), numbers: &n}.run(ctx, kept)
		})
		parts.Go(func() {
			pace{addr: e.Addr, era: only(kit.Modern), conns: 32, rate: fresh, once: true, from: 1000, tool: among(0, 2), numbers: &n}.run(ctx, once)
		})
		return func() { parts.Wait(); cancel() }
	}

	// 1. The same load without a reload.
	var baseKept, baseOnce tally
	load(max(hold/6, time.Second), &baseKept, &baseOnce)()
	base := baseKept.percentile(990)
	if f := baseKept.failed() + baseOnce.failed(); f > 0 {
		kit.Fail("%d calls failed before the first reload: %s %s", f, baseKept.reasons(), baseOnce.reasons())
	}
	// 2. And with reloads.
	before := kit.Must(e.Status(ctx))
	kept, once := tally{keep: true}, tally{}
	wait := load(hold, &kept, &once)
	began := time.Now()
	var at []time.Time
	for i := range times {
		due := began.Add(time.Duration(float64(i)+0.5) * hold / time.Duration(times))
		if !kit.Sleep(ctx, time.Until(due)) {
			break
		}
		at = append(at, time.Now())
		kit.Check(changeTo(ctx, e, manifest, sets[(i+1)%len(sets)], i%3))
	}
	wait()
	kit.Check(ctx.Err())
	after := kit.Must(e.Status(ctx))

	// 3. What it comes to.
	failed := kept.failed() + int(kept.refused.Load()) + int(kept.ended.Load())
	failedOnce := once.failed() + int(once.refused.Load())
	s.bar(failed == 0 && kept.right.Load() > 0, "0", "%d reloads in %.0f s at %d rps: %d of %d calls on connections that stay open failed", times, hold.Seconds(), rate, failed, kept.sent.Load())
	s.bar(failedOnce == 0 && once.right.Load() > 0, "0", "%d of %d calls on new connections failed", failedOnce, once.sent.Load())
	all, near := kept.percentile(990), kit.Percentile(kept.near(at, 300*time.Millisecond), 990)
	s.bar(all <= 2*base, "2 × base", "p99 %.1f ms with reloads, %.1f ms without: %.2f ×", kit.Millis(all), kit.Millis(base), float64(all)/float64(max(base, 1)))
	s.tell("p99 of the calls answered within 300 ms of a reload %.1f ms", kit.Millis(near))
	s.bar(after.Reloads-before.Reloads >= int64(times) && after.Reload == "", "each", "%d reloads done for %d changes, by the file, SIGHUP and POST; last complaint %q", after.Reloads-before.Reloads, times, after.Reload)
	s.tell("sessions lost: %d; calls p50 %.1f ms", kept.ended.Load(), kit.Millis(kept.percentile(500)))
	for _, t := range []*tally{&kept, &once} {
		if t.failed() > 0 || t.refused.Load() > 0 {
			ran, unseen := book.ran(t.lost)
			s.note("%s; of those without an answer the backend ran %d and never saw %d", t.reasons(), ran, unseen)
		}
	}
	e.Stop()
	s.reloadBesideHung(ctx)
}

// reloadBesideHung reloads while one backend takes requests and says nothing,
// which must not hold up the calls of the others.
func (s *storm) reloadBesideHung(ctx context.Context) {
	const most = 500 * time.Millisecond
	var addrs []string
	for _, m := range []int32{kit.Well, kit.Well, kit.Stuck} {
		b := s.newBackend(kit.Modern, nil)
		b.Mood.Store(m)
		addrs = append(addrs, b.Addr)
	}
	one := kit.PlanOf(addrs...)
	one.Prefixed = true
	other := one
	one.Config = operational("{failureHandling: {partialFailureMode: best_effort}}")
	other.Config = operational("{failureHandling: {partialFailureMode: best_effort}, timeouts: {perWorkload: {backend-2: 29s}}}")
	manifest := s.write(one)
	e := s.startOn(ctx, manifest)
	var n kit.Numbers
	load := pace{addr: e.Addr, era: kit.Mixed, conns: 8, rate: 200, tool: among(0, 2), numbers: &n}
	var before, after tally
	during(ctx, 4*time.Second, func(ctx context.Context) { load.run(ctx, &before) }) // what it costs at the start is another question
	var fault error
	during(ctx, 5*time.Second, func(ctx context.Context) { load.run(ctx, &after) }, func(ctx context.Context) {
		if kit.Sleep(ctx, time.Second) {
			fault = changeTo(ctx, e, manifest, other, byPost)
		}
	})
	kit.Check(fault)
	longest := after.percentile(1000)
	s.bar(after.failed() == 0 && longest <= most, "0 failed, "+most.String(), "a reload beside a backend that says nothing: %d of %d calls to the others failed, the longest took %.2f s", after.failed(), after.sent.Load(), longest.Seconds())
}

// reloadSets are the configurations that follow each other in a ring. The first
// two backends are in all of them.
func reloadSets(addrs []string) []kit.Plan {
	two, three := kit.PlanOf(addrs[:2]...), kit.PlanOf(addrs...)
	other := kit.PlanOf(addrs[:2]...)
	for _, p := range []*kit.Plan{&two, &three, &other} {
		p.Prefixed = true
	}
	other.Config = operational("{timeouts: {perWorkload: {backend-2: 29s}}}")
	return []kit.Plan{two, three, two, other}
}

// The ways to have the edge reload.
const (
	byFile = iota
	byHangup
	byPost
)

// changeTo puts a configuration in the place of the one before, and tells the
// edge to read it.
func changeTo(ctx context.Context, e *kit.Edge, manifest string, p kit.Plan, way int) error {
	temporary := manifest + ".new"
	if err := os.WriteFile(temporary, []byte(p.Text()), 0o600); err != nil {
		return err
	}
	if err := os.Rename(temporary, manifest); err != nil {
		return err
	}
	switch way {
	case byHangup:
		e.Signal(syscall.SIGHUP)
	case byPost:
		return e.Reload(ctx)
	}
	return nil
}

// near returns what the calls took that were answered within some time after
// one of the moments, which are in order.
func (t *tally) near(moments []time.Time, within time.Duration) (took []time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, one := range t.stamps {
		for _, m := range moments {
			if d := one.at.Sub(m); d >= 0 && d <= within {
				took = append(took, one.took)
				break
			}
		}
	}
	return took
}
