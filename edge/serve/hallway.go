package serve

import (
	"context"
	"fmt"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/filters"
	"github.com/weir-edge/weir/filters/authz"
	"github.com/weir-edge/weir/filters/headers"
	"github.com/weir-edge/weir/filters/incoming"
	"github.com/weir-edge/weir/filters/ratelimit"
	"github.com/weir-edge/weir/filters/webhook"
)

// hallway opens the filters that a server asks for. filters.Order is the order in which
// they are walked.
func (o *opening) hallway(s *server) ([]filters.Entry, error) {
	p := o.plan
	if p.Webhooks != nil {
		part, wrong := webhook.Parse(*p.Webhooks)
		if len(wrong) > 0 {
			return nil, wrong.ToAggregate()
		}
		part.Resolve = s.Target
		s.webhooks = part // for both types, which count together
	}
	var entries []filters.Entry
	for _, one := range []struct {
		at   filters.Place
		open func(*server) (edge.Filter, error) // nil for a filter that is not asked for
	}{
		{filters.Headers, o.openHeaders},
		{filters.Mutating, o.openMutating},
		{filters.Guest, func(s *server) (edge.Filter, error) { return s.guest.Filter, nil }},
		{filters.Validating, o.openValidating},
		{filters.Authz, o.openAuthz},
		{filters.RateLimit, o.openLimits},
	} {
		filter, err := one.open(s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", one.at, err)
		}
		if filter != nil {
			entries = append(entries, filters.Entry{Place: one.at, Filter: filter})
		}
	}
	return entries, nil
}

func (o *opening) openHeaders(s *server) (edge.Filter, error) {
	if len(o.plan.Forward) == 0 {
		return nil, nil
	}
	passes, wrong := headers.Parse(nil, o.plan.Forward, nil)
	if len(wrong) > 0 {
		return nil, wrong.ToAggregate()
	}
	s.passes = passes
	return passes.Open(s.env(&s.after))
}

func (o *opening) openMutating(s *server) (edge.Filter, error) {
	if s.webhooks == nil || s.webhooks.Mutating() == nil {
		return nil, nil
	}
	return s.webhooks.Mutating().Open(s.env(&s.after))
}

func (o *opening) openValidating(s *server) (edge.Filter, error) {
	if s.webhooks == nil || s.webhooks.Validating() == nil {
		return nil, nil
	}
	return s.webhooks.Validating().Open(s.env(&s.after))
}

// openAuthz opens the policies of a server. Their counters continue from those before.
func (o *opening) openAuthz(s *server) (edge.Filter, error) {
	if !o.plan.Decides() {
		return nil, nil
	}
	var err error
	if s.policy, err = part(s, &o.edge.world.policies, "", func(edge.Env) (*authz.Counters, error) { return new(authz.Counters), nil }); err != nil {
		return nil, err
	}
	policies, wrong := authz.Document{Set: o.plan.Authz, Point: o.plan.Point}.Parse(nil)
	if len(wrong) > 0 {
		return nil, wrong.ToAggregate()
	}
	options := authz.Options{Lookup: s.Lookup, Counters: s.policy}
	if s.record != nil {
		options.Record = func(x *edge.Exchange, why *authz.Explanation) { x.Decision = why }
	}
	env := s.env(&s.after)
	s.judging = env.Shared
	return policies.With(options).Open(env)
}

// openLimits opens the rate limits of a server. Unchanged ones keep their counts.
func (o *opening) openLimits(s *server) (_ edge.Filter, err error) {
	if o.plan.Limits == nil {
		return nil, nil
	}
	spec := *o.plan.Limits
	spec.FailOpen = o.edge.settings.StoreFailure == "open"
	s.limits, err = part(s, &o.edge.world.limits, digestOf(spec), func(edge.Env) (*ratelimit.Part, error) {
		limits, wrong := ratelimit.Parse(spec)
		if len(wrong) > 0 {
			return nil, wrong.ToAggregate()
		}
		limits.Paid = o.edge.paid
		return limits, nil
	})
	if err != nil {
		return nil, err
	}
	return s.limits.Open(s.env(&s.after))
}

// paid reports whether a request continues a parked call, which was charged when it began:
// a request whose requestState verifies begins no other call.
func (e *Edge) paid(ctx context.Context, x *edge.Exchange) bool {
	served := e.live.Load().servers[x.Server]
	if served == nil || x.Target == nil || !served.Sealed(x) {
		return false
	}
	if inner := served.Inside(ctx, x); inner != nil {
		x = inner
	}
	m := x.Request
	if !served.Bare() { // a state is of the request as its backend knows it
		own, err := served.InWordsOf(x)
		if err != nil {
			return false
		}
		m = own
	}
	_, ok := e.replicas.Parked.Verify(x, m)
	return ok
}

// authenticate opens the gate of a server, if it has one.
func (o *opening) authenticate(s *server) error {
	e, p := o.edge, o.plan
	spec := p.Incoming
	if spec == nil && !p.Decides() {
		return nil
	}
	if spec == nil { // a policy asks who it is
		spec = &incoming.Spec{Type: incoming.Anonymous}
	}
	parsed, err := incoming.Parse(*spec)
	if err != nil {
		return err
	}
	s.path = endpoint(p.Name, o.main)
	s.endpoint = o.base() + s.path
	parsed = parsed.At(s.endpoint)
	if s.login != nil {
		parsed = parsed.Own(o.own(s.login))
	}
	env := s.env(&s.after)
	env.Log = env.Log.With("server", p.Name) // whose clients are refused without the keys
	if s.gate, err = parsed.Start(env, e.given.issuers); err != nil {
		return err
	}
	s.document, s.guarded = parsed.Document(), parsed.Authenticates()
	return nil
}
