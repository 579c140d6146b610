package serve_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/backend"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/serve"
	"github.com/weir-edge/weir/edge/source"
)

// neighbour is a local server that is there already.
type neighbour struct{ address string }

func (neighbour) Collect(edge.Emitter)                {}
func (neighbour) Introduced(_ mcp.Era, e error) error { return e }
func (neighbour) Well() error                         { return nil }
func (neighbour) Close() error                        { return nil }
func (neighbour) Call() (over func())                 { return func() {} }
func (n neighbour) Dial(ctx context.Context) (net.Conn, int, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", n.address)
	return c, 0, err
}

var _ backend.OverHTTP = neighbour{}

// TestSignInOfOneBackend: an MCPRemoteProxy and an MCPServer have an authorization server by
// either reference, and their backend is sent the token of its one upstream, unless that is
// withheld.
func TestSignInOfOneBackend(t *testing.T) {
	for _, kind := range []string{"MCPRemoteProxy", "MCPServer"} {
		for _, ref := range []string{"authServerRef: {kind: MCPExternalAuthConfig, name: login}", "externalAuthConfigRef: {name: login}"} {
			for _, more := range []string{"", ", disableUpstreamTokenInjection: true"} {
				t.Run(kind+" "+ref[:8]+more, func(t *testing.T) {
					t.Parallel()
					h, back := edgetest.NewHub(t, "hub"), edgetest.NewServer(t, edgetest.Modern)
					spec := fmt.Sprintf("{remoteUrl: %q, transport: streamable-http, allowPrivateEndpoint: true", back.URL)
					if kind == "MCPServer" {
						spec = "{image: 'exec:///bin/true', transport: streamable-http, mcpPort: 9000"
					}
					yaml := fmt.Sprintf(`apiVersion: weir.dev/v1beta1
kind: %s
metadata: {name: one}
spec: %s, oidcConfigRef: {name: own, audience: "%[3]s/mcp", resourceUrl: "%[3]s/mcp"}, %s}
---
apiVersion: weir.dev/v1beta1
kind: MCPExternalAuthConfig
metadata: {name: login}
spec: {type: embeddedAuthServer, embeddedAuthServer: %s}
%s`, kind, spec, loginIssuer, ref, embedded(more, h), ownProvider)
					set, _ := source.Read("test.yaml", []byte(yaml))
					set.Starts = []compile.Form{compile.FormLocal}
					r := set.Compile()
					if err := r.Err(); err != nil {
						t.Fatalf("%v: %v", err, r.Findings)
					}
					at, err := url.Parse(back.URL)
					if err != nil {
						t.Fatal(err)
					}
					e := edgetest.StartPlan(t, r.Plan, loopback(), edgetest.With(serve.WithWorkloads(func(serve.Starting) (backend.Local, error) { return neighbour{at.Host}, nil })))
					c, v := e.NewClient(), edgetest.NewVisitor(t, loginIssuer, e.Addr())
					if r := calls(c, "/mcp", ""); r.Status != http.StatusUnauthorized {
						t.Fatalf("without a token: status %d", r.Status)
					}
					got := v.SignIn("")
					if r := calls(c, "/mcp", got.Access); r.Status != http.StatusOK {
						t.Fatalf("status %d: %s", r.Status, r.Body)
					}
					want := "Bearer hub-token-1"
					if more != "" {
						want = ""
					}
					if all := sent(back); len(all) != 1 || all[0] != want {
						t.Errorf("the backend was sent %q, want %q", all, want)
					}
				})
			}
		}
	}
}

// TestSignInAtTwoProviders: each backend is sent the token of the provider that it names, and
// what names none that of the first.
func TestSignInAtTwoProviders(t *testing.T) {
	corp, hub := edgetest.NewHub(t, "corp"), edgetest.NewHub(t, "hub")
	back, other, third := edgetest.NewServer(t, edgetest.Modern), edgetest.NewServer(t, edgetest.Modern), edgetest.NewServer(t, edgetest.Modern)
	var asked []string
	sts := newExchange(t, func(r *http.Request) string {
		asked = append(asked, r.PostFormValue("subject_token"))
		return "exchanged"
	})
	yaml := entrance(back, embedded("", corp, hub), `{type: upstreamInject, upstreamInject: {providerName: hub}}`) + fmt.Sprintf(`---
apiVersion: weir.dev/v1beta1
kind: MCPServerEntry
metadata: {name: other}
spec: {groupRef: {name: tools}, remoteUrl: %q, transport: streamable-http, allowPrivateEndpoint: true, externalAuthConfigRef: {name: exchange}}
---
apiVersion: weir.dev/v1beta1
kind: MCPExternalAuthConfig
metadata: {name: exchange}
spec: {type: tokenExchange, tokenExchange: {tokenUrl: %q, audience: other}}
---
apiVersion: weir.dev/v1beta1
kind: MCPServerEntry
metadata: {name: third}
spec: {groupRef: {name: tools}, remoteUrl: %q, transport: streamable-http, allowPrivateEndpoint: true}
`, other.URL, sts.URL, third.URL)
	yaml = strings.Replace(yaml, "priorityOrder: [back]", "priorityOrder: [back, other, third]", 1)
	yaml = strings.Replace(yaml, "conflictResolution: priority, conflictResolutionConfig: {priorityOrder: [back, other, third]}", "conflictResolution: prefix, conflictResolutionConfig: {prefixFormat: '{workload}_'}", 1)
	e := edgetest.Start(t, yaml, loopback())
	c, v := e.NewClient(), edgetest.NewVisitor(t, loginIssuer, e.Addr())
	got := v.SignIn("")
	for _, name := range []string{"back_echo", "other_echo", "third_echo"} {
		one := caller{Client: c}
		body, head := one.message("1", "tools/call", edgetest.CallParams(name, `{"text":"x"}`))
		if r := c.Post(body, append(head, "Authorization", "Bearer "+got.Access)...); r.Status != http.StatusOK {
			t.Fatalf("%s: status %d: %s", name, r.Status, r.Body)
		}
	}
	if all := sent(back); len(all) != 1 || all[0] != "Bearer hub-token-1" {
		t.Errorf("upstreamInject: %q", all)
	}
	if all := sent(other); len(all) != 1 || all[0] != "Bearer exchanged" || len(asked) != 1 || asked[0] != "corp-token-1" {
		t.Errorf("tokenExchange of %q: %q", asked, all)
	}
	if all := sent(third); len(all) != 1 || all[0] != "" {
		t.Errorf("a backend that nothing is said of was sent %q", all)
	}
}

// newExchange is a token service that exchanges tokens; token is what it issues.
func newExchange(t testing.TB, token func(*http.Request) string) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"access_token":%q,"issued_token_type":"urn:ietf:params:oauth:token-type:access_token","token_type":"Bearer","expires_in":3600}`, token(r))
	}))
	t.Cleanup(s.Close)
	return s
}
