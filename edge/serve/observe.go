package serve

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/valyala/fasthttp"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/backend"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/door"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/filters"
	"github.com/weir-edge/weir/filters/audit"
	"github.com/weir-edge/weir/filters/authz"
	"github.com/weir-edge/weir/filters/telemetry"
)

// Telemetry and audit see every message once, whatever becomes of it: what
// walks the hallway passes them there, and what the door answers itself, or
// turns away, is shown to them as if the hallway ended right behind them.

// observers are what sees the messages of a server.
type observers struct {
	record  *part[*audit.Log]           // nil for none
	measure *part[*telemetry.Telemetry] // nil for none
	entries []filters.Entry             // of both
	beyond  map[*backend.Backend]edge.Handler
}

// records is the audit log; nil for none.
func (o *observers) records() *audit.Log {
	if o.record == nil {
		return nil
	}
	return o.record.open
}

// measures is the telemetry; nil for none.
func (o *observers) measures() *telemetry.Telemetry {
	if o.measure == nil {
		return nil
	}
	return o.measure.open
}

// observe opens the telemetry and the audit log of a server, or takes over
// those of the one before it.
func (e *Edge) observe(s, was *server, p compile.Server, main bool, reads []string) (err error) {
	if was == nil {
		was = &server{}
	}
	if p.Telemetry != nil {
		if s.measure, err = take(s, was.measure, digestOf([]any{p.Telemetry, reads}), e.openTelemetry(p)); err != nil {
			return err
		}
		t := s.measure.open
		s.entries = append(s.entries, filters.Entry{Name: "telemetry", Filter: t.Filter})
		s.Beyond = make(map[*backend.Backend]edge.Handler, len(s.Backends))
		for _, b := range s.Backends {
			s.Beyond[b] = t.Backend(b)
		}
	}
	if p.Audit != nil {
		spec := *p.Audit
		if spec.Endpoint = "/servers/" + p.Name + "/mcp"; main {
			spec.Endpoint = "/mcp"
		}
		if s.record, err = take(s, was.record, digestOf(spec), e.openAudit(p.Name, spec)); err != nil {
			return err
		}
		s.entries = append(s.entries, filters.Entry{Name: "audit", Filter: s.record.open.Filter})
	}
	return nil
}

// telemetryReads is what the telemetry of a server is made from besides the
// plan: its secrets, and the certificates in a file.
func telemetryReads(p compile.Server, secrets edge.Secrets) ([]string, error) {
	if p.Telemetry == nil {
		return nil, nil
	}
	var reads []string
	for _, h := range p.Telemetry.SecretHeaders {
		v, err := secrets.Secret(context.Background(), h.SecretKeyRef.Name, h.SecretKeyRef.Key)
		if err != nil {
			return nil, fmt.Errorf("telemetry: header %s: %w", h.Name, err)
		}
		reads = append(reads, string(v))
	}
	if file := p.Telemetry.CAFile; file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("telemetry: caCertPath: %w", err)
		}
		reads = append(reads, string(pem))
	}
	return reads, nil
}

func (e *Edge) openTelemetry(p compile.Server) func(edge.Env) (*telemetry.Telemetry, error) {
	return func(env edge.Env) (*telemetry.Telemetry, error) {
		parsed, wrong := telemetry.Parse(*p.Telemetry)
		if len(wrong) > 0 {
			return nil, wrong.ToAggregate()
		}
		parsed.Answer, parsed.Transport = edge.OnWire, transportOf
		parsed.Trace = func(x *edge.Exchange) (parent, state string) { return x.Head.TraceParent, x.Head.TraceState }
		parsed.Collectors = []edge.Collector{e.roomsOf(p.Name)}
		parsed.Process = []edge.Collector{edge.CollectorFunc(e.collect)}
		return parsed.Start(env)
	}
}

