package idp_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/idp"
	"github.com/weir-edge/weir/edge/oauth"
	"github.com/weir-edge/weir/edge/serve"
)

// realm is an edge whose servers take the tokens of a provider.
type realm struct {
	*edgetest.Edge
	provider *idp.Provider
	back     *edgetest.Server
	base     string
}

// server is one of its servers: its name, and what its incomingAuth says besides.
type server struct{ name, ref, more string }

// newRealm starts a provider, a backend and an edge with servers at
// /servers/NAME/mcp, each of which takes tokens for its own URL. inline is more
// of the MCPOIDCConfig.
func newRealm(t *testing.T, inline string, times *oauth.Issuers, servers ...server) *realm {
	t.Helper()
	r := &realm{provider: idp.Start(t), back: edgetest.NewServer(t, edgetest.Legacy)}
	addr := edgetest.FreeAddress(t)
	r.base = "http://" + addr
	var yaml strings.Builder
	fmt.Fprintf(&yaml, `apiVersion: weir.dev/v1beta1
kind: MCPOIDCConfig
metadata: {name: idp}
spec: {type: inline, inline: {issuer: %q, insecureAllowHTTP: true, jwksAllowPrivateIP: true%s}}
`, r.provider.Issuer, strings.ReplaceAll(inline, "ISSUER", r.provider.Issuer))
	for _, s := range servers {
		auth := fmt.Sprintf("incomingAuth: {type: oidc, oidcConfigRef: {name: idp, audience: %q, scopes: [tools:read]%s}%s}", r.url(s.name), s.ref, s.more)
		yaml.WriteString(strings.Replace(edgetest.Object(s.name, r.back), "incomingAuth: {type: anonymous}", auth, 1))
	}
	if strings.Contains(inline, "clientSecretRef") {
		fmt.Fprintf(&yaml, "---\napiVersion: v1\nkind: Secret\nmetadata: {name: edge}\nstringData: {client: %q}\n", idp.ClientSecret)
	}
	r.Edge = edgetest.Start(t, yaml.String(), edgetest.With(serve.WithIssuers(times)), edgetest.Settings(func(s *serve.Settings) { s.Listen = addr }))
	if !strings.Contains(inline, "introspectionUrl") {
		edgetest.Until(t, "the keys", func() bool { return r.provider.Hits(t, "/jwks") > 0 })
	}
	return r
}

// url is the endpoint of a server.
func (r *realm) url(name string) string {
	if strings.HasSuffix(name, "-opaque") { // for which the provider's tokens are opaque
		return "https://" + name + ".example/opaque"
	}
	return r.base + "/servers/" + name + "/mcp"
}

