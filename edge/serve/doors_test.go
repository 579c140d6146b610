package serve_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
	"github.com/weir-edge/weir/filters"
)

// A page of an allowed origin may use the edge; it is told what it may send
// and may read what it needs.
func TestPagesOfAllowedOrigins(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy, edgetest.Settings(func(s *serve.Settings) { s.AllowedOrigins = []string{"https://app.example.com"} }))
	_, port, _ := strings.Cut(f.Addr(), ":")
	for _, origin := range []string{"https://app.example.com", "http://localhost:" + port, "http://127.0.0.1:" + port, "http://[::1]:" + port} {
		for _, path := range []string{"/mcp", "/sse", "/messages"} {
			r := f.client.Do("OPTIONS", path, "", "Origin", origin, "Access-Control-Request-Method", "POST",
				"Access-Control-Request-Headers", "content-type, mcp-protocol-version, Mcp-Param-Region,x-own, mcp-bad header")
			if r.Status != 204 || len(r.Body) > 0 || r.Header.Get("Access-Control-Allow-Origin") != origin || r.Header.Get("Vary") != "Origin" ||
				r.Header.Get("Access-Control-Allow-Methods") != "POST, GET, DELETE" || r.Header.Get("Access-Control-Allow-Credentials") != "" {
				t.Errorf("%s %s: status %d, %v", origin, path, r.Status, r.Header)
			}
			if got, want := r.Header.Get("Access-Control-Allow-Headers"), "Content-Type, Accept, Authorization, Last-Event-ID, mcp-protocol-version, mcp-param-region"; got != want {
				t.Errorf("headers %q, want %q", got, want)
			}
		}
		exposed := func(what string, r *edgetest.Response) {
			t.Helper()
			if r.Header.Get("Access-Control-Allow-Origin") != origin || r.Header.Get("Vary") != "Origin" ||
				r.Header.Get("Access-Control-Expose-Headers") != "Mcp-Session-Id, WWW-Authenticate, Retry-After" {
				t.Errorf("%s: %v", what, r.Header)
			}
		}
		c := f.NewClient()
		c.Header.Set("Origin", origin)
		r := c.Post(handshake)
		exposed("initialize", r)
		session := []string{"Mcp-Session-Id", r.Header.Get("Mcp-Session-Id")}
		exposed("call", c.Post(echo, session...))
		exposed("error", c.Post(`{`, session...))
		exposed("notification", c.Post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, session...))
		f.back.Once("tools/call", func(c *edgetest.Call) {
			c.Progress(1)
			c.Result("{}")
		})
		stream := c.Post(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","_meta":{"progressToken":1}}}`, session...)
		exposed("stream", stream)
		stream.Rest()
		get := c.Do("GET", "/mcp", "", append(session, "Accept", "text/event-stream")...)
		exposed("GET", get)
		get.Close()
		exposed("DELETE", c.Do("DELETE", "/mcp", "", session...))
		exposed("unknown session", c.Post(ping, session...))
	}
	// Nobody else.
	r := f.client.Do("OPTIONS", "/mcp", "", "Origin", "https://evil.example", "Access-Control-Request-Method", "POST")
	if r.Status != 403 || r.Header.Get("Access-Control-Allow-Origin") != "" || r.Header.Get("Access-Control-Allow-Headers") != "" {
		t.Errorf("status %d, %v", r.Status, r.Header)
	}
	// And no header of it for who is no page.
	if r := f.client.Post(handshake); r.Header.Get("Access-Control-Allow-Origin") != "" || r.Header.Get("Vary") != "" {
		t.Errorf("%v", r.Header)
	}
}

