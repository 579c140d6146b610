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
	b.tryEdge(ctx, "P14", b.overload)
}

func (b *bench) overload(ctx context.Context) {
	backend := b.startBackend(ctx, kit.Modern, "json", "--slow", kit.ServiceTime.String())
	// 1. What the machine can carry. The capacity is a tenth of it, or it would be
	// the load itself that is overloaded.
	probe := b.startEdge(ctx, backend.addrs)
	f := kit.Must(openFleet(ctx, probe.Addr, kit.Modern, 16))
	r, err := f.drive(ctx, "echo", 5000)
	f.hangUp()
	kit.Check(err)
	probe.Stop()
	slots := min(max(int(5000/r.elapsed.Seconds()*0.1*kit.ServiceTime.Seconds()), 2), 16)
	// 2. The edge, at half of what it carries and then at three times.
	e := b.startEdge(ctx, backend.addrs, "--max-inflight", strconv.Itoa(slots))
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
	kit.Check(ctx.Err())
	b.report.overload = append(b.report.overload, row)
	b.say("P14: %s", row.verdict().value)
	kit.Check(err)
}
