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

// maxHead is how many bytes the header lines may have that programs set in one
// request, or in one answer.
const maxHead = 32 << 10

// httpRequest asks programs about a request of whoever it may be. Each sees what
// the one before made of its header lines; the first that answers or denies it
// has the word.
func (h *hall) httpRequest(ctx context.Context, q *edge.HTTP) (edge.Lines, []byte, error) {
	const hook = abi.OnHTTPRequest
	var lines edge.Lines
	w := newWork()
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
		next, result, err := a.edited(hook, lines, ops)
		if err != nil {
			return edge.Lines{}, nil, err
		}
		lines = next
		a.tell(hook, ops)
		if result != nil {
			return lines, result, nil
		}
		heard = relined(q.Heard, lines)
	}
	return lines, nil, nil
}

// httpResponse asks programs about an answer, in the reverse order.
func (h *hall) httpResponse(ctx context.Context, q *edge.HTTP) (edge.Lines, error) {
	const hook = abi.OnHTTPResponse
	var lines edge.Lines
	w := newWork()
	defer w.free()
	for i := len(h.at[hook]) - 1; i >= 0; i-- {
		a := &h.at[hook][i]
		ops, err := a.askHTTP(ctx, hook, w, q, q.Heard)
		if err != nil {
			return edge.Lines{}, err
		}
		if lines, _, err = a.edited(hook, lines, ops); err != nil {
			return edge.Lines{}, err
		}
	}
	return lines, nil
}

// askHTTP asks a program that subscribed to requests of such a method. Neither a
// session nor anybody's identity is told: whose they are is not known yet.
func (a *asked) askHTTP(ctx context.Context, hook abi.Hook, w *work, q *edge.HTTP, heard []edge.Header) ([]op, error) {
	if !slices.ContainsFunc(a.want.on, func(s wasm.Subscription) bool { return anyGlob(s.Methods, q.Method) }) {
		return nil, nil
	}
	in := w.input(a.want, &edge.Exchange{Heard: heard}, &subject{method: q.Method, path: q.Path, status: q.Status})
	ops, out, err := a.ask(a.within(ctx, hook, nil), hook, "", in, w.out[:0], may(hook), maxOps)
	w.out = out
	return ops, err
}

// edited does what a program says of header lines: all of it, or nothing when
// some of it cannot be done. result is an answer that it has at hand.
func (a *asked) edited(hook abi.Hook, was edge.Lines, ops []op) (lines edge.Lines, result []byte, err error) {
	lines = was
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
			return was, nil, a.broke(hook, fmt.Errorf("%s: %w", opNames[o.kind], err))
		}
	}
	return lines, result, nil
}

// touchable says whether a program may speak of a header at an HTTP hook. What
// frames a message or says who sends it was refused before (headerName).
func touchable(hook abi.Hook, name string) error {
	switch {
	case outgoing.Credential(name):
		return fmt.Errorf("header %s holds a credential, which no program changes here", name)
	case hook == abi.OnHTTPRequest && outgoing.SameName(name, "origin"), hook == abi.OnHTTPResponse && own(name):
		return fmt.Errorf("header %s is the edge's own", name)
	}
	return nil
}

// own reports whether a header of an answer is one that the edge decides: what a
// page may read, who may keep the answer, how a client signs in.
func own(name string) bool {
	for _, n := range [...]string{"www-authenticate", "set-cookie", "set-cookie2", "cache-control", "vary", "allow", "location", "x-accel-buffering", "clear-site-data"} {
		if outgoing.SameName(name, n) {
			return true
		}
	}
	const prefix = "access-control-"
	return len(name) >= len(prefix) && outgoing.SameName(name[:len(prefix)], prefix)
}

// withLine sets or takes away a header line, in lists of their own.
func withLine(lines edge.Lines, o *op) (edge.Lines, error) {
	set := slices.DeleteFunc(slices.Clone(lines.Set), func(l edge.Header) bool { return outgoing.SameName(l.Name, o.name) })
	drop := slices.DeleteFunc(slices.Clone(lines.Drop), func(name string) bool { return outgoing.SameName(name, o.name) })
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

// relined is header lines as programs see them after others changed them.
func relined(heard []edge.Header, lines edge.Lines) []edge.Header {
	if len(lines.Set)+len(lines.Drop) == 0 {
		return heard
	}
	gone := func(l edge.Header) bool {
		return slices.ContainsFunc(lines.Set, func(s edge.Header) bool { return outgoing.SameName(s.Name, l.Name) }) ||
			slices.ContainsFunc(lines.Drop, func(name string) bool { return outgoing.SameName(name, l.Name) })
	}
	out := slices.DeleteFunc(slices.Clone(heard), gone)
	for _, l := range lines.Set {
		out = append(out, edge.Header{Name: strings.ToLower(l.Name), Value: l.Value})
	}
	return out
}
