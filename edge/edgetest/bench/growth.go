package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// growthRow is one line of P7: what a call costs before so many backends with
// so many tools, under so many policies.
type growthRow struct {
	backends, tools int // tools of all backends
	policies        int // 0 for an edge without
	figures         []figure
}

func (r growthRow) String() string {
	text := fmt.Sprintf("%d backend(s), %d tools", r.backends, r.tools)
	switch {
	case r.policies == 1:
		text += ", 1 policy"
	case r.policies > 1:
		text += fmt.Sprintf(", %d policies", r.policies)
	}
	return text
}

// growthSizes are the lines of P7. The first without policies is what the others
// without are held against, and the first with some those with more.
func growthSizes() []growthRow {
	return []growthRow{
		{backends: 1, tools: 10}, {backends: 1, tools: 10_000}, {backends: 10, tools: 1000},
		{backends: 100, tools: 1000}, {backends: 100, tools: 10_000},
		{backends: 1, tools: 10, policies: 1}, {backends: 1, tools: 10, policies: 10}, {backends: 1, tools: 10, policies: 10_000},
	}
}

// incoming is spec.incomingAuth of a line: the last of its policies lets calls
// pass.
func (r growthRow) incoming() string {
	if r.policies == 0 {
		return ""
	}
	return policed(append(idlePolicies(r.policies-1), `permit(principal, action, resource == Tool::"`+prefixOf(0)+`echo");`))
}

// growthVerdicts hold every line against the first of its kind.
func growthVerdicts(rows []growthRow) (out []verdict) {
	for i, r := range rows {
		first := slices.IndexFunc(rows, func(o growthRow) bool { return (o.policies > 0) == (r.policies > 0) })
		cpu := middle(r.figures).cpu
		v := verdict{
			"P7", fmt.Sprintf("CPU per call, %s, 8 connections", r),
			fmt.Sprintf("%.2f µs", cpu), "–", "–", "–", "floor",
		}
		if base := middle(rows[first].figures).cpu; i > first && base > 0 {
			ratio := cpu / base
			v.floor, v.ratio, v.bar = fmt.Sprintf("%.2f µs", base), fmt.Sprintf("%.2f", ratio), "0.80 to 1.20 × the smallest"
			v.reached = yesNo(ratio <= 1.2) // one that costs less is no worse
		}
		out = append(out, v)
	}
	return out
}

// runGrowth is P7. An edge of each size runs at the same time, and each has its
// turn with the load.
func (b *bench) runGrowth(ctx context.Context) {
	b.tryEdge(ctx, "P7", b.grow)
}

func (b *bench) grow(ctx context.Context) {
	load := cell{kit.Modern, kit.Modern, "json", 8, false}
	rows := growthSizes()
	var targets []*target
	for _, r := range rows {
		// All backends of a line are one process with as many addresses.
		behind := b.startBackend(ctx, kit.Modern, "json", "--tools", strconv.Itoa(r.tools/r.backends), "--addresses", strconv.Itoa(r.backends))
		e := b.startPlan(ctx, kit.Plan{Backends: behind.addrs, Prefixed: true, Incoming: r.incoming()})
		shown := r.tools
		if r.policies > 0 {
			shown = 1
		}
		listed(ctx, e, shown)
		targets = append(targets, &target{name: r.String(), Process: e.Process, prefixes: prefixes(load.conns, r.backends)})
	}
	for range b.rounds {
		b.roundOf(ctx, load, targets, b.calls/2, sliceCalls)
		for i, t := range targets {
			rows[i].figures = append(rows[i].figures, figureOf(t.run, t.cpu))
		}
	}
	b.report.growth = rows
	for _, v := range growthVerdicts(rows) {
		b.say("P7: %s: %s, ratio %s", v.what, v.value, v.ratio)
	}
}
