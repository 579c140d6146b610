package serve_test

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
)

func twoTools(s *edgetest.Server) {
	s.Tools = `[{"name":"echo","inputSchema":{"type":"object"}},{"name":"slow","inputSchema":{"type":"object"}}]`
}

// An MCPRemoteProxy is a server of one backend, whose names are kept, with the query of its
// URL.
func TestRemoteProxy(t *testing.T) {
	edgetest.Eras(t, func(t *testing.T, client, era edgetest.Era) {
		back := edgetest.NewServer(t, era)
		yaml := remote("weather", back)
		yaml = strings.Replace(yaml, back.URL, back.URL+"?units=metric", 1)
		e := edgetest.Start(t, yaml)
		f := &front{Edge: e, back: back, client: e.NewClient()}
		if r := f.callerOf(t, client, "").call(t, "1", `{"a":1}`); r.Status != 200 {
			t.Errorf("status %d: %s", r.Status, r.Body)
		}
		if back.Count("tools/call") != 1 {
			t.Error("the backend was not called")
		}
	})
}

// Every field for clients of a server of one backend does what it does for a VirtualMCPServer.
func TestSingleFields(t *testing.T) {
	m := newMint(t)
	back := edgetest.NewServer(t, edgetest.Modern, twoTools)
	e := edgetest.Start(t, remote("weather", back,
		"oidcConfigRef: {name: company, audience: weather}",
		`authzConfig: {type: inline, inline: {policies: ['permit(principal, action, resource) unless {resource == Tool::"forbidden"};']}}`,
		"externalAuthConfigRef: {name: key}",
		"headerForward: {addPlaintextHeaders: {X-Team: blue}}",
		"toolConfigRef: {name: some}",
		"telemetryConfigRef: {name: otel, serviceName: weather}",
	)+fmt.Sprintf(`---
apiVersion: weir.dev/v1beta1
kind: MCPOIDCConfig
metadata: {name: company}
spec: {type: inline, inline: {issuer: %q, jwksUrl: %q, jwksAllowPrivateIP: true, insecureAllowHTTP: true}}
---
apiVersion: weir.dev/v1beta1
kind: MCPExternalAuthConfig
metadata: {name: key}
spec: {type: headerInjection, headerInjection: {headerName: X-Key, valueSecretRef: {name: weather, key: k}}}
---
apiVersion: weir.dev/v1beta1
kind: MCPToolConfig
metadata: {name: some}
spec: {toolsFilter: [say, forbidden], toolsOverride: {echo: {name: say}, slow: {name: forbidden}}}
---
apiVersion: weir.dev/v1beta1
kind: MCPTelemetryConfig
metadata: {name: otel}
spec: {prometheus: {enabled: true}}
---
apiVersion: v1
kind: Secret
metadata: {name: weather}
stringData: {k: top-secret}
`, m.URL, m.URL+"/keys"))
	c := e.NewClient()
	if r := c.Modern("1", "tools/list", "{}"); r.Status != 401 || !strings.Contains(r.Header.Get("WWW-Authenticate"), "/.well-known/oauth-protected-resource/mcp") {
		t.Errorf("status %d, %v", r.Status, r.Header)
	}
	c.Header.Set("Authorization", "Bearer "+m.token(t, "somebody", "weather", nil))
	var listed string
	edgetest.Until(t, "the list", func() bool {
		r := c.Modern("1", "tools/list", "{}")
		listed = string(r.Body)
		return r.Status == 200 && strings.Contains(listed, `"say"`)
	})
	if strings.Contains(listed, `"echo"`) || strings.Contains(listed, `"forbidden"`) {
		t.Errorf("listed: %s", listed)
	}
	back.Once("tools/call", func(call *edgetest.Call) {
		if call.Request.Header.Get("X-Key") != "top-secret" || call.Request.Header.Get("X-Team") != "blue" || call.Request.Header.Get("Authorization") != "" {
			t.Errorf("the backend got %v", call.Request.Header)
		}
		call.Result(`{"content":[]}`)
	})
	if r := c.Modern("2", "tools/call", edgetest.CallParams("say", "{}")); r.Status != 200 {
		t.Errorf("status %d: %s", r.Status, r.Body)
	}
	fails(t, c.Modern("3", "tools/call", edgetest.CallParams("forbidden", "{}")), 403, 403, "3")
	fails(t, c.Modern("4", "tools/call", edgetest.CallParams("echo", "{}")), 403, 403, "4")
	if r := c.Do("GET", "/metrics", ""); r.Status != 200 || !strings.Contains(string(r.Body), "weir_") {
		t.Errorf("/metrics: status %d", r.Status)
	}
}

