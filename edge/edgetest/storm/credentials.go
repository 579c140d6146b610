package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/issuer"
	"github.com/weir-edge/weir/edge/edgetest/kit"
	"github.com/weir-edge/weir/edge/edgetest/tokens"
)

// shop is what rows about credentials of users have: an identity provider of
// users, a token service that gives tokens for backends in exchange for those of
// users, and a backend of each era that takes these alone.
type shop struct {
	*storm
	users    *issuer.Issuer
	service  *tokens.Service
	gate     *gate
	backends []*kit.Backend
	flags    []string          // of the edge: whom it trusts, and where its secrets are
	client   string            // file of the client secret
	same     map[string]string // tokens by user
	known    atomic.Int64      // newcomers
}

// What the edge is called at the token service, and what it asks tokens for.
const (
	shopClient = "edge"
	shopTarget = "shop"
	shopSecret = "secret of the edge"
)

// opaque is how tokens of users begin that no key vouches for.
const opaque = "opaque-"

// newShop starts all but the edge. Tokens of the service are good for life.
func (s *storm) newShop(life time.Duration) *shop {
	i := s.newIssuer(nil)
	kit.Check(i.Rotate()) // the tokens of its second key begin with other characters than those of the service
	h := &shop{storm: s, users: i, service: kit.Must(tokens.New(map[string]tokens.Rules{
		tokens.Exchange: {ID: shopClient, Secret: shopSecret, Basic: true, Body: true, Issuer: i.URL, Keys: i.URL + "/keys", Audience: kit.ServerName, Type: "access_token", Target: shopTarget, Life: life},
		tokens.OnBehalf: {ID: shopClient, Secret: shopSecret, Body: true, Issuer: i.URL, Keys: i.URL + "/keys", Audience: kit.ServerName, Type: "access_token", Scopes: []string{shopTarget + "/.default"}, Life: life},
	}))}
	s.later(h.service.Close)
	first, _, _ := strings.Cut(h.token("nobody"), ".")
	h.gate = &gate{holder: h.service.Holder, marks: [][]byte{[]byte(first), []byte(opaque)}, of: map[string]int{}}
	for _, era := range []kit.Era{kit.Modern, kit.Legacy} {
		h.backends = append(h.backends, s.newBackend(era, func(b *kit.Backend) { b.Admit = h.gate.admit }))
	}
	dir := s.folder("secrets")
	h.client = filepath.Join(dir, "exchange", "client")
	kit.Check(os.Mkdir(filepath.Dir(h.client), 0o700))
	kit.Check(os.WriteFile(h.client, []byte(shopSecret), 0o600))
	h.flags = []string{"--ca-bundle", h.trusts(h.service.CA), "--secrets-dir", dir}
	return h
}

// trusts is a file with an authority that the edge is to trust.
func (s *storm) trusts(ca []byte) string {
	file := filepath.Join(s.folder("ca"), "ca.pem")
	kit.Check(os.WriteFile(file, ca, 0o600))
	return file
}

// token is a token of the identity provider for a user.
func (h *shop) token(user string) string { return kit.Must(h.users.Token(user, nil)) }

// tokenOf is a token for a user, the same one each time.
func (h *shop) tokenOf(user string) string {
	if h.same == nil {
		h.same = map[string]string{}
	}
	if h.same[user] == "" {
		h.same[user] = h.token(user)
	}
	return h.same[user]
}

// newcomer is a user whom nobody has seen.
func (h *shop) newcomer() string { return "newcomer-" + strconv.FormatInt(h.known.Add(1), 10) }

// way is the spec of the way in which tokens are exchanged at an address.
func way(addr string) string {
	return fmt.Sprintf("{type: tokenExchange, tokenExchange: {tokenUrl: %q, audience: %s, clientId: %s, clientSecretRef: {name: exchange, key: client}}}", "https://"+addr+tokens.Exchange, shopTarget, shopClient)
}

// serviceAddr is where the token service itself is.
func (h *shop) serviceAddr() string { return strings.TrimPrefix(h.service.URL, "https://") }

// open starts an edge before backends that are reached in a way, and waits until
// it knows the keys of the identity provider. oidc is as in guarded.
func (h *shop) open(ctx context.Context, way, oidc string, addrs []string, flags ...string) *kit.Edge {
	p := kit.PlanOf(addrs...)
	p.Prefixed = true
	p.Before = "apiVersion: weir.dev/v1beta1\nkind: MCPExternalAuthConfig\nmetadata: {name: way}\nspec: " + way + "\n---\n"
	p.Spec = "  outgoingAuth: {source: inline, default: {type: externalAuthConfigRef, externalAuthConfigRef: {name: way}}}\n"
	e := h.startPlan(ctx, p.Guarded(h.users, "", oidc), append(h.flags, flags...)...)
	if !kit.WaitFor(ctx, kit.Patience, func() bool { return h.users.Fetches.Load() > 0 }) {
		kit.Fail("the edge did not fetch the keys")
	}
	return e
}

// addrs are where the backends are.
func (h *shop) addrs() (all []string) {
	for _, b := range h.backends {
		all = append(all, b.Addr)
	}
	return all
}

