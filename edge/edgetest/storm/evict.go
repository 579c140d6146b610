package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// runEvict is Z06: one client begins sessions without end, and never comes back
// to them, beside a hundred others that have a session and a stream each. What
// it wants too much of is taken from itself.
func runEvict(ctx context.Context, s *storm) error {
	count := s.size(s.count, 100_000, 10_000, "sessions of the one")
	const (
		others = 100
		most   = 1000 // --max-sessions-per-principal, the default
		may    = 24 << 20
	)
	b, err := s.newBackend(legacy, nil)
	if err != nil {
		return err
	}
	e, err := s.start(ctx, []string{b.addr}, "--max-sessions", "2000")
	if err != nil {
		return err
	}
	var reading sync.WaitGroup
	var ended, beats atomic.Int64
	var streams []*client
	defer reading.Wait()
	defer func() { closeAll(streams) }()
	all := make([]*client, others)
	for i := range all { // each from an address of its own, a connection for the stream and one for calls
		from := dialOptions{from: 1 + i}
		c, in, err := openStream(ctx, e.addr, "other-"+strconv.Itoa(i), from)
		if err != nil {
			return e.fault(err)
		}
		streams = append(streams, c)
		reading.Go(func() { idleOn(in, &beats, &ended) })
		if all[i], err = dial(ctx, e.addr, legacy, from); err != nil {
			return err
		}
		defer all[i].close()
		all[i].session = c.session
	}
	lost := 0
	ask := func() error {
		for i, c := range all {
			c.wait(patience)
			a, err := c.do(c.post(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
			switch {
			case err != nil:
				return fmt.Errorf("other %d: %w", i, err)
			case a.status == 404:
				lost++
			case a.status != 200:
				return fmt.Errorf("other %d: HTTP %d: %.200s", i, a.status, a.body)
			}
		}
		return nil
	}
	if err := ask(); err != nil {
		return e.fault(err)
	}
	base, err := settled(ctx, e.pid(), 5*time.Second)
	if err != nil {
		return err
	}
	top := peak(e.pid())
	began := time.Now()
	opened, done := make(chan error, lanes), make(chan struct{})
	var next, refused atomic.Int64
	for range lanes {
		go func() { // ends with the last session, or with the first error
			opened <- func() error {
				c, err := dial(ctx, e.addr, legacy, dialOptions{})
				if err != nil {
					return err
				}
				defer c.close()
				hello := []byte(nil)
				for next.Add(1) <= int64(count) && ctx.Err() == nil {
					if hello == nil {
						hello = c.post(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"one","version":"1"}}}`)
					}
					c.wait(patience)
					a, err := c.do(hello)
					switch {
					case err != nil:
						return fmt.Errorf("initialize: %w", err)
					case a.status == 503:
						refused.Add(1)
					case a.status != 200:
						return fmt.Errorf("initialize: HTTP %d: %.200s", a.status, a.body)
					}
				}
				return ctx.Err()
			}()
		}()
	}
	go func() {
		defer close(done)
		for range lanes {
			if one := <-opened; one != nil && err == nil {
				err = one
			}
		}
	}()
	rounds := 0
	for going := true; going; rounds++ {
		if one := ask(); one != nil {
			<-done
			top()
			return e.fault(one)
		}
		select {
		case <-done:
			going = false
		case <-time.After(100 * time.Millisecond):
		}
	}
	took, highest := time.Since(began), top()
	if err != nil {
		return e.fault(err)
	}
	now, err := e.status(ctx)
	if err != nil {
		return err
	}
	s.bar(lost == 0, "0", "%d others asked %d times each beside %d sessions of one, begun in %.1f s: %d of their sessions lost", others, rounds+1, count, took.Seconds(), lost)
	s.bar(now.Streams == others && ended.Load() == 0, "all", "%d of their streams alive", now.Streams)
	s.bar(now.Sessions <= others+most, strconv.Itoa(others+most), "%d sessions at the end; %d of the one's were refused", now.Sessions, refused.Load())
	s.bar(highest <= base+may, "base + 24 MiB", "resident %.1f MiB before, %.1f at the most", mib(base), mib(highest))
	return nil
}
