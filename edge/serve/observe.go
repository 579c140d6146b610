package serve

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/backend"
	"github.com/weir-edge/weir/edge/codemode"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/door"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/filters"
	"github.com/weir-edge/weir/filters/audit"
	"github.com/weir-edge/weir/filters/authz"
	"github.com/weir-edge/weir/filters/telemetry"
)

// Telemetry and audit see every message once, whatever becomes of it: messages that walk
// the hallway pass them there, and those that the edge answers or refuses before it are
// shown to them as if the hallway ended right behind them.

// observers are the filters of a server that record and measure its messages.
type observers struct {
	record  *audit.Log           // nil for none
	measure *telemetry.Telemetry // nil for none
	entries []filters.Entry      // of both
}

// observe opens the telemetry and the audit log of a server, or finds them open.
func (o *opening) observe(s *server) (err error) {
	e, p := o.edge, o.plan
	if p.Telemetry != nil {
		if s.measure, err = part(s, &e.world.measures, digestOf([]any{p.Telemetry, o.reads, o.trusts}), o.openTelemetry()); err != nil {
			return err
		}
		s.entries = append(s.entries, filters.Entry{Place: filters.Telemetry, Filter: s.measure.Filter})
		s.Beyond = make(map[*backend.Backend]edge.Handler, len(s.Backends))
		for _, b := range s.Backends {
			s.Beyond[b] = s.measure.Backend(b)
		}
	}
	if p.Audit != nil {
		spec := *p.Audit
		spec.Endpoint = endpoint(p.Name, o.main)
		if s.record, err = part(s, &e.world.records, digestOf(spec), o.openAudit(spec)); err != nil {
			return err
		}
		s.entries = append(s.entries, filters.Entry{Place: filters.Audit, Filter: s.record.Filter})
	}
	return nil
}

// telemetryReads returns the secrets and the certificates that the telemetry of a server
// is made from.
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
		pem, err := edge.ReadKeys(file)
		if err != nil {
			return nil, fmt.Errorf("telemetry: caCertPath: %w", err)
		}
		reads = append(reads, string(pem))
	}
	return reads, nil
}

func (o *opening) openTelemetry() func(edge.Env) (*telemetry.Telemetry, error) {
	e, p := o.edge, o.plan
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

func (o *opening) openAudit(spec audit.Spec) func(edge.Env) (*audit.Log, error) {
	e, server := o.edge, o.plan.Name
	return func(env edge.Env) (*audit.Log, error) {
		parsed, wrong := audit.Parse(spec)
		if len(wrong) > 0 {
			return nil, wrong.ToAggregate()
		}
		parsed.Answer, parsed.Transport, parsed.Decision, parsed.Script = edge.OnWire, transportOf, decisionOf, codemode.Digest
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

// decisionOf returns the decision of the policies on an exchange, as records have it.
func decisionOf(x *edge.Exchange) (audit.Decision, bool) {
	why, ok := x.Decision.(*authz.Explanation)
	if !ok {
		return audit.Decision{}, false
	}
	return audit.Decision{Allowed: why.Allowed, Reason: why.Reason, Policies: why.Policies, Version: why.Version}, true
}

// observed answers an exchange by f, with telemetry and audit around it.
func (s *server) observed(ctx context.Context, x *edge.Exchange, f edge.HandlerFunc) (*edge.Response, error) {
	if len(s.entries) == 0 {
		return f(ctx, x)
	}
	return filters.Chain(s.entries, f).Handle(ctx, x)
}

// turned answers an exchange with an error before the hallway.
func (x *exchange) turned(err error) (*edge.Response, error) {
	return x.server.observed(&x.Call, &x.Exchange, refusing(err))
}

func refusing(err error) edge.HandlerFunc {
	return func(context.Context, *edge.Exchange) (*edge.Response, error) { return nil, err }
}

// turnedAway records a request that is refused before the hallway, with its message if
// that has been read.
func (req *request) turnedAway(era mcp.Era, err error) {
	s := req.server
	if s == nil || len(s.entries) == 0 {
		return
	}
	if req.x != nil {
		req.x.Era = era
		_, _ = req.x.turned(err) // which is told to the client
		return
	}
	x := req.stranger(s)
	x.Era, x.Request = era, &mcp.Message{}
	if t := s.measure; t != nil && req.ctx.IsPost() {
		_, _ = t.Filter(refusing(err)).Handle(context.Background(), x)
	}
	req.record(s, req.kind(), x, err)
}

// done records a request without a message that was answered.
func (req *request) done() {
	if req.server.record != nil {
		req.record(req.server, req.kind(), req.stranger(req.server), nil)
	}
}

// record writes a record of a request without a message: that it failed with err, or was
// answered if that is nil.
func (req *request) record(s *server, kind audit.Type, x *edge.Exchange, err error) {
	l := s.record
	if l == nil {
		return
	}
	method := string(req.ctx.Method())
	if method == door.RefusedMethod {
		method = "" // it is not known
	}
	if err == nil {
		l.Write(audit.Event{Type: kind, Exchange: x, Method: method, Status: 200})
		return
	}
	l.Refused(kind, x, method, req.status, err)
}

// kind is the type of the record of a request without a message at a server.
func (req *request) kind() audit.Type {
	if req.ctx.IsGet() {
		return audit.SSEConnection
	}
	return audit.HTTPRequest
}

// stranger returns an exchange for the record of a request without a message.
func (req *request) stranger(s *server) *edge.Exchange {
	x := &edge.Exchange{Server: s.Name, Identity: req.who}
	x.Head.Remote = req.client()
	x.Head.SSE, x.Head.Attributes = req.sse, req.attributes
	req.tell(&x.Head, s)
	if x.Head.RequestID = door.NewRequestID(); door.SoundID(req.requestID) {
		x.Head.RequestID = string(req.requestID)
	}
	return x
}

// knocked records a request that is refused before its server is known: in the log of the
// server that its path names, else of the one at /mcp, else of the first that has one, of
// those of its door.
func (e *Edge) knocked(req *request, err error) {
	at := e.doorOf(req.conn)
	s, _ := at.server(string(req.ctx.Path()))
	for _, one := range append([]*server{s, at.main}, at.all()...) {
		if one != nil && one.record != nil {
			req.record(one, audit.HTTPRequest, req.stranger(one), err)
			return
		}
	}
}

// ReopenLogs opens every audit log that is a file again by its name, for those who
// rotate it.
func (e *Edge) ReopenLogs() {
	for _, s := range e.live.Load().servers {
		if l := s.record; l != nil {
			l.Reopen()
		}
	}
}

// fault logs an error whose cause the client does not see.
func (x *exchange) fault(err error) {
	x.server.edge.log.Error("internal error", "server", x.Server, "method", edge.Printable(x.Request.Method), "request", x.requestID(), "error", err)
}

// debugged logs every exchange of a server.
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