// clean holds what backends have been sent against what they may be sent: never
// a token of a client, and no credential that is nobody's.
func (h *shop) clean() {
	g := h.gate
	h.bar(g.own.Load() == 0 && g.unknown.Load() == 0 && g.crossed.Load() == 0, "0, 0, 0", "backends were sent the client's own token %d times, a credential that they do not take %d times, that of another user %d times, in %d calls", g.own.Load(), g.unknown.Load(), g.crossed.Load(), g.calls.Load())
}

// gate judges what is sent to backends: they take the tokens of the service
// alone. A call may say in how whose it is.
type gate struct {
	holder func(token string) (subject string, ok bool)
	marks  [][]byte // what tokens of clients hold

	refuses atomic.Bool // everything is answered with 401

	calls   atomic.Int64 // with a token of the service
	own     atomic.Int64 // requests with a token of a client in any line
	unknown atomic.Int64 // requests with a credential that is not taken, and calls with none
	crossed atomic.Int64 // calls of a user with the token of another
	longest atomic.Int64 // bytes of a token

	mu sync.Mutex
	of map[string]int // requests by whose token they had
}

func (g *gate) admit(a *kit.Asked) int {
	for _, m := range g.marks {
		if bytes.Contains(a.Lines, m) {
			g.own.Add(1)
		}
	}
	call := a.Method == "tools/call"
	if len(a.Credential) == 0 && !call { // the edge's own
		return http.StatusUnauthorized
	}
	token, _ := bytes.CutPrefix(a.Credential, []byte("Bearer "))
	subject, ok := g.holder(string(token))
	if !ok {
		g.unknown.Add(1)
		return http.StatusUnauthorized
	}
	g.mu.Lock()
	g.of[subject]++
	g.mu.Unlock()
	if call {
		g.calls.Add(1)
		g.longest.Store(max(g.longest.Load(), int64(len(token))))
		if how := a.Message.Params.Arguments.How; how != "" && how != subject {
			g.crossed.Add(1)
		}
	}
	if g.refuses.Load() {
		return http.StatusUnauthorized
	}
	return 0
}

// reached is how many requests have come with tokens of some users.
func (g *gate) reached(users []string) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, user := range users {
		n += g.of[user]
	}
	return n
}

// shopCall makes one call of a user on a connection; one of the legacy era is in a
// session that the user begins for it.
func shopCall(c *kit.Client, n *kit.Numbers, user, token string) (code int, err error) {
	c.Token = token
	if c.Era == kit.Legacy {
		c.Session = ""
		a, err := c.Try("POST", kit.Hello("shop", `{}`))
		if err != nil {
			return 0, err
		}
		if a.Status != http.StatusOK {
			return a.Status, fmt.Errorf("initialize: HTTP %d: %.200s", a.Status, a.Body)
		}
		c.Session = string(a.Session)
	}
	number := strconv.FormatInt(n.Next(), 10)
	c.Wait(kit.Patience)
	a, err := c.Do(c.CallText(number, kit.Work{Text: number, How: user}, ""))
	if err != nil {
		return 0, err
	}
	code, err = codeOf(a, number, number)
	if c.Era == kit.Legacy {
		if _, err := c.Try("DELETE", ""); err != nil {
			return 0, err
		}
	}
	return code, err
}

// counter opens connections of both eras to an edge, for calls of either backend's
// tool.
func (h *shop) counter(ctx context.Context, e *kit.Edge, count, from int) []*kit.Client {
	clients, err := kit.OpenAll(ctx, e.Addr, count, func(i int) (*kit.Client, error) {
		c, err := kit.Dial(ctx, e.Addr, kit.Mixed(i), kit.DialOptions{From: from + i, Buffer: 32 << 10})
		if err == nil {
			c.Tool = toolOf(i / 2 % len(h.backends))
		}
		return c, err
	})
	h.later(func() { kit.CloseAll(clients) })
	kit.Check(err)
	return clients
}

// prime makes one call of a user with the backend of each era.
func (h *shop) prime(ctx context.Context, e *kit.Edge, n *kit.Numbers, user string) {
	for i := range h.backends {
		c := kit.Must(kit.Dial(ctx, e.Addr, kit.Modern, kit.DialOptions{}))
		c.Tool = toolOf(i)
		code, err := shopCall(c, n, user, h.tokenOf(user))
		c.Close()
		if code != http.StatusOK {
			kit.Fail("the first call of %s: %d: %v", user, code, err)
		}
	}
}