// A decision point is asked for a server of one backend, and a webhook of an object.
func TestSinglePointAndWebhook(t *testing.T) {
	decide := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body [4096]byte
		n, _ := r.Body.Read(body[:])
		fmt.Fprintf(w, `{"allow":%v}`, !strings.Contains(string(body[:n]), "slow"))
	}))
	defer decide.Close()
	back := edgetest.NewServer(t, edgetest.Modern, twoTools)
	e := edgetest.Start(t, remote("weather", back, "authzConfigRef: {name: point}")+fmt.Sprintf(`---
apiVersion: weir.dev/v1beta1
kind: MCPAuthzConfig
metadata: {name: point}
spec: {type: httpv1, config: {http: {url: %q}, claim_mapping: standard, context: {include_operation: true}}}
`, decide.URL))
	c := e.NewClient()
	if r := c.Modern("1", "tools/call", edgetest.CallParams("echo", "{}")); r.Status != 200 {
		t.Errorf("status %d: %s", r.Status, r.Body)
	}
	fails(t, c.Modern("2", "tools/call", edgetest.CallParams("slow", "{}")), 403, 403, "2")
}

// A session of a server ends by the time that the server says, and by no other's.
func TestRunSessionTTL(t *testing.T) {
	one, two := edgetest.NewServer(t, edgetest.Legacy), edgetest.NewServer(t, edgetest.Legacy)
	e := edgetest.Start(t, remote("one", one, "run: {sessionTTL: 1s}")+remote("two", two))
	at := func(name string) *edgetest.Client { return edgetest.NewClient(t, e.Base()+"/servers/"+name) }
	a, b := at("one").Initialize(""), at("two").Initialize("")
	edgetest.Until(t, "the end of the session", func() bool {
		e.Serve.Beat(time.Now())
		return e.Serve.Sessions() == 1
	})
	fails(t, a.Request("1", "tools/list", ""), 404, -32001, "1")
	if r := b.Request("1", "tools/list", ""); r.Status != 200 {
		t.Errorf("status %d", r.Status)
	}
}

