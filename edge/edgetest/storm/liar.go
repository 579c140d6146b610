package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/liar"
)

// runLiar is Z46: what answers as the shared store lies, in one way after the
// other. Calls that need the store are refused with 503 or, with --store-failure
// open, served; the process goes on, and takes no memory for what is announced.
func runLiar(ctx context.Context, s *storm) error {
	for _, mode := range []string{"closed", "open"} {
		if err := s.liesBeforeStore(ctx, mode); err != nil {
			return err
		}
	}
	return nil
}

func (s *storm) liesBeforeStore(ctx context.Context, mode string) error {
	const count = 8
	store, err := s.newRedis(ctx)
	if err != nil {
		return err
	}
	l, err := liar.Listen(store.addr)
	if err != nil {
		return err
	}
	defer l.Close()
	b, err := s.newBackend(modern, nil)
	if err != nil {
		return err
	}
	p := planOf([]string{b.addr})
	p.store = l.Addr
	e, err := s.startPlan(ctx, p, "--store-failure", mode)
	if err != nil {
		return err
	}
	defer e.stop()
	var n numbers
	clients, err := openFleet(ctx, e.addr, count, func(i int) (*client, error) {
		c, err := dial(ctx, e.addr, both(i), dialOptions{from: i, buffer: 32 << 10})
		if err == nil {
			if err = c.begin("lies"); err == nil {
				_, err = c.toxicCall(&n)
			}
		}
		return c, err
	})
	defer func() { closeAll(clients) }()
	if err != nil {
		return e.fault(err)
	}
	want := map[string]int{"closed": 503, "open": 200}[mode]
	lies := liar.Lies()
	length := s.span(0, 2*time.Second, 300*time.Millisecond, "each lie")
	base, err := resident(e.pid())
	if err != nil {
		return err
	}
	right, highest := 0, base
	for _, lie := range lies {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		// 1. Calls beside it; those of the first moment may find it honest.
		l.Lie(&lie)
		noticed := waitFor(ctx, patience, func() bool {
			toxicCalls(clients, 1, &n)
			now, err := e.status(ctx)
			return err == nil && !now.Store.Connected
		})
		seen := &seenCodes{codes: map[int]int{}, examples: map[int]string{}}
		var stop atomic.Bool
		var watch sync.WaitGroup
		watch.Go(func() {
			for !stop.Load() && sleep(ctx, 20*time.Millisecond) {
				if now, err := resident(e.pid()); err == nil {
					highest = max(highest, now)
				}
			}
		})
		calls := 0
		for end := time.Now().Add(length); time.Now().Before(end); {
			some := toxicCalls(clients, 1, &n)
			for code, k := range some.codes {
				seen.codes[code] += k
				calls += k
			}
			for code, text := range some.examples {
				seen.examples[code] = text
			}
			seen.longest = max(seen.longest, some.longest)
			sleep(ctx, 5*time.Millisecond)
		}
		stop.Store(true)
		watch.Wait()
		// 2. It is honest again.
		l.Lie(nil)
		began := time.Now()
		well := waitFor(ctx, patience, func() bool {
			now, err := e.status(ctx)
			return err == nil && now.Store.Connected
		})
		well = recovery(ctx, clients, &n) >= 0 && well
		back := time.Since(began)
		ok := noticed && seen.codes[want] == calls && well && back <= 2*time.Second
		if ok {
			right++
			continue
		}
		s.bar(false, fmt.Sprintf("all %d, well within 2 s", want), "%s, %s: noticed %t; %s in %.2f s at most, well again after %.2f s", lie.Name, mode, noticed, seen.text(), seen.longest.Seconds(), back.Seconds())
		for code, text := range seen.examples {
			if code != want {
				s.note("%s, %s: %d: %.200s", lie.Name, mode, code, text)
			}
		}
	}
	s.bar(right == len(lies), strconv.Itoa(len(lies)), "%s: %d of %d lies: every call answered with %d, every session goes on", mode, right, len(lies), want)
	s.bar(highest-base <= 64<<20, "+ 64 MiB", "%s: resident %.1f MiB at the most, %.1f before", mode, mib(highest), mib(base))
	return e.fault(nil)
}
