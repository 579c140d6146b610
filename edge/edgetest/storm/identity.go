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

// fetchInterval is how often a token of an unknown key may have the edge fetch
// keys: the product's own, which is no setting.
const fetchInterval = 30 * time.Second

// guarded starts an edge that wants tokens of an issuer, before a backend of
// each era, and waits until it knows the keys. more is further YAML of the
// issuer's configuration, which begins with a comma.
func (s *storm) guarded(ctx context.Context, i *issuer.Issuer, more string, flags ...string) *kit.Edge {
	p := kit.PlanOf(s.newBackend(kit.Modern, nil).Addr, s.newBackend(kit.Legacy, nil).Addr)
	p.Prefixed = true
	e := s.startPlan(ctx, p.Guarded(i, "", more), flags...)
	if !kit.WaitFor(ctx, kit.Patience, func() bool { return i.Fetches.Load() > 0 }) {
		kit.Fail("the edge did not fetch the keys")
	}
	return e
}

// turns hands out tokens one after the other. It is safe for concurrent use.
type turns struct {
	mu     sync.Mutex
	tokens []string
	n      int
}

func (t *turns) next() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n++
	return t.tokens[t.n%len(t.tokens)]
}

// use hands out these from now on, too.
func (t *turns) use(more []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tokens = append(t.tokens, more...)
}

// interval waits until a token of an unknown key may have the keys fetched.
func (s *storm) interval(ctx context.Context, e *kit.Edge) {
	s.say("waiting for the %s between fetches of keys", fetchInterval)
	kit.Pause(ctx, fetchInterval+time.Second-time.Since(e.Began))
}

// runUnknownKeys is G12: tokens that name keys which nobody has cost one fetch
// in 30 s, and valid tokens nothing.
func runUnknownKeys(ctx context.Context, s *storm) {
	total := s.size(s.count, 10_000, 1_000, "unknown keys")
	length := s.span(s.length, 10*time.Second, 2*time.Second, "storm")
	i := s.newIssuer(nil)
	e := s.guarded(ctx, i, "")
	defer e.Stop()
	tokens := kit.Must(mintAll(i, 200))
	valid, n := &turns{tokens: tokens}, &kit.Numbers{}
	rate := 500
	if s.rate > 0 {
		rate = s.rate
		s.scale("%d of %d valid calls a second", rate, 500)
	}
	load := pace{addr: e.Addr, era: kit.Mixed, conns: 16, rate: rate, tool: among(0, 2), numbers: n, token: valid.next}
	var calm, busy, storm tally
	during(ctx, length, func(ctx context.Context) { load.run(ctx, &calm) })
	// As many calls more, but with tokens that are good: what they cost, unknown
	// keys may cost, too.
	var more, served atomic.Int64
	during(ctx, length, func(ctx context.Context) { load.run(ctx, &busy) }, func(ctx context.Context) {
		s.beside(ctx, e.Addr, total, length, func(int) string { return valid.next() }, http.StatusOK, &more, &served)
	})
	s.interval(ctx, e)
	before, began := i.Fetches.Load(), time.Now()
	var sent, refused atomic.Int64
	during(ctx, length, func(ctx context.Context) { load.run(ctx, &storm) }, func(ctx context.Context) {
		s.beside(ctx, e.Addr, total, length, strangers(), http.StatusUnauthorized, &sent, &refused)
	})
	fetched, took := i.Fetches.Load()-before, time.Since(began)
	most := 1 + int64(took/fetchInterval)
	failed := calm.failed() + busy.failed() + storm.failed() + int(storm.refused.Load()+calm.ended.Load()+busy.ended.Load()+storm.ended.Load())
	s.bar(fetched <= most, strconv.FormatInt(most, 10), "%d fetches of keys in %.0f s with %d unknown keys", fetched, took.Seconds(), sent.Load())
	s.bar(refused.Load() == sent.Load() && sent.Load() >= int64(total)*9/10, "all", "%d of %d unknown keys refused with 401", refused.Load(), sent.Load())
	s.bar(failed == 0 && storm.right.Load() > 0, "0", "%d of %d valid calls failed, at %d rps", failed, storm.sent.Load(), rate)
	p0, p1, p2 := calm.percentile(990), storm.percentile(990), busy.percentile(990)
	s.tell("p99 of valid calls %.2f ms, %.2f ms in the calm: %+.0f %% (aim ±20 %%)", kit.Millis(p1), kit.Millis(p0), 100*(float64(p1)/float64(max(p0, 1))-1))
	s.tell("%.2f ms beside as many calls more with good tokens, %d of %d of them served: unknown keys %+.0f %%", kit.Millis(p2), served.Load(), more.Load(), 100*(float64(p1)/float64(max(p2, 1))-1))
	if failed > 0 {
		s.note("%s %s %s", calm.reasons(), busy.reasons(), storm.reasons())
	}
}

