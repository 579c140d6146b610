package serve_test

import (
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	spanpb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
)

// traced is the YAML of a server that sends what is sampled elsewhere to a
// collector, and its metrics.
func traced(c *collector) string {
	return fmt.Sprintf("telemetry: {endpoint: %q, insecure: true, tracingEnabled: true, metricsEnabled: true, samplingRate: \"0\"}\n", c.Endpoint)
}

// Two trace contexts of a client: one for its headers, one for params._meta.
const (
	headTrace = "0af7651916cd43dd8448eb211c80319c"
	metaTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	itsSpan   = "b7ad6b7169203331"
)

// TestTraces has a call be a span inside of the client's trace and the call to
// the backend one inside of that, in every cell: the trace context of
// params._meta beats that of the headers, and backends get it where it came.
func TestTraces(t *testing.T) {
	for _, protocol := range []string{"http", "grpc"} {
		for _, client := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
			for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
				t.Run(fmt.Sprintf("%s, %s client, %s backend", protocol, client, era), func(t *testing.T) {
					t.Parallel()
					to := newCollector(t, protocol)
					back := edgetest.NewServer(t, era)
					e := edgetest.Start(t, edgetest.Manifest(back, traced(to)))
					f := &front{Edge: e, back: back, client: e.NewClient()}
					c := f.callerOf(t, client, "")
					c.Header = http.Header{"Traceparent": {"00-" + headTrace + "-" + itsSpan + "-01"}}
					if r := c.call(t, "1", "{}", `"traceparent":"00-`+metaTrace+"-"+itsSpan+`-01"`, `"tracestate":"a=1"`, `"other":1`); r.Status != 200 {
						t.Fatalf("status %d: %s", r.Status, r.Body)
					}
					if r := c.call(t, "2", `{"token":"hunter2"}`); r.Status != 200 {
						t.Fatalf("status %d: %s", r.Status, r.Body)
					}
					e.Stop()
					calls := back.Requests("tools/call")
					for i, trace := range []string{metaTrace, headTrace} {
						server, out := to.span(t, trace, spanpb.Span_SPAN_KIND_SERVER), to.span(t, trace, spanpb.Span_SPAN_KIND_CLIENT)
						if hex.EncodeToString(server.ParentSpanId) != itsSpan || string(out.ParentSpanId) != string(server.SpanId) || server.Name != "tools/call echo" {
							t.Errorf("%s: parents %x and %x", server.Name, server.ParentSpanId, out.ParentSpanId)
						}
						want := "00-" + trace + "-" + hex.EncodeToString(out.SpanId) + "-01"
						if got := calls[i].Header.Get("Traceparent"); got != want {
							t.Errorf("the backend's header says %q, want %q", got, want)
						}
						inside := edgetest.Member(string(calls[i].Message.Params), "_meta", "traceparent")
						if i == 0 && inside != `"`+want+`"` || i == 1 && inside != "" {
							t.Errorf("the backend's _meta says %q", inside)
						}
					}
					if got := edgetest.Member(string(calls[0].Message.Params), "_meta", "tracestate"); got != `"a=1"` {
						t.Errorf("tracestate %s", got)
					}
					if got := edgetest.Member(string(calls[0].Message.Params), "_meta", "other"); got != "1" {
						t.Errorf("the rest of _meta: %s", got)
					}
					for _, name := range []string{"weir_mcp_requests", "weir_vmcp_backend_requests", "weir_sessions", "weir_backend_up", "weir_inflight", "weir_reloads"} {
						if to.Metrics[name] == nil {
							t.Errorf("the collector has not heard of %s", name)
						}
					}
				})
			}
		}
	}
}

