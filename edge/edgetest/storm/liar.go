package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
	"github.com/weir-edge/weir/edge/edgetest/liar"
)

// runLiar is Z46: what answers as the shared store lies, in one way after the
// other. Calls that need the store are refused with 503 or, with --store-failure
// open, served; the process goes on, and takes no memory for what is announced.
func runLiar(ctx context.Context, s *storm) {
	for _, mode := range []string{"closed", "open"} {
		s.liesBeforeStore(ctx, mode)
	}
}

func (s *storm) liesBeforeStore(ctx context.Context, mode string) {
	const count = 8
	store := s.newRedis(ctx)
	l := kit.Must(liar.Listen(store.addr))
	defer l.Close()
	b := s.newBackend(kit.Modern, nil)
	e := s.startPlan(ctx, sharing(b.Addr, l.Addr), "--store-failure", mode)
	defer e.Stop()
	var n kit.Numbers
	clients := s.callers(ctx, e, count, 0, &n, nil)
	defer kit.CloseAll(clients)
	want := map[string]int{"closed": 503, "open": 200}[mode]
	lies := liar.Lies()
	length := s.span(0, 2*time.Second, 300*time.Millisecond, "each lie")
	base := kit.Must(kit.Resident(e.PID()))
	right, top := 0, kit.Peak(e.PID(), 20*time.Millisecond)
	defer top()
	for _, lie := range lies {
		kit.Check(ctx.Err())
		// 1. Calls beside it; those of the first moment may find it honest.
		l.Lie(&lie)
		noticed := kit.WaitFor(ctx, kit.Patience, func() bool {
			toxicCalls(clients, 1, &n)
			now, err := e.Status(ctx)
			return err == nil && !now.Store.Connected
		})
		seen := &seenCodes{}
		for end := time.Now().Add(length); time.Now().Before(end); kit.Sleep(ctx, 5*time.Millisecond) {
			seen.add(toxicCalls(clients, 1, &n))
		}
		// 2. It is honest again.
		l.Lie(nil)
		began := time.Now()
		well := hasStore(ctx, e, true)
		well = recovery(ctx, clients, &n) >= 0 && well
		back := time.Since(began)
		ok := noticed && seen.of(want) == seen.calls() && well && back <= 2*time.Second
		if ok {
			right++
			continue
		}
		s.bar(false, fmt.Sprintf("all %d, well within 2 s", want), "%s, %s: noticed %t; %s in %.2f s at most, well again after %.2f s", lie.Name, mode, noticed, seen, seen.longest.Seconds(), back.Seconds())
		seen.others(s, lie.Name+", "+mode, want)
	}
	s.bar(right == len(lies), strconv.Itoa(len(lies)), "%s: %d of %d lies: every call answered with %d, every session goes on", mode, right, len(lies), want)
	highest := top()
	s.bar(highest-base <= 64<<20, "+ 64 MiB", "%s: resident %.1f MiB at the most, %.1f before", mode, kit.MiB(highest), kit.MiB(base))
}