// strangers makes tokens whose keys nobody has.
func strangers() func(k int) string {
	payload := issuer.Encode(fmt.Appendf(nil, `{"sub":"x","aud":%q,"exp":%d}`, kit.ServerName, time.Now().Add(time.Hour).Unix()))
	tail := "." + payload + "." + issuer.Encode(make([]byte, 64))
	return func(k int) string {
		return issuer.Encode(fmt.Appendf(nil, `{"alg":"ES256","kid":"stranger-%d"}`, k)) + tail
	}
}

// beside makes calls with tokens, spread over a time, and counts those that are
// answered as they should be.
func (s *storm) beside(ctx context.Context, addr string, total int, length time.Duration, token func(k int) string, want int, sent, right *atomic.Int64) {
	const conns = 16
	var all sync.WaitGroup
	began := time.Now()
	for w := range conns {
		all.Go(func() {
			c, err := kit.Dial(ctx, addr, kit.Modern, kit.DialOptions{From: 600 + w})
			if err != nil {
				return
			}
			defer c.Close()
			for k := w; k < total; k += conns {
				if !kit.Sleep(ctx, time.Until(began.Add(time.Duration(float64(length)*0.95*float64(k)/float64(total))))) {
					return
				}
				c.Token, c.Tool = token(k), toolOf(0)
				c.Wait(kit.Patience)
				sent.Add(1)
				if a, err := c.Do(c.CallText("1", kit.Work{Text: "x"}, "")); err == nil && a.Status == want {
					right.Add(1)
				}
			}
		})
	}
	all.Wait()
}

// runRotation is G13: the provider signs with a new key at once. The first
// token of it waits for the one fetch that it causes; nothing is refused.
func runRotation(ctx context.Context, s *storm) {
	hold := s.span(s.length, 10*time.Second, 3*time.Second, "load")
	i := s.newIssuer(nil)
	e := s.guarded(ctx, i, "")
	defer e.Stop()
	old := kit.Must(mintAll(i, 100))
	tokens, n := &turns{tokens: old}, &kit.Numbers{}
	most := pace{addr: e.Addr, era: only(kit.Modern), tool: among(0, 2), numbers: n, token: tokens.next}.ceiling(ctx, 700*time.Millisecond)
	rate := s.steady(most, 1000)
	load := pace{addr: e.Addr, era: kit.Mixed, conns: 32, rate: rate, tool: among(0, 2), numbers: n, token: tokens.next}
	s.interval(ctx, e)
	before := i.Fetches.Load()
	var base, with tally
	during(ctx, hold, func(ctx context.Context) { load.run(ctx, &base) })
	turned := make(chan error, 1)
	during(ctx, hold, func(ctx context.Context) { load.run(ctx, &with) }, func(ctx context.Context) {
		kit.Sleep(ctx, hold/4)
		err := i.Rotate()
		fresh := []string{}
		if err == nil {
			fresh, err = mintAll(i, 100)
		}
		tokens.use(fresh)
		turned <- err
	})
	kit.Check(<-turned)
	failed := base.failed() + with.failed() + int(with.refused.Load()+base.ended.Load()+with.ended.Load())
	s.bar(failed == 0 && with.right.Load() > 0, "0", "%d of %d calls refused, at %d rps, half of them with tokens of the new key from one moment on", failed, with.sent.Load(), rate)
	longest := with.percentile(1000)
	s.bar(longest <= time.Second, "1 s", "the longest call took %.0f ms; %.0f ms before the rotation", kit.Millis(longest), kit.Millis(base.percentile(1000)))
	s.bar(i.Fetches.Load()-before == 1, "1", "%d fetches of keys", i.Fetches.Load()-before)
	if failed > 0 {
		s.note("%s %s", base.reasons(), with.reasons())
	}
}
