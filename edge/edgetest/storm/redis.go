package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/port"
)

// redis is a redis-server of a row. It keeps nothing on disk.
type redis struct {
	addr string
	cmd  *exec.Cmd
}

// newRedis starts one, which ends with the row.
func (s *storm) newRedis(ctx context.Context) (*redis, error) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		return nil, fmt.Errorf("%w (Debian: apt-get install redis-server)", err)
	}
	addr, err := port.Free()
	if err != nil {
		return nil, err
	}
	r := &redis{addr: addr}
	s.later(r.kill)
	return r, r.start(ctx)
}

// start starts it, empty, and waits until it takes connections.
func (r *redis) start(ctx context.Context) error {
	host, p, err := net.SplitHostPort(r.addr)
	if err != nil {
		return err
	}
	r.cmd = exec.Command("redis-server", "--bind", host, "--port", p, "--save", "", "--appendonly", "no", "--daemonize", "no")
	r.cmd.SysProcAttr = childAttr()
	if err := r.cmd.Start(); err != nil {
		return fmt.Errorf("redis-server: %w", err)
	}
	there := waitFor(ctx, patience, func() bool {
		c, err := net.Dial("tcp", r.addr)
		return err == nil && c.Close() == nil
	})
	if !there {
		return errors.New("redis-server does not listen")
	}
	return nil
}

func (r *redis) signal(sig syscall.Signal) { _ = r.cmd.Process.Signal(sig) } // one that has ended needs none

// kill ends it, as kill -9 does.
func (r *redis) kill() {
	if r.cmd == nil || r.cmd.Process == nil {
		return
	}
	r.signal(syscall.SIGKILL)
	_ = r.cmd.Wait() // says that it was killed
	r.cmd = nil
}

// told is how one call of the load ended.
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
func (d *diary) run(ctx context.Context, addr string, rate, conns int, n *numbers) {
	var wait sync.WaitGroup
	began := time.Now()
	for w := range conns {
		wait.Go(func() {
			var c *client
			defer func() {
				if c != nil {
					c.close()
				}
			}()
			for turn := 0; ctx.Err() == nil; turn++ {
				at := began.Add(time.Duration(float64(turn*conns+w) / float64(rate) * float64(time.Second)))
				if !sleep(ctx, time.Until(at)) {
					return
				}
				one := told{sent: time.Now()}
				c, one.status = attempt(addr, w, c, n)
				one.took = time.Since(one.sent)
				d.mu.Lock()
				d.all = append(d.all, one)
				d.mu.Unlock()
			}
		})
	}
	wait.Wait()
}