// call calls a tool at a server as a modern client with a token; "" for none.
func (r *realm) call(t *testing.T, c *edgetest.Client, name, token string) *edgetest.Response {
	t.Helper()
	got, err := r.try(c, name, token)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func (r *realm) try(c *edgetest.Client, name, token string) (*edgetest.Response, error) {
	body, head := edgetest.ModernRequest("1", "tools/call", edgetest.CallParams("echo", `{"a":1}`), edgetest.Meta())
	head = append(head, "Content-Type", "application/json", "Accept", "application/json, text/event-stream")
	if token != "" {
		head = append(head, "Authorization", "Bearer "+token)
	}
	return c.Try("POST", "/servers/"+name+"/mcp", body, head...)
}

// expect calls with a token and holds the answer against a status.
func (r *realm) expect(t *testing.T, what, name, token string, status int) *edgetest.Response {
	t.Helper()
	got := r.call(t, r.NewClient(), name, token)
	if got.Status != status {
		t.Errorf("%s: status %d, want %d: %s", what, got.Status, status, got.Body)
	}
	return got
}

// Two servers of one process take tokens of one provider, each its own alone,
// in both eras, and a policy knows who it is. One discovery and one fetch of
// keys serve both.
func TestServersBehindAProvider(t *testing.T) {
	t.Parallel()
	policies := `, authzConfig: {type: inline, inline: {policies: ['permit(principal == Client::"alice", action, resource);']}}`
	r := newRealm(t, "", &oauth.Issuers{}, server{name: "a"}, server{name: "b"}, server{name: "c", more: policies})
	p := r.provider
	forA := p.Machine(t, r.url("a"), "tools:read")
	r.expect(t, "a token for a", "a", forA, 200)
	for _, other := range []string{"b", "c"} {
		if got := r.expect(t, "a token for a at "+other, other, forA, 401); !strings.Contains(got.Header.Get("WWW-Authenticate"), `error="invalid_token"`) {
			t.Errorf("%v", got.Header)
		}
	}
	r.expect(t, "a token for b", "b", p.Machine(t, r.url("b"), "tools:read"), 200)
	alice, bob := p.User(t, "alice", r.url("c"), "tools:read"), p.User(t, "bob", r.url("c"), "tools:read")
	r.expect(t, "alice, whom the policy knows", "c", alice.Access, 200)
	r.expect(t, "bob, whom it does not", "c", bob.Access, 403)
	r.expect(t, "an ID token", "c", alice.ID, 401)
	r.expect(t, "a refresh token", "c", alice.Refresh, 401)
	r.expect(t, "no token", "c", "", 401)
	if n, m := p.Hits(t, "/jwks"), p.Hits(t, "/.well-known/openid-configuration")+p.Hits(t, "/.well-known/oauth-authorization-server"); n != 1 || m != 1 {
		t.Errorf("%d fetches of keys, %d discoveries", n, m)
	}

	// A session of the legacy era is its owner's.
	begin := func(token string) *edgetest.Response {
		return r.NewClient().Do("POST", "/servers/c/mcp", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`,
			"Content-Type", "application/json", "Accept", "application/json, text/event-stream", "Authorization", "Bearer "+token)
	}
	session := begin(alice.Access).Header.Get("Mcp-Session-Id")
	if session == "" {
		t.Fatal("no session")
	}
	for token, want := range map[string]int{alice.Access: 200, bob.Access: 404, forA: 401} {
		got := r.NewClient().Do("POST", "/servers/c/mcp", `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":`+edgetest.CallParams("echo", "{}")+`}`,
			"Content-Type", "application/json", "Accept", "application/json, text/event-stream", "Mcp-Session-Id", session, "Authorization", "Bearer "+token)
		if got.Status != want {
			t.Errorf("in alice's session: status %d, want %d: %s", got.Status, want, got.Body)
		}
	}
	for _, seen := range r.back.Requests("") {
		if seen.Header.Get("Authorization") != "" {
			t.Fatal("a token reached the backend")
		}
	}
}

// TestG13Edge is a rotation under load through a whole edge: the provider signs
// with the new key at once, and no call is refused, whichever key signed its
// token. The interval between fetches is a hundredth of the product's.
func TestG13Edge(t *testing.T) {
	r := newRealm(t, "", &oauth.Issuers{Interval: 300 * time.Millisecond}, server{name: "a"})
	p := r.provider
	mint := func() string { return p.Machine(t, r.url("a"), "tools:read") }
	var mu sync.Mutex
	tokens := []string{mint(), mint()}
	refused, calls, longest := 0, 0, time.Duration(0)
	end := make(chan struct{})
	var load sync.WaitGroup
	for i := range 8 {
		load.Go(func() {
			c := r.NewClient()
			for n := i; ; n++ {
				select {
				case <-end:
					return
				default:
				}
				mu.Lock()
				token := tokens[n%len(tokens)]
				mu.Unlock()
				began := time.Now()
				got, err := r.try(c, "a", token)
				took := time.Since(began)
				mu.Lock()
				calls++
				longest = max(longest, took)
				if err != nil || got.Status != 200 {
					refused++
				}
				mu.Unlock()
			}
		})
	}
	served := func(n int) {
		t.Helper()
		mu.Lock()
		from := calls
		mu.Unlock()
		edgetest.Until(t, "calls", func() bool { mu.Lock(); defer mu.Unlock(); return calls >= from+n })
	}
	served(300)
	for range 2 {
		since := time.Now()
		edgetest.Until(t, "the interval", func() bool { return time.Since(since) > 300*time.Millisecond })
		p.Rotate(t, false)
		fresh := mint()
		mu.Lock()
		tokens = append(tokens, fresh)
		mu.Unlock()
		served(300)
	}
	close(end)
	load.Wait()
	if refused > 0 || longest > time.Second {
		t.Errorf("%d of %d calls refused, %s at most", refused, calls, longest)
	}
	t.Logf("two rotations under load: 0 of %d calls refused, %s at most, %d fetches of keys", calls, longest.Round(time.Millisecond), p.Hits(t, "/jwks"))
}

// Opaque tokens are introspected, with a client secret of the edge; one that was
// revoked is refused within the time that answers are remembered, 10 s.
func TestOpaqueTokensOfAProvider(t *testing.T) {
	t.Parallel()
	r := newRealm(t, `, introspectionUrl: "ISSUER/token/introspection", clientId: "`+idp.ClientID+`", clientSecretRef: {name: edge, key: client}`, &oauth.Issuers{}, server{name: "x-opaque"}, server{name: "y-opaque"}, server{name: "jwt"})
	p := r.provider
	token := p.Machine(t, r.url("x-opaque"), "tools:read")
	if strings.Contains(token, ".") {
		t.Fatal("not opaque")
	}
	r.expect(t, "an opaque token", "x-opaque", token, 200)
	asked := p.Hits(t, "/token/introspection")
	r.expect(t, "the same again", "x-opaque", token, 200)
	if n := p.Hits(t, "/token/introspection"); n != asked {
		t.Error("a remembered token was introspected")
	}
	r.expect(t, "at another server", "y-opaque", token, 401)
	r.expect(t, "one that never was", "x-opaque", "0123456789abcdefghijABCDEFGHIJ0123456789abc", 401)
	r.expect(t, "a JWT of the same provider", "jwt", p.Machine(t, r.url("jwt"), "tools:read"), 200)

	revoked := time.Now()
	p.Revoke(t, token)
	client := r.NewClient()
	edgetest.Until(t, "the token to be refused", func() bool { return r.call(t, client, "x-opaque", token).Status == 401 })
	if took := time.Since(revoked); took > 11*time.Second {
		t.Errorf("a revoked token went on for %s", took)
	} else {
		t.Logf("a revoked token went on for %s", took.Round(time.Millisecond))
	}
	p.Down(t)
	r.expect(t, "a token that nobody can be asked about", "x-opaque", "abcdefghijABCDEFGHIJ01234567890123456789abc", 401)
	p.Up(t)
}

// A token without a scope that a server demands is answered with all scopes
// that are needed; with those the same client's call works.
func TestStepUp(t *testing.T) {
	t.Parallel()
	r := newRealm(t, "", &oauth.Issuers{}, server{name: "a", ref: ", requiredScopes: [tools:read, tools:write]"})
	narrow := r.provider.Machine(t, r.url("a"), "tools:read")
	got := r.expect(t, "a narrow token", "a", narrow, 403)
	challenge := challengeOf(t, got)
	if challenge["error"] != "insufficient_scope" || challenge["scope"] != "tools:read tools:write" || challenge["resource_metadata"] == "" {
		t.Errorf("%v", challenge)
	}
	r.expect(t, "the wider one", "a", r.provider.Machine(t, r.url("a"), challenge["scope"]), 200)
	if n := r.back.Count("tools/call"); n != 1 {
		t.Errorf("the backend got %d calls", n)
	}
}

// challengeOf reads the parameters of a challenge of the scheme Bearer.
func challengeOf(t *testing.T, r *edgetest.Response) map[string]string {
	t.Helper()
	text, ok := strings.CutPrefix(r.Header.Get("WWW-Authenticate"), "Bearer ")
	if !ok {
		t.Fatalf("status %d, %v: %s", r.Status, r.Header, r.Body)
	}
	all := map[string]string{}
	for _, m := range regexp.MustCompile(`([a-z_]+)="([^"]*)"`).FindAllStringSubmatch(text, -1) {
		all[m[1]] = m[2]
	}
	return all
}

// A client without a browser finds everything on its own, from the 401 of its
// first request on: where the metadata of the resource are, who issues tokens,
// where and for what. Once on its own account, once for a user, whose redirects
// it follows.
func TestDiscoveryWithoutABrowser(t *testing.T) {
	t.Parallel()
	r := newRealm(t, "", &oauth.Issuers{}, server{name: "a"}, server{name: "b"})
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Jar: jar, Transport: transport, Timeout: edgetest.Patience, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	read := func(resp *http.Response, err error, into any) int {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		if resp.StatusCode == 200 {
			if err := json.Unmarshal(body, into); err != nil {
				t.Fatalf("%s: %v", body, err)
			}
		}
		return resp.StatusCode
	}
	get := func(where string, into any) int {
		resp, err := client.Get(where)
		return read(resp, err, into)
	}

	// 1. From the 401 to the metadata of the resource.
	challenge := challengeOf(t, r.expect(t, "no token", "a", "", 401))
	var resource struct {
		Resource string   `json:"resource"`
		Servers  []string `json:"authorization_servers"`
		Scopes   []string `json:"scopes_supported"`
	}
	if code := get(challenge["resource_metadata"], &resource); code != 200 || resource.Resource != r.url("a") || len(resource.Servers) != 1 || challenge["scope"] != "tools:read" || fmt.Sprint(resource.Scopes) != "[tools:read]" {
		t.Fatalf("%d, %+v, %v", code, resource, challenge)
	}

	// 2. To those of the authorization server (RFC 8414 first, then OpenID Connect).
	var server struct {
		Issuer    string   `json:"issuer"`
		Token     string   `json:"token_endpoint"`
		Authorize string   `json:"authorization_endpoint"`
		PKCE      []string `json:"code_challenge_methods_supported"`
	}
	for _, path := range []string{"/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"} {
		if get(resource.Servers[0]+path, &server) == 200 {
			break
		}
	}
	if server.Issuer != resource.Servers[0] || server.Token == "" || fmt.Sprint(server.PKCE) != "[S256]" {
		t.Fatalf("%+v", server)
	}
	token := func(form url.Values) string {
		t.Helper()
		form.Set("resource", resource.Resource)
		var tokens idp.Tokens
		resp, err := client.PostForm(server.Token, form)
		if code := read(resp, err, &tokens); code != 200 {
			t.Fatalf("token endpoint: status %d", code)
		}
		return tokens.Access
	}

	// 3. On its own account.
	machine := token(url.Values{"grant_type": {"client_credentials"}, "client_id": {"machine"}, "client_secret": {"machine-secret"}, "scope": {challenge["scope"]}})
	r.expect(t, "on its own account", "a", machine, 200)
	r.expect(t, "elsewhere", "b", machine, 401)

	// 4. For a user, by the code flow with PKCE.
	const verifier, callback = "another-verifier-that-is-long-enough-0123456789abcdef", "http://127.0.0.1/callback"
	sum := sha256.Sum256([]byte(verifier))
	where := server.Authorize + "?" + url.Values{
		"client_id": {"app"}, "response_type": {"code"}, "redirect_uri": {callback}, "scope": {"openid " + challenge["scope"]}, "resource": {resource.Resource},
		"login_hint": {"carol"}, "state": {"s"}, "code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"},
	}.Encode()
	for steps := 0; !strings.HasPrefix(where, callback); steps++ {
		resp, err := client.Get(where)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		to, err := resp.Location()
		if err != nil || steps > 20 {
			t.Fatalf("%s: status %d: %v", where, resp.StatusCode, err)
		}
		where = to.String()
	}
	back, err := url.Parse(where)
	if err != nil || back.Query().Get("state") != "s" || back.Query().Get("code") == "" {
		t.Fatalf("%s: %v", where, err)
	}
	r.expect(t, "for a user", "a", token(url.Values{"grant_type": {"authorization_code"}, "client_id": {"app"}, "code": {back.Query().Get("code")}, "redirect_uri": {callback}, "code_verifier": {verifier}}), 200)
}

