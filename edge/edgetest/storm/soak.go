package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"
)

// runSoak is G11: everything at once at half of what the edge can carry, for a
// long time, and nothing grows. Goroutines, files and the kernel's memory for
// its sockets are read at rest, before and after; the heap all the time.
func runSoak(ctx context.Context, s *storm) error {
	said := s.length
	if said == 0 && !s.quick {
		said = 10 * time.Minute
	}
	length := s.span(said, time.Hour, 30*time.Second, "load")
	var addrs []string
	var backends []*backend
	for _, kind := range []era{modern, legacy} {
		b, err := s.newBackend(kind, func(b *backend) { b.feed = ticker(time.Second) })
		if err != nil {
			return err
		}
		backends, addrs = append(backends, b), append(addrs, b.addr)
	}
	p := planOf(addrs)
	p.prefixed = true
	e, err := s.startPlan(ctx, p, "--pprof", "--session-ttl", "5s")
	if err != nil {
		return err
	}
	var n numbers
	most, err := s.ceiling(ctx, e.addr, &n, 2)
	if err != nil {
		return e.fault(err)
	}
	m := mix{addr: e.addr, rate: max(most/2, 10), numbers: &n}
	s.tell("ceiling %d calls a second, load %d", most, m.rate)

	// 1. Some of it, so that whatever comes to life with use has done so, and
	// what is there at rest.
	if err := m.run(ctx, min(max(length/10, 5*time.Second), 30*time.Second), &outcomes{}); err != nil {
		return e.fault(err)
	}
	before, err := s.atRest(ctx, e, backends)
	if err != nil {
		return err
	}
	// 2. All of it.
	var ends outcomes
	heap := heapWatch(ctx, e, max(length/60, time.Second))
	if err := m.run(ctx, length, &ends); err != nil {
		heap()
		return e.fault(err)
	}
	samples := heap()
	// 3. What is left.
	after, err := s.atRest(ctx, e, backends)
	if err != nil {
		return err
	}

	total := ends.kept.sent.Load() + ends.once.sent.Load() + ends.slow.sent.Load()
	failed := ends.kept.failed() + ends.once.failed() + ends.slow.failed()
	s.bar(failed == 0 && total > 0, "0", "%d calls, %d sessions begun and %d left, %d streams opened: %d failed", total, ends.churned, ends.churned, ends.streams, failed)
	hours := length.Hours()
	slope := slopeOf(samples)
	// In a short run the heap's own coming and going is more than a slope.
	bar, may := "1 MiB/h", 1.0
	if hours < 1 {
		bar, may = "1 MiB over the run", 1/hours
	}
	s.bar(slope <= may && len(samples) > 2, bar, "live heap %+.2f MiB/h over %d samples, %.1f MiB at first, %.1f at last", slope, len(samples), firstMiB(samples), lastMiB(samples))
	s.bar(after.goroutines <= before.goroutines+10, "+ 10", "goroutines at rest %d, %d before", after.goroutines, before.goroutines)
	s.bar(after.files <= before.files+5, "+ 5", "open files at rest %d, %d before", after.files, before.files)
	s.bar(after.kernel <= before.kernel+64<<10, "flat (+ 64 KiB)", "kernel memory of its sockets at rest %.0f KiB, %.0f before; all TCP of the machine %.0f KiB, %.0f before", kib(after.kernel, 1), kib(before.kernel, 1), kib(after.machine, 1), kib(before.machine, 1))
	s.tell("resident at rest %.1f MiB, %.1f before; p99 %.1f ms", mib(after.resident), mib(before.resident), millis(ends.kept.percentile(0.99)))
	if failed > 0 {
		s.note("%s %s %s", ends.kept.reasons(), ends.once.reasons(), ends.slow.reasons())
	}
	return nil
}

// ticker feeds a stream with a change of the tools, again and again.
func ticker(every time.Duration) func(*feed) {
	return func(f *feed) {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-f.Gone:
				return
			case <-tick.C:
				if !f.notify("tools/list_changed", "") {
					return
				}
			}
		}
	}
}

// mix is a load of many kinds.
type mix struct {
	addr    string
	rate    int
	numbers *numbers
}

// outcomes is how a mixed load ended.
type outcomes struct {
	kept, once, slow tally
	churned, streams int
}

