package serve

import (
	"context"
	"log/slog"
	"sync"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/backend"
	"github.com/weir-edge/weir/edge/catalog"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/mcp"
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
	edge     *Edge
	name     string
	digest   string // of its part of the plan
	info     []byte // JSON text: serverInfo
	secrets  edge.Secrets
	backends []*backend.Backend
	byName   map[string]*backend.Backend
	outgoing map[string]*outgoing.Spec // what backends are sent besides calls, by name
	failure  compile.Failure
	passes   *headers.Part           // header lines of clients that backends receive; nil for none
	targets  map[string]*edge.Target // of messages that name nothing, by backend
	local    *edge.Target            // of what is answered here
	only     *edge.Target            // of every message, when the one backend is served as it is; else nil
	names    *catalog.Rules          // by which the offers of the backends become one
	book     *catalog.Book           // of what the backends offer; nil when there is only one
	hub      *hub                    // of what changes behind it; nil when there is only one
	tasks    tasks
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
	parked   *route.Parked  // calls that wait for a modern client's answers
	store    *session.Store // the store of sessions and buckets; nil for the memory of the process
	limits   *ratelimit.Part
	limitsOf string // digest of what the limits were made from
}

// takes reports whether the server does anything about a message of a client of
// an era, itself or at a backend. What it does nothing about is told so before
// anybody is asked whether the client may. Methods that no revision defines are
// for the one backend of a server that serves it as it is; there may be no doubt
// that they are no others. Notifications are taken, for nobody answers them; who
// hears of them is said by told.
func (s *server) takes(m *mcp.Message, era mcp.Era) bool {
	info := mcp.MethodOf(m.Method)
	switch {
	case m.Kind == mcp.Notification:
		return true
	case info.Known:
		return info.In(era) && (s.only != nil || m.Method != "tasks/list")
	}
	return s.only != nil && !mcp.Resembles(m.Method)
}

// told reports whether backends are told of a notification of a client. They are
// not of one of the modern era, whose clients have none for servers over HTTP
// (2026-07-28, basic/transports/streamable-http), of tasks of the client's own,
// which no backend knows of, of what only servers say, and of what no revision
// has: a backend could take it for anything.
func told(x *edge.Exchange) bool {
	switch x.Request.Method {
	case "notifications/progress", "notifications/roots/list_changed":
		return x.Era == mcp.Legacy
	}
	return false
}

// route is the living room: it sends an exchange where its target says, or
// answers it here when it asks about the server itself.
func (s *server) route(ctx context.Context, x *edge.Exchange) (*edge.Response, error) {
	m := x.Request
	if err := route.CheckRetry(x); err != nil {
		return nil, err
	}
	if x.Ready != nil {
		return x.Ready, nil
	}
	if m.Kind == mcp.Notification && !told(x) {
		return nil, nil
	}
	switch m.Method {
	case "ping":
		return edge.Reply(m, []byte("{}"))
	case "server/discover":
		caps, instructions := s.offer(ctx, mcp.Modern)
		return edge.Reply(m, mcp.Discovered(caps, s.info, instructions))
	case "logging/setLevel":
		if !mcp.LogLevel(m.Text("level")) {
			return nil, edge.Errorf(edge.Params, "route", "params.level is no log level")
		}
	}
	if s.only == nil {
		switch {
		case m.Kind == mcp.Notification:
			s.toAll(ctx, x)
			return nil, nil
		case m.Method == "logging/setLevel":
			return s.setLevel(ctx, x)
		case m.Method == "subscriptions/listen":
			return s.hub.listen(ctx, x)
		case catalog.Thing(m.Method) != edge.NoThing:
			return s.list(ctx, x)
		case x.Target == nil:
			return nil, unknown(m)
		case x.Target.Backend == "":
			return nil, noMethod(m)
		}
	}
	b := s.byName[x.Target.Backend]
	if b == nil {
		return nil, edge.Errorf(edge.Internal, "route", "no backend %q", x.Target.Backend)
	}
	return s.forward(ctx, x, b)
}

// setLevel has every backend of a legacy session log from a level on.
func (s *server) setLevel(ctx context.Context, x *edge.Exchange) (*edge.Response, error) {
	level := x.Request.Text("level")
	x.Session.SetLogLevel(level)
	s.level(ctx, x.Session, level)
	return edge.Reply(x.Request, []byte("{}"))
}

// level tells every backend from which level on to log for a session.
func (s *server) level(ctx context.Context, session *edge.Session, level string) {
	var work sync.WaitGroup
	for _, b := range s.backends {
		work.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, introductionWait)
			defer cancel()
			b.SetLevel(ctx, session, level)
		})
	}
	work.Wait()
}

// offer is what the server can do and how to use it, as far as its backends
// have said. It waits for none as long as one has.
func (s *server) offer(ctx context.Context, era mcp.Era) (caps, instructions []byte) {
	var known []*backend.Introduction
	var names []string
	silent := false
	for _, b := range s.backends {
		if in := b.Known(); in != nil {
			known, names = append(known, in), append(names, b.Name)
		} else {
			silent = true
		}
	}
	if len(known) == 0 && len(s.backends) > 0 {
		ctx, cancel := context.WithTimeout(ctx, introductionWait)
		defer cancel()
		if in, _ := s.backends[0].Introduced(ctx); in != nil {
			known, names, silent = append(known, in), append(names, s.backends[0].Name), len(s.backends) > 1
		}
	}
	if s.only != nil && len(known) == 1 {
		return mcp.ServerCapabilities(known[0].Capabilities, known[0].Era, era), known[0].Instructions
	}
	all := make([][]byte, 0, len(known)+1)
	for _, in := range known {
		all = append(all, mcp.ServerCapabilities(in.Capabilities, in.Era, era))
	}
	if silent || len(known) == 0 {
		all = append(all, backend.Everything()) // one that is away may come back with anything
	}
	return union(all, era), guidance(known, names)
}