// G14, in its first and last parts: an edge starts while its provider is away,
// says so with 503, and is well as soon as the provider is.
func TestEdgeBeforeItsProvider(t *testing.T) {
	t.Parallel()
	r := newRealm(t, "", &oauth.Issuers{}, server{name: "a"})
	token := r.provider.Machine(t, r.url("a"), "tools:read")
	r.provider.Down(t)
	r.expect(t, "keys that are known", "a", token, 200)
	again := edgetest.Start(t, strings.Replace(`apiVersion: weir.dev/v1beta1
kind: MCPOIDCConfig
metadata: {name: idp}
spec: {type: inline, inline: {issuer: "`+r.provider.Issuer+`", insecureAllowHTTP: true, jwksAllowPrivateIP: true}}
`+edgetest.Object("a", r.back), "incomingAuth: {type: anonymous}", fmt.Sprintf("incomingAuth: {type: oidc, oidcConfigRef: {name: idp, audience: %q}}", r.url("a")), 1))
	other := &realm{Edge: again, provider: r.provider, back: r.back, base: r.base}
	if got := other.expect(t, "before the provider", "a", token, 503); got.Header.Get("Retry-After") == "" {
		t.Errorf("%v", got.Header)
	}
	r.provider.Up(t)
	client := other.NewClient()
	edgetest.Until(t, "the edge to be well", func() bool { return other.call(t, client, "a", token).Status == 200 })
}

