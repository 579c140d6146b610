package telemetry

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	spanpb "go.opentelemetry.io/proto/otlp/trace/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest/fake"
	"github.com/weir-edge/weir/edge/edgetest/otlp"
	"github.com/weir-edge/weir/edge/v1beta1"
)

func TestParse(t *testing.T) {
	path := field.NewPath("spec", "config", "telemetry")
	cases := []struct {
		name   string
		config v1beta1.Telemetry
		wrong  []string
		none   bool
	}{
		{"nothing asked for", v1beta1.Telemetry{}, nil, true},
		{"a collector that nothing is sent to", v1beta1.Telemetry{Endpoint: "https://c"}, nil, true},
		{"only to be fetched", v1beta1.Telemetry{EnablePrometheusMetricsPath: true}, nil, false},
		{"traces to nowhere", v1beta1.Telemetry{TracingEnabled: true}, []string{"spec.config.telemetry.endpoint"}, false},
		{"plain text without leave", v1beta1.Telemetry{TracingEnabled: true, Endpoint: "http://c:4318"}, []string{"spec.config.telemetry.endpoint"}, false},
		{"plain text with leave", v1beta1.Telemetry{TracingEnabled: true, Endpoint: "http://c:4318", Insecure: true}, nil, false},
		{"a user in it", v1beta1.Telemetry{TracingEnabled: true, Endpoint: "https://u:p@c"}, []string{"spec.config.telemetry.endpoint"}, false},
		{"another scheme", v1beta1.Telemetry{TracingEnabled: true, Endpoint: "ftp://c"}, []string{"spec.config.telemetry.endpoint"}, false},
		{"gRPC with a path", v1beta1.Telemetry{TracingEnabled: true, Endpoint: "grpcs://c/x"}, []string{"spec.config.telemetry.endpoint"}, false},
		{"a rate", v1beta1.Telemetry{TracingEnabled: true, Endpoint: "https://c", SamplingRate: "1.5"}, []string{"spec.config.telemetry.samplingRate"}, false},
		{"no number", v1beta1.Telemetry{EnablePrometheusMetricsPath: true, SamplingRate: "NaN"}, []string{"spec.config.telemetry.samplingRate"}, false},
	}
	for _, c := range cases {
		p, errs := Parse(FromConfig("s", &c.config, path))
		var got []string
		for _, e := range errs {
			got = append(got, e.Field)
		}
		if !reflect.DeepEqual(got, c.wrong) || (p == nil) != (c.none || len(errs) > 0) {
			t.Errorf("%s: %v %v", c.name, p, errs)
		}
	}
}

func TestEndpoint(t *testing.T) {
	for endpoint, want := range map[string]place{
		"collector:4317":          {grpc: true, host: "collector:4317"},
		"collector:4318":          {host: "collector:4318"},
		"collector":               {host: "collector:4318"},
		"https://collector/otlp/": {host: "collector:4318", path: "/otlp"},
		"grpcs://collector":       {grpc: true, host: "collector:4317"},
		"https://[::1]:443":       {host: "[::1]:443"},
	} {
		if got, wrong := parseEndpoint(endpoint, false); got != want || wrong != "" {
			t.Errorf("%s: %+v %s", endpoint, got, wrong)
		}
	}
	if got, _ := parseEndpoint("collector:4317", true); !got.plain {
		t.Error("insecure is not plain text")
	}
}

func TestFromKind(t *testing.T) {
	yes := true
	c := &v1beta1.MCPTelemetryConfigSpec{
		OpenTelemetry: &v1beta1.OpenTelemetry{
			Enabled: true, Endpoint: "https://c", Headers: map[string]string{"a": "b"}, ResourceAttributes: map[string]string{"env": "test"},
			SensitiveHeaders: []v1beta1.SensitiveHeader{{Name: "x"}}, Tracing: &v1beta1.Tracing{Enabled: true, SamplingRate: "1"},
			Metrics: &v1beta1.Metrics{Enabled: true}, UseLegacyAttributes: &yes,
		},
		Prometheus: &v1beta1.Prometheus{Enabled: true},
	}
	s := FromKind("s", "named", c, []byte("pem"), field.NewPath("spec"))
	if !s.Traces || !s.Metrics || !s.Prometheus || !s.Legacy || s.Sampling != "1" || s.Service != "named" || len(s.SecretHeaders) != 1 || s.Attributes["env"] != "test" || string(s.CA) != "pem" ||
		s.SamplingPath.String() != "spec.openTelemetry.tracing.samplingRate" {
		t.Errorf("%+v", s)
	}
	c.OpenTelemetry.Enabled = false
	if s := FromKind("s", "", c, nil, nil); s.Endpoint != "" || s.Traces || !s.Prometheus {
		t.Errorf("%+v", s)
	}
}

