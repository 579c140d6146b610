package guest

import (
	"bytes"
	"context"
	"slices"
	"unicode/utf8"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/sdk/abi"
)

// maxDepth is how many programs may call tools on account of each other's calls.
const maxDepth = 3

// inside is the context in which a program is asked that may act for the client
// whose message it is asked about.
type inside struct {
	context.Context
	hall *hall
	x    *edge.Exchange // nil for nobody's
	may  bool           // a call can be made for x
	by   []*program     // those whose calls led here, the last of them the one that is asked
}

type insideKey struct{}

// Value returns the context itself for its own key.
func (i *inside) Value(key any) any {
	if key == (insideKey{}) {
		return i
	}
	return i.Context.Value(key)
}

// insideOf returns what a program was asked within; nil for nothing.
func insideOf(ctx context.Context) *inside {
	i, _ := ctx.Value(insideKey{}).(*inside)
	return i
}

// within is the context that a program is asked in. One that cannot act for
// anybody needs none of its own.
func (a *asked) within(ctx context.Context, hook abi.Hook, x *edge.Exchange) context.Context {
	if !a.acts {
		return ctx
	}
	i := &inside{Context: ctx, hall: a.hall, x: x}
	switch hook {
	case abi.OnCallRequest, abi.OnCallResponse, abi.OnMessage:
		i.may = x.Request.Kind == mcp.Request
	}
	if x != nil && x.Parent != nil {
		if outer := insideOf(ctx); outer != nil {
			i.by = outer.by
		}
	}
	i.by = append(slices.Clip(i.by), a.program)
	return i
}

// calls reports whether a message is a call that a program made itself, or that
// another made on account of it. It is not asked about these.
func (a *asked) calls(ctx context.Context, x *edge.Exchange) bool {
	if x.Parent == nil || !a.acts {
		return false
	}
	i := insideOf(ctx)
	return i != nil && slices.Contains(i.by, a.program)
}

// tool is call_tool: it calls a tool for the client whose message the program is
// asked about. The call is one like the client's own to everybody else.
func (p *program) tool(ctx context.Context, record []byte) ([]byte, int64) {
	i := insideOf(ctx)
	switch {
	case i == nil || !i.may || i.hall.options.Call == nil:
		return nil, abi.ErrDenied
	case p.observes(): // which is to change nothing
		return nil, abi.ErrUnavailable
	}
	name, arguments := "", []byte("{}")
	r := abi.Reader{B: record}
	for r.Next() {
		switch r.Num {
		case abi.ToolName:
			name = string(r.Data)
		case abi.ToolArguments:
			arguments = bytes.TrimSpace(r.Data)
		}
	}
	switch {
	case r.Bad || name == "" || len(name) > maxName || !utf8.ValidString(name):
		return nil, abi.ErrArgument
	case len(arguments) == 0 || arguments[0] != '{' || mcp.Valid(arguments) != nil:
		return nil, abi.ErrArgument
	case len(p.spec.Tools) == 0 || !anyGlob(p.spec.Tools, name):
		p.outward("a filter may not call this tool: name it in grants.tools, or take another module", "tool", name)
		return nil, abi.ErrDenied
	case len(i.by) > maxDepth:
		return nil, abi.ErrLimit
	}
	result, failure := i.hall.options.Call(ctx, i.x, name, arguments)
	if result == nil {
		return abi.AppendBytes(nil, abi.ToolError, failure), 0
	}
	return abi.AppendBytes(nil, abi.ToolResult, result), 0
}

// emit tells of an event of the program's own.
func (p *program) emit(ctx context.Context, hook abi.Hook, name string, data []byte) int64 {
	i := insideOf(ctx)
	switch {
	case i == nil || i.hall.options.Emit == nil:
		return abi.ErrDenied
	case len(data) > 0 && mcp.Valid(data) != nil:
		return abi.ErrArgument
	case !p.events.allow():
		return abi.ErrLimit
	}
	if !p.observes() {
		i.hall.options.Emit(i.x, p.spec.Name, hook.String(), name, data)
	}
	return 0
}
