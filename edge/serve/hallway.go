package serve

import (
	"fmt"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/filters"
	"github.com/weir-edge/weir/filters/authz"
	"github.com/weir-edge/weir/filters/headers"
	"github.com/weir-edge/weir/filters/incoming"
	"github.com/weir-edge/weir/filters/webhook"
)

// hallway opens the filters that a server asks for. In which order they are
// walked is said by filters.Order.
func (e *Edge) hallway(s *server, p compile.Server) ([]filters.Entry, error) {
	if err := s.askWebhooks(p); err != nil {
		return nil, fmt.Errorf("server %s: %w", p.Name, err)
	}
	var entries []filters.Entry
	for _, one := range []struct {
		name string
		open func(*server, compile.Server) (edge.Filter, error) // nil for a filter that is not asked for
	}{
		{"headers", e.openHeaders},
		{"mutating", e.openMutating},
		{"guest", func(s *server, _ compile.Server) (edge.Filter, error) { return s.guest.Filter, nil }},
		{"validating", e.openValidating},
		{"authz", e.openAuthz},
	} {
		filter, err := one.open(s, p)
		if err != nil {
			return nil, fmt.Errorf("server %s: %s: %w", p.Name, one.name, err)
		}
		if filter != nil {
			entries = append(entries, filters.Entry{Name: one.name, Filter: filter})
		}
	}
	return entries, nil
}

func (e *Edge) openHeaders(s *server, p compile.Server) (edge.Filter, error) {
	if len(p.Forward) == 0 {
		return nil, nil
	}
	passes, wrong := headers.Parse(nil, p.Forward, nil)
	if len(wrong) > 0 {
		return nil, wrong.ToAggregate()
	}
	s.passes = passes
	return passes.Open(e.env(s))
}

func (e *Edge) openAuthz(s *server, p compile.Server) (edge.Filter, error) {
	if p.Authz == nil {
		return nil, nil
	}
	policies, wrong := authz.Parse(*p.Authz, nil)
	if len(wrong) > 0 {
		return nil, wrong.ToAggregate()
	}
	options := authz.Options{Lookup: s.lookup, Counters: s.policy}
	if s.record != nil {
		options.Record = func(x *edge.Exchange, why *authz.Explanation) { x.Decision = why }
	}
	return policies.With(options).Open(e.env(s))
}

// askWebhooks gives a server the webhooks that its messages are shown to. One
// part holds both types, and counts for both.
func (s *server) askWebhooks(p compile.Server) error {
	if p.Webhooks == nil {
		return nil
	}
	part, wrong := webhook.Parse(*p.Webhooks)
	if len(wrong) > 0 {
		return wrong.ToAggregate()
	}
	part.Resolve = s.target
	s.webhooks = part
	return nil
}

func (e *Edge) openMutating(s *server, _ compile.Server) (edge.Filter, error) {
	if s.webhooks == nil || s.webhooks.Mutating() == nil {
		return nil, nil
	}
	return s.webhooks.Mutating().Open(e.env(s))
}

func (e *Edge) openValidating(s *server, _ compile.Server) (edge.Filter, error) {
	if s.webhooks == nil || s.webhooks.Validating() == nil {
		return nil, nil
	}
	return s.webhooks.Validating().Open(e.env(s))
}

// authenticate opens the gate of a server, if it has one.
func (e *Edge) authenticate(s *server, p compile.Server, main bool) error {
	spec := p.Incoming
	if spec == nil && p.Authz == nil {
		return nil
	}
	if spec == nil { // a policy asks who it is
		spec = &incoming.Spec{Type: incoming.Anonymous}
	}
	parsed, err := incoming.Parse(*spec)
	if err != nil {
		return fmt.Errorf("server %s: %w", p.Name, err)
	}
	endpoint := e.base() + "/servers/" + p.Name + "/mcp"
	if main {
		endpoint = e.base() + "/mcp"
	}
	parsed = parsed.At(endpoint)
	if s.gate, err = parsed.Start(e.env(s), e.issuers); err != nil {
		return fmt.Errorf("server %s: %w", p.Name, err)
	}
	s.document, s.guarded = parsed.Document(), parsed.Authenticates()
	return nil
}

// env is the world that the parts of a server may touch.
func (e *Edge) env(s *server) edge.Env {
	return edge.Env{Log: s.log, Secrets: s.secrets, Store: e.store, Defer: func(f func()) { s.after = append(s.after, f) }}
}