// Spans and metrics reach a collector over both protocols, in plain text and
// not, with headers from secrets, attributes and the variables asked for.
func TestCollectors(t *testing.T) {
	t.Setenv("WEIR_TEST_REGION", "north")
	t.Setenv("WEIR_TEST_TOKEN", "PLANTED-VARIABLE")
	for _, protocol := range []string{"grpc", "http"} {
		for _, secure := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s %v", protocol, secure), func(t *testing.T) {
				c := startCollector(t, protocol, secure)
				s := Spec{
					Endpoint: c.Endpoint, Insecure: !secure, Traces: true, Metrics: true, Sampling: "1", Legacy: true, Version: "1.2",
					Headers: map[string]string{"x-team": "edge"}, SecretHeaders: []v1beta1.SensitiveHeader{{Name: "x-token", SecretKeyRef: v1beta1.SecretRef{Name: "otel", Key: "token"}}},
					Attributes: map[string]string{"deployment.environment": "test"}, Environment: []string{"WEIR_TEST_REGION", "WEIR_TEST_TOKEN", "WEIR_TEST_NONE"},
				}
				if secure {
					s.CAFile = filepath.Join(t.TempDir(), "ca.pem")
					if err := os.WriteFile(s.CAFile, c.CA, 0o600); err != nil {
						t.Fatal(err)
					}
				}
				tel, _ := open(t, s)
				x := call(t, "echo", `,"arguments":{"text":"hi","password":"PLANTED","deep":{"a":1},"json":"{\"token\":\"PLANTED\"}"}`)
				if _, err := tel.Filter(answers(t, good)).Handle(t.Context(), x); err != nil {
					t.Fatal(err)
				}
				flush(t, tel)
				span := spanOf(t, c, "tools/call echo")
				got := otlp.Attributes(span.Attributes)
				for k, v := range map[string]string{
					"mcp.method.name": "tools/call", "mcp.method": "tools/call", "gen_ai.tool.name": "echo", "mcp.tool.name": "echo", "jsonrpc.request.id": "7",
					"gen_ai.tool.call.arguments": "text=hi, password=[REDACTED], deep={…}, json={…}", "environment.WEIR_TEST_REGION": "north",
					"environment.WEIR_TEST_TOKEN": "[REDACTED]", "target.workload_name": "b", "client.address": "192.0.2.1", "http.status_code": "200",
				} {
					if got[k] != v {
						t.Errorf("%s is %q, want %q", k, got[k], v)
					}
				}
				if strings.Contains(span.String(), "PLANTED") {
					t.Errorf("a secret in %s", span)
				}
				if span.Kind != spanpb.Span_SPAN_KIND_SERVER || span.Status.GetCode() != spanpb.Status_STATUS_CODE_UNSET {
					t.Errorf("%s", span)
				}
				c.Lock()
				defer c.Unlock()
				if c.Resource["service.name"] != "s" || c.Resource["service.version"] != "1.2" || c.Resource["deployment.environment"] != "test" {
					t.Errorf("%v", c.Resource)
				}
				if c.Headers["x-team"] != "edge" || c.Headers["x-token"] != "PLANTED-TOKEN" {
					t.Errorf("%v", c.Headers)
				}
				if protocol == "http" && (!c.Paths["/otlp/v1/traces"] || !c.Paths["/otlp/v1/metrics"]) {
					t.Errorf("%v", c.Paths)
				}
				m := c.Metrics["weir_mcp_requests"]
				if m == nil || m.GetSum().DataPoints[0].GetAsInt() != 1 || otlp.Attributes(m.GetSum().DataPoints[0].Attributes)["gen_ai.tool.name"] != "echo" {
					t.Errorf("%v", m)
				}
				if h := c.Metrics["mcp.server.operation.duration"]; h == nil || h.Unit != "s" || len(h.GetHistogram().DataPoints[0].ExplicitBounds) != 14 || h.GetHistogram().DataPoints[0].Count != 1 {
					t.Errorf("%v", h)
				}
			})
		}
	}
}

