package serve_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
)

// loginIssuer has no port: the endpoints answer at whatever port the edge has.
const (
	loginIssuer   = "http://127.0.0.1"
	loginVerifier = "the-verifier-of-the-test-has-43-characters-or-more"
)

// hub is an identity provider of the type oauth2, by hand. Each token that it issues is another.
type hub struct {
	*httptest.Server

	mu     sync.Mutex
	name   string // of its tokens
	groups string // JSON, in its token answers
	life   int    // of access tokens, in seconds
	n      int
	kinds  []string // grant types that were asked for
}

func newHub(t testing.TB, name string) *hub {
	h := &hub{name: name, groups: `[]`, life: 3600}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.n++
		h.kinds = append(h.kinds, r.PostFormValue("grant_type"))
		claims := base64.RawURLEncoding.EncodeToString([]byte(fmt.Sprintf(`{"sub":"alice","groups":%s,"n":%d}`, h.groups, h.n)))
		token := fmt.Sprintf("%s-token-%d", h.name, h.n)
		if h.groups != `[]` {
			token = "eyJhbGciOiJub25lIn0." + claims + "."
		}
		fmt.Fprintf(w, `{"access_token":%q,"refresh_token":"%s-refresh-%d","token_type":"Bearer","expires_in":%d,"user":{"id":"alice"}}`, token, h.name, h.n, h.life)
	}))
	t.Cleanup(h.Close)
	return h
}

// provider is the YAML of the hub as an entry of upstreamProviders.
func (h *hub) provider() string {
	return fmt.Sprintf(`{name: %s, type: oauth2, oauth2Config: {authorizationEndpoint: "%s/auth", tokenEndpoint: "%s/token", clientId: edge, scopes: [openid], insecureAllowHTTP: true, redirectUri: "%s/oauth/callback", identityFromToken: {subjectPath: user.id}}}`, h.name, h.URL, h.URL, loginIssuer)
}

// embedded is the YAML of an authorization server; more is further members of it.
func embedded(more string, hubs ...*hub) string {
	var all []string
	for _, h := range hubs {
		all = append(all, h.provider())
	}
	return fmt.Sprintf(`{issuer: %q, upstreamProviders: [%s]%s}`, loginIssuer, strings.Join(all, ", "), more)
}

// ownProvider is the document by which servers trust the authorization server.
const ownProvider = `---
apiVersion: weir.dev/v1beta1
kind: MCPOIDCConfig
metadata: {name: own}
spec: {type: inline, inline: {issuer: "` + loginIssuer + `", insecureAllowHTTP: true}}
`

// entrance is a VirtualMCPServer with an authorization server before one backend. outgoing is
// what the backend is sent, a spec of MCPExternalAuthConfig, and more are further lines of
// the server's config.
func entrance(back *edgetest.Server, auth, outgoing string, more ...string) string {
	return fmt.Sprintf(`apiVersion: weir.dev/v1beta1
kind: MCPGroup
metadata: {name: tools}
---
apiVersion: weir.dev/v1beta1
kind: MCPExternalAuthConfig
metadata: {name: sent}
spec: %s
---
apiVersion: weir.dev/v1beta1
kind: MCPServerEntry
metadata: {name: back}
spec: {groupRef: {name: tools}, remoteUrl: %q, transport: streamable-http, allowPrivateEndpoint: true, externalAuthConfigRef: {name: sent}}
---
apiVersion: weir.dev/v1beta1
kind: VirtualMCPServer
metadata: {name: front}
spec:
  groupRef: {name: tools}
  incomingAuth: {type: oidc, oidcConfigRef: {name: own, audience: "%[3]s/mcp", resourceUrl: "%[3]s/mcp"}}
  outgoingAuth: {source: discovered}
  authServerConfig: %[4]s
  config:
    aggregation: {conflictResolution: priority, conflictResolutionConfig: {priorityOrder: [back]}}
%[5]s
`, outgoing, back.URL, loginIssuer, auth, indented(more)) + ownProvider
}

func indented(lines []string) string {
	text := strings.TrimSpace(strings.Join(lines, "\n"))
	if text == "" {
		return ""
	}
	return "    " + strings.ReplaceAll(text, "\n", "\n    ")
}

// loopback lets providers be on this machine.
func loopback() edgetest.Option {
	return edgetest.Settings(func(s *serve.Settings) { s.DevLoopback = true })
}

// visitor is a client that knows nothing, with the browser of its user.
type visitor struct {
	t         testing.TB
	at        string
	web       *http.Client
	client    string   // its id
	upstreams int      // that the user is sent to
	turns     *visitor // whose address the next request goes to; nil for this one's
}

