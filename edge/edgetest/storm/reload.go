package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// runReload is G01: the configuration changes under load. Clients of both eras
// call two backends; between them and a third the configuration alternates:
// there is a new backend, it is gone again, a backend that is called has another
// timeout and is thus opened anew. Each of the three ways to reload has its
// turn: the file changes, SIGHUP, POST /-/reload.
func runReload(ctx context.Context, s *storm) error {
	times := s.size(s.count, 50, 8, "reloads")
	hold := s.span(s.length, 60*time.Second, 9600*time.Millisecond, "load")
	book := newLedger()
	var addrs []string
	for _, e := range []era{modern, legacy, modern} {
		b, err := s.newBackend(e, func(b *backend) { b.arrived = book.arrived })
		if err != nil {
			return err
		}
		addrs = append(addrs, b.addr)
	}
	sets := reloadSets(addrs)
	manifest, err := s.write(sets[0])
	if err != nil {
		return err
	}
	e, err := s.startOn(ctx, manifest)
	if err != nil {
		return err
	}
	var n numbers
	most, err := s.ceiling(ctx, e.addr, &n, 2)
	if err != nil {
		return e.fault(err)
	}
	rate, fresh := s.steady(most, 5000), s.fresh(most)

	load := func(length time.Duration, kept, once *tally) (wait func()) {
		ctx, cancel := context.WithTimeout(ctx, length)
		var parts sync.WaitGroup
		parts.Go(func() {
			pace{addr: e.addr, era: both, conns: 32, rate: rate, tool: among(0, 2), numbers: &n}.run(ctx, kept)
		})
		parts.Go(func() {
			pace{addr: e.addr, era: only(modern), conns: 32, rate: fresh, once: true, from: 1000, tool: among(0, 2), numbers: &n}.run(ctx, once)
		})
		return func() { parts.Wait(); cancel() }
	}

	// 1. The same load without a reload.
	var baseKept, baseOnce tally
	load(max(hold/6, time.Second), &baseKept, &baseOnce)()
	base := baseKept.percentile(0.99)
	if f := baseKept.failed() + baseOnce.failed(); f > 0 {
		return e.fault(fmt.Errorf("%d calls failed before the first reload: %s %s", f, baseKept.reasons(), baseOnce.reasons()))
	}
	// 2. And with reloads.
	before, err := e.status(ctx)
	if err != nil {
		return err
	}
	kept, once := tally{keep: true}, tally{}
	wait := load(hold, &kept, &once)
	began := time.Now()
	var at []time.Time
	for i := range times {
		due := began.Add(time.Duration(float64(i)+0.5) * hold / time.Duration(times))
		if !sleep(ctx, time.Until(due)) {
			break
		}
		at = append(at, time.Now())
		if err := s.changeTo(ctx, e, manifest, sets[(i+1)%len(sets)], i%3); err != nil {
			wait()
			return e.fault(err)
		}
	}
	wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	after, err := e.status(ctx)
	if err != nil {
		return err
	}

	// 3. What it comes to.
	failed := kept.failed() + int(kept.refused.Load()) + int(kept.ended.Load())
	failedOnce := once.failed() + int(once.refused.Load())
	s.bar(failed == 0 && kept.right.Load() > 0, "0", "%d reloads in %.0f s at %d rps: %d of %d calls on connections that stay open failed", times, hold.Seconds(), rate, failed, kept.sent.Load())
	s.bar(failedOnce == 0 && once.right.Load() > 0, "0", "%d of %d calls on new connections failed", failedOnce, once.sent.Load())
	all, near := kept.percentile(0.99), percentile(kept.near(at, 300*time.Millisecond), 0.99)
	s.bar(all <= 2*base, "2 × base", "p99 %.1f ms with reloads, %.1f ms without: %.2f ×", millis(all), millis(base), float64(all)/float64(max(base, 1)))
	s.tell("p99 of the calls answered within 300 ms of a reload %.1f ms", millis(near))
	s.bar(after.Reloads-before.Reloads >= int64(times) && after.Reload == "", "each", "%d reloads done for %d changes, by the file, SIGHUP and POST; last complaint %q", after.Reloads-before.Reloads, times, after.Reload)
	s.tell("sessions lost: %d; calls p50 %.1f ms", kept.ended.Load(), millis(kept.percentile(0.5)))
	for _, t := range []*tally{&kept, &once} {
		if t.failed() > 0 || t.refused.Load() > 0 {
			ran, unseen := book.ran(t.lost)
			s.note("%s; of those without an answer the backend ran %d and never saw %d", t.reasons(), ran, unseen)
		}
	}
	e.stop()
	return s.reloadBesideHung(ctx)
}

