package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// runIdle is G09: streams that carry nothing but heartbeats. They are GET
// streams of legacy sessions before a backend that has no such streams itself,
// so that what is measured is the stream towards the client alone.
func runIdle(ctx context.Context, s *storm) error {
	count := s.size(s.count, 10_000, 10_000, "streams")
	hold := s.span(s.length, 10*time.Minute, 30*time.Second, "idle")
	if most := maxFiles() - 500; count > most {
		count = most
		s.scale("%d of 10000 streams, for no more files may be open", count)
	}
	b, err := s.newBackend(legacy, nil)
	if err != nil {
		return err
	}
	e, err := s.start(ctx, []string{b.addr}, "--max-streams", "20000", "--max-sessions", "20000", "--max-sessions-per-principal", "20000")
	if err != nil {
		return err
	}

	var reading sync.WaitGroup
	var ended, beats atomic.Int64
	var open []*client
	defer reading.Wait()
	defer func() { closeAll(open) }()
	add := func(from, to int) error {
		clients, err := openFleet(ctx, e.addr, to-from, func(i int) (*client, error) {
			c, in, err := openStream(ctx, e.addr, "idle-"+strconv.Itoa(from+i), dialOptions{from: from + i, buffer: 512})
			if err == nil {
				reading.Go(func() { idleOn(in, &beats, &ended) })
			}
			return c, err
		})
		open = append(open, clients...)
		return err
	}
	const warm = 100 // what every edge has is not put on the account of streams
	if err := add(0, warm); err != nil {
		return e.fault(err)
	}
	base, err := settled(ctx, e.pid(), 5*time.Second)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := add(warm, warm+count); err != nil {
		return e.fault(err)
	}
	opening := time.Since(began)
	s.say("%d streams after %s", count, opening)
	most := int64(0)
	last := int64(0)
	for began := time.Now(); time.Since(began) < hold; {
		if !sleep(ctx, time.Second) {
			return ctx.Err()
		}
		if last, err = resident(e.pid()); err != nil {
			return e.fault(err)
		}
		most = max(most, last)
	}
	now, err := e.status(ctx)
	if err != nil {
		return err
	}
	s.bar(now.Streams == count+warm && ended.Load() == 0, "all", "%d idle streams for %s: %d alive at the end", count, hold, min(now.Streams-warm, count)-int(ended.Load()))
	s.bar(kib(most-base, count) <= 40, "40 KiB", "%.1f KiB resident each at most, %.1f at the end", kib(most-base, count), kib(last-base, count))
	if want := int64(hold/(17*time.Second)) - 1; want > 0 {
		s.bar(beats.Load() >= want*int64(count), "one in 15 s, + 2 s", "%.1f heartbeats a stream", float64(beats.Load())/float64(count+warm))
	}
	s.tell("opened in %.1f s, sessions included; %.0f MiB in all", opening.Seconds(), mib(last))
	return nil
}

// idleOn reads a stream to its end and counts the comments.
func idleOn(in *events, beats, ended *atomic.Int64) {
	for {
		line, err := in.lines.ReadSlice('\n')
		if err != nil {
			ended.Add(1)
			return
		}
		if len(line) > 0 && line[0] == ':' {
			beats.Add(1)
		}
	}
}

