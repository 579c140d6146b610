package main

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/issuer"
	"github.com/weir-edge/weir/edge/edgetest/kit"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// The bars of users who have signed in at the edge.
const (
	signedInBar  = 1.05     // × P2, with a token of the edge's own and upstreamInject
	signedInMore = 80 << 20 // bytes, of the users of --users
	endedMore    = 10 << 20 // bytes, once their sign-ins have ended
)

const (
	signedIn   = "edge with a token of its own and upstreamInject" // in place of the injected header of P2
	signIssuer = "http://127.0.0.1"                                // without a port: the endpoints answer wherever the edge is
)

// loginProvider signs in whoever the code names, in this process. Its tokens have
// credentialSize bytes.
type loginProvider struct {
	*httptest.Server
	refreshes atomic.Int64
}

func startLoginProvider() *loginProvider {
	p := &loginProvider{}
	var n atomic.Int64
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.PostFormValue("grant_type") != "authorization_code" {
			p.refreshes.Add(1)
		}
		pad := func(text string) string { return text + strings.Repeat("x", max(0, credentialSize-len(text))) }
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{ // who does not take it has gone
			"access_token": pad(fmt.Sprintf("access-%d-", n.Add(1))), "refresh_token": pad(fmt.Sprintf("refresh-%d-", n.Load())), "token_type": "Bearer",
			"expires_in": 7200, "user": map[string]string{"id": r.PostFormValue("code")},
		})
	}))
	return p
}

// doorkeeper is the plan of an edge that signs users in at a provider, and shows its backend the
// provider's token; chained, everything that calls of P2 go through. Its sign-ins last two hours,
// or, short, a minute and a half.
func doorkeeper(p *loginProvider, backend, auditLog string, chained, short bool) kit.Plan {
	inject := &v1beta1.OutgoingStrategy{Type: v1beta1.StrategyUpstreamInject, UpstreamInject: &v1beta1.UpstreamInject{ProviderName: "login"}}
	plan := kit.PlanOf(backend)
	auth := ""
	plan.Config = outgoingAuth(inject)
	if chained {
		s := kit.Must(issuer.New(issuer.ES256, kit.ServerName, nil)) // whose place the edge takes
		defer s.Leave()
		plan = chain(s, inject, backend, auditLog)
		auth = ", " + authz(append(idlePolicies(19), `permit(principal, action, resource == Tool::"echo");`))
		at := strings.Index(plan.Before, "apiVersion: weir.dev/v1beta1\nkind: EdgeFilter")
		plan.Before = plan.Before[at:]
	}
	life := "{accessTokenLifespan: 2h}"
	if short {
		life = "{accessTokenLifespan: 1m, authCodeLifespan: 30s}"
	}
	plan.Before += fmt.Sprintf("apiVersion: weir.dev/v1beta1\nkind: MCPOIDCConfig\nmetadata: {name: own}\nspec: {type: inline, inline: {issuer: %q, insecureAllowHTTP: true}}\n---\n", signIssuer)
	plan.Incoming = fmt.Sprintf("{type: oidc, oidcConfigRef: {name: own, audience: \"%[1]s/mcp\", resourceUrl: \"%[1]s/mcp\"}%[2]s}", signIssuer, auth)
	plan.Spec += fmt.Sprintf("  authServerConfig: {issuer: %[1]q, tokenLifespans: %[2]s, upstreamProviders: [{name: login, type: oauth2, oauth2Config: {authorizationEndpoint: \"%[3]s/auth\", tokenEndpoint: \"%[3]s/token\", clientId: edge, insecureAllowHTTP: true, redirectUri: \"%[1]s/oauth/callback\", identityFromToken: {subjectPath: user.id}}}]}\n", signIssuer, life, p.URL)
	return plan
}

var (
	signForm = regexp.MustCompile(`name="form" value="([^"]+)"`)
	signWay  = regexp.MustCompile(`<a class="button" href="([^"]+)">`)
)

// newcomer signs in at an edge, from an address of its own, and returns the access token.
type newcomer struct {
	addr    string
	web     *http.Client
	cookies []*http.Cookie
}

