package serve

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
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

	edge      *Edge
	coming    atomic.Int64 // requests that were given the server, and are not listed as under way yet
	digest    string       // of what it is made from
	planned   string       // the digest of what the plan says of it, where all doors are of plans
	info      []byte       // JSON text: serverInfo
	secrets   edge.Secrets
	trusts    []byte                    // certificates in PEM that its own requests trust, besides those of the process
	outgoing  map[string]*outgoing.Spec // credentials of the backends, by name
	failure   compile.Failure
	passes    *headers.Part  // header lines of clients that backends receive; nil for none
	gate      *incoming.Gate // who clients are; nil for anybody
	login     *login         // that issues their tokens, in this process; nil for none
	issues    bool           // login is its own
	guest     *edge.Guest    // hooks of programs
	programs  []func() status.Filter
	guarded   bool // clients have to authenticate
	personal  bool // the credential of a backend depends on the user
	exchanged *exchanged
	shared    *edge.Shared  // what its credentials have in common
	webhooks  *webhook.Part // nil for none
	document  []byte        // protected-resource metadata; nil for none
	path      string        // of the server at its door
	endpoint  string        // URL that the document is made for
	prefix    string        // put before the path that clients of the older transport POST to
	believes  bool          // what proxies say of the URL that clients use
	ttl       time.Duration // of its sessions; 0 for that of the process
	older     bool          // clients are told of the older transport
	stateless *pooled       // sessions of clients that have none; nil where they have their own
	after     releases      // what it took of the edge
	behind    releases      // its backends
	log       *slog.Logger
	policy    *authz.Counters  // nil for no policies
	judging   *edge.Shared     // has the tasks that they judge
	counting  []edge.Collector // its rooms that count for themselves
	observers
	reported reported
	since    since
	hallway  []filters.Entry
	chain    edge.Handler   // the hallway, with route at its end
	store    *session.Store // the store of sessions and buckets; nil for the memory of the process
	limits   *ratelimit.Part

	judged   []compile.Condition          // what was found of its objects
	metadata map[string]string            // that its configuration gives it
	about    map[string]map[string]string // the same of the backends, by name

	workflows []*workflow.Workflow // its composite tools
	find      *finding             // what finds tools for clients; nil where they are listed
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
	http, reach, done := s.edge.world.requests(s.trusts)
	after.add(done)
	env := edge.Env{Log: s.log, Secrets: s.secrets, Store: s.edge.world.memory, HTTP: http, Reach: reach, Now: time.Now, Defer: after.add}
	env.Cache = func(name string) edge.Cache {
		part := s.edge.world.cache.Part(name)
		after.add(part.Close)
		return part
	}
	if s.store != nil {
		env.Store = s.store
	}
	shared, release := s.edge.world.share(s.Name)
	after.add(release)
	env.Shared, env.Made = shared, s.edge.made(s.Name)
	if s.login != nil {
		env.Upstreams = s.login.Upstreams()
	}
	return env
}

// trusted are the certificates in PEM that the process trusts besides those of the system, and
// more.
func (w *world) trusted(more []byte) []byte {
	if len(more) == 0 {
		return w.reach.CAs
	}
	return slices.Concat(w.reach.CAs, []byte("\n"), more)
}

// requests returns what the requests of a server are made with that trusts certificates in
// PEM besides those of the process; done gives it back.
func (w *world) requests(trusts []byte) (client *http.Client, reach edge.Reach, done func()) {
	if len(trusts) == 0 {
		return w.http, w.reach, func() {}
	}
	reach = w.reach
	reach.CAs = w.trusted(trusts)
	roots, _ := edge.Roots(nil, reach.CAs) // both were read before
	client = edge.NewHTTP(&tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots})
	return client, reach, client.CloseIdleConnections
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

// await waits until each backend of a server, or each local one, has said what it offers, or has
// failed to.
func (s *server) await(ctx context.Context, local bool) {
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for s.Book != nil && s.pending(local) {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
}

// pending reports whether a backend has yet to say what it offers; a local one alone, where local
// says so.
func (s *server) pending(local bool) bool {
	failed := map[string]bool{}
	for _, b := range s.Backends {
		failed[b.Name] = b.Status().Message != "" || local && b.Local == nil
	}
	for _, one := range s.Book.Status() {
		if one.Missing && one.Message == "" && !failed[one.Backend] {
			return true
		}
	}
	return false
}
