// Package authz is the filter that asks policies whether a client may do what
// a message asks for. Policies are written in Cedar and judged here, or an
// outside decision point judges over HTTP; the filter is the same for both.
//
// Parse reads a policy set and finds all that is wrong with it. What it returns
// is immutable: a filter made of it keeps decisions for as long as its plan
// lives, and a new policy set is a new filter. What cannot be decided is denied.
package authz

import (
	"context"
	"sync/atomic"

	"github.com/weir-edge/weir/edge"
)

// DefaultGroupEntityType is the entity type of groups where none is given
// (VirtualMCPServer, spec.config.incomingAuth.authz.groupEntityType).
const DefaultGroupEntityType = "THVGroup"

// Spec is a policy set as a manifest gives it.
type Spec struct {
	Policies                []string // Cedar text, one or more policies per string
	EntitiesJSON            string   // a JSON array of entities; "" for none
	GroupClaimName          string   // read before groups, roles and cognito:groups; "" for none
	RoleClaimName           string   // a claim of roles, which become groups too; "" for none
	GroupEntityType         string   // "" for DefaultGroupEntityType
	PrimaryUpstreamProvider string   // whose claims are read, as edge.Identity.PolicyClaims; "" for those of the client's own token
	MultiValuedClaims       []string // claims that are also given as a set, claimset_<name>
}

// Options is what a filter needs beyond its policies. The zero Options will do
// where no policy set asks for more.
type Options struct {
	// Lookup returns what a thing is in what the client of an exchange is shown, nil when
	// there is no such thing. It serves messages that name several things, for which an
	// exchange has no target. Without it such things have no known backend, and
	// policies that ask for one deny them.
	Lookup func(x *edge.Exchange, thing edge.Thing, name string) *edge.Target

	// Record hears of every decision about a message, allowed or not, before
	// the message goes on. The explanation is shared and never changed.
	Record func(*edge.Exchange, *Explanation)

	// Counters, when they are given, count what the filter does.
	Counters *Counters
}

// Counters are what filters of authorization have counted. They may be shared.
type Counters struct {
	Evaluated atomic.Uint64 // decisions about calls and items that were not known from before
	Denied    atomic.Uint64 // messages
}

// Collect is edge.Collector.Collect.
func (c *Counters) Collect(m edge.Emitter) {
	m.Counter("weir_authz_denied", "Messages that policies denied.", float64(c.Denied.Load()))
	m.Counter("weir_authz_evaluated", "Decisions that were not known from before.", float64(c.Evaluated.Load()))
}

// Engine is what a configuration of authorization parses to.
type Engine interface {
	edge.Part

	// With returns a copy that opens with the options.
	With(Options) Engine
}

// client is who asks: an identity, and what programs say of it as to one message,
// in addition to what they say of the identity.
type client struct {
	id   *edge.Identity
	said edge.Attributes
}

func clientOf(x *edge.Exchange) client { return client{x.Identity, x.MessageAttributes()} }

// judge answers questions about what clients may do. It is safe for
// concurrent use.
type judge interface {
	// decide says whether a client may do what is asked.
	decide(ctx context.Context, who client, a *ask) *Explanation

	// view is what of lists the client may see.
	view(ctx context.Context, server string, who client) edge.View

	// readsArguments reports whether a decision can depend on arguments.
	readsArguments() bool
}
