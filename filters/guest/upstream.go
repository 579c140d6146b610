package guest

import (
	"context"
	"fmt"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/outgoing"
	"github.com/weir-edge/weir/sdk/abi"
)

// upstream asks programs about a message that leaves for a backend: first for
// its credential, then for its header.
func (h *openFilters) upstream(ctx context.Context, x *edge.Exchange, backend string) ([]edge.Header, *edge.Credential, error) {
	lines := x.Forward
	var chosen *edge.Credential
	w := newScratch()
	defer w.free()
	for _, hook := range [...]abi.Hook{abi.OutgoingAuth, abi.OnUpstreamRequest} {
		for i := range h.at[hook] {
			a := &h.at[hook][i]
			s := w.about(x)
			s.backend = backend
			if !a.matches(a.want, s.method, s.tool, s.backend) || a.calls(ctx, x) { // it may be held by the call that made this one
				continue
			}
			s.tool = a.told(a.want, &s)
			ops, err := a.leaving(ctx, hook, x, w, &s)
			if err == nil {
				lines, chosen, err = a.headers(hook, x, lines, chosen, ops)
			}
			if err == nil {
				h.wrote(nil, w, hook, a, ops)
			}
			if err != nil {
				return nil, nil, err
			}
		}
	}
	return lines, chosen, nil
}

// leaving asks a program about a message that leaves, unless an earlier
// answer is still valid.
func (a *subscriber) leaving(ctx context.Context, hook abi.Hook, x *edge.Exchange, w *scratch, s *subject) ([]op, error) {
	if a.want.keep > 0 {
		return a.kept.ask(ctx, a, x.Identity, w, s.backend)
	}
	s.arguments = x.Request.Get("arguments").Of(x.Request.Raw)
	s.values = s.arguments
	ops, out, err := a.ask(a.within(ctx, hook, x), hook, a.sessionOf(w, x), senderOf(x), w.input(a.want, x, s), w.out[:0], may(hook), maxOps)
	w.out = out
	return ops, err
}

// headers applies a program's operations to header lines and the credential:
// all of them or none.
func (a *subscriber) headers(hook abi.Hook, x *edge.Exchange, lines []edge.Header, chosen *edge.Credential, ops []op) ([]edge.Header, *edge.Credential, error) {
	was, before := lines, chosen
	for i := range ops {
		o := &ops[i]
		var err error
		switch o.kind {
		case abi.OpDeny:
			a.denied[hook].Add(1)
			return nil, nil, o.denial(a.spec.Name, hook)
		case abi.OpUseCredential:
			if chosen = a.credentials[o.name]; chosen == nil {
				return nil, nil, a.ungranted(o.name)
			}
			continue
		}
		if err = a.mayName(hook, o.name); err == nil {
			lines, err = withHeader(lines, o)
		}
		if err != nil {
			return was, before, a.broke(hook, senderOf(x), fmt.Errorf("%s: %w", opNames[o.kind], err))
		}
	}
	return lines, chosen, nil
}

// ungranted is the error for a message for which a program chose a credential
// that it may not choose. The program has not failed: it may derive the name
// from a client's tenant, for which no credential was granted.
func (a *subscriber) ungranted(name string) error {
	a.denied[abi.OutgoingAuth].Add(1)
	if a.lines.allow() {
		a.log.Warn("a filter chooses a credential that it is not granted: name it in grants.credentials, or deny the message in the filter",
			"server", a.server, "filter", a.spec.Name, "credential", name)
	}
	return edge.Errorf(edge.Denied, fmt.Sprintf("filter %q: %v", a.spec.Name, abi.OutgoingAuth), "there is no credential for this backend")
}

// mayName returns an error for a header with a credential that a program may
// not name.
func (a *subscriber) mayName(hook abi.Hook, name string) error {
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

// sessionStart asks whether a session may begin, and keeps what programs say of
// its principal.
func (h *openFilters) sessionStart(ctx context.Context, x *edge.Exchange, s *edge.Session) error {
	one := &edge.Exchange{Identity: x.Identity, Heard: x.Heard, Head: x.Head, Session: s}
	if err := h.session(ctx, one, abi.OnSessionStart); err != nil {
		return err
	}
	if len(one.Attributes) > 0 {
		s.SetAttributes(h.beginners, one.Attributes)
	}
	return nil
}

// sessionEnd tells programs about the end of a session.
func (h *openFilters) sessionEnd(s *edge.Session) {
	_ = h.session(context.Background(), &edge.Exchange{Session: s, Attributes: s.Attributes(h.beginners)}, abi.OnSessionEnd) // there is nobody to tell
}

func (h *openFilters) session(ctx context.Context, x *edge.Exchange, hook abi.Hook) error {
	w := newScratch()
	defer w.free()
	for i := range h.at[hook] {
		a := &h.at[hook][i]
		session := ""
		if hook == abi.OnSessionStart {
			session = a.sessionOf(w, x)
		} else if a.stable {
			session = string(w.sessionKey(x))
		}
		ops, out, err := a.ask(a.within(ctx, hook, x), hook, session, senderOf(x), w.input(a.want, x, &subject{}), w.out[:0], may(hook), maxOps)
		if w.out = out; err != nil {
			return err
		}
		for j := range ops {
			if ops[j].kind == abi.OpDeny {
				a.denied[hook].Add(1)
				return ops[j].denial(a.spec.Name, hook)
			}
		}
		set, err := a.attributes(hook, x.PrincipalAttributes(), ops)
		if err != nil {
			if err = a.broke(hook, senderOf(x), err); err != nil {
				return err
			}
			continue
		}
		x.Attributes = x.Attributes.With(set)
		a.tell(nil, hook, ops)
	}
	return nil
}
