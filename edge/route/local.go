package route

import (
	"context"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// LocalTool is a tool that the edge answers itself. arguments is JSON text of an
// object, nil if the client gave none; call calls other tools for the same client, through
// the same filters.
type LocalTool func(ctx context.Context, x *edge.Exchange, arguments []byte, call edge.Caller) (*edge.Response, error)

// Local is the table of the tools that an edge answers itself, by name. They take
// precedence over tools of backends.
type Local map[string]localTool

type localTool struct {
	run LocalTool
	at  *edge.Target
}

// Add puts a tool into the table.
func (l Local) Add(name string, run LocalTool) {
	l[name] = localTool{run, &edge.Target{Thing: edge.Tool, Name: name, Original: name}}
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
	tool := s.o.Local[x.Target.Name]
	if x.Target.Thing != edge.Tool || tool.run == nil || x.Request.Method != "tools/call" {
		return nil, ErrNoMethod(x.Request)
	}
	return tool.run(ctx, x, x.Request.Get("arguments").Of(x.Request.Raw), s.Caller(x.Client))
}

// ErrNoMethod is the error for a method that does not exist.
func ErrNoMethod(m *mcp.Message) error {
	return edge.Errorf(edge.NoMethod, "check", "method not found: %s", edge.Printable(m.Method))
}
