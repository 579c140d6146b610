package serve_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/tokens"
	"github.com/weir-edge/weir/edge/oauth"
	"github.com/weir-edge/weir/edge/serve"
)

// TestExchangeThroughAnEdge: calls of two users through an edge reach the backend with the token
// that a token service gave for each, once; a service that refuses or is gone keeps calls from
// the backend, and the client's own token never gets there. Both eras of client and backend.
func TestExchangeThroughAnEdge(t *testing.T) {
	for _, era := range []edgetest.Era{edgetest.Modern, edgetest.Legacy} {
		t.Run(fmt.Sprint(era), func(t *testing.T) {
			// 1. Who vouches for users, who exchanges their tokens, and who takes those.
			m, back := newMint(t), edgetest.NewServer(t, era)
			s := tokens.Start(t, map[string]tokens.Rules{tokens.Exchange: {
				ID: "edge", Secret: "planted-secret", Basic: true, Issuer: m.URL, Keys: m.URL + "/keys", Audience: "weir", Type: "access_token", Target: "orders", Scopes: []string{"orders:read"},
			}})
			file := filepath.Join(t.TempDir(), "audit.log")
			ca := filepath.Join(t.TempDir(), "ca.pem")
			if err := os.WriteFile(ca, s.CA, 0o600); err != nil {
				t.Fatal(err)
			}
			t.Setenv("ORDERS_SECRET", "planted-secret")
			yaml := strings.Replace(edgetest.Manifest(back, fmt.Sprintf(`outgoingAuth:
  source: inline
  default:
    type: token_exchange
    tokenExchange: {tokenUrl: %q, audience: orders, clientId: edge, clientSecretEnv: ORDERS_SECRET, scopes: ["orders:read"]}
audit: {enabled: true, logFile: %q}`, s.URL+tokens.Exchange, file)), "incomingAuth: {type: anonymous}", fmt.Sprintf(
				"incomingAuth: {type: oidc, oidc: {issuer: %q, audience: weir, clientId: weir, jwksUrl: %q, jwksAllowPrivateIp: true, insecureAllowHttp: true}}", m.URL, m.URL+"/keys"), 1)
			e := edgetest.Start(t, yaml, edgetest.Settings(func(c *serve.Settings) { c.CABundle = ca }))
			c := e.NewClient()
			call := func(token string) *edgetest.Response {
				body, head := edgetest.ModernRequest("1", "tools/call", edgetest.CallParams("echo", "{}"), edgetest.Meta())
				return c.Post(body, append(bearer(token), head...)...)
			}
			users := map[string]string{"ada": m.token(t, "ada", "weir", nil), "bob": m.token(t, "bob", "weir", nil)}
			edgetest.Until(t, "the keys", func() bool { return call(users["ada"]).Status != http.StatusServiceUnavailable })

			// 2. Each has its own, and the backend is sent nothing else.
			for range 3 {
				for name, token := range users {
					if a := call(token); a.Status != http.StatusOK {
						t.Fatalf("%s: %d %s", name, a.Status, a.Body)
					}
				}
			}
			seen := map[string]bool{}
			for _, kind := range []string{"tools/call", "tools/list", "initialize", "server/discover"} {
				for _, r := range back.Requests(kind) {
					h := r.Header.Get("Authorization")
					if strings.Contains(h, users["ada"]) || strings.Contains(h, users["bob"]) {
						t.Errorf("%s: the client's own token reached the backend", kind)
					}
					if kind == "tools/call" {
						seen[h] = true
					}
				}
			}
			if len(seen) != 2 || seen[""] {
				t.Errorf("the backend was called with %d credentials: %v", len(seen), seen)
			}
			if n := len(s.Seen(tokens.Exchange)); n != 2 {
				t.Errorf("%d exchanges", n)
			}

			// 3. One who is refused gets no call, and nobody else suffers.
			back.Forget()
			wrong := m.token(t, "eve", "weir", map[string]any{"aud": []string{"weir"}})
			s.Change(tokens.Exchange, func(r *tokens.Rules) { r.Target = "other" })
			if a := call(wrong); a.Status != http.StatusForbidden && a.Status != http.StatusBadGateway {
				t.Errorf("refused: %d %s", a.Status, a.Body)
			} else if strings.Contains(string(a.Body), "planted-secret") || strings.Contains(string(a.Body), s.URL) {
				t.Errorf("the answer says too much: %s", a.Body)
			}
			if n := back.Count("tools/call"); n != 0 {
				t.Errorf("the backend was called %d times", n)
			}
			if a := call(users["bob"]); a.Status != http.StatusOK {
				t.Errorf("bob: %d %s", a.Status, a.Body)
			}

			// 4. It is recorded, without a secret.
			var record []byte
			edgetest.Until(t, "three records of exchanges", func() bool {
				record, _ = os.ReadFile(file) // one that is not there yet has none
				return strings.Count(string(record), `"type":"credential_exchange"`) == 3
			})
			for what, text := range map[string]string{"log": e.Log(), "audit log": string(record)} {
				for _, secret := range append([]string{"planted-secret"}, users["ada"], users["bob"], wrong) {
					if strings.Contains(text, secret) {
						t.Errorf("the %s has a secret", what)
					}
				}
			}
		})
	}
}

