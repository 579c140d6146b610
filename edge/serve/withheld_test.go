package serve_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/tokens"
	"github.com/weir-edge/weir/edge/serve"
)

// TestT12Withheld: where the lists of a backend depend on the user and the user's credential
// cannot be had, a call of its tools, prompts and resources gets the failure, and not that there is
// no such thing; so that a user who has to sign in again is told so. One who has done it goes on at
// once. Another backend's tools can be called all the while.
func TestT12Withheld(t *testing.T) {
	for _, way := range []string{"prefix", "priority"} {
		t.Run(way, func(t *testing.T) {
			// 1. A backend that takes tokens of a service, and one that takes whoever comes.
			m, locked, open := newMint(t), edgetest.NewServer(t, edgetest.Modern), edgetest.NewServer(t, edgetest.Legacy)
			locked.Tools = `[{"name":"echo","inputSchema":{"type":"object"}},{"name":"add","inputSchema":{"type":"object"}}]`
			s := tokens.Start(t, map[string]tokens.Rules{tokens.Exchange: {
				ID: "edge", Secret: "planted-secret", Basic: true, Issuer: m.URL, Keys: m.URL + "/keys", Audience: "weir", Type: "access_token", Target: "there",
			}})
			var refuses atomic.Value // "" for nothing
			refuses.Store("")
			s.Instead = func(w http.ResponseWriter, _ *http.Request) bool {
				code := refuses.Load().(string)
				if code != "" {
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(http.StatusBadRequest)
					fmt.Fprintf(w, `{"error":%q}`, code)
				}
				return code != ""
			}
			ca := filepath.Join(t.TempDir(), "ca.pem")
			if err := os.WriteFile(ca, s.CA, 0o600); err != nil {
				t.Fatal(err)
			}
			t.Setenv("WITHHELD_SECRET", "planted-secret")
			more, lockedTool, openTool := "", "locked_echo", "open_echo"
			if way == "priority" {
				more, lockedTool, openTool = ", conflictResolutionConfig: {priorityOrder: [open, locked]}", "add", "echo"
			}
			yaml := fmt.Sprintf(`name: main
groupRef: g
incomingAuth: {type: oidc, oidc: {issuer: %q, audience: weir, clientId: weir, jwksUrl: %q, jwksAllowPrivateIp: true, insecureAllowHttp: true}}
aggregation: {conflictResolution: %s%s}
outgoingAuth:
  source: inline
  backends:
    locked: {type: token_exchange, tokenExchange: {tokenUrl: %q, audience: there, clientId: edge, clientSecretEnv: WITHHELD_SECRET}}
backends:
- {name: locked, url: %q, transport: streamable-http}
- {name: open, url: %q, transport: streamable-http}
`, m.URL, m.URL+"/keys", way, more, s.URL+tokens.Exchange, locked.URL, open.URL)
			e := edgetest.Start(t, yaml, edgetest.Settings(func(c *serve.Settings) { c.CABundle = ca }))
			c := e.NewClient()
			ask := func(token, method, params string) *edgetest.Response {
				body, head := edgetest.ModernRequest("1", method, params, edgetest.Meta())
				return c.Post(body, append(bearer(token), head...)...)
			}
			edgetest.Until(t, "the keys and the lists of the open backend", func() bool {
				return ask(m.token(t, "nobody", "weir", nil), "tools/call", edgetest.CallParams(openTool, "{}")).Status == http.StatusOK
			})

			// 2. Whatever the service says, each call of the user says it, too.
			for code, want := range map[string]int{"invalid_grant": 401, "access_denied": 403, "server_error": 502} {
				refuses.Store(code)
				token := m.token(t, "ada "+code, "weir", nil)
				for what, params := range map[string][2]string{
					"a tool":     {"tools/call", edgetest.CallParams(lockedTool, "{}")},
					"a prompt":   {"prompts/get", `{"name":"` + strings.Replace(lockedTool, "echo", "greet", 1) + `"}`},
					"a resource": {"resources/read", `{"uri":"test://nowhere"}`},
				} {
					r := ask(token, params[0], params[1])
					if r.Status != want || strings.Contains(string(r.Body), s.URL) {
						t.Errorf("%s, %s: %d %s", code, what, r.Status, r.Body)
					}
					if challenge := r.Header.Get("WWW-Authenticate"); (challenge != "") != (want == 401) {
						t.Errorf("%s, %s: the challenge is %q", code, what, challenge)
					}
				}
				if r := ask(token, "tools/list", ""); r.Status != want {
					t.Errorf("%s: the list: %d %s", code, r.Status, r.Body)
				}
				if r := ask(token, "tools/call", edgetest.CallParams(openTool, "{}")); r.Status != http.StatusOK {
					t.Errorf("%s: the open backend: %d %s", code, r.Status, r.Body)
				}
				// 3. The same user, signed in again: the first call is answered.
				refuses.Store("")
				if r := ask(m.token(t, "ada "+code, "weir", nil), "tools/call", edgetest.CallParams(lockedTool, "{}")); r.Status != http.StatusOK {
					t.Errorf("%s: signed in again: %d %s", code, r.Status, r.Body)
				}
			}

			// 4. What nobody has is not found, for one who has all lists.
			if r := ask(m.token(t, "ada", "weir", nil), "tools/call", edgetest.CallParams(lockedTool+"-not", "{}")); r.Status != http.StatusBadRequest || !strings.Contains(string(r.Body), "not found") {
				t.Errorf("what is not there: %d %s", r.Status, r.Body)
			}
			for _, kind := range []string{"tools/call", "tools/list", "server/discover"} {
				for _, r := range locked.Requests(kind) {
					if h := r.Header.Get("Authorization"); h == "" && kind == "tools/call" || h != "" && !strings.Contains(h, ".") {
						t.Errorf("%s reached the backend with %q", kind, h)
					}
				}
			}
		})
	}
}
