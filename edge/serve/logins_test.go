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
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge/authserver"
	"github.com/weir-edge/weir/edge/authserver/upstream"
	"github.com/weir-edge/weir/edge/edgetest"
	credential "github.com/weir-edge/weir/edge/outgoing"
	"github.com/weir-edge/weir/edge/serve"
	"github.com/weir-edge/weir/edge/v1beta1"
)

const loginIssuer = "http://127.0.0.1"

// loginRig is an edge with an authorization server before one backend, which is sent the
// user's upstream token.
func loginRig(t *testing.T) (f *front, log string) {
	t.Helper()
	log, records := audited(t)
	n := 0
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n++
		fmt.Fprintf(w, `{"access_token":"upstream-token-%d","token_type":"Bearer","expires_in":3600,"user":{"id":"alice"}}`, n)
	}))
	t.Cleanup(provider.Close)
	back := edgetest.NewServer(t, edgetest.Modern)
	yaml := strings.Replace(edgetest.Manifest(back, records), "incomingAuth: {type: anonymous}", `incomingAuth:
  type: oidc
  oidc: {issuer: "`+loginIssuer+`", audience: "`+loginIssuer+`/mcp", insecureAllowHttp: true, clientId: x}`, 1)
	plan := edgetest.Plan(t, yaml)
	u, wrong := upstream.Parse(field.NewPath("u"), &v1beta1.UpstreamProvider{Name: "hub", Type: v1beta1.UpstreamOAuth2, OAuth2Config: &v1beta1.OAuth2Upstream{
		AuthorizationEndpoint: provider.URL + "/auth", TokenEndpoint: provider.URL + "/token", ClientID: "edge", RedirectURI: loginIssuer + "/oauth/callback",
		IdentityFromToken: &v1beta1.IdentityFromToken{SubjectPath: "user.id"},
	}}, "")
	if len(wrong) > 0 {
		t.Fatal(wrong.ToAggregate())
	}
	s := &plan.Servers[0]
	s.AuthServer = &authserver.Spec{
		Issuer: loginIssuer, Base: loginIssuer, Upstreams: []*upstream.Config{u}, Scopes: []string{"openid"},
		Resources: []authserver.Resource{{Server: s.Name, Audience: loginIssuer + "/mcp", URL: loginIssuer + "/mcp", Scopes: []string{"openid"}}},
		Access:    time.Hour, Code: 10 * time.Minute, Refresh: 168 * time.Hour,
	}
	s.Backends[0].Outgoing = &credential.Spec{Kind: &v1beta1.MCPExternalAuthConfigSpec{Type: v1beta1.AuthUpstreamInject, UpstreamInject: &v1beta1.UpstreamInject{ProviderName: "hub"}}}
	e := edgetest.StartPlan(t, plan, edgetest.Settings(func(s *serve.Settings) { s.DevLoopback = true }))
	return &front{Edge: e, back: back, client: e.NewClient()}, log
}

