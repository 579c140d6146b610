package main

import (
	"context"

	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// startEdge starts an edge of one server with the given backends, anonymous
// and without filters, and waits until it is ready. The tools of one backend
// keep their names; those of several are prefixed.
func (b *bench) startEdge(ctx context.Context, backends []string, flags ...string) *kit.Edge {
	return b.startPlan(ctx, kit.Plan{Backends: backends, Prefixed: len(backends) > 1}, flags...)
}

// startPlan is startEdge for a plan. The edge ends with the case.
func (b *bench) startPlan(ctx context.Context, p kit.Plan, flags ...string) *kit.Edge {
	e := kit.Must(kit.Launch(b.weir, kit.Must(p.Write(b.dir)), kit.Must(kit.FreeSeat()), environment(b.procs), flags...))
	b.started = append(b.started, e.Process)
	kit.Check(e.AwaitReady(ctx, e.Addr))
	return e
}

// prefixOf is what the names of a backend's tools begin with where they are
// prefixed; the first is 0.
func prefixOf(backend int) string { return kit.ToolOf(backend, "") }

// prefixes spreads clients over backends, as evenly as they go.
func prefixes(clients, backends int) []string {
	all := make([]string, clients)
	for i := range all {
		all[i] = prefixOf(i * backends / clients)
	}
	return all
}
