package main

import (
	"bytes"
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// runSoak is G11: everything at once at half of what the edge can carry, for a
// long time, and nothing grows. Goroutines, files and the kernel's memory for
// its sockets are read at rest, before and after; the heap all the time.
func runSoak(ctx context.Context, s *storm) {
	said := s.length
	if said == 0 && !s.quick {
		said = 10 * time.Minute
	}
	length := s.span(said, time.Hour, 30*time.Second, "load")
	var addrs []string
	var backends []*kit.Backend
	for _, kind := range []kit.Era{kit.Modern, kit.Legacy} {
		b := s.newBackend(kind, func(b *kit.Backend) { b.Feed = kit.Every(time.Second) })
		backends, addrs = append(backends, b), append(addrs, b.Addr)
	}
	p := kit.PlanOf(addrs...)
	p.Prefixed = true
	e := s.startPlan(ctx, p, "--pprof", "--session-ttl", "5s")
	var n kit.Numbers
	most := s.ceiling(ctx, e.Addr, &n, 2)
	m := mix{addr: e.Addr, rate: max(most/2, 10), numbers: &n}
	s.tell("ceiling %d calls a second, load %d", most, m.rate)

	// 1. Some of it, so that whatever comes to life with use has done so, and
	// what is there at rest.
	kit.Check(m.run(ctx, min(max(length/10, 5*time.Second), 30*time.Second), &outcomes{}))
	before := s.atRest(ctx, e, backends)
	// 2. All of it.
	var ends outcomes
	heap := heapWatch(ctx, e, max(length/60, time.Second))
	if err := m.run(ctx, length, &ends); err != nil {
		heap()
		kit.Check(err)
	}
	samples := heap()
	// 3. What is left.
	after := s.atRest(ctx, e, backends)

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
	s.bar(after.kernel <= before.kernel+64<<10, "flat (+ 64 KiB)", "kernel memory of its sockets at rest %.0f KiB, %.0f before; all TCP of the machine %.0f KiB, %.0f before", kit.KiB(after.kernel, 1), kit.KiB(before.kernel, 1), kit.KiB(after.machine, 1), kit.KiB(before.machine, 1))
	s.tell("resident at rest %.1f MiB, %.1f before; p99 %.1f ms", kit.MiB(after.resident), kit.MiB(before.resident), kit.Millis(ends.kept.percentile(990)))
	if failed > 0 {
		s.note("%s %s %s", ends.kept.reasons(), ends.once.reasons(), ends.slow.reasons())
	}
}

// mix is a load of many kinds.
type mix struct {
	addr    string
	rate    int
	numbers *kit.Numbers
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
	failed := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if err != nil && ctx.Err() == nil && fault == nil {
			fault = err
		}
	}
	all.Go(func() {
		pace{addr: m.addr, era: kit.Mixed, conns: 16, rate: max(m.rate*8/10, 1), tool: among(0, 2), numbers: m.numbers}.run(ctx, &o.kept)
	})
	all.Go(func() {
		pace{addr: m.addr, era: only(kit.Modern), conns: 8, rate: max(m.rate/10, 1), once: true, from: 100, tool: among(0, 2), numbers: m.numbers}.run(ctx, &o.once)
	})
	all.Go(func() {
		pace{addr: m.addr, era: kit.Mixed, conns: 8, rate: 20, from: 200, work: kit.Work{Ms: 200, Size: 16 << 10}, tool: among(0, 2), numbers: m.numbers}.run(ctx, &o.slow)
	})
	all.Go(func() { // sessions
		for kit.Sleep(ctx, 50*time.Millisecond) {
			c, err := kit.Dial(ctx, m.addr, kit.Legacy, kit.DialOptions{From: 300})
			if err != nil {
				failed(err)
				return
			}
			c.Tool = toolOf(o.churned % 2)
			failed(oneSession(c, o.churned%4 != 0))
			c.Close()
			o.churned++
		}
	})
	all.Go(func() { // streams, one open for half a second
		for ctx.Err() == nil {
			c, err := kit.Dial(ctx, m.addr, kit.Mixed(o.streams), kit.DialOptions{From: 400})
			if err == nil {
				if err = c.Begin("soak"); err == nil {
					_, err = c.Listen(strconv.Itoa(o.streams), "")
				}
				o.streams++
				kit.Sleep(ctx, 500*time.Millisecond)
				c.Close()
			}
			failed(err)
		}
	})
	all.Go(func() { // clients that leave in the middle
		for i := 0; kit.Sleep(ctx, 100*time.Millisecond); i++ {
			c, err := kit.Dial(ctx, m.addr, kit.Modern, kit.DialOptions{From: 500})
			if err != nil {
				failed(err)
				return
			}
			c.Tool = toolOf(i % 2)
			if _, err := c.Conn.Write(c.CallText(strconv.Itoa(i), kit.Work{Hang: true}, "")); err != nil {
				failed(err)
			}
			kit.Sleep(ctx, 20*time.Millisecond)
			if i%2 == 0 {
				c.Reset()
			} else {
				c.Close()
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
func (s *storm) atRest(ctx context.Context, e *kit.Edge, backends []*kit.Backend) (r rest) {
	if !kit.WaitFor(ctx, kit.Patience, func() bool {
		now, err := e.Status(ctx)
		return err == nil && now.Sessions == 0 && now.Inflight == 0
	}) {
		s.note("sessions or calls were left at rest")
	}
	r.goroutines = s.restingGoroutines(ctx, e, 0)
	r.files = kit.Must(kit.OpenFiles(e.PID()))
	held := kit.Must(shares(e, backends...))
	r.kernel = held.edge()
	var err error
	r.machine, _, err = kit.KernelTCP()
	kit.Check(err)
	r.resident = kit.Must(kit.Resident(e.PID()))
	return r
}

// sample is the live heap at a moment.
type sample struct {
	at    time.Duration
	bytes int64
}

// heapWatch reads the live heap of an edge, after a collection, again and again
// until the function that it returns is called.
func heapWatch(ctx context.Context, e *kit.Edge, every time.Duration) (stop func() []sample) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	var all []sample
	began := time.Now()
	go func() { // ends with stop
		defer close(done)
		for kit.Sleep(ctx, every) {
			status, text := e.Get(ctx, "/debug/pprof/heap?gc=1&debug=1", 10*time.Second)
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
		y += kit.MiB(one.bytes)
	}
	x, y = x/float64(len(all)), y/float64(len(all))
	var xy, xx float64
	for _, one := range all {
		dx := one.at.Hours() - x
		xy += dx * (kit.MiB(one.bytes) - y)
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
	return kit.MiB(all[0].bytes)
}

func lastMiB(all []sample) float64 {
	if len(all) == 0 {
		return 0
	}
	return kit.MiB(all[len(all)-1].bytes)
}
