package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/outgoing"
	"github.com/weir-edge/weir/sdk/abi"
)

// asked is a program with what it wants to know at a hook.
type asked struct {
	*program
	want *want
	hall *hall

	credentials map[string]*edge.Credential // that it may choose, by name
	kept        *held                       // what it said of credentials before
}

// hall is the open filters of a server.
type hall struct {
	options Options
	at      [abi.Hooks][]asked // in the order of the filters
	fixes   bool               // tools may have arguments that are fixed
}

// Options are what a server's filters need of it.
type Options struct {
	// Resolve finds where a message goes whose method is what it was, and whose
	// name or arguments are others.
	Resolve func(context.Context, *edge.Exchange) (*edge.Target, error)

	// Elsewhere returns the name under which clients see the tool that a backend
	// calls original; "" for none.
	Elsewhere func(ctx context.Context, x *edge.Exchange, backend, original string) string

	// Call calls a tool for the client whose message x is, as the client itself
	// could. It returns JSON text of the result, or else of an error object. nil for a
	// server that makes no such calls.
	Call func(ctx context.Context, x *edge.Exchange, tool string, arguments []byte) (result, failure []byte)

	// Emit writes down what a program tells of while it is asked about x, which may be
	// nil. data is JSON text, empty for none.
	Emit func(x *edge.Exchange, filter, hook, name string, data []byte)

	// Store names the store that is in the world of the server.
	Store string

	Guarded bool // clients have to prove who they are
	Audited bool // there are records of what happens
}

