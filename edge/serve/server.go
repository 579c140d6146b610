package serve

import (
	"log/slog"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/outgoing"
	"github.com/weir-edge/weir/edge/route"
	"github.com/weir-edge/weir/edge/session"
	"github.com/weir-edge/weir/filters/authz"
	"github.com/weir-edge/weir/filters/guest"
	"github.com/weir-edge/weir/filters/headers"
	"github.com/weir-edge/weir/filters/incoming"
	"github.com/weir-edge/weir/filters/ratelimit"
	"github.com/weir-edge/weir/filters/webhook"
)

// server is one virtual server of the plan, open.
type server struct {
	*route.Server // behind the hallway

	edge     *Edge
	digest   string // of its part of the plan
	info     []byte // JSON text: serverInfo
	secrets  edge.Secrets
	outgoing map[string]*outgoing.Spec // what backends are sent besides calls, by name
	failure  compile.Failure
	passes   *headers.Part  // header lines of clients that backends receive; nil for none
	gate     *incoming.Gate // who clients are; nil for anybody
	guest    *edge.Guest    // what programs want to be asked
	programs []func() guest.Status
	guarded  bool          // clients have to prove who they are
	webhooks *webhook.Part // whom messages are shown first; nil for nobody
	document []byte        // that tells clients where to get a token; nil for none
	after    []func()      // to be called when it ends
	log      *slog.Logger
	policy   *authz.Counters  // nil for no policies
	counting []edge.Collector // rooms of it that count for themselves
	observers
	reported report
	chain    edge.Handler   // the hallway, with route at its end
	store    *session.Store // the store of sessions and buckets; nil for the memory of the process
	limits   *ratelimit.Part
	limitsOf string // digest of what the limits were made from
}