// runChurn is G10: sessions that come and end, then sessions that only come
// and are evicted by those that follow.
func runChurn(ctx context.Context, s *storm) error {
	count := s.size(s.count, 60_000, 15_000, "sessions of each kind")
	const (
		kept = 10_000           // --max-sessions, the default
		ttl  = 10 * time.Second // --session-ttl: what is left over at the end goes soon
		may  = 10 << 20
	)
	b, err := s.newBackend(legacy, nil)
	if err != nil {
		return err
	}
	e, err := s.start(ctx, []string{b.addr}, "--max-sessions", strconv.Itoa(kept), "--max-sessions-per-principal", strconv.Itoa(kept), "--session-ttl", ttl.String())
	if err != nil {
		return err
	}
	if _, err := churn(ctx, e.addr, 2000, true); err != nil {
		return e.fault(err)
	}
	if !sleep(ctx, 2*time.Second) {
		return ctx.Err()
	}
	base, err := settled(ctx, e.pid(), 5*time.Second)
	if err != nil {
		return err
	}
	s.tell("base %.1f MiB after 2,000 sessions", mib(base))
	for _, part := range []struct {
		what string
		end  bool
	}{{"with DELETE", true}, {"without DELETE", false}} {
		top := peak(e.pid())
		began := time.Now()
		cut, err := churn(ctx, e.addr, count, part.end)
		if err != nil {
			top()
			return e.fault(err)
		}
		took := time.Since(began)
		now, err := e.status(ctx)
		if err != nil {
			top()
			return err
		}
		back, waited, err := comesBack(ctx, e, base+may)
		highest := top()
		if err != nil {
			return err
		}
		s.bar(back <= base+may, "base + 10 MiB", "%d sessions %s in %.0f s: resident %.1f MiB %.0f s after the last, %.1f at the most", count, part.what, took.Seconds(), mib(back), waited.Seconds(), mib(highest))
		if part.end {
			s.bar(now.Sessions == 0, "0", "%d sessions left", now.Sessions)
		} else {
			s.bar(now.Sessions <= kept, strconv.Itoa(kept), "%d sessions at the end", now.Sessions)
			s.bar(cut == 0, "0", "%d sessions evicted between two of their requests", cut)
		}
	}
	gone := waitFor(ctx, ttl+5*time.Second, func() bool {
		now, err := e.status(ctx)
		return err == nil && now.Sessions == 0
	})
	upstream := 0
	if gone {
		gone = waitFor(ctx, 5*time.Second, func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			upstream = len(b.sessions)
			return upstream <= 10 // the edge's own
		})
	}
	s.bar(gone, "all gone", "%s later the backend has %d sessions, the edge's own", ttl, upstream)
	s.note("resident memory is what ps shows of the idle process, with nothing asked of it; the runtime gives back what it no longer needs bit by bit")
	return nil
}

// comesBack waits until an idle edge is as small as it should be again, and
// returns what it came to: it collects what is left over by itself when it
// rests.
func comesBack(ctx context.Context, e *edge, want int64) (now int64, waited time.Duration, err error) {
	for began := time.Now(); ; {
		if now, err = resident(e.pid()); err != nil {
			return 0, 0, e.fault(err)
		}
		if waited = time.Since(began); now <= want || waited > 60*time.Second {
			return now, waited, nil
		}
		if !sleep(ctx, 500*time.Millisecond) {
			return now, waited, ctx.Err()
		}
	}
}

// churn begins sessions, lists, calls twice, and ends them if it should. It
// returns how many of them the edge ended before that.
func churn(ctx context.Context, addr string, count int, end bool) (cut int, err error) {
	const lanes = 16
	errs := make(chan error, lanes)
	var next, evicted atomic.Int64
	for lane := range lanes {
		go func() { // ends with the last session, or with the first error
			errs <- func() error {
				c, err := dial(ctx, addr, legacy, dialOptions{from: lane})
				if err != nil {
					return err
				}
				defer c.close()
				for next.Add(1) <= int64(count) && ctx.Err() == nil {
					switch err := c.oneSession(end); {
					case errors.Is(err, errNoSession):
						evicted.Add(1)
					case err != nil:
						return err
					}
				}
				return ctx.Err()
			}()
		}()
	}
	for range lanes {
		if one := <-errs; one != nil && err == nil {
			err = one
		}
	}
	return int(evicted.Load()), err
}

// oneSession is the life of one legacy session on an open connection.
func (c *client) oneSession(end bool) error {
	c.session = ""
	if err := c.begin("churn"); err != nil {
		return err
	}
	c.wait(patience)
	requests := [][]byte{
		c.post(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`),
		c.callText("3", work{Text: "churn"}, ""),
		c.callText("4", work{Text: "churn"}, ""),
	}
	if end {
		requests = append(requests, c.bare("DELETE"))
	}
	for i, r := range requests {
		a, err := c.do(r)
		switch {
		case err != nil:
			return fmt.Errorf("request %d of a session: %w", i+2, err)
		case a.status == 404:
			return errNoSession
		case a.status != 200:
			return fmt.Errorf("request %d of a session: HTTP %d: %.200s", i+2, a.status, a.message())
		}
	}
	return nil
}
