package main

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/issuer"
	"github.com/weir-edge/weir/edge/edgetest/kit"
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
func runToxicProvider(ctx context.Context, s *storm) {
	scale, each := time.Duration(1), 2
	if s.quick {
		scale, each = 4, 1
		s.scale("latency 0.5 s ± 0.25 of 2 s ± 1, 1 of 2 calls of each client")
	}
	var r *relay
	i := s.newIssuer(func(addr string) (string, error) {
		r = s.newRelay(addr)
		return r.addr, nil
	})
	e := s.guarded(ctx, i, fmt.Sprintf(", introspectionUrl: %q, clientId: edge", i.URL+"/introspect"), "--pprof")
	defer e.Stop()

	// Clients of both eras: those with opaque tokens, each of its own for each
	// call, and those with tokens of the provider's key.
	const perKind = 4
	var number atomic.Int64
	opaque := func() string { return "opaque-" + strconv.FormatInt(number.Add(1), 10) }
	signed := func() string {
		token, _ := i.Token("signed-"+strconv.FormatInt(number.Add(1), 10), nil) // which is refused when it is empty
		return token
	}
	var n kit.Numbers
	// A session is its owner's: the owner of this one is the token that it begins with.
	open := func(token func() string, from int) []*kit.Client {
		return s.callers(ctx, e, perKind, from, &n, func(c *kit.Client, k int) { c.Token, c.Tool = token(), toolOf(k%2) })
	}
	asked, known := open(opaque, 0), open(signed, 100)
	defer kit.CloseAll(asked)
	defer kit.CloseAll(known)
	base := s.restingGoroutines(ctx, e, 0)
	for _, t := range providerToxics(scale) {
		for _, way := range []direction{upstream, downstream} {
			kit.Check(ctx.Err())
			r.poison(way, t.toxin)
			i.Closes.Store(t.closes)
			var seen, sure *seenCodes
			var work sync.WaitGroup
			work.Go(func() { seen = tokenCalls(asked, each, &n, opaque) })
			work.Go(func() { sure = tokenCalls(known, each, &n, signed) })
			work.Wait()
			i.Closes.Store(false)
			r.cure()
			began := time.Now()
			well := kit.WaitFor(ctx, kit.Patience, func() bool { return tokenCalls(asked, 1, &n, opaque).codes[200] == len(asked) })
			recovery := time.Since(began)
			idle := nothingUnderWay(ctx, e)
			calls := each * len(asked)
			ok := seen.codes[t.want] == calls && sure.codes[200] == calls && well && recovery <= 2*time.Second && idle
			s.bar(ok, fmt.Sprintf("all %d, all 200, 2 s, nothing under way", t.want), "%s %s: asked about %s in %.2f s at most, signed %s; well again after %.2f s", t.name, way, seen, seen.longest.Seconds(), sure, recovery.Seconds())
			seen.others(s, t.name+" "+way.String(), t.want)
			sure.others(s, t.name+" "+way.String(), 200)
		}
	}
	after := s.restingGoroutines(ctx, e, base)
	s.bar(after <= base+keptGoroutines, strconv.Itoa(keptGoroutines)+", of 4 connections that are kept", "%d goroutines left over, of %d", max(after-base, 0), base)
	s.tell("%d introspections, %d fetches of keys", i.Asked.Load(), i.Fetches.Load())
	e.Stop()
	s.toxicStarts(ctx, i, r, scale)
}

// toxicStarts starts an edge for each toxin, with the harm there from the
// beginning: it comes up all the same, answers 503 while it cannot learn the
// keys, and is well as soon as it can.
func (s *storm) toxicStarts(ctx context.Context, i *issuer.Issuer, r *relay, scale time.Duration) {
	const retry = 2 * time.Second // the longest between two attempts to learn the first keys
	for _, t := range providerToxics(scale) {
		for _, way := range []direction{upstream, downstream} {
			if s.quick && (way == upstream || t.want == 200) {
				s.scale("3 of 14 starts")
				continue
			}
			kit.Check(ctx.Err())
			r.poison(way, t.toxin)
			i.Closes.Store(t.closes)
			b := s.newBackend(kit.Modern, nil)
			e := s.startPlan(ctx, kit.PlanOf(b.Addr).Guarded(i, "", ""))
			token := kit.Must(i.Token("start", nil))
			var n kit.Numbers
			call := func() int {
				c, err := kit.Dial(ctx, e.Addr, kit.Modern, kit.DialOptions{Buffer: 32 << 10})
				if err != nil {
					return 0
				}
				defer c.Close()
				code, _ := tokenCall(c, &n, token)
				return code
			}
			during, want := 0, http.StatusServiceUnavailable
			if t.want == 200 {
				want = 200
				kit.WaitFor(ctx, kit.Patience, func() bool { during = call(); return during == 200 })
			} else {
				during = call()
			}
			i.Closes.Store(false)
			r.cure()
			began := time.Now()
			well := kit.WaitFor(ctx, kit.Patience, func() bool { return call() == 200 })
			recovery := time.Since(began)
			s.bar(during == want && well && recovery <= retry+time.Second, fmt.Sprintf("%d, 2 s to the next attempt + 1 s", want), "start with %s %s: ready after %.0f ms, a call is answered with %d; well %.2f s after the harm ended", t.name, way, kit.Millis(e.Ready), during, recovery.Seconds())
			e.Stop()
		}
	}
}

// tokenCalls has every modern client make some calls with tokens of their own,
// and every legacy one in a session that it begins with its token.
func tokenCalls(clients []*kit.Client, each int, n *kit.Numbers, token func() string) *seenCodes {
	return allCall(clients, each, func(c *kit.Client) (int, error) { return tokenCall(c, n, token()) })
}

// tokenCall makes one call with a token; a legacy client begins a session of
// its own with it first.
func tokenCall(c *kit.Client, n *kit.Numbers, token string) (code int, err error) {
	c.Token = token
	if c.Era == kit.Legacy {
		c.Session = ""
		a, err := c.Try("POST", kit.Hello("toxics", `{}`))
		if err != nil {
			return 0, err
		}
		if a.Status != 200 {
			return a.Status, fmt.Errorf("initialize: HTTP %d: %.200s", a.Status, a.Body)
		}
		c.Session = string(a.Session)
	}
	return toxicCall(c, n)
}
