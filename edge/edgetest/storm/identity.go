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

// fetchInterval is how often a token of an unknown key may have the edge fetch
// keys: the product's own, which is no setting.
const fetchInterval = 30 * time.Second

// guarded starts an edge that wants tokens of an issuer, before a backend of
// each era, and waits until it knows the keys.
func (s *storm) guarded(ctx context.Context, i *issuer, flags ...string) (*edge, error) {
	p := plan{prefixed: true, issuer: i}
	for k := range 2 {
		b, err := s.newBackend(both(k), nil)
		if err != nil {
			return nil, err
		}
		p.backends = append(p.backends, seat{"backend-" + strconv.Itoa(k+1), b.addr})
	}
	e, err := s.startPlan(ctx, p, flags...)
	if err != nil {
		return nil, err
	}
	if !waitFor(ctx, patience, func() bool { return i.fetches.Load() > 0 }) {
		return nil, e.fault(fmt.Errorf("the edge did not fetch the keys"))
	}
	return e, nil
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
func (s *storm) interval(ctx context.Context, e *edge) error {
	s.say("waiting for the %s between fetches of keys", fetchInterval)
	if !sleep(ctx, fetchInterval+time.Second-time.Since(e.began)) {
		return ctx.Err()
	}
	return nil
}

// runUnknownKeys is G12: tokens that name keys which nobody has cost one fetch
// in 30 s, and valid tokens nothing.
func runUnknownKeys(ctx context.Context, s *storm) error {
	total := s.size(s.count, 10_000, 1_000, "unknown keys")
	length := s.span(s.length, 10*time.Second, 2*time.Second, "storm")
	i, err := s.newIssuer(nil)
	if err != nil {
		return err
	}
	e, err := s.guarded(ctx, i)
	if err != nil {
		return err
	}
	defer e.stop()
	tokens, err := i.mintAll(200)
	if err != nil {
		return err
	}
	valid, n := &turns{tokens: tokens}, &numbers{}
	rate := 500
	if s.rate > 0 {
		rate = s.rate
		s.scale("%d of %d valid calls a second", rate, 500)
	}
	load := pace{addr: e.addr, era: both, conns: 16, rate: rate, tool: among(0, 2), numbers: n, token: valid.next}
	var calm, busy, storm tally
	during(ctx, length, func(ctx context.Context) { load.run(ctx, &calm) })
	// As many calls more, but with tokens that are good: what they cost, unknown
	// keys may cost, too.
	var more, served atomic.Int64
	during(ctx, length, func(ctx context.Context) { load.run(ctx, &busy) }, func(ctx context.Context) {
		s.beside(ctx, e.addr, total, length, func(int) string { return valid.next() }, http.StatusOK, &more, &served)
	})
	if err := s.interval(ctx, e); err != nil {
		return err
	}
	before, began := i.fetches.Load(), time.Now()
	var sent, refused atomic.Int64
	during(ctx, length, func(ctx context.Context) { load.run(ctx, &storm) }, func(ctx context.Context) {
		s.beside(ctx, e.addr, total, length, strangers(), http.StatusUnauthorized, &sent, &refused)
	})
	fetched, took := i.fetches.Load()-before, time.Since(began)
	most := 1 + int64(took/fetchInterval)
	failed := calm.failed() + busy.failed() + storm.failed() + int(storm.refused.Load()+calm.ended.Load()+busy.ended.Load()+storm.ended.Load())
	s.bar(fetched <= most, strconv.FormatInt(most, 10), "%d fetches of keys in %.0f s with %d unknown keys", fetched, took.Seconds(), sent.Load())
	s.bar(refused.Load() == sent.Load() && sent.Load() >= int64(total)*9/10, "all", "%d of %d unknown keys refused with 401", refused.Load(), sent.Load())
	s.bar(failed == 0 && storm.right.Load() > 0, "0", "%d of %d valid calls failed, at %d rps", failed, storm.sent.Load(), rate)
	p0, p1, p2 := calm.percentile(0.99), storm.percentile(0.99), busy.percentile(0.99)
	s.tell("p99 of valid calls %.2f ms, %.2f ms in the calm: %+.0f %% (aim ±20 %%)", millis(p1), millis(p0), 100*(float64(p1)/float64(max(p0, 1))-1))
	s.tell("%.2f ms beside as many calls more with good tokens, %d of %d of them served: unknown keys %+.0f %%", millis(p2), served.Load(), more.Load(), 100*(float64(p1)/float64(max(p2, 1))-1))
	if failed > 0 {
		s.note("%s %s %s", calm.reasons(), busy.reasons(), storm.reasons())
	}
	return nil
}

// strangers makes tokens whose keys nobody has.
func strangers() func(k int) string {
	payload := encode(fmt.Appendf(nil, `{"sub":"x","aud":%q,"exp":%d}`, audience, time.Now().Add(time.Hour).Unix()))
	tail := "." + payload + "." + encode(make([]byte, 64))
	return func(k int) string { return encode(fmt.Appendf(nil, `{"alg":"ES256","kid":"stranger-%d"}`, k)) + tail }
}

// beside makes calls with tokens, spread over a time, and counts those that are
// answered as they should be.
func (s *storm) beside(ctx context.Context, addr string, total int, length time.Duration, token func(k int) string, want int, sent, right *atomic.Int64) {
	const conns = 16
	var all sync.WaitGroup
	began := time.Now()
	for w := range conns {
		all.Go(func() {
			c, err := dial(ctx, addr, modern, dialOptions{from: 600 + w})
			if err != nil {
				return
			}
			defer c.close()
			for k := w; k < total; k += conns {
				if !sleep(ctx, time.Until(began.Add(time.Duration(float64(length)*0.95*float64(k)/float64(total))))) {
					return
				}
				c.token, c.tool = token(k), toolOf(0)
				c.wait(patience)
				sent.Add(1)
				if a, err := c.do(c.callText("1", work{Text: "x"}, "")); err == nil && a.status == want {
					right.Add(1)
				}
			}
		})
	}
	all.Wait()
}

// runRotation is G13: the provider signs with a new key at once. The first
// token of it waits for the one fetch that it causes; nothing is refused.
func runRotation(ctx context.Context, s *storm) error {
	hold := s.span(s.length, 10*time.Second, 3*time.Second, "load")
	i, err := s.newIssuer(nil)
	if err != nil {
		return err
	}
	e, err := s.guarded(ctx, i)
	if err != nil {
		return err
	}
	defer e.stop()
	old, err := i.mintAll(100)
	if err != nil {
		return err
	}
	tokens, n := &turns{tokens: old}, &numbers{}
	most, err := s.ceilingWith(ctx, e.addr, n, tokens)
	if err != nil {
		return e.fault(err)
	}
	rate := s.steady(most, 1000)
	load := pace{addr: e.addr, era: both, conns: 32, rate: rate, tool: among(0, 2), numbers: n, token: tokens.next}
	if err := s.interval(ctx, e); err != nil {
		return err
	}
	before := i.fetches.Load()
	var base, with tally
	during(ctx, hold, func(ctx context.Context) { load.run(ctx, &base) })
	turned := make(chan error, 1)
	during(ctx, hold, func(ctx context.Context) { load.run(ctx, &with) }, func(ctx context.Context) {
		sleep(ctx, hold/4)
		err := i.rotate()
		fresh := []string{}
		if err == nil {
			fresh, err = i.mintAll(100)
		}
		tokens.use(fresh)
		turned <- err
	})
	if err := <-turned; err != nil {
		return err
	}
	failed := base.failed() + with.failed() + int(with.refused.Load()+base.ended.Load()+with.ended.Load())
	s.bar(failed == 0 && with.right.Load() > 0, "0", "%d of %d calls refused, at %d rps, half of them with tokens of the new key from one moment on", failed, with.sent.Load(), rate)
	longest := with.percentile(1)
	s.bar(longest <= time.Second, "1 s", "the longest call took %.0f ms; %.0f ms before the rotation", millis(longest), millis(base.percentile(1)))
	s.bar(i.fetches.Load()-before == 1, "1", "%d fetches of keys", i.fetches.Load()-before)
	if failed > 0 {
		s.note("%s %s", base.reasons(), with.reasons())
	}
	return nil
}

// ceilingWith is ceiling where calls carry tokens.
func (s *storm) ceilingWith(ctx context.Context, addr string, n *numbers, tokens *turns) (int, error) {
	const d = 700 * time.Millisecond
	var t tally
	during(ctx, d, func(ctx context.Context) {
		pace{addr: addr, era: only(modern), conns: 16, tool: among(0, 2), numbers: n, token: tokens.next}.run(ctx, &t)
	})
	if f := t.failed(); f > 0 {
		return 0, fmt.Errorf("ceiling: %d calls failed: %s", f, t.reasons())
	}
	return int(float64(t.right.Load()) / d.Seconds()), nil
}