// reloadBesideHung reloads while one backend takes requests and says nothing,
// which must not hold up the calls of the others.
func (s *storm) reloadBesideHung(ctx context.Context) error {
	const most = 500 * time.Millisecond
	var addrs []string
	for _, m := range []mood{well, well, slow} {
		b, err := s.newBackend(modern, nil)
		if err != nil {
			return err
		}
		b.mood.Store(int32(m))
		addrs = append(addrs, b.addr)
	}
	one := planOf(addrs)
	one.prefixed = true
	other := one
	one.operational = "{failureHandling: {partialFailureMode: best_effort}}"
	other.operational = "{failureHandling: {partialFailureMode: best_effort}, timeouts: {perWorkload: {backend-2: 29s}}}"
	manifest, err := s.write(one)
	if err != nil {
		return err
	}
	e, err := s.startOn(ctx, manifest)
	if err != nil {
		return err
	}
	var n numbers
	load := pace{addr: e.addr, era: both, conns: 8, rate: 200, tool: among(0, 2), numbers: &n}
	var before, after tally
	during(ctx, 4*time.Second, func(ctx context.Context) { load.run(ctx, &before) }) // what it costs at the start is another question
	var fault error
	during(ctx, 5*time.Second, func(ctx context.Context) { load.run(ctx, &after) }, func(ctx context.Context) {
		if sleep(ctx, time.Second) {
			fault = s.changeTo(ctx, e, manifest, other, byPost)
		}
	})
	if fault != nil {
		return e.fault(fault)
	}
	longest := after.percentile(1)
	s.bar(after.failed() == 0 && longest <= most, "0 failed, "+most.String(), "a reload beside a backend that says nothing: %d of %d calls to the others failed, the longest took %.2f s", after.failed(), after.sent.Load(), longest.Seconds())
	return nil
}

// reloadSets are the configurations that follow each other in a ring. The first
// two backends are in all of them.
func reloadSets(addrs []string) []plan {
	two, three := planOf(addrs[:2]), planOf(addrs)
	other := planOf(addrs[:2])
	for _, p := range []*plan{&two, &three, &other} {
		p.prefixed = true
	}
	other.operational = "{timeouts: {perWorkload: {backend-2: 29s}}}"
	return []plan{two, three, two, other}
}

// The ways to have the edge reload.
const (
	byFile = iota
	byHangup
	byPost
)

// changeTo puts a configuration in the place of the one before, and has the
// edge read it.
func (s *storm) changeTo(ctx context.Context, e *edge, manifest string, p plan, way int) error {
	temporary := manifest + ".new"
	if err := os.WriteFile(temporary, []byte(p.text()), 0o600); err != nil {
		return err
	}
	if err := os.Rename(temporary, manifest); err != nil {
		return err
	}
	switch way {
	case byHangup:
		e.signal(syscall.SIGHUP)
	case byPost:
		return e.reload(ctx)
	}
	return nil
}

// reload has the edge reload, and waits until it has.
func (e *edge) reload(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+e.admin+"/-/reload", strings.NewReader(""))
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("reload: %w", err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 {
		return fmt.Errorf("reload: HTTP %d", resp.StatusCode)
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
