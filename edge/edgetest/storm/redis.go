package main

import (
	"context"
	"errors"
	"net"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
	"github.com/weir-edge/weir/edge/edgetest/port"
)

// redis is a redis-server of a row. It keeps nothing on disk.
type redis struct {
	addr    string
	args    []string // more of its own
	process *kit.Process
}

// newRedis starts one, with more arguments if there are any, which ends with the row.
func (s *storm) newRedis(ctx context.Context, args ...string) *redis {
	if _, err := exec.LookPath("redis-server"); err != nil {
		kit.Fail("%w (Debian: apt-get install redis-server)", err)
	}
	r := &redis{addr: kit.Must(port.Free()), args: args}
	s.later(r.kill)
	kit.Check(r.start(ctx))
	return r
}

// start starts it, empty, and waits until it takes connections.
func (r *redis) start(ctx context.Context) error {
	host, p, err := net.SplitHostPort(r.addr)
	if err == nil {
		r.process, err = kit.Start("redis-server", exec.Command("redis-server", append([]string{"--bind", host, "--port", p, "--save", "", "--appendonly", "no", "--daemonize", "no"}, r.args...)...), nil)
	}
	if err != nil {
		return err
	}
	there := kit.WaitFor(ctx, kit.Patience, func() bool {
		c, err := net.Dial("tcp", r.addr)
		return err == nil && c.Close() == nil
	})
	if !there {
		return errors.New("redis-server does not listen")
	}
	return nil
}

// kill ends it, as kill -9 does.
func (r *redis) kill() {
	if r.process != nil {
		r.process.Kill()
	}
}

// told is how one call of a load ended.
type told struct {
	sent   time.Time
	took   time.Duration
	status int // 0 for no answer
}

// diary keeps how every call ended. It is safe for concurrent use.
type diary struct {
	mu  sync.Mutex
	all []told
}

// run calls at a steady rate until ctx ends, over connections of both eras. A
// client whose session is unknown begins another.
func (d *diary) run(ctx context.Context, addr string, rate, conns int, n *kit.Numbers) {
	clients := make([]*kit.Client, conns)
	defer func() { kit.CloseAll(clients) }()
	pace{conns: conns, rate: rate}.each(ctx, func(w int) {
		one := told{sent: time.Now()}
		clients[w], one.status = attempt(addr, w, clients[w], n)
		one.took = time.Since(one.sent)
		d.mu.Lock()
		d.all = append(d.all, one)
		d.mu.Unlock()
	})
}

// attempt makes a call, after whatever the client needs before it, and returns
// the client for the next one, nil for a new one, and the status of the answer.
func attempt(addr string, w int, c *kit.Client, n *kit.Numbers) (*kit.Client, int) {
	if c == nil {
		var err error
		if c, err = kit.Dial(context.Background(), addr, kit.Mixed(w), kit.DialOptions{From: w}); err != nil {
			return nil, 0
		}
	}
	if c.Era == kit.Legacy && c.Session == "" {
		if err := c.Begin("steady"); err != nil {
			if c.Answer.Status != 0 && c.Answer.Status != 202 {
				return c, c.Answer.Status
			}
			c.Close()
			return nil, 0
		}
	}
	c.Wait(kit.Patience)
	number := strconv.FormatInt(n.Next(), 10)
	a, err := c.Do(c.CallText(number, kit.Work{Text: number}, ""))
	if err != nil {
		c.Close()
		return nil, 0
	}
	if a.Status == 404 {
		c.Session = ""
	}
	return c, a.Status
}

// between returns the calls that were sent in a span of time.
func (d *diary) between(from, to time.Time) (out []told) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, one := range d.all {
		if !one.sent.Before(from) && one.sent.Before(to) {
			out = append(out, one)
		}
	}
	return out
}

// until returns the calls that ended before a moment.
func (d *diary) until(end time.Time) (out []told) {
	for _, one := range d.between(time.Time{}, end) {
		if one.sent.Add(one.took).Before(end) {
			out = append(out, one)
		}
	}
	return out
}

// count is how many calls have one of the statuses, and how long they took.
func count(calls []told, statuses ...int) (n int, took []time.Duration) {
	for _, one := range calls {
		for _, status := range statuses {
			if one.status == status {
				n++
				took = append(took, one.took)
			}
		}
	}
	return n, took
}

// outage is what is done to the store of an edge under load.
type outage struct {
	away, back func(context.Context, *redis) error
	empty      bool // it comes back without what it had
	each       bool // the bar of time is for every call, not only for 99 of 100
	mode       string
}

