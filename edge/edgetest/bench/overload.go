package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
)

const overloadHold = 10 * time.Second

// overloadRow is the line of P14.
type overloadRow struct {
	capacity, offered        int // calls a second
	good, shed, late, failed int
	seconds                  float64
}

func (o overloadRow) verdict() verdict {
	rate := float64(o.good) / o.seconds
	v := verdict{
		"P14", fmt.Sprintf("goodput within %s of %d calls a second, capacity %d (backend %s)", kit.GoodWithin, o.offered, o.capacity, kit.ServiceTime),
		fmt.Sprintf("%.0f a second; %d shed with 503, %d late, %d failed", rate, o.shed, o.late, o.failed), fmt.Sprint(o.capacity), "–", "≥ 80 % of the capacity", "–",
	}
	if o.capacity > 0 {
		share := rate / float64(o.capacity)
		v.ratio, v.reached = fmt.Sprintf("%.2f", share), yesNo(share >= 0.8 && o.failed == 0)
	}
	return v
}

// runOverload is P14: three times what --max-inflight lets through, open loop.
func (b *bench) runOverload(ctx context.Context) {
	if b.floors {
		return
	}
	if err := b.overload(ctx); err != nil {
		b.fail("P14", err)
	}
}

func (b *bench) overload(ctx context.Context) error {
	backend, err := b.startBackend(ctx, kit.Modern, "json", "--slow", kit.ServiceTime.String())
	if err != nil {
		return err
	}
	defer backend.Stop()
	// 1. What the machine can carry. The capacity is a tenth of it, or it would be
	// the load itself that is overloaded.
	probe, err := b.startEdge(ctx, backend.addrs)
	if err != nil {
		return err
	}
	f, err := openFleet(ctx, probe.Addr, kit.Modern, 16)
	var r run
	if err == nil {
		r, err = f.drive(ctx, "echo", 5000)
		f.hangUp()
	}
	probe.Stop()
	if err != nil {
		return probe.Fault(err)
	}
	slots := min(max(int(5000/r.elapsed.Seconds()*0.1*kit.ServiceTime.Seconds()), 2), 16)
	// 2. The edge, at half of what it carries and then at three times.
	e, err := b.startEdge(ctx, backend.addrs, "--max-inflight", strconv.Itoa(slots))
	if err != nil {
		return err
	}
	defer e.Stop()
	row := overloadRow{capacity: int(float64(slots) / kit.ServiceTime.Seconds()), seconds: overloadHold.Seconds()}
	row.offered = 3 * row.capacity
	g := &kit.Gun{Addr: e.Addr, Tool: "slow", Numbers: new(kit.Numbers)}
	defer g.Close()
	g.Fire(ctx, row.capacity/2, time.Second)
	shots := g.Fire(ctx, row.offered, overloadHold)
	row.good, row.shed, row.late, row.failed = kit.Sort(shots)
	for _, s := range shots {
		if s.Err != nil && !errors.Is(s.Err, kit.ErrBusy) {
			err = s.Err
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	b.report.overload = append(b.report.overload, row)
	b.say("P14: %s", row.verdict().value)
	return e.Fault(err)
}
