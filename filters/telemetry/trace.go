package telemetry

import (
	"context"
	"encoding/hex"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/filters/audit/mask"
)

// Bounds of spans, in bytes.
const (
	maxState    = 512
	maxValue    = 256
	maxArgument = 100
	maxArgs     = 200
)

// follows is how many traces a second that clients say are sampled are: a
// client must not decide on its own what tracing costs.
const follows = 100

// sampler decides which exchanges have spans.
type sampler struct {
	share float64

	second atomic.Int64
	taken  atomic.Int64
}

// root decides about an exchange that belongs to no trace.
func (s *sampler) root() bool { return s.share > 0 && rand.Float64() < s.share }

// remote decides about an exchange of a trace that is sampled where it began.
func (s *sampler) remote(now time.Time) bool {
	second := now.Unix()
	if old := s.second.Load(); old != second && s.second.CompareAndSwap(old, second) {
		s.taken.Store(0)
	}
	return s.taken.Add(1) <= follows || s.root()
}

// parent is the trace that an exchange says it belongs to: in params._meta, and
// else in its header (MCP 2026-07-28, basic, "trace context in _meta"; W3C Trace Context §3).
func (t *Telemetry) parent(x *edge.Exchange) trace.SpanContext {
	m := x.Request
	if v := m.Meta("traceparent"); v.OK() {
		if sc := parseParent(m.MetaText("traceparent"), m.MetaText("tracestate")); sc.IsValid() {
			return sc
		}
	}
	if t.part.Trace != nil {
		return parseParent(t.part.Trace(x))
	}
	return trace.SpanContext{}
}

// parseParent reads a traceparent and its tracestate. What is not as it should
// be is no context, and a tracestate that is not is none (W3C Trace Context
// §3.2.2 and §3.3.1).
func parseParent(parent, state string) trace.SpanContext {
	var c trace.SpanContextConfig
	if len(parent) < 55 || parent[2] != '-' || parent[35] != '-' || parent[52] != '-' || parent[:2] == "ff" ||
		len(parent) > 55 && (parent[:2] == "00" || parent[55] != '-') || strings.ToLower(parent[:55]) != parent[:55] {
		return trace.SpanContext{}
	}
	var flags, version [1]byte
	for _, f := range []struct {
		to   []byte
		text string
	}{{version[:], parent[:2]}, {c.TraceID[:], parent[3:35]}, {c.SpanID[:], parent[36:52]}, {flags[:], parent[53:55]}} {
		if _, err := hex.Decode(f.to, []byte(f.text)); err != nil {
			return trace.SpanContext{}
		}
	}
	c.TraceFlags, c.Remote = trace.TraceFlags(flags[0])&trace.FlagsSampled, true
	if len(state) <= maxState {
		if s, err := trace.ParseTraceState(state); err == nil {
			c.TraceState = s
		}
	}
	return trace.NewSpanContext(c)
}

// span is the span of an exchange. A nil span is of one that is not sampled,
// and all its methods do nothing.
type span struct {
	trace.Span
	ended bool
}

// follow begins the span of an exchange, when it is sampled. An exchange inside
// of another is when the other is.
func (t *Telemetry) follow(ctx context.Context, x *edge.Exchange, began time.Time) (context.Context, *span) {
	if above := trace.SpanContextFromContext(ctx); above.IsValid() {
		return t.begin(ctx, x, began, trace.SpanKindServer)
	}
	if x.Parent != nil {
		return ctx, nil
	}
	p := t.parent(x)
	switch {
	case !p.IsValid():
		if !t.sampler.root() {
			return ctx, nil
		}
	case !p.IsSampled() || !t.sampler.remote(began):
		return ctx, nil
	}
	if p.IsValid() {
		ctx = keeping(ctx, trace.ContextWithRemoteSpanContext(ctx, p))
	}
	return t.begin(ctx, x, began, trace.SpanKindServer)
}

// descend begins the span of a call to a backend, when the exchange has one,
// and sends its trace context to the backend.
func (t *Telemetry) descend(ctx context.Context, x *edge.Exchange, began time.Time) (context.Context, *span) {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ctx, nil
	}
	ctx, s := t.begin(ctx, x, began, trace.SpanKindClient)
	pass(x, s.SpanContext())
	return ctx, s
}

