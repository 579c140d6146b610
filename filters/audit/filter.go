package audit

import (
	"context"
	"errors"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// Filter is the edge.Filter of the log: each exchange that comes by leaves one
// record, when it ends and however it ends.
func (l *Log) Filter(next edge.Handler) edge.Handler {
	return edge.HandlerFunc(func(ctx context.Context, x *edge.Exchange) (*edge.Response, error) {
		m := x.Request // as the client sent it: filters behind this one may replace it
		if t := typeOf(m); l.wanted[t] {
			return l.follow(ctx, x, m, t, next)
		}
		return next.Handle(ctx, x)
	})
}

// follow answers an exchange and records it. A panic passes through, and is
// recorded as an error.
func (l *Log) follow(ctx context.Context, x *edge.Exchange, m *mcp.Message, t Type, next edge.Handler) (*edge.Response, error) {
	began, returned := l.now(), false
	if x.Target != nil && x.Target.Thing == edge.Tool && x.Target.Backend == "" {
		x.Record = string(appendID(nil)) // calls that a tool of the edge makes name it
	}
	defer func() {
		if !returned {
			l.write(&entry{typ: t, outcome: Error, x: x, m: m, reason: "panic", method: m.Method}, began)
		}
	}()
	r, err := next.Handle(ctx, x)
	returned = true

	e := entry{typ: t, x: x, m: m, r: r, method: m.Method}
	switch {
	case err != nil:
		l.fault(&e, err, ctx.Err() != nil)
	case r == nil:
	case r.Kind == mcp.Failure:
		e.status = r.Status
		e.coded, e.code, e.message = true, r.Code(), r.Text("message")
		switch {
		case r.Status == 401 || r.Status == 403:
			e.outcome = Denied
		case r.Status >= 500:
			e.outcome = Error
		case r.Status >= 400:
			e.outcome = Failure
		case l.detect:
			e.outcome = ApplicationError
		}
	default:
		e.status = r.Status
		if l.detect && string(r.Get("isError").Of(r.Raw)) == "true" {
			e.outcome = ApplicationError
		}
	}
	l.write(&e, began)
	return r, err
}

// fault says of an entry what went wrong. gone is whether its client has left.
func (l *Log) fault(e *entry, err error, gone bool) {
	kind := edge.KindOf(err)
	var known *edge.Error
	switch {
	case errors.As(err, &known):
		e.cause = known.Op
	case errors.Is(err, context.Canceled), gone:
		kind = edge.Gone
	}
	e.outcome, e.reason = outcomeOf(kind), word(kind)
	if l.Answer != nil {
		e.status, e.code = l.Answer(kind, e.x.Era)
		e.coded = true
	}
	if known != nil && kind != edge.Internal {
		e.message = known.Err.Error()
	}
}

// Refused records a request that was turned away before its message was read,
// as an event of a type. x is as much as is known of it; method is that of HTTP, and status that
// of the answer, 0 for what goes with err.
func (l *Log) Refused(t Type, x *edge.Exchange, method string, status int, err error) {
	if !l.wanted[t] {
		return
	}
	e := entry{typ: t, x: x, method: method}
	l.fault(&e, err, false)
	if status != 0 {
		e.status = status
	}
	l.write(&e, l.now())
}

// Event is something other than an exchange that the log has: a stream of a
// client, a request that was turned away at the door, a step of a workflow.
type Event struct {
	Type      Type
	Outcome   Outcome
	Exchange  *edge.Exchange // whose doing it is; nil for nobody's
	Component string         // "" for that of the log
	Method    string         // of HTTP or MCP; "" for none
	Name      string         // of what it is about; "" for none
	Kind      string         // of that, such as workflow or step
	Status    int            // of the HTTP answer; 0 for none
	Reason    string         // one word for what went wrong; "" for nothing
	Took      time.Duration

	// Data is JSON text of what is told besides, which is recorded without its
	// secrets whatever the configuration says of requests; nil for none.
	Data []byte
}

// Write records an event, unless the configuration leaves its type out.
func (l *Log) Write(e Event) {
	if !l.wanted[e.Type] {
		return
	}
	l.write(&entry{typ: e.Type, outcome: e.Outcome, x: e.Exchange, component: e.Component, method: e.Method, name: e.Name, kind: e.Kind,
		status: e.Status, reason: e.Reason, told: e.Data}, l.now().Add(-e.Took))
}
