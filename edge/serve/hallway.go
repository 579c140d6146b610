package serve

import (
	"context"
	"fmt"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/filters"
	"github.com/weir-edge/weir/filters/authz"
	"github.com/weir-edge/weir/filters/headers"
	"github.com/weir-edge/weir/filters/incoming"
	"github.com/weir-edge/weir/filters/ratelimit"
	"github.com/weir-edge/weir/filters/webhook"
)

// hallway opens the filters that a server asks for. In which order they are
// walked is said by filters.Order.
func (e *Edge) hallway(s *server, p compile.Server, was *server) ([]filters.Entry, error) {
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
		{"ratelimit", func(s *server, p compile.Server) (edge.Filter, error) { return e.openLimits(s, p, was) }},
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
	options := authz.Options{Lookup: s.Lookup, Counters: s.policy}
	if s.record != nil {
		options.Record = func(x *edge.Exchange, why *authz.Explanation) { x.Decision = why }
	}
	return policies.With(options).Open(e.env(s))
}

// openLimits opens the rate limits of a server. Those that have not changed go
// on counting.
func (e *Edge) openLimits(s *server, p compile.Server, was *server) (edge.Filter, error) {
	if p.Limits == nil {
		return nil, nil
	}
	spec := *p.Limits
	spec.FailOpen = e.settings.StoreFailure == "open"
	s.limitsOf = digestOf(spec)
	if was != nil && was.limitsOf == s.limitsOf {
		s.limits = was.limits
		return s.limits.Open(e.env(s))
	}
	limits, wrong := ratelimit.Parse(spec)
	if len(wrong) > 0 {
		return nil, wrong.ToAggregate()
	}
	limits.Paid = e.paid
	s.limits = limits
	return limits.Open(e.env(s))
}

// paid reports whether a request goes on with a parked call, which was charged
// when it began: one whose requestState verifies begins no other.
func (e *Edge) paid(_ context.Context, x *edge.Exchange) bool {
	served := e.live.Load().servers[x.Server]
	if served == nil || x.Target == nil || !served.Sealed(x) {
		return false
	}
	m := x.Request
	if !served.Bare() { // a state is of the request as its backend knows it
		own, err := served.InWordsOf(x)
		if err != nil {
			return false
		}
		m = own
	}
	_, ok := e.parked.Verify(x, m)
	return ok
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
	part.Resolve = s.Target
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
	env := edge.Env{Log: s.log, Secrets: s.secrets, Store: e.memory, Defer: func(f func()) { s.after = append(s.after, f) }}
	if s.store != nil {
		env.Store = s.store
	}
	return env
}
