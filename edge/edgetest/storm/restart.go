package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"
)

// runRestart is G07: a legacy backend restarts and knows none of its sessions
// any longer, once behind the edge's back and once with its connections cut and
// calls under way. Every client must get on, at the latest with one new
// session of its own, which a clean 404 tells it to begin.
func runRestart(ctx context.Context, s *storm) error {
	count := s.size(s.count, 200, 40, "sessions")
	for _, backends := range []int{1, 2} {
		if err := s.restartBehind(ctx, backends, count); err != nil {
			return err
		}
	}
	return nil
}

// restartBehind restarts the first of some backends.
func (s *storm) restartBehind(ctx context.Context, count, sessions int) error {
	const heldFor = 5 * time.Second // calls that the restart cuts off
	arrived := make(chan struct{}, 4*sessions)
	b, err := s.newBackend(legacy, func(b *backend) {
		b.arrived = func(t *task) {
			if t.Ms > 0 {
				arrived <- struct{}{}
			}
		}
	})
	if err != nil {
		return err
	}
	p := planOf([]string{b.addr})
	tool := ""
	if count > 1 {
		other, err := s.newBackend(modern, nil)
		if err != nil {
			return err
		}
		p = planOf([]string{b.addr, other.addr})
		p.prefixed, tool = true, toolOf(0)
	}
	e, err := s.startPlan(ctx, p)
	if err != nil {
		return err
	}
	defer e.stop()
	var n numbers
	// The sessions, and a few clients that have none, for whom the edge has
	// sessions of its own.
	extra := max(sessions/10, 1)
	clients, err := openFleet(ctx, e.addr, sessions+extra, func(i int) (*client, error) {
		kind := legacy
		if i >= sessions {
			kind = modern
		}
		c, err := dial(ctx, e.addr, kind, dialOptions{from: i})
		if err != nil {
			return nil, err
		}
		c.tool = tool
		if err = c.begin("restart"); err == nil {
			_, err = again(ctx, c, &n)
		}
		return c, err
	})
	defer func() { closeAll(clients) }()
	if err != nil {
		return e.fault(err)
	}
	who := fmt.Sprintf("%d backend", count)
	if count > 1 {
		who += "s"
	}

	// 1. It forgets, with its connections open.
	b.forget()
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
		case <-time.After(patience):
			return e.fault(errors.New("the calls did not reach the backend"))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	b.down()
	b.forget()
	for i, c := range clients {
		if i%2 == 1 {
			calls.Go(func() { took[i], ends[i] = timed(c, &n, 0) })
		}
	}
	calls.Wait()
	answered, latest := 0, time.Duration(0)
	for i, err := range ends {
		if err == nil || errors.Is(err, errWrong) || errors.Is(err, errBusy) || errors.Is(err, errNoSession) {
			answered++ // an error is an answer
		}
		latest = max(latest, took[i])
	}
	if err := b.up(); err != nil {
		return err
	}
	s.bar(answered == len(clients) && latest <= 10*time.Second, "all", "%s, gone under %d calls: %d of %d calls answered meanwhile, with an error or not, the last after %.2f s", who, held, answered, len(clients), latest.Seconds())
	s.recover(ctx, who+", back again", clients, &n)
	return nil
}

// timed makes a call that lasts some time at the backend.
func timed(c *client, n *numbers, lasts time.Duration) (time.Duration, error) {
	text := strconv.FormatInt(n.next(), 10)
	c.wait(patience)
	sent := time.Now()
	_, err := c.call(text, work{Text: text, Ms: int(lasts.Milliseconds())})
	return time.Since(sent), err
}

// recover has every client call at once, and counts how they get on: at once,
// with one session begun anew after a 404, or not at all. Clients are replaced
// by ones that have a connection.
func (s *storm) recover(ctx context.Context, what string, clients []*client, n *numbers) {
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
			if errors.Is(err, errNoSession) {
				renewed = true
				if c.closed() {
					c.close()
					next, dialErr := dial(ctx, c.addr, c.era, dialOptions{from: i})
					if dialErr == nil {
						next.tool, c = c.tool, next
					}
				}
				c.session = ""
				if err = c.begin("restart"); err == nil {
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