// A call that is parked while its client is asked stays in its trace, and a
// call that nobody samples passes as it came.
func TestTraceOfParkedCall(t *testing.T) {
	t.Parallel()
	to := newCollector(t, "http")
	back := edgetest.NewServer(t, edgetest.Legacy)
	back.Always("tools/call", func(c *edgetest.Call) {
		c.Ask(`"q"`, "elicitation/create", `{"message":"sure?","requestedSchema":{"type":"object","properties":{}}}`)
		c.Result(`{"content":[]}`)
	})
	e := edgetest.Start(t, edgetest.Manifest(back, traced(to)))
	f := &front{Edge: e, back: back, client: e.NewClient()}
	f.introduced(t)
	params := edgetest.CallParams("echo", "{}")
	meta := edgetest.Meta(edgetest.Capabilities(`{"elicitation":{}}`), `"traceparent":"00-`+metaTrace+"-"+itsSpan+`-01"`)
	text, head := edgetest.ModernRequest("1", "tools/call", params, meta)
	first := f.client.Post(text, head...).Result()
	state := edgetest.Member(first, "requestState")
	key := ""
	for _, m := range members(t, edgetest.Member(first, "inputRequests")) {
		key = m.name
	}
	if state == "" || key == "" {
		t.Fatalf("the call does not ask: %s", first)
	}
	again := params[:len(params)-1] + `,"requestState":` + state + `,"inputResponses":{"` + key + `":{"action":"decline"}}}`
	text, head = edgetest.ModernRequest("2", "tools/call", again, meta)
	if r := f.client.Post(text, head...); r.Status != 200 {
		t.Fatalf("status %d: %s", r.Status, r.Body)
	}
	e.Stop()
	out := to.span(t, metaTrace, spanpb.Span_SPAN_KIND_CLIENT)
	if got := back.Requests("tools/call")[0].Header.Get("Traceparent"); got != "00-"+metaTrace+"-"+hex.EncodeToString(out.SpanId)+"-01" {
		t.Errorf("traceparent %q", got)
	}
}

// TestMetrics serves metrics on the main port where a server asks for it, and
// on the admin address always (row H18). Names that clients make up make no
// series.
func TestMetrics(t *testing.T) {
	t.Parallel()
	one, two := edgetest.NewServer(t, edgetest.Modern), edgetest.NewServer(t, edgetest.Legacy)
	one.Always("tools/call", func(c *edgetest.Call) {
		if strings.Contains(string(c.Message.Params), "made-up") {
			c.Error(400, -32602, "no such tool")
			return
		}
		c.Result(`{"resultType":"complete","content":[]}`)
	})
	admin := edgetest.Settings(func(s *serve.Settings) { s.AdminListen, s.DefaultServer = "127.0.0.1:0", "one" })
	yaml := edgetest.Object("one", one) + edgetest.Object("two", two)
	plain := edgetest.Start(t, yaml, admin)
	measured := edgetest.Start(t, strings.Replace(yaml, "  config:\n", "  config:\n    telemetry: {enablePrometheusMetricsPath: true}\n", 1), admin,
		edgetest.With(serve.WithReload(func() error { return fmt.Errorf("no") })))

	c := caller{Client: plain.NewClient()}
	if r := c.Do("GET", "/metrics", ""); r.Status != 404 {
		t.Errorf("nobody asked for metrics: status %d", r.Status)
	}
	c.call(t, "1", "{}")
	text := string(edgetest.NewClient(t, "http://"+plain.Serve.AdminAddr()).Do("GET", "/metrics", "").Body)
	for _, w := range []struct {
		name   string
		labels []string
		is     float64
	}{
		{"weir_backend_calls_total", []string{`server="one"`, `backend="back"`}, 1},
		{"weir_sessions", []string{`server="two"`}, 0},
		{"weir_reloads_total", nil, 0},
		{"weir_config_ok", nil, 1},
		{"weir_inflight_limit", nil, 4096},
		{"weir_mcp_requests_total", nil, 0},
	} {
		if got := figure(t, text, w.name, w.labels...); got != w.is {
			t.Errorf("%s%v is %v, not %v\n%s", w.name, w.labels, got, w.is, text)
		}
	}
	if !strings.Contains(text, "weir_connections ") || !strings.Contains(text, `weir_build_info{version="devel"} 1`) {
		t.Error(text)
	}

	c = caller{Client: measured.NewClient()}
	for i := range 50 {
		c.request(t, "1", "tools/call", edgetest.CallParams(fmt.Sprintf("made-up-%d", i), "{}"))
		c.request(t, "1", fmt.Sprintf("made/up%d", i), "{}")
	}
	_ = measured.Serve.ReloadNow() // which fails, as it is to
	r := c.Do("GET", "/metrics", "")
	if kind := r.Header.Get("Content-Type"); r.Status != 200 || !strings.HasPrefix(kind, "text/plain") {
		t.Errorf("status %d, %s", r.Status, kind)
	}
	text = string(r.Body)
	if strings.Contains(text, "made") || !strings.Contains(text, `gen_ai_tool_name="other"`) || figure(t, text, "weir_reloads_total", `result="error"`) != 1 ||
		figure(t, text, "weir_config_ok") != 0 || figure(t, text, "weir_mcp_requests_total") != 100 {
		t.Error(text)
	}
	if strings.Contains(text, `server="two"`) {
		t.Error("metrics of a server that did not ask for it are on the main port")
	}
	if all := string(edgetest.NewClient(t, "http://"+measured.Serve.AdminAddr()).Do("GET", "/metrics", "").Body); !strings.Contains(all, `server="two"`) || !strings.Contains(all, `mcp_method_name="tools/call"`) {
		t.Error("the admin address does not have all metrics")
	}
	if r := c.Do("POST", "/metrics", "{}"); r.Status != 405 || r.Header.Get("Allow") != "GET" {
		t.Errorf("POST: status %d", r.Status)
	}
	if r := c.Do("HEAD", "/metrics", ""); r.Status != 200 || len(r.Body) > 0 {
		t.Errorf("HEAD: status %d", r.Status)
	}
}

