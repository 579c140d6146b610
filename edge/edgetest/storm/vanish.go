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

	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// runVanish is G31: modern clients leave in the middle of their calls, half of
// them in order and half of them with a reset, and the backend must hear of it.
func runVanish(ctx context.Context, s *storm) {
	for _, e := range []kit.Era{kit.Modern, kit.Legacy} {
		s.vanishBefore(ctx, e)
	}
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

func (s *storm) vanishBefore(ctx context.Context, back kit.Era) {
	all := s.size(s.count, 10_000, 1_000, "clients")
	atOnce := min(s.size(s.atOnce, 4_000, 1_000, "at once"), all)
	d := &departures{arrived: map[string]bool{}, left: map[string]time.Time{}, ended: map[string]time.Time{}}
	hooks := func(b *kit.Backend) {
		b.Arrived = func(t *kit.Task) {
			d.mu.Lock()
			d.arrived[t.Text] = true
			d.mu.Unlock()
		}
		b.Left = func(t *kit.Task, err error) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.ended[t.Text] = time.Now()
			if !errors.Is(err, kit.ErrCancelled) {
				d.other++
			}
		}
	}
	// Each call has a connection to its backend of its own, of which there are
	// 1024 at most.
	var backends []*kit.Backend
	var addrs []string
	for range max((atOnce+799)/800, 2) {
		b := s.newBackend(back, hooks)
		backends, addrs = append(backends, b), append(addrs, b.Addr)
	}
	p := kit.PlanOf(addrs...)
	p.Prefixed = true
	e := s.startPlan(ctx, p, "--pprof")
	var n kit.Numbers
	s.ceiling(ctx, e.Addr, &n, len(backends)) // whatever comes to life with use has done so
	d.mu.Lock()                               // those calls do not count
	clear(d.arrived)
	clear(d.ended)
	d.other = 0
	d.mu.Unlock()
	base := s.restingGoroutines(ctx, e, 0)
	connections := func() (n int64) {
		for _, b := range backends {
			n += b.Counts().Connections
		}
		return n
	}
	opened := connections()
	for done := 0; done < all; {
		wave := min(atOnce, all-done)
		clients, err := kit.OpenAll(ctx, e.Addr, wave, func(i int) (*kit.Client, error) {
			c, err := kit.Dial(ctx, e.Addr, kit.Modern, kit.DialOptions{From: i, Buffer: 512})
			if err == nil {
				text := strconv.Itoa(done + i)
				c.Tool = toolOf(i % len(backends))
				_, err = c.Conn.Write(c.CallText(text, kit.Work{Text: text, Hang: true}, ""))
			}
			return c, err
		})
		defer kit.CloseAll(clients)
		kit.Check(err)
		if !kit.WaitFor(ctx, kit.Patience, func() bool { return d.seen() >= done+wave }) {
			kit.Fail("%d of %d calls reached the backend", d.seen(), done+wave)
		}
		for i, c := range clients {
			d.mu.Lock()
			d.left[strconv.Itoa(done+i)] = time.Now()
			d.mu.Unlock()
			if i%2 == 0 {
				c.Close()
			} else {
				c.Reset()
			}
		}
		if !kit.WaitFor(ctx, 5*time.Second, func() bool { return d.waiting() == 0 }) {
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
	if back == kit.Legacy {
		how = "notifications/cancelled"
	}
	s.bar(inTime == all && d.other == 0, "100 %", "%d %s backends: %d modern clients vanished, %d at a time: %d calls cancelled within 1 s (%s), p50 %.1f ms, the last after %.1f ms", len(backends), back, all, atOnce, inTime, how, kit.Millis(kit.Percentile(lags, 500)), kit.Millis(kit.Percentile(lags, 1000)))
	after := s.restingGoroutines(ctx, e, base)
	s.bar(after <= base, "0", "%d goroutines left over, of %d", max(after-base, 0), base)
	now := kit.Must(e.Status(ctx))
	s.bar(now.Inflight == 0, "0", "%d calls counted as under way", now.Inflight)
	if back == kit.Modern {
		s.tell("the backends saw %d connections", connections()-opened)
	}
}

// restingGoroutines waits until an edge that nobody talks to has come down to
// so many goroutines, or for as long as it keeps those of its connections that
// have ended (10 s), and returns how many there are. Without a number to come
// down to it waits until there have been no fewer for 22 s: the server looks every
// 10 s for those of its goroutines that have had nothing to do for 10 s.
func (s *storm) restingGoroutines(ctx context.Context, e *kit.Edge, want int) int {
	least, quiet := 1<<30, 0
	for began := time.Now(); ; {
		n, text := goroutines(ctx, e)
		if quiet++; n < least {
			least, quiet = n, 0
		}
		if want > 0 && n <= want || want == 0 && quiet >= 45 {
			return least
		}
		if time.Since(began) > 25*time.Second && want > 0 || time.Since(began) > time.Minute {
			s.note("goroutines: %s", firstOf(string(text)))
			return least
		}
		kit.Pause(ctx, 500*time.Millisecond)
	}
}

// goroutines is how many goroutines an edge has, and what they do. It needs
// --pprof.
func goroutines(ctx context.Context, e *kit.Edge) (n int, text []byte) {
	code, text := e.Get(ctx, "/debug/pprof/goroutine?debug=1", 10*time.Second)
	if _, err := fmt.Sscanf(string(text), "goroutine profile: total %d", &n); code != 200 || err != nil {
		kit.Fail("goroutines: HTTP %d: %.100q", code, text)
	}
	return n, text
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
