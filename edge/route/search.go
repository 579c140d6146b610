package route

import (
	"context"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// Search is what a server lists in place of its tools: tools of the edge's own, by which
// clients find and call the others.
type Search struct {
	// List returns the result of tools/list for an era.
	List func(mcp.Era) []byte

	// Names are the tools of the table that clients call. Others reach them by those alone,
	// and nothing that is called for a client may call them.
	Names map[string]bool
}

// Pass makes a call in place of the one that the client has asked for: its own message with
// another name and other arguments, through the same filters. there is whether there is such
// a tool.
type Pass func(ctx context.Context, tool string, arguments []byte) (r *edge.Response, there bool, err error)

// Passing is a tool that passes calls on to others.
type Passing struct {
	Run func(ctx context.Context, x *edge.Exchange, arguments []byte, pass Pass) (*edge.Response, error)

	// Inner reads which tool a call is passed on to, and with what; "" for none.
	Inner func(arguments []byte) (tool string, parameters []byte)
}

// AddPassing puts a tool into the table that passes calls on.
func (l Local) AddPassing(name string, target edge.Target, p Passing) {
	l.Add(name, target, false, nil)
	tool := l[name]
	tool.passing = &p
	l[name] = tool
}

// searched finds the target of a tool where clients do not call tools by their own names.
// done is false for a name to be looked for among all tools.
func (s *Server) searched(x *edge.Exchange, thing edge.Thing, name []byte) (t *edge.Target, done bool) {
	if s.o.Search == nil || thing != edge.Tool {
		return nil, false
	}
	own, inner := s.o.Search.Names[string(name)], x.Parent != nil
	if own && !inner {
		return s.o.Local[string(name)].at, true
	}
	return nil, own || !inner
}

// Inside returns the call that a call of a passing tool is passed on as; nil for another
// exchange.
func (s *Server) Inside(ctx context.Context, x *edge.Exchange) *edge.Exchange {
	tool := s.passing(x)
	if tool == nil {
		return nil
	}
	name, arguments := tool.Inner(x.Request.Get("arguments").Of(x.Request.Raw))
	call, err := within(x, name, arguments)
	if name == "" || err != nil {
		return nil
	}
	if call.Target, err = s.Target(ctx, call); err != nil || call.Target == nil {
		return nil
	}
	return call
}

// passing returns the passing tool that an exchange calls; nil for none.
func (s *Server) passing(x *edge.Exchange) *Passing {
	t := x.Target
	if t == nil || t.Backend != "" || t.Thing != edge.Tool || x.Request.Method != "tools/call" {
		return nil
	}
	return s.o.Local[t.Name].passing
}

// pass passes a call on. What it asks and tells, and its end, are the client's own.
func (s *Server) pass(x *edge.Exchange) Pass {
	return func(ctx context.Context, tool string, arguments []byte) (*edge.Response, bool, error) {
		call, err := within(x, tool, arguments)
		if err != nil {
			return nil, true, err
		}
		r, err := s.o.Hallway(ctx, call)
		if err != nil && call.Parked != nil {
			call.Parked() // its client will not hear what it waits for
		} else {
			x.Parked = call.Parked
		}
		return r, call.Target != nil, err
	}
}

// within returns the exchange of a call that is made in place of that of x.
func within(x *edge.Exchange, tool string, arguments []byte) (*edge.Exchange, error) {
	m := x.Request
	name, given := m.Get("name"), m.Get("arguments")
	if !name.OK() || !given.OK() {
		return nil, edge.Errorf(edge.Params, "route", "params.arguments is missing")
	}
	call, err := x.Replace(mcp.Edit{Span: name, With: mcp.Quote(tool)}, mcp.Edit{Span: given, With: arguments})
	if err != nil {
		return nil, edge.Errorf(edge.Params, "route", "%w", err)
	}
	call.Server, call.Era, call.Head, call.Session, call.Identity = x.Server, x.Era, x.Head, x.Session, x.Identity
	call.Forward, call.Heard, call.Client, call.Batch, call.Capabilities = x.Forward, x.Heard, x.Client, x.Batch, x.Capabilities
	call.Asked = x.Asked
	call.Head.Params, call.Head.Remade = nil, true // the client's Mcp-Param headers mirror other arguments
	if x.Era == mcp.Modern {
		call.Name = tool
	}
	return call, nil
}