// logLevel debug of a server has the process log tell of its exchanges,
// whatever the process's own level, and of no other server's.
func TestLogLevel(t *testing.T) {
	t.Parallel()
	one, two := edgetest.NewServer(t, edgetest.Modern), edgetest.NewServer(t, edgetest.Modern)
	yaml := strings.Replace(edgetest.Object("one", one), "  config:\n", "  config:\n    operational: {logLevel: debug}\n", 1) + edgetest.Object("two", two)
	e := edgetest.Start(t, yaml, edgetest.Logging(slog.LevelInfo))
	c := e.NewClient()
	for _, name := range []string{"one", "two"} {
		text, head := edgetest.ModernRequest("1", "tools/call", edgetest.CallParams("echo", `{"x":"hunter2"}`), edgetest.Meta())
		if r := c.Do("POST", "/servers/"+name+"/mcp", text, head...); r.Status != 200 {
			t.Fatalf("status %d: %s", r.Status, r.Body)
		}
		text, head = edgetest.ModernRequest("1", "tools/call", `{"name":1}`, edgetest.Meta())
		c.Do("POST", "/servers/"+name+"/mcp", text, head...)
	}
	e.Stop()
	log := e.Log()
	if !strings.Contains(log, "level=DEBUG msg=exchange server=one method=tools/call") || strings.Contains(log, "server=two method") || strings.Contains(log, "hunter2") {
		t.Error(log)
	}
}