func (e *Edge) openAudit(server string, spec audit.Spec) func(edge.Env) (*audit.Log, error) {
	return func(env edge.Env) (*audit.Log, error) {
		parsed, wrong := audit.Parse(spec)
		if len(wrong) > 0 {
			return nil, wrong.ToAggregate()
		}
		parsed.Answer, parsed.Transport, parsed.Decision = edge.OnWire, transportOf, decisionOf
		parsed.Copy = func(record []byte) { e.happened(server, record) }
		return parsed.Start(env)
	}
}

func transportOf(x *edge.Exchange) string {
	if x.Head.SSE {
		return "sse"
	}
	return "streamable-http"
}

// decisionOf is what the policies said of an exchange, as records have it.
func decisionOf(x *edge.Exchange) (audit.Decision, bool) {
	why, ok := x.Decision.(*authz.Explanation)
	if !ok {
		return audit.Decision{}, false
	}
	return audit.Decision{Allowed: why.Allowed, Reason: why.Reason, Policies: why.Policies, Version: why.Version}, true
}

// observed has an exchange answered by f, and observed.
func (s *server) observed(ctx context.Context, x *edge.Exchange, f edge.HandlerFunc) (*edge.Response, error) {
	if len(s.entries) == 0 {
		return f(ctx, x)
	}
	return filters.Chain(s.entries, f).Handle(ctx, x)
}

// turned answers an exchange with an error before it has come to the hallway.
func (x *exchange) turned(err error) (*edge.Response, error) {
	return x.server.observed(&x.Call, &x.Exchange, refusing(err))
}

func refusing(err error) edge.HandlerFunc {
	return func(context.Context, *edge.Exchange) (*edge.Response, error) { return nil, err }
}

// turnedAway shows what the door refuses to those who observe the server that
// it was for. Where its message has been read, x is its exchange.
func (e *Edge) turnedAway(ctx *fasthttp.RequestCtx, h *head, era mcp.Era, err error) {
	s := h.server
	if s == nil || len(s.entries) == 0 {
		return
	}
	if h.x != nil {
		h.x.Era = era
		_, _ = h.x.turned(err) // which is told to the client
		return
	}
	x := e.stranger(ctx, h, s)
	x.Era, x.Request = era, &mcp.Message{}
	if t := s.measures(); t != nil && ctx.IsPost() {
		_, _ = t.Filter(refusing(err)).Handle(context.Background(), x)
	}
	if l := s.records(); l != nil {
		l.Refused(requestType(ctx), x, string(ctx.Method()), err)
	}
}

// stranger is the exchange of a request without a message.
func (e *Edge) stranger(ctx *fasthttp.RequestCtx, h *head, s *server) *edge.Exchange {
	x := &edge.Exchange{Server: s.Name, Identity: h.who}
	x.Head.Remote = e.door.ClientOf(ctx)
	x.Head.SSE = h.sse
	conn, _ := ctx.Conn().(*door.Conn)
	h.tell(&x.Head, s, conn)
	if x.Head.RequestID = newRequestID(); soundID(h.requestID) {
		x.Head.RequestID = string(h.requestID)
	}
	return x
}

// requestType is the type of the record of a request without a message.
func requestType(ctx *fasthttp.RequestCtx) audit.Type {
	if ctx.IsGet() {
		return audit.SSEConnection
	}
	return audit.HTTPRequest
}

// done records a request that had no message to be observed, and was answered.
func (e *Edge) done(ctx *fasthttp.RequestCtx, h *head, s *server) {
	if l := s.records(); l != nil {
		x := e.stranger(ctx, h, s)
		l.Write(audit.Event{Type: requestType(ctx), Exchange: x, Method: string(ctx.Method()), Status: 200})
	}
}

// knocked records a request that came to no server, or was refused before it
// was known to which: in the log of the server that its path leads to, else of
// the one on /mcp, else of the first that has one.
func (e *Edge) knocked(ctx *fasthttp.RequestCtx, h *head, err error) {
	now := e.live.Load()
	s, _ := now.server(string(ctx.Path()))
	for _, one := range append([]*server{s, now.main}, now.inOrder()...) {
		if one == nil || one.records() == nil {
			continue
		}
		method := string(ctx.Method())
		if method == door.RefusedMethod {
			method = "" // it is not known
		}
		one.records().Refused(audit.HTTPRequest, e.stranger(ctx, h, one), method, err)
		return
	}
}