func newNewcomer(addr string, from int) *newcomer {
	d := &net.Dialer{Timeout: kit.Patience, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, byte(1+from/200%200), byte(1+from%200))}}
	return &newcomer{addr: addr, web: &http.Client{
		Timeout: kit.Patience, Transport: &http.Transport{DialContext: d.DialContext},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// ask sends a request, and returns where it is sent on to and the text of the answer.
func (n *newcomer) ask(ctx context.Context, path, kind, body string) (to, text string) {
	method := http.MethodPost
	if kind == "" {
		method = http.MethodGet
	}
	r := kit.Must(http.NewRequestWithContext(ctx, method, "http://"+n.addr+path, strings.NewReader(body)))
	if kind != "" {
		r.Header.Set("Content-Type", kind)
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	for _, c := range n.cookies {
		r.AddCookie(c)
	}
	w := kit.Must(n.web.Do(r))
	defer w.Body.Close()
	all := kit.Must(io.ReadAll(w.Body))
	n.cookies = append(n.cookies, w.Cookies()...)
	if w.StatusCode >= http.StatusBadRequest {
		kit.Fail("%s: HTTP %d: %.200s", path, w.StatusCode, all)
	}
	return w.Header.Get("Location"), string(all)
}

// register registers a program that gets no refresh tokens.
func (n *newcomer) register(ctx context.Context) (client string) {
	_, text := n.ask(ctx, "/oauth/register", "application/json", `{"redirect_uris":["https://client.example/cb"],"grant_types":["authorization_code"]}`)
	var all struct {
		ID string `json:"client_id"`
	}
	kit.Check(json.Unmarshal([]byte(text), &all))
	return all.ID
}

// signIn is a whole login of a user.
func (n *newcomer) signIn(ctx context.Context, client, user string) (access string) {
	const verifier = "the-verifier-of-the-benchmark-has-43-characters-or-more"
	sum := sha256.Sum256([]byte(verifier))
	find := func(in *regexp.Regexp, text string) string {
		m := in.FindStringSubmatch(text)
		if m == nil {
			kit.Fail("an unexpected page: %.300s", text)
		}
		return html.UnescapeString(m[1])
	}
	n.cookies = nil
	_, page := n.ask(ctx, "/oauth/authorize?"+url.Values{"client_id": {client}, "redirect_uri": {"https://client.example/cb"}, "response_type": {"code"}, "code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"}}.Encode(), "", "")
	const form = "application/x-www-form-urlencoded"
	to, _ := n.ask(ctx, "/oauth/consent", form, url.Values{"form": {find(signForm, page)}, "answer": {"allow"}}.Encode())
	state := kit.Must(url.Parse(to)).Query().Get("state")
	_, page = n.ask(ctx, "/oauth/callback?"+url.Values{"state": {state}, "code": {user}}.Encode(), "", "")
	code := kit.Must(url.Parse(find(signWay, page))).Query().Get("code")
	_, text := n.ask(ctx, "/oauth/token", form, url.Values{"grant_type": {"authorization_code"}, "client_id": {client}, "code": {code}, "redirect_uri": {"https://client.example/cb"}, "code_verifier": {verifier}}.Encode())
	var all struct {
		Access string `json:"access_token"`
	}
	kit.Check(json.Unmarshal([]byte(text), &all))
	return all.Access
}

// runSignIns measures users who have signed in at the edge: what their calls cost, and what
// many of them weigh.
func (b *bench) runSignIns(ctx context.Context) {
	b.tryEdge(ctx, "signin, P2", b.signedInCalls)
	b.tryEdge(ctx, "signin, users", b.signedInUsers)
}

// signedInCalls holds calls of P2 with a token of the edge's own and the provider's token for
// the backend against those of P2.
func (b *bench) signedInCalls(ctx context.Context) {
	c := cell{kit.Modern, kit.Modern, "json", 8, true}
	behind := b.startBackend(ctx, c.backend, c.answer)
	e, token, end := b.startCell(ctx, c, behind.Addr)
	defer end()
	p := startLoginProvider()
	defer p.Close()
	logs := kit.Must(os.MkdirTemp(b.dir, "logs-"))
	own := b.startPlan(ctx, doorkeeper(p, behind.Addr, filepath.Join(logs, "audit.log"), true, false), "--local-rate-limits", "--dev-loopback")
	who := newNewcomer(own.Addr, 1)
	access := who.signIn(ctx, who.register(ctx), "bench")
	targets := []*target{{name: weir, Process: e.Process, token: token}, {name: signedIn, Process: own.Process, token: access}}
	figures := b.inTurn(ctx, c, targets)
	floor, edge := figures[weir].cpu, figures[signedIn].cpu
	asked := p.refreshes.Load()
	b.say("signin: %s: CPU %.2f µs; P2: %.2f µs; %d refreshes", signedIn, edge, floor, asked)
	b.report.local = append(b.report.local, verdict{
		"signin", fmt.Sprintf("CPU per call of P2, with a token of the edge's own (%d bytes) and the provider's (%d bytes) in place of the injected header; refreshes at the provider", len(access), credentialSize),
		fmt.Sprintf("%.2f µs; %d", edge, asked), fmt.Sprintf("%.2f µs, P2", floor), fmt.Sprintf("%.3f", edge/floor), fmt.Sprintf("≤ %.2f × P2; 0", signedInBar), yesNo(edge <= signedInBar*floor && asked == 0),
	})
}

// signedInUsers is what the memory of an edge has more for many users who have signed in, and
// what is left of that once their sign-ins have ended.
func (b *bench) signedInUsers(ctx context.Context) {
	const lanes, hosts = 8, 400
	behind := b.startBackend(ctx, kit.Modern, "json")
	p := startLoginProvider()
	defer p.Close()
	e := b.startPlan(ctx, doorkeeper(p, behind.Addr, "", false, true), "--dev-loopback")
	client := newNewcomer(e.Addr, 0).register(ctx)
	sign := func(from, to int) {
		var work sync.WaitGroup
		faults := make([]error, lanes)
		for w := range lanes {
			work.Go(func() {
				faults[w] = kit.Try(func() {
					all := map[int]*newcomer{}
					for i := from + w; i < to; i += lanes {
						host := i % hosts
						if all[host] == nil {
							all[host] = newNewcomer(e.Addr, host)
						}
						all[host].signIn(ctx, client, fmt.Sprint("user-", i))
					}
					for _, n := range all {
						n.web.CloseIdleConnections()
					}
				})
			})
		}
		work.Wait()
		for _, err := range faults {
			kit.Check(err)
		}
	}
	resident := func() int64 { return kit.Must(kit.Settled(ctx, e.PID(), 200*time.Millisecond, 5*time.Second)) }
	sign(0, 200)
	before := resident()
	began := time.Now()
	sign(200, 200+b.users)
	took := time.Since(began)
	full := resident()
	left := full
	// A grant lives as long as its code and its access token.
	for end := time.Now().Add(4 * time.Minute); time.Now().Before(end) && left-before > endedMore; {
		kit.Pause(ctx, 5*time.Second)
		left = kit.Must(kit.Resident(e.PID()))
	}
	over := time.Since(began)
	b.say("signin: %d users: resident %.1f MiB before, %.1f MiB with them, %.1f MiB %.0f s after the first", b.users, kit.MiB(before), kit.MiB(full), kit.MiB(left), over.Seconds())
	b.report.local = append(b.report.local, verdict{
		"signin", fmt.Sprintf("resident memory of an edge with %d users who signed in within %.0f s, of one provider with tokens of %d bytes, more than before; and within four minutes of their end", b.users, took.Seconds(), credentialSize),
		fmt.Sprintf("%+.1f MiB; %+.1f MiB", kit.MiB(full-before), kit.MiB(left-before)), "–", "–", fmt.Sprintf("+ %d MiB; + %d MiB", signedInMore>>20, endedMore>>20), yesNo(full-before <= signedInMore && left-before <= endedMore),
	})
}