// runRedisKill is G04: the store that sessions lie in and calls are counted in
// is killed under load, stays away, and comes back empty.
func runRedisKill(ctx context.Context, s *storm) {
	for _, mode := range []string{"closed", "open"} {
		s.outage(ctx, outage{
			mode: mode, empty: true, each: true,
			away: func(_ context.Context, r *redis) error { r.kill(); return nil },
			back: func(ctx context.Context, r *redis) error { return r.start(ctx) },
		})
	}
}

// runRedisHole is G05: the store takes everything and says nothing.
func runRedisHole(ctx context.Context, s *storm) {
	for _, mode := range []string{"closed", "open"} {
		s.outage(ctx, outage{
			mode: mode,
			away: func(_ context.Context, r *redis) error { r.process.Signal(kit.Stops); return nil },
			back: func(_ context.Context, r *redis) error { r.process.Signal(kit.GoesOn); return nil },
		})
	}
}

func (s *storm) outage(ctx context.Context, o outage) {
	rate := s.rate
	if rate == 0 {
		rate = s.size(0, 1000, 250, "calls a second")
	}
	length := s.span(s.length, 30*time.Second, 3*time.Second, "away")
	calm := s.span(0, 5*time.Second, 2*time.Second, "before")

	// 1. A store, an edge that shares it, and a load.
	store := s.newRedis(ctx)
	b := s.newBackend(kit.Modern, nil)
	e := s.startPlan(ctx, sharing(b.Addr, store.addr), "--store-failure", o.mode)
	defer e.Stop()
	var n kit.Numbers
	var d diary
	loading, unload := context.WithCancel(ctx)
	defer unload()
	var load sync.WaitGroup
	load.Go(func() { d.run(loading, e.Addr, rate, 16, &n) })
	kit.Pause(ctx, calm)

	// 2. It goes away, and comes back.
	s.say("%s: away", o.mode)
	went := time.Now()
	kit.Check(o.away(ctx, store))
	gone := time.Now()
	kit.Pause(ctx, length)
	uncounted := kit.Must(e.Status(ctx)).RateLimits.FailOpen
	comes := time.Now()
	kit.Check(o.back(ctx, store))
	back := time.Now()
	s.say("%s: back", o.mode)
	kit.Pause(ctx, 4*time.Second)
	unload()
	load.Wait()

	// 3. What became of the calls.
	before, during := d.until(went), d.between(gone, comes.Add(-100*time.Millisecond))
	fine, quick := count(before, 200)
	s.bar(fine == len(before), "all", "%s, before: %d of %d calls answered, p99 %.1f ms", o.mode, fine, len(before), kit.Millis(kit.Percentile(quick, 990)))
	added := 100 * time.Millisecond
	if o.mode == "closed" {
		refused, took := count(during, 503)
		s.bar(refused == len(during), "all with 503", "%s, away for %s: %d of %d calls answered with 503", o.mode, length, refused, len(during))
		slow := kit.Percentile(took, 990)
		if o.each {
			slow = kit.Percentile(took, 1000)
		}
		s.bar(slow <= kit.Percentile(quick, 990)+added, "100 ms more than before", "%s, away: p99 %.1f ms, %.1f ms at most", o.mode, kit.Millis(kit.Percentile(took, 990)), kit.Millis(kit.Percentile(took, 1000)))
	} else {
		admitted, _ := count(during, 200)
		_, took := count(d.between(gone.Add(time.Second), comes), 200) // the breaker is open by then
		s.bar(admitted == len(during), "all", "%s, away for %s: %d of %d calls answered", o.mode, length, admitted, len(during))
		s.bar(kit.Percentile(took, 990) <= kit.Percentile(quick, 990)+10*time.Millisecond, "10 ms more than before", "%s, away: p99 %.1f ms, %.1f ms at most", o.mode, kit.Millis(kit.Percentile(took, 990)), kit.Millis(kit.Percentile(took, 1000)))
		s.bar(uncounted >= admitted, "every one", "%s, away: %d calls were admitted uncounted, and are counted as that", o.mode, uncounted)
	}
	after := d.between(back, time.Now())
	last, lost := time.Duration(0), 0
	for _, one := range after {
		switch {
		case one.status == 200:
		case one.status == 404 && o.empty:
			lost++
		default:
			last = max(last, one.sent.Add(one.took).Sub(back))
		}
	}
	right, _ := count(after, 200)
	s.bar(last <= 2*time.Second && right > 0, "2 s", "%s, back: the last call that was not served ended after %.0f ms; %d were", o.mode, kit.Millis(last), right)
	if o.empty {
		s.tell("%s, back: %d calls in sessions that the store had lost; their clients began anew", o.mode, lost)
	}
	for _, one := range d.between(time.Time{}, time.Now()) {
		if one.status != 200 && one.status != 503 && one.status != 404 {
			s.note("a call ended with HTTP %d", one.status)
			break
		}
	}
}
