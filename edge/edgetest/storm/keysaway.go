package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/issuer"
	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// keysServe is for how long the last good keys serve while the provider is
// away: the product's own, which is no setting. fetchRetry is the longest
// between two attempts to learn keys where none serve.
const (
	keysServe  = time.Hour
	fetchRetry = 2 * time.Second
)

// runKeysAway is G14: the identity provider is away under load. Tokens that it
// has signed before and meanwhile are taken for an hour after its keys were last
// seen; then all of them are refused. An edge starts without it all the same,
// and both are well soon after it is back. The hour takes --length 1h and a
// --limit above; else the end of it is left out.
func runKeysAway(ctx context.Context, s *storm) {
	said := s.length
	if said == 0 && !s.quick {
		said = time.Minute
	}
	length := s.span(min(said, keysServe), keysServe, 3*time.Second, "away")
	i := s.newIssuer(nil)
	e := s.guarded(ctx, i, "")
	defer e.Stop()
	rate := 500
	if s.rate > 0 {
		rate = s.rate
		s.scale("%d of %d calls a second", rate, 500)
	}
	n, tokens := &kit.Numbers{}, &minter{issuer: i}
	load := pace{addr: e.Addr, era: kit.Mixed, conns: 16, rate: rate, tool: among(0, 2), numbers: n, token: tokens.next}
	var calm, served, refused tally
	during(ctx, min(length, 5*time.Second), func(ctx context.Context) { load.run(ctx, &calm) })

	// 1. It goes away, and its keys serve.
	i.Leave()
	went := time.Now()
	serve := time.Until(time.Unix(0, i.Last.Load()).Add(keysServe - 2*time.Second))
	s.say("the provider is away; its keys serve for %s more", serve.Round(time.Second))
	during(ctx, min(length, serve), func(ctx context.Context) { load.run(ctx, &served) })
	kit.Check(ctx.Err())
	failed := calm.failed() + served.failed() + int(served.refused.Load()+served.ended.Load())
	s.bar(failed == 0 && served.right.Load() > 0, "0", "away for %s: %d of %d calls failed, at %d rps, each token used twice and %d signed in all", time.Since(went).Round(time.Second), failed, served.sent.Load(), rate, i.Minted.Load())
	s.tell("p99 %.1f ms, %.1f ms while it was there", kit.Millis(served.percentile(990)), kit.Millis(calm.percentile(990)))
	if failed > 0 {
		s.note("%s %s", calm.reasons(), served.reasons())
	}

	// 2. They serve no longer. The attempts of before, which come every 30 s at
	// most, are over by the end of this.
	if length == keysServe {
		kit.Pause(ctx, 3*time.Second)
		during(ctx, 35*time.Second, func(ctx context.Context) { load.run(ctx, &refused) })
		all, n := int(refused.sent.Load()), refused.having(http.StatusUnauthorized)
		s.bar(n == all && all > 0, "all with 401", "%d of %d calls refused with 401 from then on", n, all)
	}

	// 3. An edge starts meanwhile.
	other := s.guarded(ctx, i, "")
	defer other.Stop()
	code := tryToken(ctx, i, other, n)
	s.bar(code == http.StatusServiceUnavailable, "503", "an edge that starts meanwhile is ready after %.0f ms; a call is answered with %d", kit.Millis(other.Ready), code)

	// 4. It is back.
	kit.Check(i.Return())
	began := time.Now()
	for name, one := range map[string]*kit.Edge{"the edge of before": e, "the other edge": other} {
		well := kit.WaitFor(ctx, kit.Patience, func() bool { return tryToken(ctx, i, one, n) == http.StatusOK })
		took := time.Since(began)
		s.bar(well && took <= fetchRetry+time.Second, "2 s to the next attempt + 1 s", "back: %s is well after %.2f s", name, took.Seconds())
	}
}

// try makes one call with a new token, and returns the status of its answer; 0
// for none.
func tryToken(ctx context.Context, i *issuer.Issuer, e *kit.Edge, n *kit.Numbers) int {
	c, err := kit.Dial(ctx, e.Addr, kit.Modern, kit.DialOptions{Buffer: 32 << 10})
	if err != nil {
		return 0
	}
	defer c.Close()
	token, err := i.Token("client", nil)
	if err != nil {
		return 0
	}
	c.Tool = toolOf(0)
	code, _ := tokenCall(c, n, token)
	return code
}

// having is how many answers had an HTTP status other than 200.
func (t *tally) having(status int) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := fmt.Sprintf(": HTTP %d: ", status)
	for _, one := range t.wrong {
		if strings.Contains(one, text) {
			n++
		}
	}
	return n
}

// minter hands out each token of an issuer twice: once to be verified, once to
// be remembered. It is safe for concurrent use.
type minter struct {
	issuer *issuer.Issuer

	mu    sync.Mutex
	count int
	token string
}

func (m *minter) next() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.count++; m.count%2 == 1 {
		m.token, _ = m.issuer.Token("client", nil) // which is refused when it is empty
	}
	return m.token
}