// A stateless server takes POST alone and gives out no session ids, in both eras, before
// backends of both.
func TestStateless(t *testing.T) {
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern, edgetest.SSE} {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			back := edgetest.NewServer(t, era)
			e := edgetest.Start(t, remote("weather", back, "run: {stateless: true}"))
			c := e.NewClient()
			r := c.Post(handshake)
			if r.Status != 200 || r.Header.Get("Mcp-Session-Id") != "" || !strings.Contains(string(r.Body), "protocolVersion") {
				t.Fatalf("initialize: status %d, %v: %s", r.Status, r.Header, r.Body)
			}
			if strings.Contains(string(r.Body), "listChanged") || strings.Contains(string(r.Body), "subscribe") || !strings.Contains(string(r.Body), `"resources":{}`) {
				t.Errorf("what nobody could be told is offered: %s", r.Body)
			}
			if r := c.Post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`); r.Status != 202 {
				t.Errorf("notification: status %d", r.Status)
			}
			if r := c.Post(`{"jsonrpc":"2.0","id":8,"method":"logging/setLevel","params":{"level":"debug"}}`); r.Result() != "{}" {
				t.Errorf("level: %s", r.Body)
			}
			for id := range 3 {
				if r := e.NewClient().Post(strings.Replace(echo, `"id":1`, fmt.Sprintf(`"id":%d`, id+10), 1)); r.Status != 200 || r.Message().Error != nil {
					t.Errorf("call: status %d: %s", r.Status, r.Body)
				}
			}
			if r := c.Modern("2", "tools/call", edgetest.CallParams("echo", "{}")); r.Status != 200 {
				t.Errorf("modern call: status %d: %s", r.Status, r.Body)
			}
			for _, method := range []string{"GET", "DELETE"} {
				r := c.Do(method, "/mcp", "", "Accept", "text/event-stream", "Mcp-Session-Id", "anything")
				if r.Status != 405 || r.Header.Get("Allow") != "POST, OPTIONS" {
					t.Errorf("%s: status %d, Allow %q", method, r.Status, r.Header.Get("Allow"))
				}
			}
			if r := c.Do("GET", "/sse", "", "Accept", "text/event-stream"); r.Status != 404 {
				t.Errorf("/sse: status %d", r.Status)
			}
			if r := c.Post(`{"jsonrpc":"2.0","id":9,"method":"resources/subscribe","params":{"uri":"a:b"}}`); r.Message().Error == nil || r.Message().Error.Code != -32601 {
				t.Errorf("subscribe: %s", r.Body)
			}
			batch := "[" + echo + `,{"jsonrpc":"2.0","method":"notifications/initialized"},{"jsonrpc":"2.0","id":"s","method":"resources/subscribe","params":{"uri":"a:b"}}]`
			for version, want := range map[string]int{"": 200, "2025-03-26": 200, "2025-06-18": 400, "1999-01-01": 400} {
				var head []string
				if version != "" {
					head = []string{"MCP-Protocol-Version", version}
				}
				r := c.Post(batch, head...)
				if r.Status != want || want == 200 && (strings.Count(string(r.Body), `"result"`) != 1 || strings.Count(string(r.Body), "-32601") != 1) {
					t.Errorf("batch of %q: status %d: %s", version, r.Status, r.Body)
				}
			}
			for _, call := range back.Requests("tools/call") {
				want := ""
				if era == edgetest.Modern && string(call.Message.ID) != "2" { // of a legacy client that sets none
					want = `"info"`
				}
				if level := edgetest.Member(string(call.Message.Params), "_meta", edgetest.LogLevel); level != want {
					t.Errorf("a client's log level %s is that of others, and not %s", level, want)
				}
			}
			if n := back.Count("logging/setLevel"); n != 0 {
				t.Errorf("a client set the log level for others %d times", n)
			}
			if era != edgetest.Modern && back.Count("initialize") > 3 { // the edge's own, that of the legacy clients, that of the modern ones
				t.Errorf("%d sessions at the backend", back.Count("initialize"))
			}
		})
	}
}

// TestS34SeenURL: what the proxy in front says shapes the URLs that clients are told where
// the server believes it, and nowhere else.
func TestS34SeenURL(t *testing.T) {
	m := newMint(t)
	one, two := edgetest.NewServer(t, edgetest.Legacy), edgetest.NewServer(t, edgetest.Legacy)
	guard := "oidcConfigRef: {name: company, audience: %s}"
	e := edgetest.Start(t, remote("open", one, "trustProxyHeaders: true")+remote("prefixed", one, "endpointPrefix: /team")+remote("plain", one)+
		remote("guarded", two, "trustProxyHeaders: true", fmt.Sprintf(guard, "guarded"))+remote("strict", two, fmt.Sprintf(guard, "strict"))+fmt.Sprintf(`---
