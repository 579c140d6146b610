package telemetry

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// Filter is the edge.Filter of the telemetry: it counts each exchange that
// comes by, and has a span for each that is sampled.
func (t *Telemetry) Filter(next edge.Handler) edge.Handler {
	return edge.HandlerFunc(func(ctx context.Context, x *edge.Exchange) (*edge.Response, error) {
		began, m := time.Now(), x.Request
		t.table.active.Add(1)
		defer t.table.active.Add(-1)
		var s *span
		if t.tracer != nil {
			ctx, s = t.follow(ctx, x, began)
			defer s.end() // a span of a panic ends too
		}
		r, err := next.Handle(ctx, x)
		fault, status := t.fault(ctx, x, r, err)
		thing, name := t.table.name(x, m, fault == "" && err == nil && r != nil)
		k := key{method: method(m.Method), thing: thing, name: name, fault: fault}
		if t.legacy {
			k.status, k.transport = status, t.transport(x)
		}
		t.table.find(k).observe(time.Since(began))
		s.finish(t, x, m, k, status)
		return r, err
	})
}

// Backend counts and traces the calls to backends that a handler makes: put it
// around what sends an exchange to the backend of its target.
func (t *Telemetry) Backend(next edge.Handler) edge.Handler {
	return edge.HandlerFunc(func(ctx context.Context, x *edge.Exchange) (*edge.Response, error) {
		if x.Target == nil || x.Target.Backend == "" {
			return next.Handle(ctx, x)
		}
		began, m, backend := time.Now(), x.Request, x.Target.Backend
		var s *span
		if t.tracer != nil {
			ctx, s = t.descend(ctx, x, began)
			defer s.end()
		}
		r, err := next.Handle(ctx, x)
		fault, status := t.fault(ctx, x, r, err)
		thing, name := t.table.name(x, m, fault == "" && err == nil && r != nil)
		k := key{method: method(m.Method), thing: thing, name: name, fault: fault, backend: cut(backend)}
		t.table.find(k).observe(time.Since(began))
		s.finish(t, x, m, k, status)
		return r, err
	})
}

// transport says how an exchange came.
func (t *Telemetry) transport(x *edge.Exchange) string {
	if t.part.Transport != nil && t.part.Transport(x) == "sse" {
		return "sse"
	}
	return "streamable-http"
}

// fault is the error.type of an exchange, "" for none: tool_error, cancelled,
// or the code of a JSON-RPC error (semantic conventions for MCP, error.type).
// Codes that neither the protocol nor the edge has are "other". status is the
// HTTP status of the answer.
func (t *Telemetry) fault(ctx context.Context, x *edge.Exchange, r *edge.Response, err error) (fault string, status int) {
	switch {
	case err != nil:
		kind := edge.KindOf(err)
		var known *edge.Error
		if !errors.As(err, &known) && (errors.Is(err, context.Canceled) || ctx.Err() != nil) {
			kind = edge.Gone
		}
		status, code := 500, mcp.CodeInternal
		if t.part.Answer != nil {
			status, code = t.part.Answer(kind, x.Era)
		}
		if kind == edge.Gone {
			return "cancelled", status
		}
		return codeName(code), status
	case r == nil:
		return "", 202
	case r.Kind == mcp.Failure:
		return codeName(r.Code()), bounded(r.Status)
	case string(r.Get("isError").Of(r.Raw)) == "true":
		return "tool_error", bounded(r.Status)
	}
	return "", bounded(r.Status)
}

// bounded is a status that HTTP has; 0 for another.
func bounded(status int) int {
	if status < 100 || status > 599 {
		return 0
	}
	return status
}

// codeName is the name of a code of a JSON-RPC error.
func codeName(code int) string {
	switch code {
	case -32603:
		return "-32603"
	case -32602:
		return "-32602"
	case 403:
		return "403"
	case 429:
		return "429"
	case -32700, -32600, -32601, -32000, -32001, -32002, -32020, -32021, -32022, 401, 404, 500, 502, 503, 504:
		return strconv.Itoa(code)
	}
	return other
}
