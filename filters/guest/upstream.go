package guest

import (
	"context"
	"fmt"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/outgoing"
	"github.com/weir-edge/weir/sdk/abi"
)

// upstream asks programs about a message that leaves for a backend: first which
// credential goes with it, then about its header.
func (h *hall) upstream(ctx context.Context, x *edge.Exchange, backend string) ([]edge.Header, error) {
	lines := x.Forward
	w := newWork()
	defer w.free()
	for _, hook := range [...]abi.Hook{abi.OutgoingAuth, abi.OnUpstreamRequest} {
		for i := range h.at[hook] {
			a := &h.at[hook][i]
			s := w.about(x)
			s.backend = backend
			if !a.matches(a.want, s.method, s.tool, s.backend) {
				continue
			}
			s.arguments = x.Request.Get("arguments").Of(x.Request.Raw)
			s.values = s.arguments
			ops, out, err := a.ask(ctx, hook, a.sessionOf(w, x), w.input(a.want, x, &s), w.out[:0], may(hook), maxOps)
			if w.out = out; err != nil {
				return nil, err
			}
			if lines, err = a.headers(hook, lines, ops); err != nil {
				return nil, err
			}
		}
	}
	return lines, nil
}

// headers does what a program says of header lines: all of it or nothing.
func (a *asked) headers(hook abi.Hook, lines []edge.Header, ops []op) ([]edge.Header, error) {
	was := lines
	for i := range ops {
		o := &ops[i]
		if o.kind == abi.OpDeny {
			a.denied[hook].Add(1)
			return nil, o.denial(a.spec.Name, hook)
		}
		err := a.mayName(hook, o.name)
		if err == nil {
			lines, err = withHeader(lines, o)
		}
		if err != nil {
			return was, a.broke(hook, fmt.Errorf("%s: %w", opNames[o.kind], err))
		}
	}
	return lines, nil
}

// mayName says whether a program may speak of a header that holds a credential.
func (a *asked) mayName(hook abi.Hook, name string) error {
	switch {
	case !outgoing.Credential(name):
		return nil
	case hook != abi.OutgoingAuth:
		return fmt.Errorf("header %s holds a credential, which is chosen in outgoing_auth", name)
	case !a.spec.granted(abi.GrantIdentity):
		return fmt.Errorf("header %s holds a credential, which needs the grant identity", name)
	}
	return nil
}

// sessionStart asks whether a session may begin.
func (h *hall) sessionStart(ctx context.Context, x *edge.Exchange, s *edge.Session) error {
	return h.session(ctx, &edge.Exchange{Identity: x.Identity, Heard: x.Heard, Session: s}, abi.OnSessionStart)
}

// sessionEnd tells of the end of a session.
func (h *hall) sessionEnd(s *edge.Session) {
	_ = h.session(context.Background(), &edge.Exchange{Session: s}, abi.OnSessionEnd) // there is nobody to tell
}

func (h *hall) session(ctx context.Context, x *edge.Exchange, hook abi.Hook) error {
	w := newWork()
	defer w.free()
	for i := range h.at[hook] {
		a := &h.at[hook][i]
		session := ""
		if hook == abi.OnSessionStart {
			session = a.sessionOf(w, x)
		} else if a.stable {
			session = string(w.sessionKey(x))
		}
		ops, out, err := a.ask(ctx, hook, session, w.input(a.want, x, &subject{}), w.out[:0], may(hook), maxOps)
		if w.out = out; err != nil {
			return err
		}
		for j := range ops {
			if ops[j].kind == abi.OpDeny {
				a.denied[hook].Add(1)
				return ops[j].denial(a.spec.Name, hook)
			}
		}
		a.tell(hook, ops)
	}
	return nil
}