// inOrder is the servers by name.
func (l *live) inOrder() []*server {
	var all []*server
	for _, name := range l.names() {
		all = append(all, l.servers[name])
	}
	return all
}

// ReopenLogs has every audit log that is a file opened anew by its name, for
// those who rotate it.
func (e *Edge) ReopenLogs() {
	for _, s := range e.live.Load().servers {
		if l := s.records(); l != nil {
			l.Reopen()
		}
	}
}

// Bounds of what is taken over of a header, in bytes.
const (
	maxRequestID = 128
	maxAgent     = 256
	maxTrace     = 512
)

// tell fills in what those who observe a server want to know of a request,
// besides its id. A connection remembers what its client calls itself.
func (h *head) tell(to *edge.Head, s *server, conn *door.Conn) {
	if s.record != nil {
		agent := h.agent[:min(len(h.agent), maxAgent)]
		if conn == nil {
			to.Agent = string(agent)
		} else {
			if conn.Agent != string(agent) {
				conn.Agent = string(agent)
			}
			to.Agent = conn.Agent
		}
	}
	if s.measure != nil && len(h.traceParent) > 0 && len(h.traceParent) <= maxTrace && len(h.traceState) <= maxTrace {
		to.TraceParent, to.TraceState = string(h.traceParent), string(h.traceState)
	}
}

// soundID reports whether an X-Request-Id is one that can stand in a log: not
// long, and of letters, digits and what ids are written with.
func soundID(id []byte) bool {
	if len(id) == 0 || len(id) > maxRequestID {
		return false
	}
	for _, c := range id {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case strings.IndexByte("-_.:/+=@~", c) >= 0:
		default:
			return false
		}
	}
	return true
}

// newRequestID makes an id for a request that brought none. It tells requests
// apart, and is nobody's secret.
func newRequestID() string {
	var raw [16]byte
	binary.LittleEndian.PutUint64(raw[:8], rand.Uint64())
	binary.LittleEndian.PutUint64(raw[8:], rand.Uint64())
	var text [32]byte
	hex.Encode(text[:], raw[:])
	return string(text[:])
}

// idText is the X-Request-Id of a client, kept without an allocation until
// somebody asks for it.
type idText struct {
	n    int
	text [maxRequestID]byte
}

func (t *idText) set(id []byte) {
	if t.n = 0; soundID(id) {
		t.n = copy(t.text[:], id)
	}
}

// requestID is what records and the process log call the request.
func (x *exchange) requestID() string {
	switch {
	case x.Head.RequestID != "":
	case x.id.n > 0:
		x.Head.RequestID = string(x.id.text[:x.id.n])
	default:
		x.Head.RequestID = newRequestID()
	}
	return x.Head.RequestID
}

// fault tells the process log of an error that the client is told nothing of.
func (e *Edge) fault(x *exchange, err error) {
	e.log.Error("internal error", "server", x.Server, "method", edge.Printable(x.Request.Method), "request", x.requestID(), "error", err)
}

// debugged tells the process log of every exchange of a server.
func (s *server) debugged(next edge.Handler) edge.Handler {
	return edge.HandlerFunc(func(ctx context.Context, x *edge.Exchange) (*edge.Response, error) {
		began, m := time.Now(), x.Request
		r, err := next.Handle(ctx, x)
		attrs := []slog.Attr{slog.String("server", s.Name), slog.String("method", edge.Printable(m.Method)), slog.Duration("took", time.Since(began))}
		if t := x.Target; t != nil && t.Thing != edge.NoThing {
			attrs = append(attrs, slog.String("name", edge.Printable(t.Name)), slog.String("backend", t.Backend))
		}
		switch {
		case err != nil:
			attrs = append(attrs, slog.String("error", edge.Printable(err.Error())))
		case r != nil:
			attrs = append(attrs, slog.Int("status", r.Status))
		}
		s.log.LogAttrs(ctx, slog.LevelDebug, "exchange", attrs...)
		return r, err
	})
}
