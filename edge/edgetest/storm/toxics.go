package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// toxic is one of the ways in which a network misbehaves, and what a call that
// meets it is to be answered with.
type toxic struct {
	name string
	toxin
	closes bool // the backend closes each connection after one answer, and says so
	want   int  // 200, or the code of the error
}

// toxics are the seven. Times are those of the goal over scale.
func toxics(scale time.Duration) []toxic {
	return []toxic{
		{"latency", toxin{delay: 2 * time.Second / scale, jitter: time.Second / scale}, false, 200},
		{"bandwidth", toxin{rate: 10_000}, false, 200},
		{"slicer", toxin{slice: 64}, false, 200},
		{"slow_close", toxin{linger: 2 * time.Second / scale}, true, 200},
		{"timeout", toxin{swallow: true}, false, 504},
		{"reset_peer", toxin{reset: true}, false, 502},
		{"limit_data", toxin{limit: 500}, false, 502},
	}
}

// toxicSize is how large calls and answers are: some 0.8 s at 10 KB a second.
const toxicSize = 8 << 10

// runToxics is the part of G27 that concerns backends: a proxy between edge and
// backend does harm to one direction of the connections. Every call is answered
// with the right status, the edge is well again at once when the harm ends, and
// nothing is left behind.
func runToxics(ctx context.Context, s *storm) error {
	scale := time.Duration(1)
	if s.quick {
		scale = 4
		s.scale("latency 0.5 s ± 0.25 of 2 s ± 1, call timeout 1.5 s")
	}
	for _, kind := range []era{modern, legacy} {
		if err := s.toxicsBefore(ctx, kind, scale); err != nil {
			return err
		}
	}
	return nil
}

func (s *storm) toxicsBefore(ctx context.Context, kind era, scale time.Duration) error {
	const perEra, each = 4, 2
	b, err := s.newBackend(kind, nil)
	if err != nil {
		return err
	}
	r, err := s.newRelay(b.addr)
	if err != nil {
		return err
	}
	timeout := "5s"
	if scale > 1 {
		timeout = "1500ms"
	}
	p := planOf([]string{r.addr})
	p.operational = "{timeouts: {default: " + timeout + "}}"
	e, err := s.startPlan(ctx, p, "--pprof")
	if err != nil {
		return err
	}
	defer e.stop()
	var n numbers
	if _, err := s.ceiling(ctx, e.addr, &n); err != nil {
		return e.fault(err)
	}
	clients, err := openFleet(ctx, e.addr, 2*perEra, func(i int) (*client, error) {
		c, err := dial(ctx, e.addr, both(i), dialOptions{from: i, buffer: 32 << 10})
		if err == nil {
			if err = c.begin("toxics"); err == nil {
				_, err = c.toxicCall(&n)
			}
		}
		return c, err
	})
	defer func() { closeAll(clients) }()
	if err != nil {
		return e.fault(err)
	}
	base, err := s.restingGoroutines(ctx, e, 0)
	if err != nil {
		return err
	}
	files, err := openFiles(e)
	if err != nil {
		return err
	}
	for _, t := range toxics(scale) {
		for _, way := range []direction{upstream, downstream} {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			r.poison(way, t.toxin)
			b.closes.Store(t.closes)
			seen := toxicCalls(clients, each, &n)
			b.closes.Store(false)
			r.cure()
			recovery := recovery(ctx, clients, &n)
			idle := waitFor(ctx, 2*time.Second, func() bool {
				now, err := e.status(ctx)
				return err == nil && now.Inflight == 0
			})
			calls := each * len(clients)
			ok := seen.codes[t.want] == calls && recovery >= 0 && recovery <= 2*time.Second && idle
			s.bar(ok, fmt.Sprintf("all %d, 2 s, nothing under way", t.want), "%s %s, %s backend: %s in %.2f s at most, well again after %.2f s", t.name, way, kind, seen.text(), seen.longest.Seconds(), recovery.Seconds())
			if example := seen.example(t.want); example != "" {
				s.note("%s %s, %s backend: %s", t.name, way, kind, example)
			}
		}
	}
	// What a connection that stays open has is there before and after.
	after, err := s.restingGoroutines(ctx, e, base)
	if err != nil {
		return err
	}
	now, err := openFiles(e)
	if err != nil {
		return err
	}
	s.bar(after <= base, "0", "%s backend: %d goroutines left over, of %d", kind, max(after-base, 0), base)
	s.bar(now <= files+len(clients), "+ "+strconv.Itoa(len(clients)), "%s backend: %d open files, %d before; %d connections through the proxy", kind, now, files, r.open())
	return nil
}