apiVersion: weir.dev/v1beta1
kind: MCPOIDCConfig
metadata: {name: company}
spec: {type: inline, inline: {issuer: %q, jwksUrl: %q, jwksAllowPrivateIP: true, insecureAllowHTTP: true}}
`, m.URL, m.URL+"/keys"))
	said := []string{"X-Forwarded-Proto", "https", "X-Forwarded-Host", "edge.example.com", "X-Forwarded-Prefix", "/mcp-edge"}
	for _, test := range []struct {
		server, want string
		header       []string
	}{
		{"open", "https://edge.example.com/mcp-edge/servers/open/messages?", said},
		{"open", "https://edge.example.com:8443/servers/open/messages?", []string{"X-Forwarded-Proto", "https", "X-Forwarded-Host", "edge.example.com", "X-Forwarded-Port", "8443"}},
		{"open", "/mcp-edge/servers/open/messages?", []string{"X-Forwarded-Prefix", "/mcp-edge/"}},
		{"open", "https://second.example/servers/open/messages?", []string{"X-Forwarded-Proto", "https", "X-Forwarded-Host", "first.example, second.example"}},
		{"open", "/servers/open/messages?", []string{"X-Forwarded-Host", "a b", "X-Forwarded-Prefix", "/../x", "X-Forwarded-Proto", "javascript"}},
		{"open", "/servers/open/messages?", []string{"X-Forwarded-Prefix", "//evil.example"}},
		{"open", "/servers/open/messages?", nil},
		{"prefixed", "/team/servers/prefixed/messages?", said},
		{"plain", "/servers/plain/messages?", said},
	} {
		r := e.NewClient().Do("GET", "/servers/"+test.server+"/sse", "", append(test.header, "Accept", "text/event-stream")...)
		if got := string(r.Next().Data); !strings.HasPrefix(got, test.want) {
			t.Errorf("%s with %v: %q, want %q", test.server, test.header, got, test.want)
		}
		r.Close()
	}
	const document = "/.well-known/oauth-protected-resource/servers/"
	for server, want := range map[string]string{"guarded": "https://edge.example.com/mcp-edge", "strict": e.Base()} {
		r := e.NewClient().Do("POST", "/servers/"+server+"/mcp", handshake, said...)
		if got := r.Header.Get("WWW-Authenticate"); r.Status != 401 || !strings.Contains(got, `resource_metadata="`+want+document+server+`/mcp"`) {
			t.Errorf("%s: status %d, challenge %q", server, r.Status, got)
		}
		if r := e.NewClient().Do("GET", document+server+"/mcp", "", said...); !strings.Contains(string(r.Body), `"resource":"`+want+"/servers/"+server+`/mcp"`) {
			t.Errorf("%s: %s", server, r.Body)
		}
	}
}

// What Weir itself fetches for a server trusts its CA bundle besides the others, and so does
// the way to its backend.
func TestRunCABundle(t *testing.T) {
	back := edgetest.NewServer(t, edgetest.Modern)
	behind := httptest.NewTLSServer(httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: back.Addr()}))
	defer behind.Close()
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: behind.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	yaml := func(more string) string {
		return strings.Replace(remote("weather", back, more), back.URL, behind.URL+"/mcp", 1)
	}
	e := edgetest.Start(t, yaml("run: {caBundle: "+file+"}"))
	if r := e.NewClient().Modern("1", "tools/call", edgetest.CallParams("echo", "{}")); r.Status != 200 {
		t.Errorf("status %d: %s", r.Status, r.Body)
	}
	e = edgetest.Start(t, yaml(""))
	if r := e.NewClient().Modern("1", "tools/call", edgetest.CallParams("echo", "{}")); r.Status != 502 {
		t.Errorf("without it: status %d", r.Status)
	}
}

// Clients that have a session of a backend together never meet in an id.
func TestStatelessNumbers(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Legacy)
	e := edgetest.Start(t, remote("weather", back, "run: {stateless: true}"))
	ids := map[string]bool{}
	for range 2 {
		if m := e.NewClient().Post(echo).Message(); m.Error != nil || string(m.ID) != "1" {
			t.Errorf("%+v", m)
		}
	}
	for _, c := range back.Requests("tools/call") {
		ids[string(c.Message.ID)] = true
	}
	if len(ids) != 2 {
		t.Errorf("the backend got the ids %v", ids)
	}
}

// A stateless server whose process has ended goes on with the next one.
func TestStatelessGoesOn(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Legacy)
	e := edgetest.Start(t, remote("weather", back, "run: {stateless: true}"))
	for range 2 {
		if r := e.NewClient().Post(echo); r.Status != 200 || r.Message().Error != nil {
			t.Errorf("status %d: %s", r.Status, r.Body)
		}
		e.Serve.LoseUpstreams("weather")
	}
	if all := back.Requests("tools/call"); all[0].Session == all[1].Session {
		t.Error("the second call came in the session of the first")
	}
}
