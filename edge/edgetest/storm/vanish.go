package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// runVanish is G31: modern clients leave in the middle of their calls, half of
// them in order and half of them with a reset, and the backend must hear of it.
func runVanish(ctx context.Context, s *storm) error {
	for _, e := range []era{modern, legacy} {
		if err := s.vanishBefore(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

// departures is when clients left and when their calls ended at the backend,
// by the text of the call.
type departures struct {
	mu      sync.Mutex
	arrived map[string]bool
	left    map[string]time.Time
	ended   map[string]time.Time
	other   int // calls that ended otherwise than by being cancelled
}

func (d *departures) seen() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.arrived)
}

func (d *departures) waiting() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.arrived) - len(d.ended)
}

// lags is how long after its client had left each call was cancelled.
func (d *departures) lags() (lags []time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for text, at := range d.left {
		if ended, ok := d.ended[text]; ok {
			lags = append(lags, max(ended.Sub(at), 0))
		}
	}
	slices.Sort(lags)
	return lags
}

func (s *storm) vanishBefore(ctx context.Context, back era) error {
	all := s.size(s.count, 10_000, 1_000, "clients")
	atOnce := min(s.size(s.atOnce, 4_000, 1_000, "at once"), all)
	d := &departures{arrived: map[string]bool{}, left: map[string]time.Time{}, ended: map[string]time.Time{}}
	hooks := func(b *backend) {
		b.arrived = func(t *task) {
			d.mu.Lock()
			d.arrived[t.Text] = true
			d.mu.Unlock()
		}
		b.left = func(t *task, err error) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.ended[t.Text] = time.Now()
			if !errors.Is(err, errCancelled) {
				d.other++
			}
		}
	}
	// Each call has a connection to its backend of its own, of which there are
	// 1024 at most.
	var backends []*backend
	p := plan{prefixed: true}
	for range max((atOnce+799)/800, 2) {
		b, err := s.newBackend(back, hooks)
		if err != nil {
			return err
		}
		backends = append(backends, b)
		p.backends = append(p.backends, seat{"backend-" + strconv.Itoa(len(backends)), b.addr})
	}
	e, err := s.startPlan(ctx, p, "--pprof")
	if err != nil {
		return err
	}
	var n numbers
	if _, err := s.ceiling(ctx, e.addr, &n, len(backends)); err != nil { // whatever comes to life with use has done so
		return e.fault(err)
	}
	d.mu.Lock() // those calls do not count
	clear(d.arrived)
	clear(d.ended)
	d.other = 0
	d.mu.Unlock()
	base, err := s.restingGoroutines(ctx, e, 0)
	if err != nil {
		return err
	}
	connections := func() (n int64) {
		for _, b := range backends {
			n += b.opened.Load()
		}
		return n
	}
	opened := connections()
	for done := 0; done < all; {
		wave := min(atOnce, all-done)
		clients, err := openFleet(ctx, e.addr, wave, func(i int) (*client, error) {
			c, err := dial(ctx, e.addr, modern, dialOptions{from: i, buffer: 512})
			if err == nil {
				text := strconv.Itoa(done + i)
				c.tool = toolOf(i % len(backends))
				_, err = c.conn.Write(c.callText(text, work{Text: text, Hang: true}, ""))
			}
			return c, err
		})
		if err != nil {
			closeAll(clients)
			return e.fault(err)
		}
		if !waitFor(ctx, patience, func() bool { return d.seen() >= done+wave }) {
			closeAll(clients)
			return e.fault(fmt.Errorf("%d of %d calls reached the backend", d.seen(), done+wave))
		}
		for i, c := range clients {
			d.mu.Lock()
			d.left[strconv.Itoa(done+i)] = time.Now()
			d.mu.Unlock()
			if i%2 == 0 {
				c.close()
			} else {
				c.reset()
			}
		}
		if !waitFor(ctx, 5*time.Second, func() bool { return d.waiting() == 0 }) {
			break // the figure says how many
		}
		done += wave
		s.say("%s backend: %d of %d clients have left", back, done, all)
	}
	lags := d.lags()
	inTime := 0
	for _, lag := range lags {
		if lag <= time.Second {
			inTime++
		}
	}
	how := "the connection closed"
	if back == legacy {
		how = "notifications/cancelled"
	}
	s.bar(inTime == all && d.other == 0, "100 %", "%d %s backends: %d modern clients vanished, %d at a time: %d calls cancelled within 1 s (%s), p50 %.1f ms, the last after %.1f ms", len(backends), back, all, atOnce, inTime, how, millis(percentile(lags, 0.5)), millis(percentile(lags, 1)))
	after, err := s.restingGoroutines(ctx, e, base)
	if err != nil {
		return err
	}
	s.bar(after <= base, "0", "%d goroutines left over, of %d", max(after-base, 0), base)
	now, err := e.status(ctx)
	if err != nil {
		return err
	}
	s.bar(now.Inflight == 0, "0", "%d calls counted as under way", now.Inflight)
	if back == modern {
		s.tell("the backends saw %d connections", connections()-opened)
	}
	return nil
}

// restingGoroutines waits until an edge that nobody talks to has come down to
// so many goroutines, or for as long as it keeps those of its connections that
// have ended (10 s), and returns how many there are. Without a number to come
// down to it waits until there have been no fewer for 22 s: the server looks every
// 10 s for those of its goroutines that have had nothing to do for 10 s.
func (s *storm) restingGoroutines(ctx context.Context, e *edge, want int) (int, error) {
	least, quiet := 1<<30, 0
	for began := time.Now(); ; {
		n, text, err := e.goroutines(ctx)
		if err != nil {
			return 0, err
		}
		if quiet++; n < least {
			least, quiet = n, 0
		}
		if want > 0 && n <= want || want == 0 && quiet >= 45 {
			return least, nil
		}
		if time.Since(began) > 25*time.Second && want > 0 || time.Since(began) > time.Minute {
			s.note("goroutines: %s", firstOf(string(text)))
			return least, nil
		}
		if !sleep(ctx, 500*time.Millisecond) {
			return 0, ctx.Err()
		}
	}
}

// firstOf is the largest group of a goroutine profile, as one line.
func firstOf(profile string) string {
	_, rest, _ := strings.Cut(profile, "\n")
	group, _, _ := strings.Cut(rest, "\n\n")
	var out []string
	for line := range strings.Lines(group) {
		fields := strings.Fields(line)
		if len(fields) >= 3 && fields[0] == "#" {
			out = append(out, fields[2])
		}
		if len(out) == 6 {
			break
		}
	}
	count, _, _ := strings.Cut(group, " ")
	return count + " × " + strings.Join(out, " < ")
}
