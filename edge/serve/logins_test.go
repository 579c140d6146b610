package serve_test

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
)

// loginIssuer has no port: the endpoints answer at whatever port the edge has.
const loginIssuer = "http://127.0.0.1"

// embedded is the YAML of an authorization server; more is further members of it.
func embedded(more string, hubs ...*edgetest.Hub) string {
	var all []string
	for _, h := range hubs {
		all = append(all, h.Provider(loginIssuer))
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
	h, back := edgetest.NewHub(t, "hub"), edgetest.NewServer(t, edgetest.Modern)
	e := edgetest.Start(t, entrance(back, embedded("", h), `{type: upstreamInject, upstreamInject: {providerName: hub}}`, records), loopback(), edgetest.Settings(func(s *serve.Settings) { s.AdminListen = "127.0.0.1:0" }))
	f := &front{Edge: e, back: back, client: e.NewClient()}
	v := edgetest.NewVisitor(t, loginIssuer, f.Addr())

	// 1. Who has no token is told where to get one.
	r := calls(f.client, "/mcp", "")
	m := regexp.MustCompile(`resource_metadata="http://[^/]+([^"]+)"`).FindStringSubmatch(r.Header.Get("WWW-Authenticate"))
	if r.Status != http.StatusUnauthorized || m == nil {
		t.Fatalf("status %d: %v", r.Status, r.Header)
	}
	if servers, _ := v.Object(m[1], nil)["authorization_servers"].([]any); len(servers) != 1 || servers[0] != loginIssuer {
		t.Fatalf("authorization servers: %v", servers)
	}
	if doc := v.Object("/.well-known/oauth-authorization-server", nil); doc["issuer"] != loginIssuer || doc["registration_endpoint"] != loginIssuer+"/oauth/register" {
		t.Fatalf("metadata: %v", doc)
	}

	if r := f.client.Do("POST", "/oauth/callback", "code=x&state=y"); r.Status != http.StatusMethodNotAllowed || r.Header.Get("Allow") != "GET" {
		t.Errorf("a form for the callback: status %d: %s", r.Status, r.Body)
	}

	// 2. It registers itself, the user agrees and signs in, and there are tokens.
	h.Issues("", 3)
	got := v.SignIn("")

	// 3. A call, with the upstream's token to the backend and no other.
	if r := calls(f.client, "/mcp", got.Access); r.Status != http.StatusOK {
		t.Fatalf("call: status %d: %s", r.Status, r.Body)
	}
	if all := sent(back); len(all) != 1 || all[0] != "Bearer hub-token-1" {
		t.Fatalf("calls: %v", all)
	}

	h.Issues("", 3600)
	edgetest.Until(t, "a new token of the upstream", func() bool {
		calls(f.client, "/mcp", got.Access)
		all := sent(back)
		return all[len(all)-1] == "Bearer hub-token-2"
	})

	// 4. A refresh, what is told meanwhile, and the end.
	again := v.Renew(got)
	if r := calls(f.client, "/mcp", again.Access); r.Status != http.StatusOK {
		t.Fatalf("after a refresh: status %d: %s", r.Status, r.Body)
	}
	_, state := adminAsk(t, e.Serve.AdminAddr(), "GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n")
	for _, want := range []string{`"issuer": "` + loginIssuer + `"`, `"ephemeral": true`, `"grants": 1`, `"redirectUri": "` + loginIssuer + `/oauth/callback"`} {
		if !strings.Contains(state, want) {
			t.Errorf("/status has no %s: %s", want, state)
		}
	}
	v.Revoke(again.Access)
	for _, token := range []string{got.Access, again.Access} {
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
	if !regexp.MustCompile(`(?m)^.*hub:alice.*"upstream_refresh".*"client":"[0-9a-f]{8}".*$|^.*"upstream_refresh".*"client":"[0-9a-f]{8}".*hub:alice.*$`).MatchString(string(kept)) {
		t.Errorf("no record says whose token of the upstream was renewed, and for which client: %s", kept)
	}
	for _, secret := range append(got.Secrets(), again.Access, again.Refresh, v.ID, "hub-token", "hub-refresh") {
		for where, text := range map[string]string{"records": string(kept), "log": f.Log(), "/status": state, "metrics": metrics} {
			if strings.Contains(text, secret) {
				t.Errorf("%s: %q", where, secret)
			}
		}
	}
}

// TestSignInByEndpoint: servers whose audience is no URL, and that name no resourceUrl, tell clients
// of their own URL, and tokens are issued for that: for the server at it alone, and for no URL of a
// stranger.
func TestSignInByEndpoint(t *testing.T) {
	for _, external := range []string{"", "https://edge.example"} {
		h, back := edgetest.NewHub(t, "hub"), edgetest.NewServer(t, edgetest.Modern)
		yaml := strings.Replace(entrance(back, embedded("", h), `{type: unauthenticated}`), fmt.Sprintf(`audience: "%[1]s/mcp", resourceUrl: "%[1]s/mcp"`, loginIssuer), "audience: tools", 1) + `---
apiVersion: weir.dev/v1beta1
kind: VirtualMCPServer
metadata: {name: second}
spec:
  groupRef: {name: tools}
  incomingAuth: {type: oidc, oidcConfigRef: {name: own, audience: more}}
  outgoingAuth: {source: discovered}
  config:
    aggregation: {conflictResolution: priority, conflictResolutionConfig: {priorityOrder: [back]}}
`
		e := edgetest.Start(t, yaml, loopback(), edgetest.Settings(func(s *serve.Settings) { s.DefaultServer, s.ExternalURL = "front", external }))
		c, v := e.NewClient(), edgetest.NewVisitor(t, loginIssuer, e.Addr())
		base := external
		if base == "" {
			base = "http://" + e.Addr()
		}
		all := map[string]string{"/mcp": "", "/servers/second/mcp": ""}
		for path := range all {
			m := regexp.MustCompile(`resource_metadata="https?://[^/]+([^"]+)"`).FindStringSubmatch(calls(c, path, "").Header.Get("WWW-Authenticate"))
			if m == nil {
				t.Fatalf("%s: no metadata", path)
			}
			resource, _ := v.Object(m[1], nil)["resource"].(string)
			if resource != base+path {
				t.Fatalf("%s: the metadata name %q", path, resource)
			}
			all[path] = v.SignIn(resource).Access
		}
		for path, token := range all {
			for other := range all {
				want := http.StatusUnauthorized
				if path == other {
					want = http.StatusOK
				}
				if r := calls(c, other, token); r.Status != want {
					t.Errorf("the token for %s at %s: status %d: %s", path, other, r.Status, r.Body)
				}
			}
		}
		for _, stranger := range []string{"https://evil.example/mcp", base, base + "/servers/other/mcp"} {
			if at, err := v.Walk(v.Asks(stranger), edgetest.VisitorCallback); err != nil || !strings.Contains(at, "error=invalid_target") {
				t.Errorf("%s: %s, %v", stranger, at, err)
			}
		}
	}
}

// TestNewProvider: a provider that a reload adds, or gives another name, is of no login before. Who
// needs it gets 401, and no refresh of that login: the next login has it.
func TestNewProvider(t *testing.T) {
	one, two, back := edgetest.NewHub(t, "hub"), edgetest.NewHub(t, "second"), edgetest.NewServer(t, edgetest.Modern)
	inject := `{type: upstreamInject, upstreamInject: {providerName: %s}}`
	e := edgetest.Start(t, entrance(back, embedded("", one), fmt.Sprintf(inject, "hub")), loopback())
	c, v := e.NewClient(), edgetest.NewVisitor(t, loginIssuer, e.Addr())
	for name, hubs := range map[string][]*edgetest.Hub{"added": {one, two}, "renamed": {two}} {
		if err := e.Serve.Reload(edgetest.Plan(t, entrance(back, embedded("", one), fmt.Sprintf(inject, "hub")))); err != nil {
			t.Fatal(err)
		}
		was := v.SignIn("")
		if err := e.Serve.Reload(edgetest.Plan(t, entrance(back, embedded("", hubs...), fmt.Sprintf(inject, "second")))); err != nil {
			t.Fatal(err)
		}
		if r := calls(c, "/mcp", was.Access); r.Status != http.StatusUnauthorized || !strings.Contains(r.Header.Get("WWW-Authenticate"), "invalid_token") {
			t.Errorf("%s: a call of the login before: status %d: %s", name, r.Status, r.Body)
		}
		form := url.Values{"grant_type": {"refresh_token"}, "refresh_token": {was.Refresh}, "client_id": {v.ID}}
		if status, text := v.Fetch("/oauth/token", form); status != http.StatusBadRequest || !strings.Contains(text, "invalid_grant") {
			t.Errorf("%s: its refresh: status %d: %s", name, status, text)
		}
		if r := calls(c, "/mcp", v.SignIn("").Access); r.Status != http.StatusOK {
			t.Errorf("%s: a call of a new login: status %d: %s", name, r.Status, r.Body)
		}
	}
}
