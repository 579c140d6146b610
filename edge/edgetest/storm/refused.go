package main

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
	"github.com/weir-edge/weir/edge/edgetest/tokens"
)

// renewAnew is how often a credential may be made anew because a backend refused
// it: the product's own, which is no setting.
const renewAnew = 30 * time.Second

// runRefused is T16: neither a backend that refuses every credential nor a skew
// above the life of what is issued makes the edge ask the token service again and
// again.
func runRefused(ctx context.Context, s *storm) {
	length := s.span(s.length, 65*time.Second, 3*time.Second, "load")
	s.refusedByBackend(ctx, length)
	s.skewed(ctx, min(length, 10*time.Second))
}

// refusedByBackend has backends of both eras refuse all that they are sent, calls
// of four users.
func (s *storm) refusedByBackend(ctx context.Context, length time.Duration) {
	h := s.newShop(time.Hour)
	e := h.open(ctx, way(h.serviceAddr()), "", h.addrs())
	defer e.Stop()
	var n kit.Numbers
	const users = 4
	for i := range users { // what the backends are is known, and there is a credential of each
		h.prime(ctx, e, &n, "user-"+strconv.Itoa(i))
	}
	call := func(i int, c *kit.Client) (int, error) {
		user := "user-" + strconv.Itoa(i%users)
		return shopCall(c, &n, user, h.same[user])
	}
	h.gate.refuses.Store(true)
	asked, calls := h.service.Asked.Load(), h.gate.calls.Load()
	began := time.Now()
	seen, clients := &seenCodes{}, h.counter(ctx, e, 2*users, 0)
	defer kit.CloseAll(clients)
	for ctx.Err() == nil && time.Since(began) < length {
		seen.add(eachCall(clients, 1, call))
		kit.Sleep(ctx, 50*time.Millisecond)
	}
	took := time.Since(began)
	made, most := h.service.Asked.Load()-asked, int64(users)*(1+int64(took/renewAnew))
	s.bar(made <= most && made >= users, fmt.Sprintf("%d to %d", users, most), "%d exchanges for %d users whom backends refused for %.0f s, %d calls", made, users, took.Seconds(), seen.calls())
	sent := h.gate.calls.Load() - calls
	s.bar(seen.codes[http.StatusOK] == 0 && seen.calls() > 0, "0", "%d of them answered as if all were well", seen.codes[http.StatusOK])
	s.bar(sent <= int64(seen.calls())+made, "1 a call, 1 more an exchange", "the backends had %d calls", sent)
	s.tell("answers: %s", seen)
	h.gate.refuses.Store(false)
	well := time.Now()
	ok := kit.WaitFor(ctx, kit.Patience, func() bool {
		return eachCall(clients, 1, call).codes[http.StatusOK] == len(clients)
	})
	s.bar(ok && time.Since(well) <= 2*time.Second, "2 s", "well %.2f s after the backends took credentials again", time.Since(well).Seconds())
	h.clean()
}

// skewed has a directory issue tokens of two seconds to an edge that takes an hour
// off their lives.
func (s *storm) skewed(ctx context.Context, length time.Duration) {
	h := s.newShop(2 * time.Second)
	spec := fmt.Sprintf("{type: obo, obo: {tenantId: contoso.example.com, authority: %q, clientId: %s, clientSecretRef: {name: exchange, key: client}, audience: %s, cacheSkew: 1h}}", h.service.URL, shopClient, shopTarget)
	e := h.open(ctx, spec, "", h.addrs())
	defer e.Stop()
	var n kit.Numbers
	h.prime(ctx, e, &n, "user")
	token := h.same["user"]
	var t tally
	load := pace{addr: e.Addr, era: kit.Mixed, conns: 16, rate: 200, tool: among(0, 2), numbers: &n, token: func() string { return token }}
	h.service.Seen(tokens.OnBehalf)
	began := time.Now()
	during(ctx, length, func(ctx context.Context) { load.run(ctx, &t) })
	made, most := len(h.service.Seen(tokens.OnBehalf)), int(time.Since(began)/time.Second)+1
	failed := t.failed() + int(t.ended.Load()+t.refused.Load())
	s.bar(made <= most && made > 0, strconv.Itoa(most), "%d exchanges of one user in %.0f s, at %d rps, with a skew of an hour and tokens of 2 s", made, time.Since(began).Seconds(), load.rate)
	s.bar(failed == 0 && t.right.Load() > 0, "0", "%d of %d calls failed", failed, t.sent.Load())
	if failed > 0 {
		s.note("%s", t.reasons())
	}
	h.clean()
}
