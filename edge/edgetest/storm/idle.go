package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// runIdle is G09: streams that carry nothing but heartbeats. They are GET
// streams of legacy sessions before a backend that has no such streams itself,
// so that what is measured is the stream towards the client alone.
func runIdle(ctx context.Context, s *storm) {
	count := s.size(s.count, 10_000, 10_000, "streams")
	hold := s.span(s.length, 10*time.Minute, 30*time.Second, "idle")
	if most := kit.MaxFiles() - 500; count > most {
		count = most
		s.scale("%d of 10000 streams, for no more files may be open", count)
	}
	b := s.newBackend(kit.Legacy, nil)
	e := s.start(ctx, b.Addr, "--max-streams", "20000", "--max-sessions", "20000", "--max-sessions-per-principal", "20000")

	var reading sync.WaitGroup
	var ended, beats atomic.Int64
	var open []*kit.Client
	defer reading.Wait()
	defer func() { kit.CloseAll(open) }()
	add := func(from, to int) {
		clients, err := kit.OpenAll(ctx, e.Addr, to-from, func(i int) (*kit.Client, error) {
			c, in, err := openStream(ctx, e.Addr, "idle-"+strconv.Itoa(from+i), kit.DialOptions{From: from + i, Buffer: 512})
			if err == nil {
				reading.Go(func() { idleOn(in, &beats, &ended) })
			}
			return c, err
		})
		open = append(open, clients...)
		kit.Check(err)
	}
	const warm = 100 // what every edge has is not put on the account of streams
	add(0, warm)
	base := settled(ctx, e)
	began := time.Now()
	add(warm, warm+count)
	opening := time.Since(began)
	s.say("%d streams after %s", count, opening)
	most := int64(0)
	last := int64(0)
	for began := time.Now(); time.Since(began) < hold; {
		kit.Pause(ctx, time.Second)
		last = kit.Must(kit.Resident(e.PID()))
		most = max(most, last)
	}
	now := kit.Must(e.Status(ctx))
	s.bar(now.Streams == count+warm && ended.Load() == 0, "all", "%d idle streams for %s: %d alive at the end", count, hold, min(now.Streams-warm, count)-int(ended.Load()))
	s.bar(kit.KiB(most-base, count) <= 40, "40 KiB", "%.1f KiB resident each at most, %.1f at the end", kit.KiB(most-base, count), kit.KiB(last-base, count))
	if want := int64(hold/(17*time.Second)) - 1; want > 0 {
		s.bar(beats.Load() >= want*int64(count), "one in 15 s, + 2 s", "%.1f heartbeats a stream", float64(beats.Load())/float64(count+warm))
	}
	s.tell("opened in %.1f s, sessions included; %.0f MiB in all", opening.Seconds(), kit.MiB(last))
}

// idleOn reads a stream to its end and counts the comments.
func idleOn(in *kit.Events, beats, ended *atomic.Int64) {
	for {
		line, err := in.Lines.ReadSlice('\n')
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
func runChurn(ctx context.Context, s *storm) {
	count := s.size(s.count, 60_000, 15_000, "sessions of each kind")
	const (
		kept = 10_000           // --max-sessions, the default
		ttl  = 10 * time.Second // --session-ttl: what is left over at the end goes soon
		may  = 10 << 20
	)
	b := s.newBackend(kit.Legacy, nil)
	e := s.start(ctx, b.Addr, "--max-sessions", strconv.Itoa(kept), "--max-sessions-per-principal", strconv.Itoa(kept), "--session-ttl", ttl.String())
	kit.Must(churn(ctx, e.Addr, 2000, true))
	kit.Pause(ctx, 2*time.Second)
	base := settled(ctx, e)
	s.tell("base %.1f MiB after 2,000 sessions", kit.MiB(base))
	for _, part := range []struct {
		what string
		end  bool
	}{{"with DELETE", true}, {"without DELETE", false}} {
		top := s.peak(e)
		began := time.Now()
		cut := kit.Must(churn(ctx, e.Addr, count, part.end))
		took := time.Since(began)
		now := kit.Must(e.Status(ctx))
		back, waited := comesBack(ctx, e, base+may)
		highest := top()
		s.bar(back <= base+may, "base + 10 MiB", "%d sessions %s in %.0f s: resident %.1f MiB %.0f s after the last, %.1f at the most", count, part.what, took.Seconds(), kit.MiB(back), waited.Seconds(), kit.MiB(highest))
		if part.end {
			s.bar(now.Sessions == 0, "0", "%d sessions left", now.Sessions)
		} else {
			s.bar(now.Sessions <= kept, strconv.Itoa(kept), "%d sessions at the end", now.Sessions)
			s.bar(cut == 0, "0", "%d sessions evicted between two of their requests", cut)
		}
	}
	gone := kit.WaitFor(ctx, ttl+5*time.Second, func() bool {
		now, err := e.Status(ctx)
		return err == nil && now.Sessions == 0
	})
	upstream := 0
	if gone {
		gone = kit.WaitFor(ctx, 5*time.Second, func() bool {
			upstream = b.Counts().Sessions
			return upstream <= 10 // the edge's own
		})
	}
	s.bar(gone, "all gone", "%s later the backend has %d sessions, the edge's own", ttl, upstream)
	s.note("resident memory is what ps shows of the idle process, with nothing asked of it; the runtime gives back what it no longer needs bit by bit")
}

// comesBack waits until an idle edge is as small as it should be again, and
// returns what it came to: it collects what is left over by itself when it
// rests.
func comesBack(ctx context.Context, e *kit.Edge, want int64) (now int64, waited time.Duration) {
	for began := time.Now(); ; kit.Pause(ctx, 500*time.Millisecond) {
		now = kit.Must(kit.Resident(e.PID()))
		if waited = time.Since(began); now <= want || waited > 60*time.Second {
			return now, waited
		}
	}
}

// churn begins sessions, lists, calls twice, and ends them if it should. It
// returns how many of them the edge ended before that.
func churn(ctx context.Context, addr string, count int, end bool) (cut int, err error) {
	var evicted atomic.Int64
	err = kit.Spread(ctx, addr, count, 16, kit.Apart, func(c *kit.Client, _ int) error {
		err := oneSession(c, end)
		if errors.Is(err, kit.ErrNoSession) {
			evicted.Add(1)
			return nil
		}
		return err
	})
	return int(evicted.Load()), err
}

// oneSession is the life of one legacy session on an open connection.
func oneSession(c *kit.Client, end bool) error {
	if err := c.Begin("churn"); err != nil {
		return err
	}
	c.Wait(kit.Patience)
	requests := [][]byte{
		c.Request("POST", `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`),
		c.CallText("3", kit.Work{Text: "churn"}, ""),
		c.CallText("4", kit.Work{Text: "churn"}, ""),
	}
	if end {
		requests = append(requests, c.Request("DELETE", ""))
	}
	for i, r := range requests {
		a, err := c.Do(r)
		switch {
		case err != nil:
			return fmt.Errorf("request %d of a session: %w", i+2, err)
		case a.Status == 404:
			return kit.ErrNoSession
		case a.Status != 200:
			return fmt.Errorf("request %d of a session: HTTP %d: %.200s", i+2, a.Status, a.Text())
		}
	}
	return nil
}
