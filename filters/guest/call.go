package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"unicode/utf8"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/outgoing"
	"github.com/weir-edge/weir/sdk/abi"
)

// subscriber is a program with its subscription to one hook.
type subscriber struct {
	*program
	want *want
	hall *openFilters

	credentials map[string]*edge.Credential // that it may choose, by name
	kept        *held                       // its earlier answers about credentials
}

// openFilters holds the open filters of a server.
type openFilters struct {
	options Options
	at      [abi.Hooks][]subscriber // in filter order
	fixes   bool                    // tools may have fixed arguments
	guards  bool                    // programs are asked about what passes beside answers
	waiting atomic.Int64            // bytes that are held until answers are judged

	beginners string // names the programs that are asked about sessions that begin
	clashes   clashes
}

// Options are what the filters of a server need from it.
type Options struct {
	// Resolve finds the target of a message after its name or arguments have
	// changed; its method has not.
	Resolve func(context.Context, *edge.Exchange) (*edge.Target, error)

	// Elsewhere returns the name under which clients see the tool that a
	// backend calls original; "" if they see none.
	Elsewhere func(ctx context.Context, x *edge.Exchange, backend, original string) string

	// Call calls a tool for the client whose message x is, with the rights of
	// that client. It returns the JSON text of the result or of an error
	// object. nil for a server that makes no such calls.
	Call func(ctx context.Context, x *edge.Exchange, tool string, arguments []byte) (result, failure []byte)

	// Emit reports a program's own event; x, the message that it was asked
	// about, may be nil. data is JSON text, empty for none.
	Emit func(x *edge.Exchange, filter, hook, name string, data []byte)

	// Store names the store of the server.
	Store string

	Guarded bool // clients must authenticate
	Audited bool // an audit log is kept
}

