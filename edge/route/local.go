package route

import (
	"context"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// LocalTool is a tool that the edge answers itself. arguments is JSON text as the client
// gave it, nil for none; call returns a function that calls other tools for the same client
// through the same filters, and asks and tells out what those ask and tell.
type LocalTool func(ctx context.Context, x *edge.Exchange, arguments []byte, call func(out edge.Client) edge.Caller) (*edge.Response, error)

// Local is the table of the tools that an edge answers itself, by name.
type Local map[string]localTool

type localTool struct {
	run  LocalTool
	at   *edge.Target
	ends bool // with its client, in both eras
	asks bool // its client

	passing *Passing // nil for a tool that answers itself
}

// Add puts a tool into the table. Of its target, what says where it is is filled in. ends
// is whether a call of it ends when its client leaves, as no call of a legacy client does.
func (l Local) Add(name string, target edge.Target, ends bool, run LocalTool) {
	target.Thing, target.Name, target.Original = edge.Tool, name, name
	l[name] = localTool{run: run, at: &target, ends: ends}
}

// AddAsking is Add for a tool that asks its client: a call of a modern one is parked while
// it waits for an answer.
func (l Local) AddAsking(name string, target edge.Target, run LocalTool) {
	l.Add(name, target, false, run)
	tool := l[name]
	tool.asks = true
	l[name] = tool
}

// EndsWithClient reports whether a call ends when its client leaves, whatever the client's
// era.
func (s *Server) EndsWithClient(x *edge.Exchange) bool {
	t := x.Target
	if t == nil || t.Backend != "" || t.Thing != edge.Tool {
		return false
	}
	if tool := s.passing(x); tool != nil {
		name, _ := tool.Inner(x.Request.Get("arguments").Of(x.Request.Raw))
		return s.o.Local[name].ends
	}
	return s.o.Local[t.Name].ends
}

// target returns the target of a name in the table; nil for another name.
func (l Local) target(thing edge.Thing, name []byte) *edge.Target {
	if len(l) == 0 || thing != edge.Tool {
		return nil
	}
	return l[string(name)].at
}

// local answers an exchange whose target is not a backend.
func (s *Server) local(ctx context.Context, x *edge.Exchange) (*edge.Response, error) {
	if tool := s.passing(x); tool != nil {
		return tool.Run(ctx, x, x.Request.Get("arguments").Of(x.Request.Raw), s.pass(x))
	}
	tool := s.o.Local[x.Target.Name]
	if x.Target.Thing != edge.Tool || tool.run == nil || x.Request.Method != "tools/call" {
		return nil, ErrNoMethod(x.Request)
	}
	run := edge.HandlerFunc(func(ctx context.Context, x *edge.Exchange) (*edge.Response, error) {
		x.Info = append([]byte{}, x.Request.Meta(mcp.MetaClientInfo).Of(x.Request.Raw)...)
		return tool.run(ctx, x, x.Request.Get("arguments").Of(x.Request.Raw), s.serving)
	})
	if !tool.asks || x.Era != mcp.Modern {
		return run(ctx, x)
	}
	if s.Sealed(x) { // a retry begins no other call
		at, ok := s.o.Parked.Verify(x, x.Request)
		if !ok {
			return nil, ErrState()
		}
		return s.goOn(ctx, x, at)
	}
	if caps := MayAsk(x.Request); caps != nil {
		return s.o.Parked.Serve(ctx, x, caps, run)
	}
	return run(ctx, x)
}

// ErrNoMethod is the error for a method that does not exist.
func ErrNoMethod(m *mcp.Message) error {
	return edge.Errorf(edge.NoMethod, "check", "method not found: %s", edge.Printable(m.Method))
}
