package main

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// providerToxics are those of toxics towards an identity provider: what an
// opaque token that has to be asked about is to be answered with. The documents
// are small, so what ends after 500 bytes there ends after 100 here.
func providerToxics(scale time.Duration) []toxic {
	all := toxics(scale)
	for i := range all {
		switch t := &all[i]; t.name {
		case "timeout", "reset_peer":
			t.want = http.StatusUnauthorized
		case "limit_data":
			t.want, t.limit = http.StatusUnauthorized, 100
		}
	}
	return all
}

// keptGoroutines are those of the connections to the provider that the edge
// keeps for a while when they are idle: at most four, two goroutines each.
const keptGoroutines = 8

// runToxicProvider is the part of G27 that concerns identity providers: a proxy
// between edge and provider does harm to one direction of the connections. A
// token that the provider has to be asked about is taken where its answer gets
// through and refused where it does not; one that its keys vouch for is taken
// all the time.
func runToxicProvider(ctx context.Context, s *storm) error {
	scale, each := time.Duration(1), 2
	if s.quick {
		scale, each = 4, 1
		s.scale("latency 0.5 s ± 0.25 of 2 s ± 1, 1 of 2 calls of each client")
	}
	var r *relay
	i, err := s.newIssuer(func(addr string) (string, error) {
		var err error
		if r, err = s.newRelay(addr); err != nil {
			return "", err
		}
		return r.addr, nil
	})
	if err != nil {
		return err
	}
	i.introspect = true
	e, err := s.guarded(ctx, i, "--pprof")
	if err != nil {
		return err
	}
	defer e.stop()

	// Clients of both eras: those with opaque tokens, each of its own for each
	// call, and those with tokens of the provider's key.
	const perKind = 4
	var number atomic.Int64
	opaque := func() string { return "opaque-" + strconv.FormatInt(number.Add(1), 10) }
	signed := func() string {
		token, _ := i.mint("signed-" + strconv.FormatInt(number.Add(1), 10)) // which is refused when it is empty
		return token
	}
	var n numbers
	open := func(token func() string, from int) ([]*client, error) {
		return openFleet(ctx, e.addr, perKind, func(k int) (*client, error) {
			c, err := dial(ctx, e.addr, both(k), dialOptions{from: from + k, buffer: 32 << 10})
			if err == nil {
				// A session is its owner's: the owner of this one is the token that it begins with.
				c.token, c.tool = token(), toolOf(k%2)
				if err = c.begin("toxics"); err == nil {
					_, err = c.toxicCall(&n)
				}
			}
			return c, err
		})
	}
	asked, err := open(opaque, 0)
	defer func() { closeAll(asked) }()
	if err != nil {
		return e.fault(err)
	}
	known, err := open(signed, 100)
	defer func() { closeAll(known) }()
	if err != nil {
		return e.fault(err)
	}
	base, err := s.restingGoroutines(ctx, e, 0)
	if err != nil {
		return err
	}
	for _, t := range providerToxics(scale) {
		for _, way := range []direction{upstream, downstream} {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			r.poison(way, t.toxin)
			i.closes.Store(t.closes)
			var seen, sure *seenCodes
			var work sync.WaitGroup
			work.Go(func() { seen = tokenCalls(asked, each, &n, opaque) })
			work.Go(func() { sure = tokenCalls(known, each, &n, signed) })
			work.Wait()
			i.closes.Store(false)
			r.cure()
			began := time.Now()
			well := waitFor(ctx, patience, func() bool { return tokenCalls(asked, 1, &n, opaque).codes[200] == len(asked) })
			recovery := time.Since(began)
			idle := waitFor(ctx, 2*time.Second, func() bool {
				now, err := e.status(ctx)
				return err == nil && now.Inflight == 0
			})
			calls := each * len(asked)
			ok := seen.codes[t.want] == calls && sure.codes[200] == calls && well && recovery <= 2*time.Second && idle
			s.bar(ok, fmt.Sprintf("all %d, all 200, 2 s, nothing under way", t.want), "%s %s: asked about %s in %.2f s at most, signed %s; well again after %.2f s", t.name, way, seen.codesText(), seen.longest.Seconds(), sure.codesText(), recovery.Seconds())
			for _, one := range []struct {
				seen *seenCodes
				want int
			}{{seen, t.want}, {sure, 200}} {
				if example := one.seen.example(one.want); example != "" {
					s.note("%s %s: %s", t.name, way, example)
				}
			}
		}
	}
	after, err := s.restingGoroutines(ctx, e, base)
	if err != nil {
		return err
	}
	s.bar(after <= base+keptGoroutines, strconv.Itoa(keptGoroutines)+", of 4 connections that are kept", "%d goroutines left over, of %d", max(after-base, 0), base)
	s.tell("%d introspections, %d fetches of keys", i.asked.Load(), i.fetches.Load())
	e.stop()
	return s.toxicStarts(ctx, i, r, scale)
}

