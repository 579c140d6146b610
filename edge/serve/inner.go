package serve

import (
	"context"
	"log/slog"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/filters/audit"
)

// inner calls a tool for the client whose message x is, in the place of a program
// that is asked about it. The call walks the hallway like the client's own: who it
// is for, what may be called and how often is judged, and it is recorded. Nobody
// can be asked anything on account of it, and what precedes its answer is not told.
func (s *server) inner(ctx context.Context, x *edge.Exchange, tool string, arguments []byte) (result, failure []byte) {
	id := mcp.Quote("weir-" + newRequestID())
	r, err := s.innerCall(ctx, x, id, tool, arguments)
	switch {
	case err == nil && r == nil:
		err = edge.Errorf(edge.Internal, "inner", "no answer")
	case err == nil && r.Kind == mcp.Result:
		raw := r.Whole()
		return append([]byte{}, r.Result.Of(raw)...), nil
	case err == nil:
		raw := r.Whole()
		return nil, append([]byte{}, r.Error.Of(raw)...)
	}
	if edge.KindOf(err) == edge.Internal {
		s.log.Error("internal error", "server", s.name, "method", "tools/call", "tool", edge.Printable(tool), "error", err)
	}
	return nil, mcp.Lookup(fail(x.Era, id, err).body, "error")
}

func (s *server) innerCall(ctx context.Context, x *edge.Exchange, id []byte, tool string, arguments []byte) (*edge.Response, error) {
	set := []mcp.Member{mcp.Raw("name", mcp.Quote(tool)), mcp.Raw("arguments", arguments)}
	call := &edge.Exchange{
		Parent: x, Server: x.Server, Era: x.Era, Session: x.Session, Identity: x.Identity, Head: x.Head, Forward: x.Forward, Heard: x.Heard, Client: edge.NoClient{},
	}
	call.Head.Params, call.Head.Remade = nil, true // the client's mirror other arguments
	if x.Era == mcp.Modern {
		set = append(set, mcp.Raw("_meta", mcp.Change(nil, nil, mcp.Caller{Info: s.edge.client()}.Members()...)))
		call.Name = tool
	}
	m, err := mcp.Decode(mcp.AppendRequest(nil, id, "tools/call", mcp.Change(nil, nil, set...)))
	if err != nil {
		return nil, edge.Errorf(edge.Params, "inner", "%w", err)
	}
	call.Request = m
	if call.Target, err = s.target(ctx, call); err != nil {
		return s.observed(ctx, call, refusing(err))
	}
	return s.chain.Handle(ctx, call)
}

// emitted writes down what a program tells of: in the audit log, or where there is
// none in that of the process.
func (s *server) emitted(x *edge.Exchange, filter, hook, name string, data []byte) {
	if l := s.records(); l != nil {
		l.Write(audit.Event{Type: audit.Told, Exchange: x, Component: filter, Method: hook, Name: name, Kind: "filter", Data: data})
		return
	}
	attrs := []slog.Attr{slog.String("server", s.name), slog.String("filter", filter), slog.String("hook", hook), slog.String("event", name)}
	if len(data) > 0 {
		attrs = append(attrs, slog.String("data", string(audit.Masked(data))))
	}
	s.log.LogAttrs(context.Background(), slog.LevelInfo, "a filter tells of an event", attrs...)
}
