package serve

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/outgoing"
	"github.com/weir-edge/weir/edge/route"
	"github.com/weir-edge/weir/edge/session"
	"github.com/weir-edge/weir/edge/status"
	"github.com/weir-edge/weir/filters"
	"github.com/weir-edge/weir/filters/authz"
	"github.com/weir-edge/weir/filters/headers"
	"github.com/weir-edge/weir/filters/incoming"
	"github.com/weir-edge/weir/filters/ratelimit"
	"github.com/weir-edge/weir/filters/webhook"
	"github.com/weir-edge/weir/scripting/workflow"
)

// server is one virtual server of the plan, open.
type server struct {
	*route.Server // behind the hallway

	edge     *Edge
	digest   string // of what it is made from
	info     []byte // JSON text: serverInfo
	secrets  edge.Secrets
	outgoing map[string]*outgoing.Spec // credentials of the backends, by name
	failure  compile.Failure
	passes   *headers.Part  // header lines of clients that backends receive; nil for none
	gate     *incoming.Gate // who clients are; nil for anybody
	guest    *edge.Guest    // hooks of programs
	programs []func() status.Filter
	guarded  bool          // clients have to authenticate
	personal bool          // the credential of a backend depends on the user
	webhooks *webhook.Part // nil for none
	document []byte        // protected-resource metadata; nil for none
	after    releases      // what it took of the edge
	behind   releases      // its backends
	log      *slog.Logger
	policy   *authz.Counters  // nil for no policies
	counting []edge.Collector // its rooms that count for themselves
	observers
	reported reported
	hallway  []filters.Entry
	chain    edge.Handler   // the hallway, with route at its end
	store    *session.Store // the store of sessions and buckets; nil for the memory of the process
	limits   *ratelimit.Part

	workflows []*workflow.Workflow // its composite tools
}

// call takes a call of the edge's own through the hallway.
func (s *server) call(ctx context.Context, x *edge.Exchange) (_ *edge.Response, err error) {
	if x.Target == nil {
		if x.Target, err = s.Target(ctx, x); err != nil {
			return s.observed(ctx, x, refusing(err))
		}
	}
	return s.chain.Handle(ctx, x)
}

// env returns the world that parts of the server may touch. What they take of it is given
// back by after.
func (s *server) env(after *releases) edge.Env {
	env := edge.Env{Log: s.log, Secrets: s.secrets, Store: s.edge.world.memory, HTTP: s.edge.world.http, Reach: s.edge.world.reach, Now: time.Now, Defer: after.add}
	env.Cache = func(name string) edge.Cache {
		part := s.edge.world.cache.Part(name)
		after.add(part.Close)
		return part
	}
	if s.store != nil {
		env.Store = s.store
	}
	return env
}

// close ends a server that no call uses any longer. It gives back what the server took
// concurrently, so that a slow backend holds up no other.
func (s *server) close() {
	if s.Server != nil {
		s.Server.Close()
	}
	var work sync.WaitGroup
	for _, release := range s.behind {
		work.Go(release)
	}
	work.Go(s.after.run)
	work.Wait()
}