// TestSignIn is a client that knows nothing: 401, metadata, registration, consent, login,
// token, a call with the upstream's token, refresh, revocation.
func TestSignIn(t *testing.T) {
	f, log := loginRig(t)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	web := &http.Client{Jar: jar, Timeout: edgetest.Patience, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	t.Cleanup(web.CloseIdleConnections)
	at := "http://" + f.Addr()
	fetch := func(req *http.Request, err error) (*http.Response, string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if req.Method == http.MethodPost && req.Header.Get("Content-Type") == "" {
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			req.Header.Set("Sec-Fetch-Site", "same-origin")
		}
		resp, err := web.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp, string(text)
	}
	get := func(path string) (*http.Response, string) {
		return fetch(http.NewRequest(http.MethodGet, at+path, nil))
	}
	post := func(path string, form url.Values) (*http.Response, string) {
		return fetch(http.NewRequest(http.MethodPost, at+path, strings.NewReader(form.Encode())))
	}
	read := func(text string) (all map[string]any) {
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		return all
	}
	call := func(token string) *edgetest.Response {
		c := caller{Client: f.client}
		body, head := c.message("1", "tools/call", edgetest.CallParams("echo", `{"text":"x"}`))
		if token != "" {
			head = append(head, "Authorization", "Bearer "+token)
		}
		return c.Post(body, head...)
	}

	// 1. Who has no token is told where to get one.
	if r := call(""); r.Status != http.StatusUnauthorized || !strings.Contains(r.Header.Get("WWW-Authenticate"), "resource_metadata") {
		t.Fatalf("status %d: %v", r.Status, r.Header)
	}
	_, text := get("/.well-known/oauth-authorization-server")
	if doc := read(text); doc["issuer"] != loginIssuer || doc["registration_endpoint"] != loginIssuer+"/oauth/register" {
		t.Fatalf("metadata: %v", doc)
	}

	// 2. It registers itself, and the user agrees.
	req, err := http.NewRequest(http.MethodPost, at+"/oauth/register", strings.NewReader(`{"redirect_uris":["https://client.example/cb"],"grant_types":["authorization_code","refresh_token"]}`))
	if err == nil {
		req.Header.Set("Content-Type", "application/json")
	}
	_, text = fetch(req, err)
	client, _ := read(text)["client_id"].(string)
	const verifier = "the-verifier-of-the-test-has-43-characters-or-more"
	sum := sha256.Sum256([]byte(verifier))
	_, text = get("/oauth/authorize?" + url.Values{"client_id": {client}, "redirect_uri": {"https://client.example/cb"}, "response_type": {"code"}, "code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"}}.Encode())
	m := regexp.MustCompile(`name="form" value="([^"]+)"`).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("no consent page: %s", text)
	}
	resp, text := post("/oauth/consent", url.Values{"form": {m[1]}, "answer": {"allow"}})
	to, err := resp.Location()
	if err != nil {
		t.Fatalf("status %d: %s", resp.StatusCode, text)
	}

	// 3. Back from the provider, and the tokens.
	_, text = get("/oauth/callback?" + url.Values{"state": {to.Query().Get("state")}, "code": {"x"}}.Encode())
	m = regexp.MustCompile(`href="([^"]+)"`).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("no way on: %s", text)
	}
	answer, err := url.Parse(html.UnescapeString(m[1]))
	if err != nil || answer.Query().Get("code") == "" {
		t.Fatalf("no code: %s", answer)
	}
	_, text = post("/oauth/token", url.Values{"grant_type": {"authorization_code"}, "client_id": {client}, "code": {answer.Query().Get("code")}, "redirect_uri": {"https://client.example/cb"}, "code_verifier": {verifier}})
	tokens := read(text)
	access, _ := tokens["access_token"].(string)
	refresh, _ := tokens["refresh_token"].(string)

	// 4. A call, with the upstream's token to the backend and no other.
	if r := call(access); r.Status != http.StatusOK {
		t.Fatalf("call: status %d: %s", r.Status, r.Body)
	}
	if got := f.back.Requests("tools/call"); len(got) != 1 || got[0].Header.Get("Authorization") != "Bearer upstream-token-1" {
		t.Fatalf("%d calls: %v", len(got), got[0].Header)
	}

	// 5. A refresh, and the end.
	_, text = post("/oauth/token", url.Values{"grant_type": {"refresh_token"}, "client_id": {client}, "refresh_token": {refresh}})
	next := read(text)
	again, _ := next["access_token"].(string)
	if r := call(again); r.Status != http.StatusOK {
		t.Fatalf("after a refresh: status %d: %s", r.Status, r.Body)
	}
	post("/oauth/revoke", url.Values{"client_id": {client}, "token": {again}})
	for _, token := range []string{access, again} {
		if r := call(token); r.Status != http.StatusUnauthorized {
			t.Errorf("after a revocation: status %d", r.Status)
		}
	}

	// 6. What is told of it holds no secret.
	if all := string(f.client.Do("GET", "/metrics", "").Body); !strings.Contains(all, `weir_authserver_decisions_total{`) {
		t.Errorf("metrics: %s", all)
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
	for _, secret := range []string{access, again, refresh, client, "upstream-token", verifier, answer.Query().Get("code")} {
		if strings.Contains(string(kept), secret) || strings.Contains(f.Log(), secret) {
			t.Errorf("the records or the log hold %q", secret)
		}
	}
}