// runExpiries is T15: a user's credential expires again and again under load. It
// is made anew once each time, and no call waits for that.
func runExpiries(ctx context.Context, s *storm) {
	// A third of the load is how long a credential is used; it is good for twice
	// that, since half of its life is the most that the edge leaves for clocks that
	// differ. It is made anew in the last tenth, in which the service has to answer.
	length := s.span(s.length, time.Minute, 6*time.Second, "load")
	const goal = 500 * time.Millisecond
	used, takes := length/3, goal
	if takes > used/15 {
		takes = (used / 15).Round(10 * time.Millisecond)
		s.scale("a token service that takes %s of %s", takes, goal)
	}
	h := s.newShop(time.Hour)
	h.service.Instead = func(http.ResponseWriter, *http.Request) bool {
		time.Sleep(takes)
		return false
	}
	e := h.open(ctx, way(h.serviceAddr()), "", h.addrs())
	defer e.Stop()
	var n kit.Numbers
	load := func(user string, conns, rate int) pace {
		token := h.tokenOf(user)
		return pace{addr: e.Addr, era: kit.Mixed, conns: conns, rate: rate, tool: among(0, 2), numbers: &n, work: kit.Work{How: user}, token: func() string { return token }}
	}
	const conns = 32
	steady := load("steady", conns, 0)
	warm := steady
	warm.era = only(kit.Modern)
	h.prime(ctx, e, &n, "steady")
	rate := s.steady(warm.ceiling(ctx, min(length, time.Second)), 1000)
	steady.rate = rate
	expiring := load("expiring", conns, rate)

	// 1. The load with a credential that lasts, before and after. 2. The same with
	// one that expires three times.
	var base, with tally
	asked := h.service.Asked.Load()
	during(ctx, length/2, func(ctx context.Context) { steady.run(ctx, &base) })
	calm := h.service.Asked.Load() - asked
	h.service.Change(tokens.Exchange, func(r *tokens.Rules) { r.Life = (2 * used).Round(time.Second) })
	asked = h.service.Asked.Load()
	h.prime(ctx, e, &n, "expiring")
	during(ctx, length, func(ctx context.Context) { expiring.run(ctx, &with) })
	made := h.service.Asked.Load() - asked
	during(ctx, length/2, func(ctx context.Context) { steady.run(ctx, &base) })

	p0, p1, longest := base.percentile(990), with.percentile(990), with.percentile(1000)
	failed := base.failed() + with.failed() + int(base.ended.Load()+with.ended.Load()+base.refused.Load()+with.refused.Load())
	s.bar(made == 4 && calm == 0, "4, 0", "%d exchanges for the first call and three expiries, %d for a credential that lasts", made, calm)
	s.bar(failed == 0 && with.right.Load() > 0, "0", "%d of %d calls failed, at %d rps, both eras", failed, base.sent.Load()+with.sent.Load(), rate)
	s.bar(p1 <= p0*12/10 || s.quick && p1 <= takes/2, "1.2 ×", "p99 %.2f ms, %.2f ms with a credential that lasts: %.2f ×", kit.Millis(p1), kit.Millis(p0), float64(p1)/float64(max(p0, 1)))
	s.tell("the longest call took %.1f ms; %.1f ms with a credential that lasts", kit.Millis(longest), kit.Millis(base.percentile(1000)))
	if s.quick {
		s.scale("p99 within half the time of the service, too")
	}
	if failed > 0 {
		s.note("%s %s", base.reasons(), with.reasons())
	}
	h.clean()
}

// runNewSecret is T12's other half: the secret that the edge shows the token
// service is changed under load, as an operator does it: the service takes both
// for a while.
func runNewSecret(ctx context.Context, s *storm) {
	times := s.size(s.count, 10, 2, "changes")
	h := s.newShop(time.Hour)
	e := h.open(ctx, way(h.serviceAddr()), "", h.addrs())
	defer e.Stop()
	var n kit.Numbers
	const gap = 700 * time.Millisecond
	seen, clients := &seenCodes{}, h.counter(ctx, e, 8, 0)
	defer kit.CloseAll(clients)
	over := make(chan struct{})
	var work sync.WaitGroup
	for i := range clients {
		work.Go(func() { // ends with the last change
			for {
				select {
				case <-over:
					return
				default:
				}
				user, began := h.newcomer(), time.Now()
				code, err := shopCall(renewed(&clients[i], i), &n, user, h.token(user))
				seen.take(code, err, began)
				kit.Sleep(ctx, 20*time.Millisecond)
			}
		})
	}
	taken := 0
	for k := range times {
		kit.Sleep(ctx, gap/2)
		next := shopSecret + " " + strconv.Itoa(k)
		h.service.Change(tokens.Exchange, func(r *tokens.Rules) { r.Older, r.Secret = r.Secret, next })
		kit.Sleep(ctx, gap/2)
		kit.Check(os.WriteFile(h.client+".next", []byte(next+"\n"), 0o600))
		kit.Check(os.Rename(h.client+".next", h.client))
		kit.Sleep(ctx, gap/2)
		h.service.Change(tokens.Exchange, func(r *tokens.Rules) { r.Older = "" })
		before := h.service.Issued.Load()
		if kit.WaitFor(ctx, 2*time.Second, func() bool { return h.service.Issued.Load() > before }) {
			taken++
		}
	}
	close(over)
	work.Wait()
	kit.Check(ctx.Err())
	failed := seen.calls() - seen.codes[http.StatusOK]
	s.bar(failed == 0 && seen.calls() > 0, "0", "%d of %d calls failed, each of a new user, beside %d changes of the client secret", failed, seen.calls(), times)
	s.bar(taken == times, "each", "%d of %d secrets used once the one before was not taken any longer", taken, times)
	seen.others(s, "calls", http.StatusOK)
	h.clean()
}