// exchanged is a client of a server one of whose backends has a tool for each role in a token, which
// is exchanged for it; more is of the configuration of the server.
func exchanged(t *testing.T, more string) (*mint, *edgetest.Server, *edgetest.Client) {
	t.Helper()
	m, back := newMint(t), edgetest.NewServer(t, edgetest.Modern)
	s := tokens.Start(t, map[string]tokens.Rules{tokens.Exchange: {}})
	s.Instead = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != tokens.Exchange {
			return false
		}
		role := "guest"
		if claims, err := oauth.Claims(edge.Secret(r.FormValue("subject_token"))); err == nil {
			role, _ = claims.Text("role")
		}
		w.Header().Set("Content-Type", "application/json")
		if role == "guest" {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"error":"access_denied"}`)
			return true
		}
		fmt.Fprintf(w, `{"access_token":"role-%s","issued_token_type":"urn:ietf:params:oauth:token-type:access_token","token_type":"Bearer","expires_in":300}`, role)
		return true
	}
	back.Always("tools/list", func(c *edgetest.Call) {
		c.Result(fmt.Sprintf(`{"tools":[{"name":%q,"inputSchema":{"type":"object"}}]}`, strings.TrimPrefix(c.Request.Header.Get("Authorization"), "Bearer ")))
	})
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, s.CA, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("ORDERS_SECRET", "planted-secret")
	e := edgetest.Start(t, asPeople(m, group(map[string]*edgetest.Server{"a": back, "b": edgetest.NewServer(t, edgetest.Modern)}, fmt.Sprintf(`outgoingAuth:
  source: inline
  backends:
    a:
      type: token_exchange
      tokenExchange: {tokenUrl: %q, audience: orders, clientId: edge, clientSecretEnv: ORDERS_SECRET}`, s.URL+tokens.Exchange)+more)), edgetest.Settings(func(c *serve.Settings) { c.CABundle = ca }))
	return m, back, e.NewClient()
}

// TestListsOfExchangedTokens: tokens of one user that may have different rights get the lists of
// their own, whichever asks first, and one that is renewed with equal rights costs no list. Who may
// not use the backend is told so.
func TestListsOfExchangedTokens(t *testing.T) {
	m, back, c := exchanged(t, "")
	list := func(role, id string) *edgetest.Response {
		body, head := edgetest.ModernRequest("1", "tools/list", "", edgetest.Meta())
		return c.Post(body, append(bearer(m.token(t, "ann", "weir", map[string]any{"role": role, "jti": id})), head...)...)
	}
	edgetest.Until(t, "the keys", func() bool { return list("plain", "0").Status == http.StatusOK })
	for i := range 3 {
		for _, role := range []string{"plain", "admin"} {
			if r := list(role, fmt.Sprint(role, i)); r.Status != http.StatusOK || strings.Count(string(r.Body), "a_role-") != 1 || !strings.Contains(string(r.Body), `"a_role-`+role+`"`) {
				t.Errorf("%s: status %d: %s", role, r.Status, r.Body)
			}
		}
	}
	if n := back.Count("tools/list"); n != 2 {
		t.Errorf("the backend was asked for %d lists", n)
	}
	if r := list("guest", "1"); r.Status != http.StatusForbidden || !strings.Contains(string(r.Body), "access to the backend is refused") {
		t.Errorf("who may not use it: status %d: %s", r.Status, r.Body)
	}
}

// TestFindToolOfExchangedTokens: who searches for tools finds those of its own token, whatever other
// tokens of the same user have.
func TestFindToolOfExchangedTokens(t *testing.T) {
	m, _, c := exchanged(t, "\noptimizer: {hybridSearchSemanticRatio: \"0\"}")
	find := func(role string) *edgetest.Response {
		body, head := edgetest.ModernRequest("1", "tools/call", edgetest.CallParams("find_tool", `{"tool_description":"role `+role+`"}`), edgetest.Meta())
		return c.Post(body, append(bearer(m.token(t, "ann", "weir", map[string]any{"role": role})), head...)...)
	}
	edgetest.Until(t, "the keys", func() bool { return find("plain").Status == http.StatusOK })
	for _, role := range []string{"plain", "admin", "plain", "admin"} {
		if r := find(role); !strings.Contains(string(r.Body), "a_role-"+role) {
			t.Errorf("%s does not find its own tool: %s", role, r.Body)
		}
	}
}

// TestExchangeOfUnverifiedTokens: spec.run.exchangeUnverified has the token of a client exchanged
// as it comes. It goes to the token endpoint and nowhere else; without one, and with one that the
// endpoint refuses, no call reaches the backend.
func TestExchangeOfUnverifiedTokens(t *testing.T) {
	edgetest.Eras(t, func(t *testing.T, client, era edgetest.Era) {
		m, back := newMint(t), edgetest.NewServer(t, era)
		s := tokens.Start(t, map[string]tokens.Rules{tokens.Exchange: {
			ID: "edge", Secret: "planted-secret", Basic: true, Issuer: m.URL, Keys: m.URL + "/keys", Audience: "weir", Type: "access_token", Target: "orders",
		}})
		ca := filepath.Join(t.TempDir(), "ca.pem")
		if err := os.WriteFile(ca, s.CA, 0o600); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "audit.log")
		e := edgetest.Start(t, remote("orders", back, "externalAuthConfigRef: {name: sts}", "audit: {enabled: true}", fmt.Sprintf("run: {exchangeUnverified: true, auditConfig: {enabled: true, logFile: %q}}", file))+fmt.Sprintf(`---
apiVersion: weir.dev/v1beta1
kind: MCPExternalAuthConfig
metadata: {name: sts}
spec: {type: tokenExchange, tokenExchange: {tokenUrl: %q, audience: orders, clientId: edge, clientSecretRef: {name: sts, key: secret}}}
---
apiVersion: v1
kind: Secret
metadata: {name: sts}
stringData: {secret: planted-secret}
`, s.URL+tokens.Exchange), edgetest.Settings(func(c *serve.Settings) { c.CABundle = ca }))
		c := caller{Client: e.NewClient()}
		good, expired := m.token(t, "lovelace", "weir", nil), m.token(t, "lovelace", "weir", map[string]any{"exp": 1})
		c.Header = http.Header{"Authorization": {"Bearer " + good}}
		if client != edgetest.Modern {
			c.session = c.Initialize("{}")
		}
		if r := c.call(t, "1", "{}"); r.Status != http.StatusOK {
			t.Fatalf("status %d: %s", r.Status, r.Body)
		}
		calls := back.Count("tools/call")
		for _, token := range []string{"", expired, "nonsense"} {
			body, head := edgetest.ModernRequest("1", "tools/call", edgetest.CallParams("echo", "{}"), edgetest.Meta())
			if token != "" {
				head = append(bearer(token), head...)
			}
			if r := e.NewClient().Post(body, head...); r.Status != http.StatusUnauthorized || r.Header.Get("WWW-Authenticate") == "" {
				t.Errorf("with the token %.8q: status %d, %s", token, r.Status, r.Body)
			}
		}
		if n := back.Count("tools/call"); calls != 1 || n != calls {
			t.Errorf("%d calls, and %d later", calls, n)
		}
		for _, kind := range []string{"tools/call", "tools/list", "initialize", "server/discover"} {
			for _, r := range back.Requests(kind) {
				if h := r.Header.Get("Authorization"); strings.Contains(h, good) || strings.Contains(h, expired) || kind == "tools/call" && h == "" {
					t.Errorf("%s: the backend was sent %.20q", kind, h)
				}
			}
		}
		edgetest.Until(t, "a record", func() bool { text, err := os.ReadFile(file); return err == nil && len(text) > 0 })
		if text, err := os.ReadFile(file); err != nil || strings.Contains(string(text), good) || strings.Contains(string(text), "lovelace") {
			t.Errorf("the records hold the token, or whom nobody has verified: %v\n%s", err, text)
		}
	})
}