// run puts the load on for some time: calls on connections that stay open,
// connections with one call each, calls of 200 ms with progress, sessions that
// come and go, streams that open and close, and clients that leave.
func (m mix) run(ctx context.Context, length time.Duration, o *outcomes) error {
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	var all sync.WaitGroup
	var mu sync.Mutex
	var fault error
	fail := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if err != nil && ctx.Err() == nil && fault == nil {
			fault = err
		}
	}
	all.Go(func() {
		pace{addr: m.addr, era: both, conns: 16, rate: max(m.rate*8/10, 1), tool: among(0, 2), numbers: m.numbers}.run(ctx, &o.kept)
	})
	all.Go(func() {
		pace{addr: m.addr, era: only(modern), conns: 8, rate: max(m.rate/10, 1), once: true, from: 100, tool: among(0, 2), numbers: m.numbers}.run(ctx, &o.once)
	})
	all.Go(func() {
		pace{addr: m.addr, era: both, conns: 8, rate: 20, from: 200, work: work{Ms: 200, Size: 16 << 10}, tool: among(0, 2), numbers: m.numbers}.run(ctx, &o.slow)
	})
	all.Go(func() { // sessions
		for sleep(ctx, 50*time.Millisecond) {
			c, err := dial(ctx, m.addr, legacy, dialOptions{from: 300})
			if err != nil {
				fail(err)
				return
			}
			c.tool = toolOf(o.churned % 2)
			fail(c.oneSession(o.churned%4 != 0))
			c.close()
			o.churned++
		}
	})
	all.Go(func() { // streams, one open for half a second
		for ctx.Err() == nil {
			c, err := dial(ctx, m.addr, both(o.streams), dialOptions{from: 400})
			if err == nil {
				if err = c.begin("soak"); err == nil {
					_, err = c.listen(strconv.Itoa(o.streams))
				}
				o.streams++
				sleep(ctx, 500*time.Millisecond)
				c.close()
			}
			fail(err)
		}
	})
	all.Go(func() { // clients that leave in the middle
		for i := 0; sleep(ctx, 100*time.Millisecond); i++ {
			c, err := dial(ctx, m.addr, modern, dialOptions{from: 500})
			if err != nil {
				fail(err)
				return
			}
			c.tool = toolOf(i % 2)
			if _, err := c.conn.Write(c.callText(strconv.Itoa(i), work{Hang: true}, "")); err != nil {
				fail(err)
			}
			sleep(ctx, 20*time.Millisecond)
			if i%2 == 0 {
				c.reset()
			} else {
				c.close()
			}
		}
	})
	all.Wait()
	return fault
}

// rest is what an edge holds that nobody talks to.
type rest struct {
	goroutines, files         int
	kernel, machine, resident int64 // bytes
}

// atRest reads what an edge holds a while after the last client has left: until
// its sessions have ended, and with them what they have at the backends.
func (s *storm) atRest(ctx context.Context, e *edge, backends []*backend) (r rest, err error) {
	if !waitFor(ctx, patience, func() bool {
		now, err := e.status(ctx)
		return err == nil && now.Sessions == 0 && now.Inflight == 0
	}) {
		s.note("sessions or calls were left at rest")
	}
	if r.goroutines, err = s.restingGoroutines(ctx, e, 0); err != nil {
		return r, err
	}
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", e.pid()))
	if err != nil {
		return r, e.fault(fmt.Errorf("open files: %w", err))
	}
	r.files = len(open)
	held, err := shares(e, backends...)
	if err != nil {
		return r, err
	}
	r.kernel = held.edge()
	if r.machine, _, err = kernelTCP(); err != nil {
		return r, err
	}
	r.resident, err = resident(e.pid())
	return r, err
}

// sample is the live heap at a moment.
type sample struct {
	at    time.Duration
	bytes int64
}

// heapWatch reads the live heap of an edge, after a collection, again and again
// until the function that it returns is called.
func heapWatch(ctx context.Context, e *edge, every time.Duration) (stop func() []sample) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	var all []sample
	began := time.Now()
	go func() { // ends with stop
		defer close(done)
		for sleep(ctx, every) {
			status, text := e.get(ctx, "/debug/pprof/heap?gc=1&debug=1", 10*time.Second)
			if n, ok := heapAlloc(text); ok && status == 200 {
				all = append(all, sample{time.Since(began), n})
			}
		}
	}()
	return func() []sample {
		cancel()
		<-done
		return all
	}
}

// heapAlloc reads a heap profile in text form (runtime/pprof, the line
// `# HeapAlloc = N`).
func heapAlloc(text []byte) (int64, bool) {
	_, rest, ok := bytes.Cut(text, []byte("\n# HeapAlloc = "))
	line, _, _ := bytes.Cut(rest, []byte{'\n'})
	n, err := strconv.ParseInt(string(line), 10, 64)
	return n, ok && err == nil
}

// slopeOf is the line of least squares through the later three quarters of the
// samples, in MiB an hour; 0 for fewer than two.
func slopeOf(all []sample) float64 {
	all = all[len(all)/4:]
	if len(all) < 2 {
		return 0
	}
	var x, y float64
	for _, one := range all {
		x += one.at.Hours()
		y += mib(one.bytes)
	}
	x, y = x/float64(len(all)), y/float64(len(all))
	var xy, xx float64
	for _, one := range all {
		dx := one.at.Hours() - x
		xy += dx * (mib(one.bytes) - y)
		xx += dx * dx
	}
	if xx == 0 {
		return 0
	}
	return xy / xx
}

func firstMiB(all []sample) float64 {
	if len(all) == 0 {
		return 0
	}
	return mib(all[0].bytes)
}

func lastMiB(all []sample) float64 {
	if len(all) == 0 {
		return 0
	}
	return mib(all[len(all)-1].bytes)
}
