package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// runEvict is Z06: one client begins sessions without end, and never comes back
// to them, beside a hundred others that have a session and a stream each. What
// it wants too much of is taken from itself.
func runEvict(ctx context.Context, s *storm) {
	count := s.size(s.count, 100_000, 10_000, "sessions of the one")
	const (
		others = 100
		most   = 1000 // --max-sessions-per-principal, the default
		may    = 24 << 20
	)
	b := s.newBackend(kit.Legacy, nil)
	e := s.start(ctx, b.Addr, "--max-sessions", "2000")
	var reading sync.WaitGroup
	var ended, beats atomic.Int64
	var streams []*kit.Client
	defer reading.Wait()
	defer func() { kit.CloseAll(streams) }()
	all := make([]*kit.Client, others)
	for i := range all { // each from an address of its own, a connection for the stream and one for calls
		from := kit.DialOptions{From: 1 + i}
		c, in, err := openStream(ctx, e.Addr, "other-"+strconv.Itoa(i), from)
		kit.Check(err)
		streams = append(streams, c)
		reading.Go(func() { idleOn(in, &beats, &ended) })
		all[i] = kit.Must(kit.Dial(ctx, e.Addr, kit.Legacy, from))
		defer all[i].Close()
		all[i].Session = c.Session
	}
	lost := 0
	ask := func() {
		for i, c := range all {
			switch a := kit.Must(c.Try("POST", `{"jsonrpc":"2.0","id":1,"method":"ping"}`)); a.Status {
			case 200:
			case 404:
				lost++
			default:
				kit.Fail("other %d: HTTP %d: %.200s", i, a.Status, a.Body)
			}
		}
	}
	ask()
	base := settled(ctx, e)
	top := s.peak(e)
	began := time.Now()
	done := make(chan error, 1)
	var refused atomic.Int64
	go func() { // ends with the last session, or with the first error
		done <- kit.Spread(ctx, e.Addr, count, lanes, kit.Together, func(c *kit.Client, _ int) error {
			a, err := c.Try("POST", kit.Hello("one", `{}`))
			switch {
			case err != nil:
				return fmt.Errorf("initialize: %w", err)
			case a.Status == 503:
				refused.Add(1)
			case a.Status != 200:
				return fmt.Errorf("initialize: HTTP %d: %.200s", a.Status, a.Body)
			}
			return nil
		})
	}()
	rounds := 0
	for going := true; going; rounds++ {
		ask()
		select {
		case err := <-done:
			kit.Check(err)
			going = false
		case <-time.After(100 * time.Millisecond):
		}
	}
	took, highest := time.Since(began), top()
	now := kit.Must(e.Status(ctx))
	s.bar(lost == 0, "0", "%d others asked %d times each beside %d sessions of one, begun in %.1f s: %d of their sessions lost", others, rounds+1, count, took.Seconds(), lost)
	s.bar(now.Streams == others && ended.Load() == 0, "all", "%d of their streams alive", now.Streams)
	s.bar(now.Sessions <= others+most, strconv.Itoa(others+most), "%d sessions at the end; %d of the one's were refused", now.Sessions, refused.Load())
	s.bar(highest <= base+may, "base + 24 MiB", "resident %.1f MiB before, %.1f at the most", kit.MiB(base), kit.MiB(highest))
}
