package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// runRestart is G07: a legacy backend restarts and knows none of its sessions
// any longer, once behind the edge's back and once with its connections cut and
// calls under way. Every client must get on, at the latest with one new
// session of its own, which a clean 404 tells it to begin.
func runRestart(ctx context.Context, s *storm) {
	count := s.size(s.count, 200, 40, "sessions")
	for _, backends := range []int{1, 2} {
		s.restartBehind(ctx, backends, count)
	}
}

// restartBehind restarts the first of some backends.
func (s *storm) restartBehind(ctx context.Context, count, sessions int) {
	const heldFor = 5 * time.Second // calls that the restart cuts off
	arrived := make(chan struct{}, 4*sessions)
	b := s.newBackend(kit.Legacy, func(b *kit.Backend) {
		b.Arrived = func(t *kit.Task) {
			if t.Ms > 0 {
				arrived <- struct{}{}
			}
		}
	})
	p := kit.PlanOf(b.Addr)
	tool := ""
	if count > 1 {
		other := s.newBackend(kit.Modern, nil)
		p = kit.PlanOf(b.Addr, other.Addr)
		p.Prefixed, tool = true, toolOf(0)
	}
	e := s.startPlan(ctx, p)
	defer e.Stop()
	var n kit.Numbers
	// The sessions, and a few clients that have none, for whom the edge has
	// sessions of its own.
	extra := max(sessions/10, 1)
	clients, err := kit.OpenAll(ctx, e.Addr, sessions+extra, func(i int) (*kit.Client, error) {
		kind := kit.Legacy
		if i >= sessions {
			kind = kit.Modern
		}
		c, err := kit.Dial(ctx, e.Addr, kind, kit.DialOptions{From: i})
		if err != nil {
			return nil, err
		}
		c.Tool = tool
		if err = c.Begin("restart"); err == nil {
			_, err = again(ctx, c, &n)
		}
		return c, err
	})
	defer func() { kit.CloseAll(clients) }()
	kit.Check(err)
	who := fmt.Sprintf("%d backend", count)
	if count > 1 {
		who += "s"
	}

	// 1. It forgets, with its connections open.
	b.Forget()
	s.recover(ctx, who+", sessions forgotten", clients, &n)

	// 2. It is gone for a moment, while half of the clients have a call there,
	// and others call while nobody is there.
	ends := make([]error, len(clients))
	took := make([]time.Duration, len(clients))
	var calls sync.WaitGroup
	held := 0
	for i, c := range clients {
		if i%2 == 0 {
			held++
			calls.Go(func() { took[i], ends[i] = timed(c, &n, heldFor) })
		}
	}
	for range held {
		select {
		case <-arrived:
		case <-time.After(kit.Patience):
			kit.Fail("the calls did not reach the backend")
		case <-ctx.Done():
			kit.Check(ctx.Err())
		}
	}
	b.Down()
	b.Forget()
	for i, c := range clients {
		if i%2 == 1 {
			calls.Go(func() { took[i], ends[i] = timed(c, &n, 0) })
		}
	}
	calls.Wait()
	answered, latest := 0, time.Duration(0)
	for i, err := range ends {
		if err == nil || errors.Is(err, kit.ErrWrong) || errors.Is(err, kit.ErrBusy) || errors.Is(err, kit.ErrNoSession) {
			answered++ // an error is an answer
		}
		latest = max(latest, took[i])
	}
	kit.Check(b.Up())
	s.bar(answered == len(clients) && latest <= 10*time.Second, "all", "%s, gone under %d calls: %d of %d calls answered meanwhile, with an error or not, the last after %.2f s", who, held, answered, len(clients), latest.Seconds())
	s.recover(ctx, who+", back again", clients, &n)
}

// timed makes a call that lasts some time at the backend.
func timed(c *kit.Client, n *kit.Numbers, lasts time.Duration) (time.Duration, error) {
	text := strconv.FormatInt(n.Next(), 10)
	c.Wait(kit.Patience)
	sent := time.Now()
	_, err := c.Call(text, kit.Work{Text: text, Ms: int(lasts.Milliseconds())})
	return time.Since(sent), err
}

// recover has every client call at once, and counts how they get on: at once,
// with one session begun anew after a 404, or not at all. Clients are replaced
// by ones that have a connection.
func (s *storm) recover(ctx context.Context, what string, clients []*kit.Client, n *kit.Numbers) {
	var mu sync.Mutex
	var direct, anew int
	stuck := map[string]int{}
	var latest time.Duration
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			began := time.Now()
			c, err := again(ctx, clients[i], n)
			renewed := false
			if errors.Is(err, kit.ErrNoSession) {
				renewed = true
				if c.Closed() {
					c.Close()
					next, dialErr := kit.Dial(ctx, c.Addr, c.Era, kit.DialOptions{From: i})
					if dialErr == nil {
						next.Tool, c = c.Tool, next
					}
				}
				c.Session = ""
				if err = c.Begin("restart"); err == nil {
					c, err = again(ctx, c, n)
				}
			}
			clients[i] = c
			mu.Lock()
			defer mu.Unlock()
			latest = max(latest, time.Since(began))
			switch {
			case err != nil:
				stuck[cause(err)]++
			case renewed:
				anew++
			default:
				direct++
			}
		})
	}
	all.Wait()
	wedged := len(clients) - direct - anew
	s.bar(wedged == 0, "0 wedged", "%s: of %d clients %d got on at once, %d with a new session after a 404, %d not at all; the last after %.2f s", what, len(clients), direct, anew, wedged, latest.Seconds())
	for why, times := range stuck {
		s.note("%s: %d × %s", what, times, why)
	}
}