func (t *Telemetry) begin(ctx context.Context, x *edge.Exchange, began time.Time, kind trace.SpanKind) (context.Context, *span) {
	with, s := t.tracer.Start(ctx, method(x.Request.Method), trace.WithSpanKind(kind), trace.WithTimestamp(began))
	return keeping(ctx, with), &span{Span: s}
}

// Within begins a span for a part of an exchange, such as a step of a workflow, where the
// exchange has one. attributes are names and values by turns. end ends it; why says what
// failed, "" for nothing.
func (t *Telemetry) Within(ctx context.Context, name string, attributes ...string) (_ context.Context, end func(why string)) {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ctx, func(string) {}
	}
	a := append(make([]attribute.KeyValue, 0, 24), t.environment...)
	for i := 0; i+1 < len(attributes); i += 2 {
		a = append(a, attribute.String(attributes[i], short(attributes[i+1], maxValue)))
	}
	with, s := t.tracer.Start(ctx, short(name, maxValue), trace.WithAttributes(a...))
	return keeping(ctx, with), func(why string) {
		if why != "" {
			s.SetStatus(codes.Error, short(why, maxValue))
		}
		s.End()
	}
}

// Happened tells of a part of an exchange, where the exchange has a span, that began at a time
// and is over. attributes and why are as in Within.
func (t *Telemetry) Happened(ctx context.Context, name string, began time.Time, took time.Duration, why string, attributes ...string) {
	if trace.SpanContextFromContext(ctx).IsValid() {
		t.over(ctx, name, began, took, why, attributes)
	}
}

// Beside tells of what is part of no exchange, such as a request of a login, in a trace of its
// own, as often as the sampling rate says. All else is as in Happened.
func (t *Telemetry) Beside(name string, began time.Time, took time.Duration, why string, attributes ...string) {
	if t.tracer != nil && t.sampler.root() {
		t.over(context.Background(), name, began, took, why, attributes)
	}
}

// over makes a span of what is over.
func (t *Telemetry) over(ctx context.Context, name string, began time.Time, took time.Duration, why string, attributes []string) {
	a := append(make([]attribute.KeyValue, 0, 24), t.environment...)
	for i := 0; i+1 < len(attributes); i += 2 {
		a = append(a, attribute.String(attributes[i], short(attributes[i+1], maxValue)))
	}
	_, s := t.tracer.Start(ctx, short(name, maxValue), trace.WithAttributes(a...), trace.WithTimestamp(began))
	if why != "" {
		s.SetStatus(codes.Error, short(why, maxValue))
	}
	s.End(trace.WithTimestamp(began.Add(took)))
}

// canceler is what the back door asks of a context to be told of its end at
// little cost.
type canceler interface {
	Heed(io.Closer)
	Ignore(io.Closer) bool
	AfterFunc(func()) func() bool
}

// kept is a context with the end of another.
type kept struct {
	context.Context
	canceler
}

// keeping makes with, which is derived from ctx, heed what ctx does.
func keeping(ctx, with context.Context) context.Context {
	if c, ok := ctx.(canceler); ok {
		return kept{with, c}
	}
	return with
}

// pass has a backend see the span: in a header, and where the client gave a
// trace context in params._meta, there in its place.
func pass(x *edge.Exchange, sc trace.SpanContext) {
	parent := "00-" + sc.TraceID().String() + "-" + sc.SpanID().String() + "-" + sc.TraceFlags().String()
	state := sc.TraceState().String()
	forward := slices.DeleteFunc(slices.Clone(x.Forward), func(h edge.Header) bool {
		return strings.EqualFold(h.Name, "traceparent") || strings.EqualFold(h.Name, "tracestate")
	})
	forward = append(forward, edge.Header{Name: "traceparent", Value: parent})
	if state != "" {
		forward = append(forward, edge.Header{Name: "tracestate", Value: state})
	}
	x.Forward = forward
	m := x.Request
	if !m.Meta("traceparent").OK() {
		return
	}
	set := []mcp.Member{mcp.Raw("traceparent", mcp.Quote(parent))}
	if state != "" {
		set = append(set, mcp.Raw("tracestate", mcp.Quote(state)))
	}
	if changed, err := mcp.Decode(mcp.Splice(nil, m.Raw, m.WithMeta([]string{"tracestate"}, set...))); err == nil {
		x.Request = changed
	}
}