// openFiles is how many files a process has open.
func openFiles(e *edge) (int, error) {
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", e.pid()))
	if err != nil {
		return 0, e.fault(fmt.Errorf("open files: %w", err))
	}
	return len(open), nil
}

// toxicCall makes one large call, and says how it was answered: 200, the code of
// an error, or 0 with the reason when there was no answer.
func (c *client) toxicCall(n *numbers) (code int, err error) {
	number := strconv.FormatInt(n.next(), 10)
	text := number + strings.Repeat("-", toxicSize)
	c.wait(patience)
	a, err := c.do(c.callText(number, work{Text: text}, ""))
	if err != nil {
		return 0, err
	}
	return codeOf(&a, number, text)
}

// codeOf is 200 for the right answer to a call, and else the code of its error:
// of HTTP, or where that is 200, of JSON-RPC.
func codeOf(a *answer, id, text string) (int, error) {
	err := a.verify(id, text)
	if err == nil {
		return 200, nil
	}
	_, rest, ok := bytes.Cut(a.message(), []byte(`"error":{"code":`))
	if a.status != 200 || !ok {
		return a.status, err
	}
	digits := bytes.IndexFunc(rest, func(r rune) bool { return (r < '0' || r > '9') && r != '-' })
	code, _ := strconv.Atoi(string(rest[:max(digits, 0)]))
	return code, err
}

// seenCodes is how some calls were answered.
type seenCodes struct {
	codes    map[int]int
	examples map[int]string
	longest  time.Duration
}

func (s *seenCodes) text() string {
	var out []string
	for _, code := range []int{200, 502, 504, 503, 404, 500, 0} {
		if s.codes[code] > 0 {
			out = append(out, fmt.Sprintf("%d × %d", s.codes[code], code))
		}
	}
	return strings.Join(out, ", ")
}

// example is an answer that is not the wanted one; "" for none.
func (s *seenCodes) example(want int) string {
	for code, text := range s.examples {
		if code != want {
			return fmt.Sprintf("%d: %.200s", code, text)
		}
	}
	return ""
}

// toxicCalls has every client make some calls, all clients at the same time.
// One whose connection has ended opens another.
func toxicCalls(clients []*client, each int, n *numbers) *seenCodes {
	seen := &seenCodes{codes: map[int]int{}, examples: map[int]string{}}
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			for range each {
				began := time.Now()
				code, err := renewed(&clients[i], i).toxicCall(n)
				mu.Lock()
				seen.codes[code]++
				if err != nil {
					seen.examples[code] = err.Error()
				}
				seen.longest = max(seen.longest, time.Since(began))
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return seen
}

// renewed returns the client, with another connection where its own has ended.
func renewed(c **client, from int) *client {
	if (*c).closed() {
		next, err := dial(context.Background(), (*c).addr, (*c).era, dialOptions{from: from, buffer: 32 << 10})
		if err == nil {
			(*c).close()
			next.session = (*c).session
			*c = next
		}
	}
	return *c
}

// recovery is how long it takes until every client has had a right answer; -1
// when one has none in time.
func recovery(ctx context.Context, clients []*client, n *numbers) time.Duration {
	began := time.Now()
	var all sync.WaitGroup
	var mu sync.Mutex
	latest := time.Duration(0)
	for i := range clients {
		all.Go(func() {
			ok := waitFor(ctx, patience, func() bool {
				code, _ := renewed(&clients[i], i).toxicCall(n)
				return code == 200
			})
			mu.Lock()
			defer mu.Unlock()
			if !ok {
				latest = -1
			} else if latest >= 0 {
				latest = max(latest, time.Since(began))
			}
		})
	}
	all.Wait()
	return latest
}