func newVisitor(t testing.TB, address string) *visitor {
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	web := &http.Client{Jar: jar, Timeout: edgetest.Patience, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	t.Cleanup(web.CloseIdleConnections)
	return &visitor{t: t, at: "http://" + address, web: web, upstreams: 1}
}

func (v *visitor) fetch(req *http.Request, err error) (*http.Response, string) {
	v.t.Helper()
	if err != nil {
		v.t.Fatal(err)
	}
	if req.Method == http.MethodPost && req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	if v.turns != nil {
		v.at, v.turns.at = v.turns.at, v.at
	}
	resp, err := v.web.Do(req)
	if err != nil {
		v.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		v.t.Fatal(err)
	}
	return resp, string(text)
}

func (v *visitor) get(path string) (*http.Response, string) {
	v.t.Helper()
	return v.fetch(http.NewRequest(http.MethodGet, v.at+path, nil))
}

func (v *visitor) post(path string, form url.Values) (*http.Response, string) {
	v.t.Helper()
	return v.fetch(http.NewRequest(http.MethodPost, v.at+path, strings.NewReader(form.Encode())))
}

// read reads a JSON object.
func (v *visitor) read(text string) (all map[string]any) {
	v.t.Helper()
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		v.t.Fatalf("%v: %s", err, text)
	}
	return all
}

// register registers the client.
func (v *visitor) register() {
	v.t.Helper()
	req, err := http.NewRequest(http.MethodPost, v.at+"/oauth/register", strings.NewReader(`{"redirect_uris":["https://client.example/cb"],"grant_types":["authorization_code","refresh_token"]}`))
	if err == nil {
		req.Header.Set("Content-Type", "application/json")
	}
	_, text := v.fetch(req, err)
	v.client, _ = v.read(text)["client_id"].(string)
}

// given are the tokens of a login.
type given struct{ access, refresh, code string }

// signIn is a login from the registration to the tokens; resource is what the client asks for,
// "" for nothing.
func (v *visitor) signIn(resource string) (g given) {
	v.t.Helper()
	if v.client == "" {
		v.register()
	}
	sum := sha256.Sum256([]byte(loginVerifier))
	q := url.Values{"client_id": {v.client}, "redirect_uri": {"https://client.example/cb"}, "response_type": {"code"}, "code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"}}
	if resource != "" {
		q.Set("resource", resource)
	}
	_, text := v.get("/oauth/authorize?" + q.Encode())
	m := regexp.MustCompile(`name="form" value="([^"]+)"`).FindStringSubmatch(text)
	if m == nil {
		v.t.Fatalf("no consent page: %s", text)
	}
	resp, text := v.post("/oauth/consent", url.Values{"form": {m[1]}, "answer": {"allow"}})
	for range v.upstreams {
		to, err := resp.Location()
		if err != nil {
			v.t.Fatalf("status %d: %s", resp.StatusCode, text)
		}
		resp, text = v.get("/oauth/callback?" + url.Values{"state": {to.Query().Get("state")}, "code": {"x"}}.Encode())
	}
	if m = regexp.MustCompile(`href="([^"]+)"`).FindStringSubmatch(text); m == nil {
		v.t.Fatalf("no way on: %s", text)
	}
	answer, err := url.Parse(html.UnescapeString(m[1]))
	if err != nil || answer.Query().Get("code") == "" {
		v.t.Fatalf("no code: %s", answer)
	}
	g.code = answer.Query().Get("code")
	_, text = v.post("/oauth/token", url.Values{"grant_type": {"authorization_code"}, "client_id": {v.client}, "code": {g.code}, "redirect_uri": {"https://client.example/cb"}, "code_verifier": {loginVerifier}})
	return v.tokens(g, text)
}

// tokens reads an answer of the token endpoint.
func (v *visitor) tokens(g given, text string) given {
	v.t.Helper()
	all := v.read(text)
	g.access, _ = all["access_token"].(string)
	g.refresh, _ = all["refresh_token"].(string)
	if g.access == "" {
		v.t.Fatalf("no tokens: %s", text)
	}
	return g
}

// renews shows the refresh token.
func (v *visitor) renews(g given) given {
	v.t.Helper()
	_, text := v.post("/oauth/token", url.Values{"grant_type": {"refresh_token"}, "client_id": {v.client}, "refresh_token": {g.refresh}})
	return v.tokens(g, text)
}

// revokes ends the grant of a token.
func (v *visitor) revokes(token string) {
	v.t.Helper()
	if resp, text := v.post("/oauth/revoke", url.Values{"client_id": {v.client}, "token": {token}}); resp.StatusCode != http.StatusOK {
		v.t.Errorf("revoke: status %d: %s", resp.StatusCode, text)
	}
}