// What is open beside the endpoint on a loopback address.
func TestHealthReadinessStatus(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Legacy)
	e := edgetest.Start(t, edgetest.Manifest(back, "operational: {failureHandling: {healthCheckInterval: 50ms, unhealthyThreshold: 1}}"))
	f := &front{Edge: e, back: back, client: e.NewClient()}
	s := f.client.Initialize("")
	s.Call("1", "echo", "{}")
	stream := s.Listen()
	status := func() string { return string(f.client.Do("GET", "/status", "").Body) }
	edgetest.Until(t, "the first health check", func() bool { return strings.Contains(status(), `"status": "ready"`) })
	defer stream.Close()
	for path, want := range map[string]string{"/health": "ok\n", "/readyz": "ready\n"} {
		if r := f.client.Do("GET", path, ""); r.Status != 200 || string(r.Body) != want {
			t.Errorf("%s: status %d: %q", path, r.Status, r.Body)
		}
	}
	r := f.client.Do("GET", "/status", "")
	var got struct {
		Name, Phase, Version                      string
		BackendCount, Sessions, Streams, Inflight int
		DiscoveredBackends                        []struct {
			Name, URL, Status, Era, Revision string
			Tools                            *int
		}
	}
	if err := json.Unmarshal(r.Body, &got); err != nil {
		t.Fatalf("%v: %s", err, r.Body)
	}
	if got.Name != "edgetest" || got.Phase != "Ready" || got.BackendCount != 1 || got.Sessions != 1 || got.Streams != 1 || len(got.DiscoveredBackends) != 1 {
		t.Errorf("%s", r.Body)
	}
	if b := got.DiscoveredBackends[0]; b.Name != "back" || b.URL != f.back.URL || b.Status != "ready" || b.Era != "legacy" || b.Revision != "2025-11-25" {
		t.Errorf("%+v", b)
	} else if b.Tools != nil {
		t.Errorf("%d tools are known of a backend that nobody listed", *b.Tools)
	}
	if r.Header.Get("Content-Type") != "application/json" || r.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%v", r.Header)
	}
	for _, path := range []string{"/", "/mcp/", "/mcp/../status", "/MCP", "/debug/pprof/", "/metrics", "/mcp%2f", "//mcp", "/servers/other/mcp"} {
		if r := f.client.Do("GET", path, ""); r.Status != 404 && r.Status != 400 {
			t.Errorf("%s: status %d", path, r.Status)
		}
	}
	f.back.Close()
	s.Call("2", "echo", "{}")
	edgetest.Until(t, "a health check that fails", func() bool {
		return strings.Contains(status(), `"phase": "Failed"`) && strings.Contains(status(), `"status": "unavailable"`)
	})
	if r := f.client.Do("GET", "/readyz", ""); r.Status != 200 {
		t.Errorf("readiness went with a backend: status %d", r.Status)
	}
}

// On an address that others can reach the status is not for everybody, and
// Host is not checked.
func TestDoorOnAPublicAddress(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy, edgetest.Settings(func(s *serve.Settings) { s.Listen = "0.0.0.0:0" }))
	_, port, _ := strings.Cut(f.Addr(), "]:")
	if port == "" {
		_, port, _ = strings.Cut(f.Addr(), ":")
	}
	c := edgetest.NewClient(t, "http://127.0.0.1:"+port)
	if r := c.Do("GET", "/status", ""); r.Status != 404 {
		t.Errorf("status: %d", r.Status)
	}
	if r := c.Do("GET", "/health", ""); r.Status != 200 {
		t.Errorf("health: %d", r.Status)
	}
	if r := c.Post(handshake, "Host", "mcp.example.com"); r.Status != 200 {
		t.Errorf("status %d: %s", r.Status, r.Body)
	}
	if r := c.Post(handshake, "Origin", "http://localhost:"+port); r.Status != 403 {
		t.Errorf("Origin: status %d", r.Status)
	}
	if !strings.Contains(f.Log(), "--allowed-origins") {
		t.Error("no warning")
	}
}

// The admin address has its own door, and only what belongs there.
func TestAdminAddress(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy, edgetest.Settings(func(s *serve.Settings) { s.AdminListen = "127.0.0.1:0" }))
	c := edgetest.NewClient(t, "http://"+f.Serve.AdminAddr())
	for path, want := range map[string]int{"/health": 200, "/readyz": 200, "/status": 200, "/mcp": 404, "/debug/pprof/": 404} {
		if r := c.Do("GET", path, ""); r.Status != want {
			t.Errorf("%s: status %d", path, r.Status)
		}
	}
}

// filtered is an edge whose hallway has filters.
func filtered(t *testing.T, era edgetest.Era, entries ...filters.Entry) *front {
	t.Helper()
	return newFront(t, era, edgetest.Before(func(e *serve.Edge) { e.SetFilters(entries...) }))
}

