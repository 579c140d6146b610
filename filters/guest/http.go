package guest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/outgoing"
	"github.com/weir-edge/weir/sdk/abi"
	"github.com/weir-edge/weir/wasm"
)

// maxHead bounds the header lines that programs set in one request or one
// answer, in bytes.
const maxHead = 32 << 10

// httpRequest asks programs about a request from anyone, and adds to it what they
// say of its principal. Each sees the header lines as the one before left them; the first that answers or denies the
// request decides.
func (h *openFilters) httpRequest(ctx context.Context, q *edge.HTTP) (edge.Lines, []byte, error) {
	const hook = abi.OnHTTPRequest
	var lines edge.Lines
	w := newScratch()
	defer w.free()
	heard := q.Heard
	for i := range h.at[hook] {
		a := &h.at[hook][i]
		ops, err := a.askHTTP(ctx, hook, w, q, heard)
		if err != nil {
			return edge.Lines{}, nil, err
		}
		for j := range ops {
			if ops[j].kind == abi.OpDeny {
				a.denied[hook].Add(1)
				return edge.Lines{}, nil, ops[j].denial(a.spec.Name, hook)
			}
		}
		next, result, err := a.edited(hook, q, lines, ops)
		if err != nil {
			return edge.Lines{}, nil, err
		}
		lines = next
		h.wrote(w, hook, a, ops)
		a.tell(hook, ops)
		if result != nil {
			return lines, result, nil
		}
		heard = relined(q.Heard, lines)
	}
	return lines, nil, nil
}

// httpResponse asks programs about an answer, in reverse order.
func (h *openFilters) httpResponse(ctx context.Context, q *edge.HTTP) (edge.Lines, error) {
	const hook = abi.OnHTTPResponse
	var lines edge.Lines
	w := newScratch()
	defer w.free()
	for i := len(h.at[hook]) - 1; i >= 0; i-- {
		a := &h.at[hook][i]
		ops, err := a.askHTTP(ctx, hook, w, q, q.Heard)
		if err != nil {
			return edge.Lines{}, err
		}
		if lines, _, err = a.edited(hook, q, lines, ops); err != nil {
			return edge.Lines{}, err
		}
		h.wrote(w, hook, a, ops)
	}
	return lines, nil
}

// askHTTP asks a program that subscribed to requests of this method. The
// program sees neither session nor identity, which are not known yet.
func (a *subscriber) askHTTP(ctx context.Context, hook abi.Hook, w *scratch, q *edge.HTTP, heard []edge.Header) ([]op, error) {
	if !slices.ContainsFunc(a.want.on, func(s wasm.Subscription) bool { return anyGlob(s.Methods, q.Method) }) {
		return nil, nil
	}
	in := w.input(a.want, &edge.Exchange{Heard: heard, Attributes: q.Attributes}, &subject{method: q.Method, path: q.Path, status: q.Status})
	ops, out, err := a.ask(a.within(ctx, hook, nil), hook, "", senderOfHTTP(q), in, w.out[:0], may(hook), maxOps)
	w.out = out
	return ops, err
}

// senderOfHTTP is the client of an exchange of HTTP, of which only the address
// is known.
func senderOfHTTP(q *edge.HTTP) wasm.Sender { return wasm.Sender{Address: q.Remote} }

// edited applies a program's operations to header lines and to the attributes of
// the request: all of them, or none if one cannot be applied. result is the
// program's own answer.
func (a *subscriber) edited(hook abi.Hook, q *edge.HTTP, was edge.Lines, ops []op) (edge.Lines, []byte, error) {
	lines, result, err := lined(hook, was, ops)
	var set edge.Attributes
	if err == nil {
		set, err = a.attributes(hook, q.Attributes, ops)
	}
	if err != nil {
		return was, nil, a.broke(hook, senderOfHTTP(q), err)
	}
	q.Attributes = q.Attributes.With(set)
	return lines, result, nil
}

// lined applies operations to header lines.
func lined(hook abi.Hook, lines edge.Lines, ops []op) (_ edge.Lines, result []byte, err error) {
	for i := range ops {
		o := &ops[i]
		switch o.kind {
		case abi.OpSetHeader, abi.OpDelHeader:
			if err = touchable(hook, o.name); err == nil {
				lines, err = withLine(lines, o)
			}
		case abi.OpRespond:
			result = slices.Clone(o.raw)
		}
		if err != nil {
			return lines, nil, fmt.Errorf("%s: %w", opNames[o.kind], err)
		}
	}
	return lines, result, nil
}

// touchable returns an error for a header that a program may not change at an
// HTTP hook. Headers that frame a message or name its sender have been
// refused before (headerName).
func touchable(hook abi.Hook, name string) error {
	switch {
	case outgoing.Credential(name):
		return fmt.Errorf("header %s holds a credential, which no program may change here", name)
	case hook == abi.OnHTTPRequest && edge.SameHeader(name, "origin"), hook == abi.OnHTTPResponse && own(name):
		return fmt.Errorf("header %s is the edge's own", name)
	}
	return nil
}

// own reports whether a response header belongs to the edge: what a page may
// read, who may cache the answer, how a client signs in.
func own(name string) bool {
	for _, n := range [...]string{"www-authenticate", "set-cookie", "set-cookie2", "cache-control", "vary", "allow", "location", "x-accel-buffering", "clear-site-data"} {
		if edge.SameHeader(name, n) {
			return true
		}
	}
	const prefix = "access-control-"
	return len(name) >= len(prefix) && edge.SameHeader(name[:len(prefix)], prefix)
}

// withLine sets or removes a header line in copies of the lists.
func withLine(lines edge.Lines, o *op) (edge.Lines, error) {
	set := slices.DeleteFunc(slices.Clone(lines.Set), func(l edge.Header) bool { return edge.SameHeader(l.Name, o.name) })
	drop := slices.DeleteFunc(slices.Clone(lines.Drop), func(name string) bool { return edge.SameHeader(name, o.name) })
	if len(set)+len(drop) >= maxForward {
		return lines, fmt.Errorf("more than %d header lines", maxForward)
	}
	if o.kind == abi.OpDelHeader {
		return edge.Lines{Set: set, Drop: append(drop, o.name)}, nil
	}
	size := len(o.name) + len(o.text)
	for _, l := range set {
		size += len(l.Name) + len(l.Value)
	}
	if size > maxHead {
		return lines, fmt.Errorf("more than %d bytes of header lines", maxHead)
	}
	return edge.Lines{Set: append(set, edge.Header{Name: o.name, Value: o.text}), Drop: drop}, nil
}

// relined returns header lines as programs see them after earlier changes.
func relined(heard []edge.Header, lines edge.Lines) []edge.Header {
	if len(lines.Set)+len(lines.Drop) == 0 {
		return heard
	}
	gone := func(l edge.Header) bool {
		return slices.ContainsFunc(lines.Set, func(s edge.Header) bool { return edge.SameHeader(s.Name, l.Name) }) ||
			slices.ContainsFunc(lines.Drop, func(name string) bool { return edge.SameHeader(name, l.Name) })
	}
	out := slices.DeleteFunc(slices.Clone(heard), gone)
	for _, l := range lines.Set {
		out = append(out, edge.Header{Name: strings.ToLower(l.Name), Value: l.Value})
	}
	return out
}