// finish says what the exchange was, and ends the span.
func (s *span) finish(t *Telemetry, x *edge.Exchange, m *mcp.Message, k key, status int) {
	if s == nil {
		return
	}
	if k.name != "" && k.name != other {
		s.SetName(k.method + " " + k.name)
	}
	a := append(make([]attribute.KeyValue, 0, 24), t.environment...)
	add := func(name, value string) {
		if value != "" {
			a = append(a, attribute.String(name, short(value, maxValue)))
		}
	}
	both := func(name, older, value string) {
		add(name, value)
		if t.legacy {
			add(older, value)
		}
	}
	add("server", x.Server)
	both("mcp.method.name", "mcp.method", m.Method)
	both("jsonrpc.request.id", "mcp.request.id", strings.Trim(string(m.IDText()), `"`))
	add("network.transport", "tcp")
	add("network.protocol.name", "http")
	add("client.address", x.Head.Remote)
	version := m.MetaText(mcp.MetaVersion)
	if version == "" && x.Session != nil {
		version = x.Session.Version
	}
	add("mcp.protocol.version", version)
	switch k.thing {
	case edge.Tool:
		add("gen_ai.operation.name", "execute_tool")
		both("gen_ai.tool.name", "mcp.tool.name", m.Text("name"))
		both("gen_ai.tool.call.arguments", "mcp.tool.arguments", arguments(m.Get("arguments").Of(m.Raw)))
	case edge.Prompt:
		both("gen_ai.prompt.name", "mcp.prompt.name", m.Text("name"))
	}
	if m.Method == "resources/read" {
		uri := m.Text("uri")
		if end := strings.IndexAny(uri, "?#"); end >= 0 {
			uri = uri[:end]
		}
		both("mcp.resource.uri", "mcp.resource.id", mask.URI(uri))
	}
	if x.Target != nil {
		add("target.workload_name", x.Target.Backend)
	}
	if t.legacy {
		add("mcp.transport", t.transport(x))
		if status != 0 {
			a = append(a, attribute.Int("http.status_code", status))
		}
	}
	if k.fault != "" {
		add("error.type", k.fault)
		if _, err := strconv.Atoi(k.fault); err == nil {
			add("rpc.response.status_code", k.fault)
		}
		s.SetStatus(codes.Error, "")
	}
	s.SetAttributes(a...)
	s.end()
}

// end ends the span, once.
func (s *span) end() {
	if s != nil && !s.ended {
		s.ended = true
		s.End()
	}
}

// short cuts text to n bytes.
func short(s string, n int) string {
	if len(s) > n {
		s = s[:n] + "…"
	}
	return strings.ToValidUTF8(s, "")
}

// arguments are those of a call as a span shows them: without the values of
// those that are named like secrets, without what is inside of objects, arrays
// and strings of JSON, without the secrets of URIs, and short.
func arguments(object []byte) string {
	if len(object) > 64<<10 {
		return "{…}"
	}
	var b strings.Builder
	for _, m := range mcp.Members(object) {
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		name := string(mcp.Unquote(m.Name))
		b.WriteString(short(name, maxArgument) + "=")
		v := string(m.Value)
		if len(v) > 1 && v[0] == '"' {
			v = mcp.String(m.Value)
		}
		switch start := strings.TrimLeft(v, " \t\r\n"); {
		case mask.Name(name):
			v = mask.Redacted
		case strings.HasPrefix(start, "{"):
			v = "{…}"
		case strings.HasPrefix(start, "["):
			v = "[…]"
		case strings.Contains(v[:min(len(v), maxArgument)], "://"): // else none is shown
			v = mask.URI(v)
		}
		b.WriteString(short(v, maxArgument))
		if b.Len() > maxArgs {
			break
		}
	}
	return short(b.String(), maxArgs)
}