// TestG14Edge is a provider that goes away under load, through a whole edge:
// nothing is refused until the keys were seen too long ago, and then everything
// is; when the provider is back, so is the edge. Times are a 3,600th of the
// product's: 1 s for the hour, 83 ms for the five minutes between fetches.
func TestG14Edge(t *testing.T) {
	r := newRealm(t, "", &oauth.Issuers{Interval: 8 * time.Millisecond, Refresh: 83 * time.Millisecond, MaxStale: time.Second}, server{name: "a"})
	token := r.provider.Machine(t, r.url("a"), "tools:read")
	r.expect(t, "before", "a", token, 200)
	client := r.NewClient()
	seen := time.Now() // the keys are seen until this, or later
	r.provider.Down(t)
	gone := time.Now() // and not after this
	held, lost := 0, 0
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for range 700 {
		<-tick.C
		from := time.Now()
		got := r.call(t, client, "a", token)
		switch to := time.Now(); {
		case got.Status == 200:
			held++
			if from.After(gone.Add(time.Second + 10*time.Millisecond)) {
				t.Errorf("taken %s after the provider went", from.Sub(gone))
			}
		case got.Status != 401:
			t.Errorf("status %d: %s", got.Status, got.Body)
		default:
			lost++
			if to.Before(seen.Add(time.Second - 150*time.Millisecond)) {
				t.Errorf("refused %s after the keys were seen", to.Sub(seen))
			}
		}
	}
	if held == 0 || lost == 0 {
		t.Errorf("%d taken, %d refused", held, lost)
	}
	r.provider.Up(t)
	edgetest.Until(t, "the edge to be well", func() bool { return r.call(t, client, "a", token).Status == 200 })
	t.Logf("away for %s: %d calls taken while the keys were good, %d refused after that", time.Since(gone).Round(time.Millisecond), held, lost)
}