// handle asks programs about a request, and then about its answer.
func (h *openFilters) handle(ctx context.Context, x *edge.Exchange, next edge.Handler) (*edge.Response, error) {
	m := x.Request
	before, after := abi.OnCallRequest, abi.OnCallResponse
	if m.Method != "tools/call" || m.Kind != mcp.Request {
		before, after = abi.OnMessage, abi.OnMessage
	}
	if len(h.at[before])+len(h.at[after]) == 0 && !h.fixes && !h.guards {
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
	if h.guards {
		return h.guarded(ctx, x, after, carry, next)
	}
	r, err := next.Handle(ctx, x)
	if err != nil || r == nil {
		return r, err
	}
	return h.responses(ctx, x, after, carry, r)
}

// responses asks programs about an answer.
func (h *openFilters) responses(ctx context.Context, x *edge.Exchange, after abi.Hook, carry []carried, r *edge.Response) (*edge.Response, error) {
	if len(h.at[after]) == 0 {
		return r, nil
	}
	w := newScratch()
	defer w.free()
	w.carry = carry
	for i := len(h.at[after]) - 1; i >= 0; i-- { // the last to see the request sees the answer first
		if err := h.response(ctx, x, w, after, &h.at[after][i], r); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// requests asks programs about a request and returns what they carry over to
// its answer. Nothing else is kept while the backend works.
func (h *openFilters) requests(ctx context.Context, x *edge.Exchange, hook abi.Hook) ([]carried, error) {
	if len(h.at[hook]) == 0 {
		return nil, nil
	}
	w := newScratch()
	defer w.free()
	for i := range h.at[hook] {
		if err := h.request(ctx, x, w, hook, &h.at[hook][i]); err != nil {
			return nil, err
		}
	}
	return w.carry, nil
}

// about describes a message to programs.
func (w *scratch) about(x *edge.Exchange) subject {
	m := x.Request
	s := subject{method: m.Method}
	if x.Target != nil {
		s.backend = x.Target.Backend
	}
	if x.Target != nil && x.Target.Thing != edge.NoThing {
		s.uri = x.Target.Thing == edge.Resource || x.Target.Thing == edge.Template
		w.tool = append(w.tool[:0], x.Target.Name...)
		s.tool = w.tool
		return s
	}
	var name []byte
	name, s.uri = named(m)
	switch {
	case len(name) > 1 && name[0] == '"':
		w.tool = append(w.tool[:0], mcp.Unquote(name[1:len(name)-1])...)
		s.tool = w.tool
	case mcp.MethodOf(m.Method).Target != "" && x.Name != "":
		w.tool = append(w.tool[:0], x.Name...)
		s.tool = w.tool
	}
	return s
}

// named returns the JSON text of the name in a message, and whether it is that of a
// resource: what a catalog says where there is one, and a bare server has none.
func named(m *mcp.Message) (name []byte, uri bool) {
	member := mcp.MethodOf(m.Method).Target
	switch m.Method {
	case "completion/complete":
		ref := m.Get("ref").Of(m.Raw)
		if mcp.String(mcp.Lookup(ref, "type")) == "ref/resource" {
			return mcp.Lookup(ref, "uri"), true
		}
		return mcp.Lookup(ref, "name"), false
	case "resources/subscribe", "resources/unsubscribe": // which no header mirrors
		member = "uri"
	}
	if member == "" {
		return nil, false
	}
	return m.Get(member).Of(m.Raw), member == "uri"
}

// request asks a program about a request and applies its operations.
func (h *openFilters) request(ctx context.Context, x *edge.Exchange, w *scratch, hook abi.Hook, a *subscriber) error {
	s := w.about(x)
	if !a.matches(a.want, s.method, s.tool, s.backend) || a.calls(ctx, x) {
		return nil
	}
	s.tool = a.told(a.want, &s)
	m := x.Request
	s.arguments = m.Params.Of(m.Raw)
	allowed := these(abi.OpDeny)
	if hook == abi.OnCallRequest {
		s.arguments, allowed = m.Get("arguments").Of(m.Raw), may(hook)
	}
	s.values = s.arguments
	ops, out, err := a.ask(a.within(ctx, hook, x), hook, a.sessionOf(w, x), senderOf(x), w.input(a.want, x, &s), w.out[:0], allowed, maxOps)
	if w.out = out; err != nil || len(ops) == 0 {
		return err
	}
	for i := range ops {
		if ops[i].kind == abi.OpDeny {
			a.denied[hook].Add(1)
			a.tell(x, hook, ops)
			return ops[i].denial(a.spec.Name, hook)
		}
	}
	return h.change(ctx, x, w, a, ops, s.arguments)
}

// change is what a program's operations make of a call.
type change struct {
	arguments     draft
	tool, backend string // "" if unchanged
	edited        bool   // the arguments have changed
	forward       []edge.Header
	result        []byte // JSON text of the program's own answer; nil for none
	carry         []byte // nil for none
}

// change applies a program's operations to a call: all of them, or none if
// one cannot be applied.
func (h *openFilters) change(ctx context.Context, x *edge.Exchange, w *scratch, a *subscriber, ops []op, arguments []byte) error {
	c := change{arguments: draft{text: arguments}, forward: x.Forward}
	for i := range ops {
		if err := c.take(&ops[i]); err != nil {
			return a.broke(abi.OnCallRequest, senderOf(x), fmt.Errorf("%s: %w", opNames[ops[i].kind], err))
		}
	}
	set, err := a.attributes(abi.OnCallRequest, x.PrincipalAttributes(), ops)
	if err != nil {
		return a.broke(abi.OnCallRequest, senderOf(x), err)
	}
	ready := x.Ready
	if c.result != nil { // before the message changes: all is applied, or nothing
		if ready, err = answered(x, c.result); err != nil {
			return a.broke(abi.OnCallRequest, senderOf(x), fmt.Errorf("respond: %w", err))
		}
	}
	if c.edited || c.tool != "" || c.backend != "" {
		if err := h.redirect(ctx, x, a, &c); err != nil {
			var not *impossible
			if errors.As(err, &not) {
				return a.broke(abi.OnCallRequest, senderOf(x), not.why)
			}
			return err
		}
	}
	x.Ready, x.Forward, x.Attributes = ready, c.forward, x.Attributes.With(set)
	if c.carry != nil {
		w.carry = append(w.carry, carried{a.program, c.carry})
	}
	h.wrote(x, w, abi.OnCallRequest, a, ops)
	a.tell(x, abi.OnCallRequest, ops)
	return nil
}

// take adds one operation.
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

// maxForward is how many header lines a call may add to its request to the
// backend.
const maxForward = 64

// withHeader sets or removes a header line in a copy of the list.
func withHeader(lines []edge.Header, o *op) ([]edge.Header, error) {
	out := slices.DeleteFunc(slices.Clone(lines), func(l edge.Header) bool { return edge.SameHeader(l.Name, o.name) })
	if o.kind == abi.OpDelHeader {
		return out, nil
	}
	if len(out) >= maxForward {
		return nil, fmt.Errorf("more than %d header lines", maxForward)
	}
	return append(out, edge.Header{Name: o.name, Value: o.text}), nil
}

// impossible is an error in what a program asked for: the fault is the
// program's.
type impossible struct{ why error }

func (u *impossible) Error() string { return u.why.Error() }

// redirect applies a program's change to the exchange and finds its target.
// Whether the client is allowed to reach it is checked later.
func (h *openFilters) redirect(ctx context.Context, x *edge.Exchange, a *subscriber, c *change) error {
	//
	// 1. The tool to call.
	if c.backend != "" {
		original := ""
		if t := x.Target; c.tool != "" {
			original = c.tool
		} else if t != nil {
			original = t.Original
		}
		name := h.options.Elsewhere(ctx, x, c.backend, original)
		if name == "" {
			return edge.Errorf(edge.NotFound, "guest", "filter %q: backend %q has no tool of this name", a.spec.Name, c.backend)
		}
		c.tool = name
	}
	if c.tool != "" && !utf8.ValidString(c.tool) {
		return &impossible{errors.New("the name is not UTF-8")}
	}

	//
	// 2. The new message.
	changed, err := c.message(x.Request)
	if err != nil {
		return &impossible{err}
	}

	//
	// 3. Its target.
	was, name, params, remade := x.Request, x.Name, x.Head.Params, x.Head.Remade
	x.Replaced(changed)
	x.Head.Params, x.Head.Remade = nil, true // headers that mirror arguments may be stale: they are made anew
	if c.tool != "" && x.Name != "" {
		x.Name = c.tool
	}
	target, err := h.options.Resolve(ctx, x)
	if err != nil {
		x.Request, x.Name, x.Head.Params, x.Head.Remade = was, name, params, remade
		return err
	}
	x.Target = target
	return nil
}

// message returns the call with its changes. It stays the same request of the
// same client.
func (c *change) message(m *mcp.Message) (*mcp.Message, error) {
	var edits []mcp.Edit
	if c.tool != "" {
		edits = append(edits, mcp.Edit{Span: m.Get("name"), With: mcp.Quote(c.tool)})
	}
	if c.edited {
		arguments := c.arguments.whole()
		if len(arguments) == 0 || arguments[0] != '{' {
			return nil, errors.New("the arguments are not an object")
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

// fixed sets the arguments that the client may not choose. Values that the
// client sent for them, or in their way, are dropped.
func (h *openFilters) fixed(x *edge.Exchange) error {
	m := x.Request
	arguments, err := fix(x, m.Get("arguments").Of(m.Raw))
	if err == nil {
		c := change{arguments: draft{text: arguments}, edited: true}
		m, err = c.message(m)
	}
	if err != nil {
		return edge.Errorf(edge.Params, "guest", "fixed arguments cannot be set: another argument is in their place")
	}
	x.Replaced(m)
	x.Head.Params, x.Head.Remade = nil, true
	return nil
}

// answered turns a program's own result into the answer to a call.
func answered(x *edge.Exchange, result []byte) (*edge.Response, error) {
	if err := callResult(result); err != nil {
		return nil, err
	}
	r := &edge.Response{Status: 200}
	return r, r.Decode(mcp.AppendResult(nil, x.Request.IDText(), inEra(x, result)))
}

// inEra returns a program's own result in the era of its client. It may be what a tool said
// to the program.
func inEra(x *edge.Exchange, result []byte) []byte {
	switch {
	case x.Era == mcp.Modern && mcp.Lookup(result, "resultType") == nil:
		return mcp.Change(result, nil, mcp.With("resultType", `"complete"`))
	case x.Era == mcp.Legacy && x.Parent == nil:
		return mcp.CallToLegacy(result)
	}
	return result
}
