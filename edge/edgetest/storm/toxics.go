package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
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
func runToxics(ctx context.Context, s *storm) {
	scale := time.Duration(1)
	if s.quick {
		scale = 4
		s.scale("latency 0.5 s ± 0.25 of 2 s ± 1, call timeout 1.5 s")
	}
	for _, kind := range []kit.Era{kit.Modern, kit.Legacy} {
		s.toxicsBefore(ctx, kind, scale)
	}
}

func (s *storm) toxicsBefore(ctx context.Context, kind kit.Era, scale time.Duration) {
	const count, each = 8, 2
	b := s.newBackend(kind, nil)
	r := s.newRelay(b.Addr)
	timeout := "5s"
	if scale > 1 {
		timeout = "1500ms"
	}
	p := kit.PlanOf(r.addr)
	p.Config = operational("{timeouts: {default: " + timeout + "}}")
	e := s.startPlan(ctx, p, "--pprof")
	defer e.Stop()
	var n kit.Numbers
	s.ceiling(ctx, e.Addr, &n)
	clients := s.callers(ctx, e, count, 0, &n, nil)
	defer kit.CloseAll(clients)
	left := s.leftOver(ctx, e, string(kind)+" backend")
	for _, t := range toxics(scale) {
		for _, way := range []direction{upstream, downstream} {
			kit.Check(ctx.Err())
			r.poison(way, t.toxin)
			b.Closing.Store(t.closes)
			seen := toxicCalls(clients, each, &n)
			b.Closing.Store(false)
			r.cure()
			recovery := recovery(ctx, clients, &n)
			idle := nothingUnderWay(ctx, e)
			ok := seen.codes[t.want] == each*count && recovery >= 0 && recovery <= 2*time.Second && idle
			s.bar(ok, fmt.Sprintf("all %d, 2 s, nothing under way", t.want), "%s %s, %s backend: %s in %.2f s at most, well again after %.2f s", t.name, way, kind, seen, seen.longest.Seconds(), recovery.Seconds())
			seen.others(s, fmt.Sprintf("%s %s, %s backend", t.name, way, kind), t.want)
		}
	}
	left(len(clients), r)
}

// callers opens clients of both eras before an edge, each of which has made a
// call. prepare, if any, does something to the client of a number before it.
func (s *storm) callers(ctx context.Context, e *kit.Edge, count, from int, n *kit.Numbers, prepare func(c *kit.Client, i int)) []*kit.Client {
	clients, err := kit.OpenAll(ctx, e.Addr, count, func(i int) (*kit.Client, error) {
		c, err := kit.Dial(ctx, e.Addr, kit.Mixed(i), kit.DialOptions{From: from + i, Buffer: 32 << 10})
		if err == nil {
			if prepare != nil {
				prepare(c, i)
			}
			if err = c.Begin("toxics"); err == nil {
				_, err = toxicCall(c, n)
			}
		}
		return c, err
	})
	s.later(func() { kit.CloseAll(clients) })
	kit.Check(err)
	return clients
}

// nothingUnderWay waits until an edge has no calls any longer.
func nothingUnderWay(ctx context.Context, e *kit.Edge) bool {
	return kit.WaitFor(ctx, 2*time.Second, func() bool {
		now, err := e.Status(ctx)
		return err == nil && now.Inflight == 0
	})
}

// leftOver takes what an edge at rest has of goroutines and files, and returns
// what holds against it what it has later. What a connection that stays open has
// is there before and after.
func (s *storm) leftOver(ctx context.Context, e *kit.Edge, what string) func(clients int, r *relay) {
	base, files := s.restingGoroutines(ctx, e, 0), kit.Must(kit.OpenFiles(e.PID()))
	return func(clients int, r *relay) {
		after, now := s.restingGoroutines(ctx, e, base), kit.Must(kit.OpenFiles(e.PID()))
		s.bar(after <= base, "0", "%s: %d goroutines left over, of %d", what, max(after-base, 0), base)
		s.bar(now <= files+clients, "+ "+strconv.Itoa(clients), "%s: %d open files, %d before; %d connections through the proxy", what, now, files, r.open())
	}
}

// toxicCall makes one large call, and says how it was answered: 200, the code of
// an error, or 0 with the reason when there was no answer.
func toxicCall(c *kit.Client, n *kit.Numbers) (code int, err error) {
	number := strconv.FormatInt(n.Next(), 10)
	text := number + strings.Repeat("-", toxicSize)
	c.Wait(kit.Patience)
	a, err := c.Do(c.CallText(number, kit.Work{Text: text}, ""))
	if err != nil {
		return 0, err
	}
	return codeOf(a, number, text)
}