// Spans show URIs without the secrets in them.
func TestURIsOfSpans(t *testing.T) {
	c := startCollector(t, "http", false)
	tel, _ := open(t, Spec{Endpoint: c.Endpoint, Insecure: true, Traces: true, Sampling: "1", Legacy: true})
	long := strings.Repeat("PLANTED", 1000)
	for uri, want := range map[string]string{
		"https://h/cb#access_token=PLANTED":    "https://h/cb",
		"https://u:PLANTED@h/x?token=PLANTED":  "https://[REDACTED]@h/x",
		"urn:doc#token=PLANTED":                "urn:doc",
		"https://h/go/https://u:PLANTED@other": "https://h/go/https://[REDACTED]@other",
		"https://" + long + "@h/x":             "https://[REDACTED]@h/x",
	} {
		r := exchange(t, "resources/read", fmt.Sprintf(`{"uri":%q}`, uri))
		r.Target = &edge.Target{Backend: "b", Thing: edge.Resource, Name: uri, Original: uri}
		x := call(t, "echo", fmt.Sprintf(`,"arguments":{"url":%q,"n":1}`, strings.Replace(uri, "urn:", "urn://", 1)))
		for _, one := range []*edge.Exchange{r, x} {
			if _, err := tel.Filter(answers(t, good)).Handle(t.Context(), one); err != nil {
				t.Fatal(err)
			}
		}
		flush(t, tel)
		c.Lock()
		if len(c.Spans) != 2 {
			t.Errorf("%.50s: %d spans", uri, len(c.Spans))
		}
		for _, span := range c.Spans {
			got := otlp.Attributes(span.Attributes)
			if strings.Contains(span.String(), "PLANTED") {
				t.Errorf("%.50s: a secret in %s", uri, span)
			}
			if got["mcp.method.name"] == "resources/read" && (got["mcp.resource.uri"] != want || got["mcp.resource.id"] != want) {
				t.Errorf("%.50s: %v", uri, got)
			}
			if got["mcp.method.name"] == "tools/call" && (!strings.HasPrefix(got["mcp.tool.arguments"], "url=") || !strings.HasSuffix(got["mcp.tool.arguments"], ", n=1")) {
				t.Errorf("%.50s: %v", uri, got)
			}
		}
		c.Spans = nil
		c.Unlock()
	}
}