// calls calls the tool echo with a token; "" for none.
func calls(c *edgetest.Client, path, token string) *edgetest.Response {
	one := caller{Client: c}
	body, head := one.message("1", "tools/call", edgetest.CallParams("echo", `{"text":"x"}`))
	if token != "" {
		head = append(head, "Authorization", "Bearer "+token)
	}
	return c.Do(http.MethodPost, path, body, head...)
}

// sent are the Authorization headers of the calls that a backend had.
func sent(back *edgetest.Server) (all []string) {
	for _, r := range back.Requests("tools/call") {
		all = append(all, r.Header.Get("Authorization"))
	}
	return all
}

// TestSignIn is a client that knows nothing: 401, metadata, registration, consent, login,
// token, a call with the upstream's token, refresh, revocation.
func TestSignIn(t *testing.T) {
	log, records := audited(t)
	h, back := newHub(t, "hub"), edgetest.NewServer(t, edgetest.Modern)
	e := edgetest.Start(t, entrance(back, embedded("", h), `{type: upstreamInject, upstreamInject: {providerName: hub}}`, records), loopback(), edgetest.Settings(func(s *serve.Settings) { s.AdminListen = "127.0.0.1:0" }))
	f := &front{Edge: e, back: back, client: e.NewClient()}
	v := newVisitor(t, f.Addr())

	// 1. Who has no token is told where to get one.
	r := calls(f.client, "/mcp", "")
	m := regexp.MustCompile(`resource_metadata="http://[^/]+([^"]+)"`).FindStringSubmatch(r.Header.Get("WWW-Authenticate"))
	if r.Status != http.StatusUnauthorized || m == nil {
		t.Fatalf("status %d: %v", r.Status, r.Header)
	}
	_, text := v.get(m[1])
	if servers, _ := v.read(text)["authorization_servers"].([]any); len(servers) != 1 || servers[0] != loginIssuer {
		t.Fatalf("protected resource: %s", text)
	}
	_, text = v.get("/.well-known/oauth-authorization-server")
	if doc := v.read(text); doc["issuer"] != loginIssuer || doc["registration_endpoint"] != loginIssuer+"/oauth/register" {
		t.Fatalf("metadata: %v", doc)
	}

	// 2. It registers itself, the user agrees and signs in, and there are tokens.
	got := v.signIn("")

	// 3. A call, with the upstream's token to the backend and no other.
	if r := calls(f.client, "/mcp", got.access); r.Status != http.StatusOK {
		t.Fatalf("call: status %d: %s", r.Status, r.Body)
	}
	if all := sent(back); len(all) != 1 || all[0] != "Bearer hub-token-1" {
		t.Fatalf("calls: %v", all)
	}

	// 4. A refresh, what is told meanwhile, and the end.
	again := v.renews(got)
	if r := calls(f.client, "/mcp", again.access); r.Status != http.StatusOK {
		t.Fatalf("after a refresh: status %d: %s", r.Status, r.Body)
	}
	_, state := adminAsk(t, e.Serve.AdminAddr(), "GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n")
	for _, want := range []string{`"issuer": "` + loginIssuer + `"`, `"ephemeral": true`, `"grants": 1`, `"redirectUri": "` + loginIssuer + `/oauth/callback"`} {
		if !strings.Contains(state, want) {
			t.Errorf("/status has no %s: %s", want, state)
		}
	}
	v.revokes(again.access)
	for _, token := range []string{got.access, again.access} {
		if r := calls(f.client, "/mcp", token); r.Status != http.StatusUnauthorized {
			t.Errorf("after a revocation: status %d", r.Status)
		}
	}

	// 5. What is told of it holds no secret.
	metrics := string(f.client.Do("GET", "/metrics", "").Body)
	if !strings.Contains(metrics, `weir_authserver_decisions_total{`) || figure(t, metrics, "weir_authserver_grants") != 0 {
		t.Errorf("metrics: %s", metrics)
	}
	f.Stop()
	kept, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"register", "authorize", "consent", "return", "token", "revoke"} {
		if !strings.Contains(string(kept), `"`+what+`"`) {
			t.Errorf("no record of %s: %s", what, kept)
		}
	}
	if !strings.Contains(string(kept), "hub:alice") {
		t.Errorf("no record names the user: %s", kept)
	}
	for _, secret := range []string{got.access, again.access, got.refresh, v.client, "hub-token", "hub-refresh", loginVerifier, got.code} {
		for where, text := range map[string]string{"records": string(kept), "log": f.Log(), "/status": state, "metrics": metrics} {
			if strings.Contains(text, secret) {
				t.Errorf("%s: %q", where, secret)
			}
		}
	}
}