// A panic in an exchange costs that exchange, and nobody else anything.
func TestPanicIsContained(t *testing.T) {
	t.Parallel()
	explode := filters.Entry{Place: filters.Guest, Filter: func(next edge.Handler) edge.Handler {
		return edge.HandlerFunc(func(ctx context.Context, x *edge.Exchange) (*edge.Response, error) {
			if strings.Contains(string(x.Request.Raw), `"before"`) {
				panic("secret words")
			}
			r, err := next.Handle(ctx, x)
			if strings.Contains(string(x.Request.Raw), `"after"`) {
				panic(errors.New("secret words"))
			}
			return r, err
		})
	}}
	f := filtered(t, edgetest.Legacy, explode)
	f.back.Always("tools/call", func(c *edgetest.Call) {
		if c.Token() != "" {
			c.Progress(1)
		}
		c.Result(`{"content":[]}`)
	})
	l, m := f.callerOf(t, edgetest.Legacy, ""), f.callerOf(t, edgetest.Modern, "")
	old := f.NewClient().OpenSSE()
	old.Initialize("")
	for _, when := range []string{"before", "after"} {
		for _, c := range []caller{l, m} {
			r := c.call(t, `"i"`, `{"x":"`+when+`"}`)
			if got := fails(t, r, 500, -32603, `"i"`); got.Error.Message != "internal error" {
				t.Errorf("%q", got.Error.Message)
			}
		}
		old.Request("7", "tools/call", edgetest.CallParams("echo", `{"x":"`+when+`"}`))
		if got := old.Stream.NextMessage(); got.Error == nil || got.Error.Code != -32603 || got.Error.Message != "internal error" || string(got.ID) != "7" {
			t.Errorf("%+v", got)
		}
	}
	// On an open stream it is the last event.
	for _, c := range []caller{l, m} {
		r := c.call(t, "1", `{"x":"after"}`, `"progressToken":1`)
		all := r.Rest()
		if len(all) != 2 {
			t.Fatalf("%s", all)
		}
		if got := edgetest.Parse(t, all[1].Data); got.Error == nil || got.Error.Code != -32603 || string(got.ID) != "1" {
			t.Errorf("%+v", got)
		}
	}
	// A batch keeps its other answers.
	b := f.client.InitializeAs("2025-03-26", "")
	r := b.Send(`[` + ping + `,{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"x":"before"}}}]`)
	if want := `[{"jsonrpc":"2.0","id":1,"result":{}},{"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"internal error"}}]`; string(r.Body) != want {
		t.Errorf("%s", r.Body)
	}
	for _, c := range []caller{l, m} {
		if r := c.call(t, "2", "{}"); r.Status != 200 || r.Message().Error != nil {
			t.Errorf("afterwards: %s", r.Answer())
		}
	}
	if n := f.Serve.Underway(); n != 0 {
		t.Errorf("%d exchanges are still under way", n)
	}
	if !strings.Contains(f.Log(), "secret words") || !strings.Contains(f.Log(), "doors_test.go") {
		t.Error("the log does not say what happened and where")
	}
}

// Filters see what the door knows of an exchange, and what they return is the
// answer.
func TestFiltersInTheHallway(t *testing.T) {
	t.Parallel()
	seen := make(chan edge.Exchange, 10)
	look := filters.Entry{Place: filters.Authz, Filter: func(next edge.Handler) edge.Handler {
		return edge.HandlerFunc(func(ctx context.Context, x *edge.Exchange) (*edge.Response, error) {
			seen <- edge.Exchange{Server: x.Server, Era: x.Era, Target: x.Target, Session: x.Session, Name: x.Name}
			if strings.Contains(string(x.Request.Raw), `"deny"`) {
				return nil, edge.Errorf(edge.Forbidden, "authz", "denied")
			}
			return next.Handle(ctx, x)
		})
	}}
	f := filtered(t, edgetest.Legacy, look)
	l, m := f.callerOf(t, edgetest.Legacy, ""), f.callerOf(t, edgetest.Modern, "")
	l.call(t, "1", "{}")
	if x := edgetest.Receive(t, seen, "the exchange"); x.Server != "edgetest" || x.Era.String() != "legacy" || x.Target.Backend != "back" || x.Session == nil || x.Session.ID != l.session.ID {
		t.Errorf("%+v", x)
	}
	m.call(t, "1", "{}")
	if x := edgetest.Receive(t, seen, "the exchange"); x.Era.String() != "modern" || x.Target.Backend != "back" || x.Session != nil {
		t.Errorf("%+v", x)
	}
	f.back.Forget()
	fails(t, l.call(t, "1", `{"a":"deny"}`), 403, -32600, "1")
	fails(t, m.call(t, "1", `{"a":"deny"}`), 403, -32600, "1")
	if f.back.Count("") != 0 {
		t.Error("the backend saw what was denied")
	}
}