// What is wrong with secrets and certificates is found when the plan opens, and
// told without the secret.
func TestOpenFails(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(empty, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, s := range map[string]Spec{
		"header x-token": {SecretHeaders: []v1beta1.SensitiveHeader{{Name: "x-token", SecretKeyRef: v1beta1.SecretRef{Name: "no", Key: "ne"}}}},
		"header x-two: secret otel, key two: it holds": {SecretHeaders: []v1beta1.SensitiveHeader{{Name: "x-two", SecretKeyRef: v1beta1.SecretRef{Name: "otel", Key: "two"}}}},
		"caCertPath: open":        {CAFile: "/does/not/exist"},
		"there is no certificate": {CAFile: empty},
	} {
		s.Endpoint, s.Traces = "https://127.0.0.1:1", true
		p, errs := Parse(s)
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		if _, err := p.Open(edge.Env{Defer: t.Cleanup, Secrets: fake.Keep(map[string]edge.Secret{"otel/two": "PLANTED\nX-Y: z"})}); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "PLANTED") {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// A collector that is away, or refuses, is counted and told, and no exchange
// waits for it.
func TestCollectorAway(t *testing.T) {
	c := startCollector(t, "http", false)
	c.Down = true
	tel, l := open(t, Spec{Endpoint: c.Endpoint, Insecure: true, Traces: true, Metrics: true, Sampling: "1", Prometheus: true})
	if _, err := tel.Filter(answers(t, good)).Handle(t.Context(), call(t, "echo", "")); err != nil {
		t.Fatal(err)
	}
	flush(t, tel)
	if tel.traces.failures.Load() != 1 || tel.metrics.failures.Load() != 1 || !strings.Contains(l.String(), "did not take") {
		t.Errorf("%d %d %s", tel.traces.failures.Load(), tel.metrics.failures.Load(), l)
	}
	c.Lock()
	c.Down = false
	c.Unlock()
	if _, err := tel.Filter(answers(t, good)).Handle(t.Context(), call(t, "echo", "")); err != nil {
		t.Fatal(err)
	}
	flush(t, tel)
	if text := scrape(t, tel); !strings.Contains(text, `weir_telemetry_export_failures_total{server="s",signal="traces"} 1`) || tel.traces.items.Load() != 1 {
		t.Error(text)
	}
}

// What a collector says is bounded, whatever it announces or compresses: an
// answer that is too large is a failure to export, and takes no memory.
func TestZ01CollectorsThatSayMuch(t *testing.T) {
	for _, protocol := range []string{"grpc", "http"} {
		for _, zips := range []bool{false, true} {
			if protocol == "grpc" && zips {
				continue // a collector compresses for those who have the means, which the edge has not
			}
			for _, says := range []int{maxSaid / 2, 2 * maxSaid, 3 << 20} {
				t.Run(fmt.Sprintf("%s %d %v", protocol, says, zips), func(t *testing.T) {
					c := startCollector(t, protocol, false)
					c.Says, c.Zips = strings.Repeat("x", says), zips
					tel, l := open(t, Spec{Endpoint: c.Endpoint, Insecure: true, Traces: true, Metrics: true, Sampling: "1"})
					if _, err := tel.Filter(answers(t, good)).Handle(t.Context(), call(t, "echo", "")); err != nil {
						t.Fatal(err)
					}
					flush(t, tel)
					// What it does not take it is asked about, and what it says is told, as far as it was read.
					if n, m := tel.traces.failures.Load(), tel.metrics.failures.Load(); n != 1 || m != 1 {
						t.Errorf("%d and %d failures", n, m)
					}
					if read := strings.Contains(l.String(), strings.Repeat("x", 100)); read != (says < maxSaid && !zips) {
						t.Errorf("read: %v: %.300s", read, l)
					}
				})
			}
		}
	}
}

const (
	clientTrace = "0af7651916cd43dd8448eb211c80319c"
	clientSpan  = "b7ad6b7169203331"
)

// The trace context of params._meta beats that of the header, an inner call
// belongs to the outer, and the backend sees the call to it.
func TestTraceContext(t *testing.T) {
	c := startCollector(t, "grpc", false)
	header := func(p *Part) {
		p.Trace = func(*edge.Exchange) (string, string) {
			return "00-11111111111111111111111111111111-2222222222222222-01", ""
		}
	}
	tel, _ := open(t, Spec{Endpoint: c.Endpoint, Insecure: true, Traces: true, Sampling: "0"}, header)

	var seen *edge.Exchange
	h := tel.Filter(edge.HandlerFunc(func(ctx context.Context, x *edge.Exchange) (*edge.Response, error) {
		inner := call(t, "inner", "")
		inner.Parent = x
		if _, err := tel.Filter(answers(t, good)).Handle(ctx, inner); err != nil {
			return nil, err
		}
		return tel.Backend(edge.HandlerFunc(func(_ context.Context, x *edge.Exchange) (*edge.Response, error) {
			seen = x
			return nil, edge.Errorf(edge.Denied, "authz", "no")
		})).Handle(ctx, x)
	}))
	x := call(t, "outer", `,"_meta":{"traceparent":"00-`+clientTrace+`-`+clientSpan+`-01","tracestate":"a=b","k":1}`)
	x.Forward = []edge.Header{{Name: "Traceparent", Value: "x"}, {Name: "X-Y", Value: "z"}}
	if _, err := h.Handle(t.Context(), x); edge.KindOf(err) != edge.Denied {
		t.Fatal(err)
	}
	// By the header alone.
	if _, err := tel.Filter(answers(t, good)).Handle(t.Context(), call(t, "header", "")); err != nil {
		t.Fatal(err)
	}
	flush(t, tel)

	c.Lock()
	var server, client *spanpb.Span
	for _, s := range c.Spans {
		if s.Name == "tools/call outer" && s.Kind == spanpb.Span_SPAN_KIND_SERVER {
			server = s
		} else if s.Name == "tools/call outer" {
			client = s
		}
	}
	c.Unlock()
	if server == nil || client == nil || hex.EncodeToString(server.TraceId) != clientTrace || hex.EncodeToString(server.ParentSpanId) != clientSpan ||
		string(client.ParentSpanId) != string(server.SpanId) || client.Kind != spanpb.Span_SPAN_KIND_CLIENT || server.TraceState != "a=b" {
		t.Fatalf("%v\n%v", server, client)
	}
	if otlp.Attributes(server.Attributes)["error.type"] != "403" || server.Status.Code != spanpb.Status_STATUS_CODE_ERROR {
		t.Errorf("%v", server)
	}
	if inner := spanOf(t, c, "tools/call inner"); string(inner.ParentSpanId) != string(server.SpanId) {
		t.Errorf("%v", inner)
	}
	if s := spanOf(t, c, "tools/call header"); hex.EncodeToString(s.TraceId) != strings.Repeat("1", 32) {
		t.Errorf("%v", s)
	}
	parent := "00-" + clientTrace + "-" + hex.EncodeToString(client.SpanId) + "-01"
	want := []edge.Header{{Name: "X-Y", Value: "z"}, {Name: "traceparent", Value: parent}, {Name: "tracestate", Value: "a=b"}}
	if !reflect.DeepEqual(seen.Forward, want) {
		t.Errorf("%v", seen.Forward)
	}
	if m := seen.Request; m.MetaText("traceparent") != parent || m.MetaText("tracestate") != "a=b" || string(m.Meta("k").Of(m.Raw)) != "1" || m.Text("name") != "outer" {
		t.Errorf("%s", m.Raw)
	}
}

// What is not sampled makes no span, and its message passes as it came.
func TestSampling(t *testing.T) {
	c := startCollector(t, "http", false)
	tel, _ := open(t, Spec{Endpoint: c.Endpoint, Insecure: true, Traces: true, Sampling: "0"})
	for _, meta := range []string{"", `,"_meta":{"traceparent":"00-` + clientTrace + `-` + clientSpan + `-00"}`, `,"_meta":{"traceparent":"nonsense"}`} {
		x := call(t, "echo", meta)
		m := x.Request
		if _, err := tel.Filter(tel.Backend(answers(t, good))).Handle(t.Context(), x); err != nil || x.Request != m || x.Forward != nil {
			t.Errorf("%v %v", err, x)
		}
	}
	// A client that says that all its traces are sampled gets its share.
	h := tel.Filter(answers(t, good))
	for range 10 * follows {
		if _, err := h.Handle(t.Context(), call(t, "echo", `,"_meta":{"traceparent":"00-`+clientTrace+`-`+clientSpan+`-01"}`)); err != nil {
			t.Fatal(err)
		}
	}
	flush(t, tel)
	c.Lock()
	defer c.Unlock()
	if n := len(c.Spans); n < follows || n > 5*follows {
		t.Errorf("%d spans", n)
	}
	s := sampler{share: 0.25}
	n := 0
	for range 100_000 {
		if s.root() {
			n++
		}
	}
	if n < 24_000 || n > 26_000 {
		t.Errorf("%d of 100000 sampled", n)
	}
}

func TestParseParent(t *testing.T) {
	ok := "00-" + clientTrace + "-" + clientSpan + "-01"
	for in, want := range map[string]bool{
		ok: true, "01" + ok[2:] + "-more": true, "": false, ok + "-more": false, "ff" + ok[2:]: false, strings.ToUpper(ok): false, ok[:54]: false,
		"00-" + strings.Repeat("0", 32) + "-" + clientSpan + "-01": false, "00-" + clientTrace + "-" + strings.Repeat("0", 16) + "-01": false,
		strings.Replace(ok, "b7", "zz", 1): false, "01" + ok[2:] + "more": false,
	} {
		if got := parseParent(in, ""); got.IsValid() != want {
			t.Errorf("%q: %v", in, got)
		}
	}
	if parseParent(ok, strings.Repeat("a", maxState)+"=b").TraceState().Len() != 0 || parseParent(ok, "a=b,,==").TraceState().Len() != 0 || parseParent(ok, "a=b").TraceState().Get("a") != "b" {
		t.Error("tracestate")
	}
}

func FuzzParseParent(f *testing.F) {
	f.Add("00-"+clientTrace+"-"+clientSpan+"-01", "a=b")
	f.Fuzz(func(t *testing.T, parent, state string) {
		if sc := parseParent(parent, state); sc.IsValid() && !strings.HasPrefix(parent[3:], sc.TraceID().String()+"-"+sc.SpanID().String()) {
			t.Errorf("%q: %v", parent, sc)
		}
	})
}

// scrape is what Prometheus gets.
func scrape(t testing.TB, tel *Telemetry, collectors ...edge.Collector) string {
	t.Helper()
	e, err := Expose(tel.log, collectors, tel)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if kind, err := e.Write(&b, ""); err != nil || !strings.HasPrefix(kind, "text/plain") {
		t.Fatal(kind, err)
	}
	return b.String()
}

// Series are counted by method, tool and fault; what clients make up has none.
func TestSeries(t *testing.T) {
	tel, _ := open(t, Spec{Prometheus: true, Legacy: true, Attributes: map[string]string{"env": "test"}})
	do := func(x *edge.Exchange, h edge.Handler) {
		t.Helper()
		_, _ = tel.Filter(h).Handle(t.Context(), x) // what it answers is the handler's
	}
	do(call(t, "echo", ""), answers(t, good))
	do(call(t, "echo", ""), answers(t, good))
	do(call(t, "echo", ""), fails(edge.Errorf(edge.Denied, "authz", "no")))
	do(call(t, "echo", ""), fails(fmt.Errorf("x: %w", context.Canceled)))
	do(call(t, "echo", ""), answers(t, `{"jsonrpc":"2.0","id":7,"result":{"isError":true,"content":[]}}`))
	do(call(t, "echo", ""), answers(t, `{"jsonrpc":"2.0","id":7,"error":{"code":123456,"message":"m"}}`))
	do(exchange(t, "made/up", "{}"), fails(errors.New("x")))
	do(exchange(t, "notifications/made_up", "{}"), fails(nil))
	// Without a catalog a tool is known once a call of it succeeds.
	free := exchange(t, "tools/call", `{"name":"free"}`)
	do(free, fails(edge.Errorf(edge.Denied, "authz", "no")))
	do(free, answers(t, good))
	do(free, fails(edge.Errorf(edge.Denied, "authz", "no")))
	do(exchange(t, "prompts/get", `{"name":"hello"}`), answers(t, good))
	if _, err := tel.Backend(answers(t, good)).Handle(t.Context(), call(t, "echo", "")); err != nil {
		t.Fatal(err)
	}

	text := scrape(t, tel)
	for _, want := range []string{
		`weir_mcp_requests_total{gen_ai_tool_name="echo",mcp_method="tools/call",mcp_method_name="tools/call",server="s",status="success",status_code="200",transport="streamable-http"} 2`,
		`weir_mcp_requests_total{error_type="403",gen_ai_tool_name="echo",mcp_method="tools/call",mcp_method_name="tools/call",server="s",status="error",status_code="403",transport="streamable-http"} 1`,
		`error_type="cancelled"`, `error_type="tool_error"`, `error_type="other",gen_ai_tool_name="echo"`,
		`weir_mcp_requests_total{error_type="-32603",mcp_method="other",mcp_method_name="other",server="s"`,
		`weir_mcp_requests_total{mcp_method="other",mcp_method_name="other",server="s",status="success",status_code="202"`,
		`weir_mcp_requests_total{error_type="403",gen_ai_tool_name="other",`,
		`weir_mcp_requests_total{error_type="403",gen_ai_tool_name="free",`,
		`gen_ai_prompt_name="hello"`,
		`weir_mcp_tool_calls_total{gen_ai_tool_name="echo",server="s",status="error",tool="echo"} 4`,
		`weir_mcp_tool_calls_total{gen_ai_tool_name="echo",server="s",status="success",tool="echo"} 2`,
		`weir_mcp_request_duration_seconds_bucket{gen_ai_tool_name="echo",mcp_method="tools/call",mcp_method_name="tools/call",server="s",status="success",status_code="200",transport="streamable-http",le="0.01"} 2`,
		`mcp_server_operation_duration_seconds_count`,
		`weir_vmcp_backend_requests_total{gen_ai_tool_name="echo",mcp_method_name="tools/call",server="s",status="success",target_workload_name="b",tool_name="echo"} 1`,
		`mcp_client_operation_duration_seconds_count`,
		`weir_mcp_active_requests{server="s"} 0`,
		`target_info{env="test",service_name="s"} 1`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if strings.Contains(text, "made") || strings.Contains(text, "123456") {
		t.Errorf("a client's word in\n%s", text)
	}

	// Only the newer names, and no series twice.
	tel, _ = open(t, Spec{Prometheus: true})
	do(call(t, "echo", ""), answers(t, good))
	do(call(t, "echo", ""), fails(nil))
	text = scrape(t, tel)
	if want := `weir_mcp_requests_total{gen_ai_tool_name="echo",mcp_method_name="tools/call",server="s"} 2`; !strings.Contains(text, want) {
		t.Errorf("no %s in\n%s", want, text)
	}
}

// However many names there are, there are no more series than the bounds say.
func TestBounds(t *testing.T) {
	tel, _ := open(t, Spec{Prometheus: true, Legacy: true})
	h := tel.Filter(answers(t, good))
	for i := range 3 * maxNames {
		if _, err := h.Handle(t.Context(), exchange(t, "tools/call", fmt.Sprintf(`{"name":"tool-%d"}`, i))); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(tel.table.names); n != maxNames {
		t.Errorf("%d names", n)
	}
	if n := len(tel.table.series); n != maxNames+1 {
		t.Errorf("%d series", n)
	}
	for i := range 2 * maxSeries {
		tel.table.find(key{method: "ping", status: i}).observe(time.Second)
	}
	if n := len(tel.table.series); n > maxSeries+1 {
		t.Errorf("%d series", n)
	}
	long := strings.Repeat("é", 200)
	if got := tel.table.admit(long); got != other && len(got) > maxLabel {
		t.Errorf("%d bytes", len(got))
	}
}

// Rooms add numbers of their own; what would spoil the others is left out.
func TestCollector(t *testing.T) {
	count := 1.0
	room := edge.CollectorFunc(func(m edge.Emitter) {
		m.Emit(edge.Sample{Name: "weir_ratelimit_refused", Help: "h", Value: count, Labels: []edge.Header{{Name: "kind", Value: "shared_server"}}})
		m.Emit(edge.Sample{Name: "weir_ratelimit_refused", Value: 99, Labels: []edge.Header{{Name: "kind", Value: "shared_server"}}})
		m.Emit(edge.Sample{Name: "weir_catalog_tools", Gauge: true, Value: 7, Labels: []edge.Header{{Name: "backend", Value: "b\xff" + strings.Repeat("x", 500)}}})
		m.Emit(edge.Sample{Name: "go_gc_duration", Value: 1})
		m.Emit(edge.Sample{Name: "weir_Bad name", Value: 1})
		count++
	})
	broken := edge.CollectorFunc(func(edge.Emitter) { panic("boom") })
	endless := edge.CollectorFunc(func(m edge.Emitter) {
		for i := range 2 * maxSamples {
			m.Emit(edge.Sample{Name: "weir_endless", Gauge: true, Labels: []edge.Header{{Name: "i", Value: fmt.Sprint(i)}}})
		}
	})
	tel, l := open(t, Spec{Prometheus: true}, func(p *Part) { p.Collectors = []edge.Collector{broken, room} })
	text := scrape(t, tel, endless)
	for _, want := range []string{`weir_ratelimit_refused_total{kind="shared_server"} 1`, `weir_catalog_tools{backend="b`, "weir_endless{"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if strings.Contains(text, "go_gc") || strings.Contains(text, "Bad") || strings.Contains(text, "99") && strings.Contains(text, `shared_server"} 99`) {
		t.Error("a sample that should be left out")
	}
	if n := strings.Count(text, "\nweir_endless{"); n != maxSamples {
		t.Errorf("%d samples", n)
	}
	if !strings.Contains(l.String(), "boom") {
		t.Errorf("%s", l)
	}
}

// Several servers are told together, and who asks often costs nothing.
func TestExpose(t *testing.T) {
	if e, err := Expose(nil, nil); e != nil || err != nil {
		t.Error(e, err)
	}
	a, l := open(t, Spec{Prometheus: true, Service: "a"})
	b, _ := open(t, Spec{Prometheus: true, Service: "b"})
	b.table.server = "other-server"
	asked := 0
	e, err := Expose(a.log, []edge.Collector{edge.CollectorFunc(func(edge.Emitter) { asked++ })}, a, nil, b)
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if _, err := e.Write(io.Discard, "application/openmetrics-text"); err != nil {
			t.Fatal(err)
		}
	}
	if asked > 10 {
		t.Errorf("asked %d times", asked)
	}
	var text strings.Builder
	if _, err := e.Write(&text, ""); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`weir_mcp_active_requests{server="s"} 0`, `weir_mcp_active_requests{server="other-server"} 0`, `target_info{service_name="a"}`, `target_info{service_name="b"}`} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %s in\n%s", want, text.String())
		}
	}
	if l.String() != "" {
		t.Error(l)
	}
}

// A panic passes through, and its span and its place among the active end.
func TestPanic(t *testing.T) {
	c := startCollector(t, "http", false)
	tel, _ := open(t, Spec{Endpoint: c.Endpoint, Insecure: true, Traces: true, Sampling: "1"})
	func() {
		defer func() {
			if recover() != "boom" {
				t.Error("no panic")
			}
		}()
		_, _ = tel.Filter(edge.HandlerFunc(func(context.Context, *edge.Exchange) (*edge.Response, error) { panic("boom") })).Handle(t.Context(), call(t, "echo", ""))
	}()
	flush(t, tel)
	spanOf(t, c, "tools/call")
	if n := tel.table.active.Load(); n != 0 {
		t.Errorf("%d active", n)
	}
}

// heeding is a context like the door's.
type heeding struct {
	context.Context
	heeded int
}

func (h *heeding) Heed(io.Closer)               { h.heeded++ }
func (h *heeding) Ignore(io.Closer) bool        { return true }
func (h *heeding) AfterFunc(func()) func() bool { return func() bool { return true } }

// The back door gets the door's context also for an exchange with a span.
func TestContext(t *testing.T) {
	c := startCollector(t, "http", false)
	tel, _ := open(t, Spec{Endpoint: c.Endpoint, Insecure: true, Traces: true, Sampling: "1"})
	h := &heeding{Context: t.Context()}
	x := call(t, "echo", "")
	if _, err := tel.Filter(tel.Backend(edge.HandlerFunc(func(ctx context.Context, x *edge.Exchange) (*edge.Response, error) {
		ctx.(canceler).Heed(nil)
		return x.Answer(), x.Answer().Decode([]byte(good))
	}))).Handle(h, x); err != nil || h.heeded != 1 {
		t.Error(err, h.heeded)
	}
	fake.Until(t, "the spans", func() bool { flush(t, tel); c.Lock(); defer c.Unlock(); return len(c.Spans) == 2 })
}

// BenchmarkFilter is what telemetry costs an exchange.
func BenchmarkFilter(b *testing.B) {
	for name, s := range map[string]Spec{
		"metrics":           {Prometheus: true, Legacy: true},
		"metrics+unsampled": {Prometheus: true, Legacy: true, Traces: true, Endpoint: "http://127.0.0.1:1", Insecure: true, Sampling: "0"},
		"metrics+sampled":   {Prometheus: true, Legacy: true, Traces: true, Endpoint: "http://127.0.0.1:1", Insecure: true, Sampling: "1"},
	} {
		b.Run(name, func(b *testing.B) {
			tel, _ := open(b, s)
			x := call(b, "echo", `,"arguments":{"text":"hello"}`)
			h := tel.Filter(answers(b, good))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := h.Handle(context.Background(), x); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Counting allocates nothing.
func TestAllocations(t *testing.T) {
	tel, _ := open(t, Spec{Prometheus: true, Legacy: true, Traces: true, Endpoint: "http://127.0.0.1:1", Insecure: true, Sampling: "0"})
	h := tel.Filter(answers(t, good))
	for _, x := range []*edge.Exchange{call(t, "echo", ""), exchange(t, "tools/call", `{"name":"free"}`), exchange(t, "ping", "{}")} {
		if n := testing.AllocsPerRun(1000, func() { _, _ = h.Handle(context.Background(), x) }); n != 0 {
			t.Errorf("%s: %v allocations", x.Request.Raw, n)
		}
	}
}