// attempt makes a call, after whatever the client needs before it, and returns
// the client for the next one, nil for a new one, and the status of the answer.
func attempt(addr string, w int, c *client, n *numbers) (*client, int) {
	if c == nil {
		var err error
		if c, err = dial(context.Background(), addr, both(w), dialOptions{from: w}); err != nil {
			return nil, 0
		}
	}
	c.wait(patience)
	if c.era == legacy && c.session == "" {
		if err := c.begin("steady"); err != nil {
			status := 0
			if _, scan := fmt.Sscanf(err.Error(), "initialize: HTTP %d", &status); scan != nil {
				c.close()
				return nil, 0
			}
			return c, status
		}
	}
	number := strconv.FormatInt(n.next(), 10)
	a, err := c.do(c.callText(number, work{Text: number}, ""))
	if err != nil {
		c.close()
		return nil, 0
	}
	if a.status == 404 {
		c.session = ""
	}
	return c, a.status
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
func runRedisKill(ctx context.Context, s *storm) error {
	for _, mode := range []string{"closed", "open"} {
		err := s.outage(ctx, outage{
			mode: mode, empty: true, each: true,
			away: func(_ context.Context, r *redis) error { r.kill(); return nil },
			back: func(ctx context.Context, r *redis) error { return r.start(ctx) },
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// runRedisHole is G05: the store takes everything and says nothing.
func runRedisHole(ctx context.Context, s *storm) error {
	for _, mode := range []string{"closed", "open"} {
		err := s.outage(ctx, outage{
			mode: mode,
			away: func(_ context.Context, r *redis) error { r.signal(stops); return nil },
			back: func(_ context.Context, r *redis) error { r.signal(goesOn); return nil },
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *storm) outage(ctx context.Context, o outage) error {
	rate := s.rate
	if rate == 0 {
		rate = s.size(0, 1000, 250, "calls a second")
	}
	length := s.span(s.length, 30*time.Second, 3*time.Second, "away")
	calm := s.span(0, 5*time.Second, 2*time.Second, "before")

	// 1. A store, an edge that shares it, and a load.
	store, err := s.newRedis(ctx)
	if err != nil {
		return err
	}
	b, err := s.newBackend(modern, nil)
	if err != nil {
		return err
	}
	p := planOf([]string{b.addr})
	p.store = store.addr
	e, err := s.startPlan(ctx, p, "--store-failure", o.mode)
	if err != nil {
		return err
	}
	defer e.stop()
	var n numbers
	var d diary
	loading, unload := context.WithCancel(ctx)
	defer unload()
	var load sync.WaitGroup
	load.Go(func() { d.run(loading, e.addr, rate, 16, &n) })
	if !sleep(ctx, calm) {
		return ctx.Err()
	}

	// 2. It goes away, and comes back.
	s.say("%s: away", o.mode)
	went := time.Now()
	if err := o.away(ctx, store); err != nil {
		return err
	}
	gone := time.Now()
	if !sleep(ctx, length) {
		return ctx.Err()
	}
	uncounted, err := e.failOpen(ctx)
	if err != nil {
		return err
	}
	comes := time.Now()
	if err := o.back(ctx, store); err != nil {
		return err
	}
	back := time.Now()
	s.say("%s: back", o.mode)
	if !sleep(ctx, 4*time.Second) {
		return ctx.Err()
	}
	unload()
	load.Wait()

	// 3. What became of the calls.
	before, during := d.until(went), d.between(gone, comes.Add(-100*time.Millisecond))
	fine, quick := count(before, 200)
	s.bar(fine == len(before), "all", "%s, before: %d of %d calls answered, p99 %.1f ms", o.mode, fine, len(before), millis(percentile(quick, 0.99)))
	added := 100 * time.Millisecond
	if o.mode == "closed" {
		refused, took := count(during, 503)
		s.bar(refused == len(during), "all with 503", "%s, away for %s: %d of %d calls answered with 503", o.mode, length, refused, len(during))
		slow := percentile(took, 0.99)
		if o.each {
			slow = percentile(took, 1)
		}
		s.bar(slow <= percentile(quick, 0.99)+added, "100 ms more than before", "%s, away: p99 %.1f ms, %.1f ms at most", o.mode, millis(percentile(took, 0.99)), millis(percentile(took, 1)))
	} else {
		admitted, _ := count(during, 200)
		_, took := count(d.between(gone.Add(time.Second), comes), 200) // the breaker is open by then
		s.bar(admitted == len(during), "all", "%s, away for %s: %d of %d calls answered", o.mode, length, admitted, len(during))
		s.bar(percentile(took, 0.99) <= percentile(quick, 0.99)+10*time.Millisecond, "10 ms more than before", "%s, away: p99 %.1f ms, %.1f ms at most", o.mode, millis(percentile(took, 0.99)), millis(percentile(took, 1)))
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
	s.bar(last <= 2*time.Second && right > 0, "2 s", "%s, back: the last call that was not served ended after %.0f ms; %d were", o.mode, millis(last), right)
	if o.empty {
		s.tell("%s, back: %d calls in sessions that the store had lost; their clients began anew", o.mode, lost)
	}
	for _, one := range d.between(time.Time{}, time.Now()) {
		if one.status != 200 && one.status != 503 && one.status != 404 {
			s.note("a call ended with HTTP %d", one.status)
			break
		}
	}
	return e.fault(nil)
}

// failOpen is how many calls the edge has admitted that its store could not
// count.
func (e *edge) failOpen(ctx context.Context) (int, error) {
	code, body := e.get(ctx, "/status", 10*time.Second)
	var said struct {
		RateLimits struct {
			FailOpen int `json:"failOpen"`
		} `json:"rateLimits"`
	}
	if code != 200 {
		return 0, e.fault(fmt.Errorf("status: HTTP %d", code))
	}
	err := json.Unmarshal(body, &said)
	return said.RateLimits.FailOpen, err
}