// handle asks about a message on its way to an answer, and about the answer.
func (h *hall) handle(ctx context.Context, x *edge.Exchange, next edge.Handler) (*edge.Response, error) {
	m := x.Request
	before, after := abi.OnCallRequest, abi.OnCallResponse
	if m.Method != "tools/call" || m.Kind != mcp.Request {
		before, after = abi.OnMessage, abi.OnMessage
	}
	if len(h.at[before])+len(h.at[after]) == 0 && !h.fixes {
		return next.Handle(ctx, x)
	}
	carry, err := h.requests(ctx, x, before)
	if err != nil {
		return nil, err
	}
	if h.fixes && before == abi.OnCallRequest && x.Target != nil && len(x.Target.Fixed) > 0 {
		if err := h.fixed(x); err != nil {
			return nil, err
		}
	}
	r, err := next.Handle(ctx, x)
	if err != nil || r == nil || len(h.at[after]) == 0 {
		return r, err
	}
	w := newWork()
	defer w.free()
	w.carry = carry
	for i := len(h.at[after]) - 1; i >= 0; i-- { // the last that saw the request sees the answer first
		if err := h.response(ctx, x, w, after, &h.at[after][i], r); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// requests asks about a message on its way to an answer, and returns what
// programs leave for that. Nothing else is held while a backend is waited for.
func (h *hall) requests(ctx context.Context, x *edge.Exchange, hook abi.Hook) ([]carried, error) {
	if len(h.at[hook]) == 0 {
		return nil, nil
	}
	w := newWork()
	defer w.free()
	for i := range h.at[hook] {
		if err := h.request(ctx, x, w, hook, &h.at[hook][i]); err != nil {
			return nil, err
		}
	}
	return w.carry, nil
}

// about says what a message is about.
func (w *work) about(x *edge.Exchange) subject {
	m := x.Request
	s := subject{method: m.Method}
	if x.Target != nil {
		s.backend = x.Target.Backend
	}
	member := mcp.MethodOf(m.Method).Target
	switch {
	case x.Target != nil && x.Target.Thing != edge.NoThing:
		w.tool = append(w.tool[:0], x.Target.Name...)
		s.tool = w.tool
	case member != "":
		if name := m.Get(member).Of(m.Raw); len(name) > 1 && name[0] == '"' {
			w.tool = append(w.tool[:0], mcp.Unquote(name[1:len(name)-1])...)
			s.tool = w.tool
		}
	}
	return s
}

// request asks a program about a request, and does what it says.
func (h *hall) request(ctx context.Context, x *edge.Exchange, w *work, hook abi.Hook, a *asked) error {
	s := w.about(x)
	if !a.matches(a.want, s.method, s.tool, s.backend) || a.calls(ctx, x) {
		return nil
	}
	m := x.Request
	s.arguments = m.Params.Of(m.Raw)
	allowed := these(abi.OpDeny)
	if hook == abi.OnCallRequest {
		s.arguments, allowed = m.Get("arguments").Of(m.Raw), may(hook)
	}
	s.values = s.arguments
	ops, out, err := a.ask(a.within(ctx, hook, x), hook, a.sessionOf(w, x), w.input(a.want, x, &s), w.out[:0], allowed, maxOps)
	if w.out = out; err != nil || len(ops) == 0 {
		return err
	}
	for i := range ops {
		if ops[i].kind == abi.OpDeny {
			a.denied[hook].Add(1)
			return ops[i].denial(a.spec.Name, hook)
		}
	}
	return h.change(ctx, x, w, a, ops, s.arguments)
}

// change is what a program makes of a call.
type change struct {
	arguments     draft
	tool, backend string // "" for the same
	edited        bool   // the arguments are others
	forward       []edge.Header
	result        []byte // JSON text of an answer at hand; nil for none
	carry         []byte // nil for none
}

// change does what a program says of a call: all of it, or nothing when some of
// it cannot be done.
func (h *hall) change(ctx context.Context, x *edge.Exchange, w *work, a *asked, ops []op, arguments []byte) error {
	c := change{arguments: draft{text: arguments}, forward: x.Forward}
	for i := range ops {
		if err := c.take(&ops[i]); err != nil {
			return a.broke(abi.OnCallRequest, fmt.Errorf("%s: %w", opNames[ops[i].kind], err))
		}
	}
	if c.edited || c.tool != "" || c.backend != "" {
		if err := h.redirect(ctx, x, a, &c); err != nil {
			var not *unmade
			if errors.As(err, &not) {
				return a.broke(abi.OnCallRequest, not.why)
			}
			return err
		}
	}
	if c.result != nil {
		r, err := answered(x, c.result)
		if err != nil {
			return a.broke(abi.OnCallRequest, fmt.Errorf("respond: %w", err))
		}
		x.Ready = r
	}
	x.Forward = c.forward
	if c.carry != nil {
		w.carry = append(w.carry, carried{a.program, c.carry})
	}
	a.tell(abi.OnCallRequest, ops)
	return nil
}

// take takes one operation in.
func (c *change) take(o *op) (err error) {
	switch o.kind {
	case abi.OpSetArg, abi.OpDelArg:
		tokens, err := tokensOf(o.pointer)
		if err != nil {
			return err
		}
		if len(c.arguments.text) == 0 {
			c.arguments.set([]byte("{}"))
		}
		c.edited = true
		if o.kind == abi.OpDelArg {
			return c.arguments.cut(tokens)
		}
		return c.arguments.put(tokens, o.raw)
	case abi.OpSetArguments:
		c.arguments.set(o.raw)
		c.edited = true
	case abi.OpSetTool:
		c.tool = o.name
	case abi.OpSetBackend:
		c.backend = o.name
	case abi.OpSetHeader, abi.OpDelHeader:
		if outgoing.Credential(o.name) {
			return fmt.Errorf("header %s holds a credential, which is chosen in outgoing_auth", o.name)
		}
		c.forward, err = withHeader(c.forward, o)
	case abi.OpRespond:
		c.result = o.raw
	case abi.OpSetCarry:
		c.carry = bytes.Clone(o.raw)
	}
	return err
}

// maxForward is how many header lines a call may have for its backend.
const maxForward = 64

// withHeader sets or takes away a header line, in a list of its own.
func withHeader(lines []edge.Header, o *op) ([]edge.Header, error) {
	out := slices.DeleteFunc(slices.Clone(lines), func(l edge.Header) bool { return outgoing.SameName(l.Name, o.name) })
	if o.kind == abi.OpDelHeader {
		return out, nil
	}
	if len(out) >= maxForward {
		return nil, fmt.Errorf("more than %d header lines", maxForward)
	}
	return append(out, edge.Header{Name: o.name, Value: o.text}), nil
}

// unmade is a change that cannot be made, by the program's own fault.
type unmade struct{ why error }

func (u *unmade) Error() string { return u.why.Error() }

// redirect puts the call into the exchange that a program makes of it, and finds
// out where it goes. Whether the client may is judged after.
func (h *hall) redirect(ctx context.Context, x *edge.Exchange, a *asked, c *change) error {
	// 1. Which tool it is by now.
	if c.backend != "" {
		original := ""
		if t := x.Target; c.tool != "" {
			original = c.tool
		} else if t != nil {
			original = t.Original
		}
		name := h.options.Elsewhere(ctx, x, c.backend, original)
		if name == "" {
			return edge.Errorf(edge.NotFound, "guest", "filter %q: backend %q has no such tool", a.spec.Name, c.backend)
		}
		c.tool = name
	}
	if c.tool != "" && !utf8.ValidString(c.tool) {
		return &unmade{errors.New("a name that is not UTF-8")}
	}

	// 2. The message anew.
	changed, err := c.message(x.Request)
	if err != nil {
		return &unmade{err}
	}

	// 3. Where it goes.
	was, name, params := x.Request, x.Name, x.Head.Params
	x.Request, x.Head.Params = changed, nil // those mirror arguments that may be others now
	if c.tool != "" && x.Name != "" {
		x.Name = c.tool
	}
	target, err := h.options.Resolve(ctx, x)
	if err != nil {
		x.Request, x.Name, x.Head.Params = was, name, params
		return err
	}
	x.Target = target
	return nil
}

// message is a call with what has changed of it. It stays the same request of the
// same client.
func (c *change) message(m *mcp.Message) (*mcp.Message, error) {
	var edits []mcp.Edit
	if c.tool != "" {
		edits = append(edits, mcp.Edit{Span: m.Get("name"), With: mcp.Quote(c.tool)})
	}
	if c.edited {
		arguments := c.arguments.whole()
		if len(arguments) == 0 || arguments[0] != '{' {
			return nil, errors.New("arguments that are not an object")
		}
		if span := m.Get("arguments"); span.OK() {
			edits = append(edits, mcp.Edit{Span: span, With: arguments})
		} else {
			at := m.Params.Start + 1
			edits = append(edits, mcp.Edit{Span: mcp.Span{Start: at, End: at}, With: slices.Concat([]byte(`"arguments":`), arguments, []byte(","))})
		}
	}
	return mcp.Decode(mcp.Splice(nil, m.Raw, edits...))
}

// fixed puts the arguments in place that are not the client's to choose. What
// the client sent for them, or what stands in their way, does not reach anybody.
func (h *hall) fixed(x *edge.Exchange) error {
	m := x.Request
	arguments, err := fix(x, m.Get("arguments").Of(m.Raw))
	if err == nil {
		c := change{arguments: draft{text: arguments}, edited: true}
		m, err = c.message(m)
	}
	if err != nil {
		return edge.Errorf(edge.Params, "guest", "the arguments leave no place for those that are fixed")
	}
	x.Request, x.Head.Params = m, nil
	return nil
}

// answered is the answer to a call that a program has at hand.
func answered(x *edge.Exchange, result []byte) (*edge.Response, error) {
	if x.Era == mcp.Modern && mcp.Lookup(result, "resultType") == nil {
		result = mcp.Change(result, nil, mcp.With("resultType", `"complete"`))
	}
	r := &edge.Response{Status: 200}
	return r, r.Decode(mcp.AppendResult(nil, x.Request.IDText(), result))
}