// A server's telemetryConfigRef brings a collector over TLS that a ConfigMap
// vouches for, and headers from secrets; a secret that changes is sent anew.
func TestTelemetryConfigRef(t *testing.T) {
	t.Parallel()
	to := newCollector(t, "https")
	back := edgetest.NewServer(t, edgetest.Modern)
	yaml := func(token string) string {
		return strings.Replace(edgetest.Object("one", back), "  incomingAuth", "  telemetryConfigRef: {name: everywhere, serviceName: named}\n  incomingAuth", 1) + fmt.Sprintf(`---
apiVersion: v1
kind: Secret
metadata: {name: otel}
stringData: {token: %q}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: collector}
data:
  ca.crt: %q
---
apiVersion: weir.dev/v1beta1
kind: MCPTelemetryConfig
metadata: {name: everywhere}
spec:
  openTelemetry:
    enabled: true
    endpoint: %s
    headers: {X-Team: edge}
    sensitiveHeaders: [{name: X-Token, secretKeyRef: {name: otel, key: token}}]
    resourceAttributes: {deployment.environment: test}
    caBundleRef: {configMapRef: {name: collector, key: ca.crt}}
    tracing: {enabled: true, samplingRate: "1"}
    metrics: {enabled: true}
  prometheus: {enabled: true}
`, token, string(to.CA), to.Endpoint)
	}
	e := edgetest.Start(t, yaml("hunter2"))
	c := caller{Client: e.NewClient()}
	c.call(t, "1", "{}")
	text := string(c.Do("GET", "/metrics", "").Body)
	if !strings.Contains(text, `service_name="named"`) || !strings.Contains(text, `deployment_environment="test"`) || figure(t, text, "weir_mcp_tool_calls_total") != 1 {
		t.Error(text)
	}
	// A collector that nobody has spoken to yet has next to no time at the end,
	// which may be too little where others keep the machine busy.
	flush := func() {
		t.Helper()
		if err := e.Serve.FlushTelemetry(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	flush()
	if got := to.header("X-Token"); got != "hunter2" {
		t.Errorf("X-Token is %q", got)
	}
	sent := to.count()
	c.call(t, "1", "{}")
	if err := e.Serve.Reload(edgetest.Plan(t, yaml("changed"))); err != nil {
		t.Fatal(err)
	}
	edgetest.Until(t, "what the first one had left", func() bool { return to.count() > sent })
	c.call(t, "2", "{}")
	flush()
	if err := e.Serve.Reload(edgetest.Plan(t, strings.Replace(yaml(""), "key: token}", "key: other}", 1))); err == nil || !strings.Contains(err.Error(), "otel") {
		t.Errorf("a secret that is not there: %v", err)
	}
	e.Stop()
	if to.header("X-Token") != "changed" || to.header("X-Team") != "edge" || len(to.Spans) < 2 || to.Metrics["weir_mcp_tool_calls"] == nil {
		t.Errorf("%v, %d spans, %v", to.Headers, len(to.Spans), to.Metrics)
	}
	if strings.Contains(e.Log(), "hunter2") {
		t.Error("the log holds a secret")
	}
}

// A room that counts for itself is asked, of the process or of its server. One
// that panics costs its own numbers alone.
func TestRoomsThatCount(t *testing.T) {
	t.Parallel()
	room := func(name string, broken bool) edge.Collector {
		return edge.CollectorFunc(func(m edge.Emitter) {
			m.Emit(edge.Sample{Name: "weir_test_" + name, Value: 7})
			if broken {
				panic("a fault")
			}
		})
	}
	f := newFront(t, edgetest.Modern, edgetest.Settings(func(s *serve.Settings) { s.AdminListen = "127.0.0.1:0" }),
		edgetest.Before(func(e *serve.Edge) {
			e.Count(room("broken", true), room("shaky", true))
			e.Count(room("process", false), room("server", false))
		}))
	text := string(edgetest.NewClient(t, "http://"+f.Serve.AdminAddr()).Do("GET", "/metrics", "").Body)
	for _, name := range []string{"broken", "shaky", "process", "server"} {
		if figure(t, text, "weir_test_"+name+"_total") != 7 {
			t.Errorf("no weir_test_%s in\n%s", name, text)
		}
	}
	if !strings.Contains(text, `weir_backend_up{backend="back",server="edgetest"}`) {
		t.Error(text)
	}
}