// toxicStarts starts an edge for each toxin, with the harm there from the
// beginning: it comes up all the same, answers 503 while it cannot learn the
// keys, and is well as soon as it can.
func (s *storm) toxicStarts(ctx context.Context, i *issuer, r *relay, scale time.Duration) error {
	const retry = 2 * time.Second // the longest between two attempts to learn the first keys
	i.introspect = false
	for _, t := range providerToxics(scale) {
		for _, way := range []direction{upstream, downstream} {
			if s.quick && (way == upstream || t.want == 200) {
				s.scale("3 of 14 starts")
				continue
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			r.poison(way, t.toxin)
			i.closes.Store(t.closes)
			b, err := s.newBackend(modern, nil)
			if err != nil {
				return err
			}
			e, err := s.startPlan(ctx, plan{backends: []seat{{"backend-1", b.addr}}, issuer: i})
			if err != nil {
				return err
			}
			token, err := i.mint("start")
			if err != nil {
				return err
			}
			var n numbers
			call := func() int {
				c, err := dial(ctx, e.addr, modern, dialOptions{buffer: 32 << 10})
				if err != nil {
					return 0
				}
				defer c.close()
				code, _ := c.tokenCall(&n, token)
				return code
			}
			during, want := 0, http.StatusServiceUnavailable
			if t.want == 200 {
				want = 200
				waitFor(ctx, patience, func() bool { during = call(); return during == 200 })
			} else {
				during = call()
			}
			i.closes.Store(false)
			r.cure()
			began := time.Now()
			well := waitFor(ctx, patience, func() bool { return call() == 200 })
			recovery := time.Since(began)
			s.bar(during == want && well && recovery <= retry+time.Second, fmt.Sprintf("%d, 2 s to the next attempt + 1 s", want), "start with %s %s: ready after %.0f ms, a call is answered with %d; well %.2f s after the harm ended", t.name, way, millis(e.ready), during, recovery.Seconds())
			e.stop()
		}
	}
	return nil
}

// tokenCalls has every modern client make some calls with tokens of their own,
// and every legacy one in a session that it begins with its token.
func tokenCalls(clients []*client, each int, n *numbers, token func() string) *seenCodes {
	seen := &seenCodes{codes: map[int]int{}, examples: map[int]string{}}
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			for range each {
				began := time.Now()
				c := renewed(&clients[i], i)
				code, err := c.tokenCall(n, token())
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

// tokenCall makes one call with a token; a legacy client begins a session of
// its own with it first.
func (c *client) tokenCall(n *numbers, token string) (code int, err error) {
	c.token = token
	if c.era == legacy {
		c.session = ""
		c.wait(patience)
		hello := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"toxics","version":"1"}}}`
		a, err := c.do(c.post(hello))
		if err != nil {
			return 0, err
		}
		if a.status != 200 {
			return a.status, fmt.Errorf("initialize: HTTP %d: %.200s", a.status, a.body)
		}
		c.session = a.session
	}
	return c.toxicCall(n)
}

// codesText is text with the answers that only tokens get.
func (s *seenCodes) codesText() string {
	text := s.text()
	if k := s.codes[http.StatusUnauthorized]; k > 0 {
		if text != "" {
			text += ", "
		}
		text += fmt.Sprintf("%d × 401", k)
	}
	return text
}
