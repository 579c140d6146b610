package main

import (
	"context"
	"strconv"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// runOverload is G26 and P14: three times what the edge may carry, open loop:
// calls come by the clock, whether or not earlier ones have been answered.
func runOverload(ctx context.Context, s *storm) {
	hold := s.span(s.length, 60*time.Second, 5*time.Second, "load")
	b := s.newBackend(kit.Modern, nil)
	probe := s.start(ctx, b.Addr)
	var n kit.Numbers
	most := s.ceiling(ctx, probe.Addr, &n)
	probe.Stop()
	// Three times the capacity must be well below what the machine can carry, or
	// it would be the load itself that is overloaded.
	slots := min(max(int(float64(most)/3*0.3*kit.ServiceTime.Seconds()), 2), 16)
	capacity := int(float64(slots) / kit.ServiceTime.Seconds())
	e := s.start(ctx, b.Addr, "--max-inflight", strconv.Itoa(slots))
	gun := &kit.Gun{Addr: e.Addr, Work: kit.Work{Ms: int(kit.ServiceTime.Milliseconds())}, Numbers: &n}
	defer gun.Close()

	// 1. Half of what it can carry, to warm up and for the memory.
	gun.Fire(ctx, capacity/2, 2*time.Second)
	base := kit.Must(kit.Resident(e.PID()))
	// 2. Three times.
	top := s.peak(e)
	storm := gun.Fire(ctx, 3*capacity, hold)
	ended := time.Now()
	// 3. Half again: from when on are all calls answered in time?
	const after = 6 * time.Second
	calm := gun.Fire(ctx, capacity/2, after)
	highest := top()
	kit.Check(ctx.Err())
	recovery := recovered(calm, ended)

	good, shed, late, failed := kit.Sort(storm)
	goodput := float64(good) / hold.Seconds()
	s.bar(goodput >= 0.8*float64(capacity), "80 %", "capacity %d a second (--max-inflight %d, backend %s), offered %d: goodput %.0f within %s, %.0f %%", capacity, slots, kit.ServiceTime, 3*capacity, goodput, kit.GoodWithin, 100*goodput/float64(capacity))
	s.bar(failed == 0, "0", "%d of %d shed with 503, %d late, %d failed in another way", shed, len(storm), late, failed)
	s.bar(highest-base <= 64<<20, "+ 64 MiB", "resident %.0f MiB at the most, %.0f before", kit.MiB(highest), kit.MiB(base))
	s.bar(recovery >= 0 && recovery <= 5*time.Second, "5 s", "every call answered in time from %.1f s after", recovery.Seconds())
	var took []time.Duration
	for _, one := range storm {
		if one.Err == nil && one.Took > 0 {
			took = append(took, one.Took)
		}
	}
	s.tell("of those served p50 %.1f ms, p99 %.1f ms; %d connections", kit.Millis(kit.Percentile(took, 500)), kit.Millis(kit.Percentile(took, 990)), gun.Opened())
}

// recovered is how long after a moment the last call was due that was not
// answered in time; -1 when that was so to the end, or nothing was due.
func recovered(shots []kit.Shot, from time.Time) time.Duration {
	last, end := time.Duration(0), time.Duration(0)
	for _, one := range shots {
		end = max(end, one.Due.Sub(from))
		if one.Err != nil || one.Took > 5*kit.GoodWithin {
			last = max(last, one.Due.Sub(from))
		}
	}
	if len(shots) == 0 || end-last < time.Second {
		return -1
	}
	return last
}
