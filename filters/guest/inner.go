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

// maxDepth is how many programs may call tools as a consequence of each
// other's calls.
const maxDepth = 3

// inside is the context of a program that may act for the client whose
// message it is asked about.
type inside struct {
	context.Context
	hall *openFilters
	x    *edge.Exchange // nil for no message
	may  bool           // calls can be made for x
	by   []*program     // the programs whose calls led here; the last is the one asked
}

type insideKey struct{}

// Value returns the context itself for its own key.
func (i *inside) Value(key any) any {
	if key == (insideKey{}) {
		return i
	}
	return i.Context.Value(key)
}

// insideOf returns the inside of a context; nil if it has none.
func insideOf(ctx context.Context) *inside {
	i, _ := ctx.Value(insideKey{}).(*inside)
	return i
}

// within returns the context that a program is asked in. A program that
// cannot act for clients needs none of its own.
func (a *subscriber) within(ctx context.Context, hook abi.Hook, x *edge.Exchange) context.Context {
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

// calls reports whether a message is a call that the program made itself, or
// another made as a consequence. The program is not asked about these.
func (a *subscriber) calls(ctx context.Context, x *edge.Exchange) bool {
	if x.Parent == nil || !a.acts {
		return false
	}
	i := insideOf(ctx)
	return i != nil && slices.Contains(i.by, a.program)
}

// tool is call_tool: it calls a tool for the client whose message the program
// is asked about. To everybody else the call looks like the client's own.
func (p *program) tool(ctx context.Context, record []byte) ([]byte, int64) {
	i := insideOf(ctx)
	switch {
	case i == nil || !i.may || i.hall.options.Call == nil:
		return nil, abi.ErrDenied
	case p.observes(): // which must change nothing
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
		p.outward("a filter may not call this tool: name it in grants.tools, or use another "+p.spec.instead("script", "module"), "tool", name)
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

// emit reports the program's own event.
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