// codeOf is 200 for the right answer to a call, and else the code of its error:
// of HTTP, or where that is 200, of JSON-RPC.
func codeOf(a *kit.Answer, id, text string) (int, error) {
	err := a.Verify(id, text)
	if err == nil {
		return 200, nil
	}
	_, rest, ok := bytes.Cut(a.Text(), []byte(`"error":{"code":`))
	if a.Status != 200 || !ok {
		return a.Status, err
	}
	digits := bytes.IndexFunc(rest, func(r rune) bool { return (r < '0' || r > '9') && r != '-' })
	code, _ := strconv.Atoi(string(rest[:max(digits, 0)]))
	return code, err
}

// seenCodes is how some calls were answered.
type seenCodes struct {
	mu       sync.Mutex
	codes    map[int]int
	examples map[int]string
	longest  time.Duration
}

// take adds a call that began at a moment.
func (s *seenCodes) take(code int, err error, began time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.codes == nil {
		s.codes, s.examples = map[int]int{}, map[int]string{}
	}
	s.codes[code]++
	if err != nil {
		s.examples[code] = err.Error()
	}
	s.longest = max(s.longest, time.Since(began))
}

func (s *seenCodes) String() string {
	var out []string
	for _, code := range []int{200, 502, 504, 503, 404, 400, 500, 0, 401, 403, -32602} {
		if s.codes[code] > 0 {
			out = append(out, fmt.Sprintf("%d × %d", s.codes[code], code))
		}
	}
	return strings.Join(out, ", ")
}

// add adds what another saw.
func (s *seenCodes) add(o *seenCodes) {
	for code, k := range o.codes {
		for range k {
			s.take(code, nil, time.Now())
		}
	}
	maps.Copy(s.examples, o.examples)
	s.longest = max(s.longest, o.longest)
}

// calls is how many there were.
func (s *seenCodes) calls() (n int) {
	for _, k := range s.codes {
		n += k
	}
	return n
}

// of is how many calls had one of the codes.
func (s *seenCodes) of(codes ...int) (n int) {
	for _, code := range codes {
		n += s.codes[code]
	}
	return n
}

// others notes an answer of each code that is none of the wanted ones.
func (s *seenCodes) others(row *storm, what string, want ...int) {
	for code, text := range s.examples {
		if !slices.Contains(want, code) {
			row.note("%s: %d: %.200s", what, code, text)
		}
	}
}

// toxicCalls has every client make some calls, all clients at the same time.
// One whose connection has ended opens another.
func toxicCalls(clients []*kit.Client, each int, n *kit.Numbers) *seenCodes {
	return allCall(clients, each, func(c *kit.Client) (int, error) { return toxicCall(c, n) })
}

func allCall(clients []*kit.Client, each int, call func(*kit.Client) (int, error)) *seenCodes {
	return eachCall(clients, each, func(_ int, c *kit.Client) (int, error) { return call(c) })
}

// eachCall is allCall for calls that differ from client to client.
func eachCall(clients []*kit.Client, each int, call func(i int, c *kit.Client) (int, error)) *seenCodes {
	seen := &seenCodes{}
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			for range each {
				began := time.Now()
				code, err := call(i, renewed(&clients[i], i))
				seen.take(code, err, began)
			}
		})
	}
	all.Wait()
	return seen
}

// renewed returns the client, with another connection where its own has ended.
func renewed(c **kit.Client, from int) *kit.Client {
	if (*c).Closed() {
		next, err := kit.Dial(context.Background(), (*c).Addr, (*c).Era, kit.DialOptions{From: from, Buffer: 32 << 10})
		if err == nil {
			(*c).Close()
			next.Session = (*c).Session
			*c = next
		}
	}
	return *c
}

// recovery is how long it takes until every client has had a right answer; -1
// when one has none in time.
func recovery(ctx context.Context, clients []*kit.Client, n *kit.Numbers) time.Duration {
	began := time.Now()
	var all sync.WaitGroup
	var mu sync.Mutex
	latest := time.Duration(0)
	for i := range clients {
		all.Go(func() {
			ok := kit.WaitFor(ctx, kit.Patience, func() bool {
				code, _ := toxicCall(renewed(&clients[i], i), n)
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
