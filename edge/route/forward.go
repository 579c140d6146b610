// Package route is one virtual server behind the hallway of filters. It finds where a
// message goes, translates names into those of the backend, and remembers what later
// messages need of an answer. A call goes from Handle through forward and ask to a backend,
// and back through inward.
package route

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/backend"
	"github.com/weir-edge/weir/edge/catalog"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/relay"
)

// Options configure a server.
type Options struct {
	Name   string
	Info   []byte         // JSON text: serverInfo
	Client []byte         // JSON text: clientInfo for backends
	Rules  *catalog.Rules // how the offers of the backends are merged
	Wait   time.Duration  // for backends that have not introduced themselves
	Log    *slog.Logger
	Now    func() time.Time // coarse and cheap

	Parked   *Parked   // calls that wait for a modern client's answers
	Replicas *Replicas // parked calls of other replicas

	Store edge.Store                    // of tasks, which replicas share; nil for none
	Path  func(node string) *relay.Link // how a replica is reached; nil for not at all

	ServeWithoutStore bool // templates lead to resources while the store cannot say whose they are

	// Changed is called when the merged lists have changed.
	Changed func(catalog.Changes)

	// Hallway sends a call of the edge's own through the filters of the server.
	Hallway edge.HandlerFunc

	// Serving returns the server of this name that is served now, nil where there is none.
	// The calls of scripts and of composite tools go there. Without it they stay here.
	Serving func() *Server

	// Judged says that policies, webhooks or programs may treat clients differently: then no
	// result is public.
	Judged bool

	// Local are the tools that the edge answers itself, and Own is how they are listed;
	// nil for not at all.
	Local Local
	Own   *catalog.List

	// Search is what is listed in place of all tools; nil for the tools themselves.
	Search *Search
}

// Server is one virtual server behind the hallway. It serves after Open or OpenBare.
type Server struct {
	Name     string
	Backends []*backend.Backend
	Book     *catalog.Book // the lists of the backends; nil for a bare server

	// Upstream lets programs change the header lines of a message to its backend, and
	// choose the credential; nil if none wants to.
	Upstream func(ctx context.Context, x *edge.Exchange, backend string) ([]edge.Header, *edge.Credential, error)

	// Beside are the header lines of each backend that go with any credential which a
	// program chooses; nil for none.
	Beside map[*backend.Backend]*edge.Credential

	// Beyond are handlers in place of the backends, with telemetry around them; nil for
	// none.
	Beyond map[*backend.Backend]edge.Handler

	o       Options
	byName  map[string]*backend.Backend
	targets map[string]*edge.Target // of messages without a name, by backend
	here    *edge.Target            // of messages that the edge answers
	only    *edge.Target            // of every message of a bare server; else nil
	hub     *hub                    // of changes at the backends; nil for a bare server
	tasks   *tasks                  // which a server that stands in for this one shares
	links   *tasks                  // resources that answers have named; shared as those

	credentials sync.Map // of choice to *edge.Credential
}

// choice is a credential that a program chose for a backend.
type choice struct {
	to     *backend.Backend
	chosen *edge.Credential
}

// New makes a server without backends.
func New(o Options) *Server {
	return &Server{Name: o.Name, o: o, byName: make(map[string]*backend.Backend), targets: make(map[string]*edge.Target), here: &edge.Target{}, tasks: &tasks{kind: "task"}, links: &tasks{kind: "link"}}
}

// Add adds a backend. It must be called before Open.
func (s *Server) Add(b *backend.Backend) {
	s.Backends = append(s.Backends, b)
	s.byName[b.Name], s.targets[b.Name] = b, &edge.Target{Backend: b.Name}
}

// OpenBare makes the server bare: messages go to its one backend as they are.
func (s *Server) OpenBare() { s.only = s.targets[s.Backends[0].Name] }

// Bare reports whether the server passes messages on to one backend as they are.
func (s *Server) Bare() bool { return s.only != nil }

// Open begins to fetch the lists of the backends, and to listen for changes. before is the
// book of the server that this one replaces; nil for none.
func (s *Server) Open(overrides edge.Overrides, before *catalog.Book, bestEffort bool, interval time.Duration) {
	sources := make([]catalog.Source, len(s.Backends))
	for i, b := range s.Backends {
		sources[i] = source{b}
	}
	s.hub = newHub(s) // before the book, which tells it of changes at once
	s.Book = catalog.Open(catalog.Config{
		Rules: s.o.Rules, Own: catalog.Offer{Tools: s.o.Own}, Sources: sources, Overrides: overrides, Before: before, BestEffort: bestEffort, Interval: interval,
		Wait: s.o.Wait, Log: s.o.Log,
		Changed: func(c catalog.Changes) {
			if s.o.Search != nil {
				c.Tools = false // what clients are listed stays the same
			}
			if c.Any() {
				s.hub.changed(c)
			}
		},
	})
	s.hub.open()
}

// Close stops listening to the backends. Exchanges can still be answered, except lists.
func (s *Server) Close() {
	if s.hub != nil {
		s.hub.close()
	}
	if s.Book != nil {
		s.Book.Close()
	}
}

// Takes reports whether the server has the method of a message in an era. Others are
// refused before authorization. A bare server passes on methods that no revision defines,
// unless they resemble one that is defined. All notifications are taken, since none is
// answered; told decides about them.
func (s *Server) Takes(m *mcp.Message, era mcp.Era) bool {
	info := mcp.MethodOf(m.Method)
	switch {
	case m.Kind == mcp.Notification:
		return true
	case info.Known:
		return info.In(era) && (s.only != nil || m.Method != "tasks/list")
	}
	return s.only != nil && !mcp.Resembles(m.Method)
}

// told reports whether a notification of a client is passed on to backends. Modern clients
// have none for servers over HTTP (2026-07-28, basic/transports/streamable-http). Those
// about the client's own tasks, those that only servers send, and unknown ones are
// dropped.
func told(x *edge.Exchange) bool {
	switch x.Request.Method {
	case "notifications/progress", "notifications/roots/list_changed":
		return x.Era == mcp.Legacy
	}
	return false
}

// Handle sends an exchange to its target, or answers it if it is about the server itself.
func (s *Server) Handle(ctx context.Context, x *edge.Exchange) (*edge.Response, error) {
	m := x.Request
	if err := CheckRetry(x); err != nil {
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
		caps, instructions := s.Offer(ctx, mcp.Modern)
		return edge.Reply(m, mcp.Discovered(caps, s.o.Info, instructions))
	case "logging/setLevel":
		if !mcp.LogLevel(m.Text("level")) {
			return nil, edge.Errorf(edge.Params, "route", "params.level is no log level")
		}
		if x.Session.Several && x.Identity.Anonymous() { // it would be the level of others: each request is a session of its own
			return edge.Reply(m, []byte("{}"))
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
			return nil, s.unknown(x)
		case x.Target.Backend == "":
			return s.local(ctx, x)
		}
	} else if x.Target == nil {
		return nil, errNoTask()
	}
	b := s.byName[x.Target.Backend]
	if b == nil {
		return nil, edge.Errorf(edge.Internal, "route", "no backend %q", x.Target.Backend)
	}
	return s.forward(ctx, x, b)
}

// forward sends an exchange to the backend of its target, under the backend's own name for
// the thing.
func (s *Server) forward(ctx context.Context, x *edge.Exchange, b *backend.Backend) (*edge.Response, error) {
	t, m := x.Target, x.Request
	if t.Original != t.Name || s.Sealed(x) && (s.only == nil || IsSealed(m.Text("requestState"))) {
		name := x.Name
		own, err := s.InWordsOf(x)
		if err != nil {
			return nil, err
		}
		x.Request = own
		if name != "" {
			x.Name = t.Original
		}
		defer func() { x.Request, x.Name = m, name }()
	}
	if s.Upstream != nil {
		all := x.Forward
		defer func() { x.Forward, x.Chosen = all, nil }()
		lines, chosen, err := s.Upstream(ctx, x, b.Name)
		if err != nil {
			return nil, err
		}
		x.Forward, x.Chosen = lines, s.credential(b, chosen)
	}
	r, err := s.ask(ctx, x, b)
	if err != nil || r == nil || r.Kind != mcp.Result {
		return r, err
	}
	if s.o.Judged && x.Era == mcp.Modern && mcp.MethodOf(m.Method).Cacheable && r.Says("cacheScope", "public") {
		if r, err = changed(r, r.Get("cacheScope"), mcp.Quote("private")); err != nil {
			return nil, err
		}
	}
	if s.only == nil {
		s.noteLinks(x, m, r)
		return s.inward(x, m, r)
	}
	if m.Method == "tools/list" && x.Era == mcp.Legacy {
		return s.listable(b, r)
	}
	if s.bindsTasks(x) {
		switch {
		case m.Method == "tasks/list":
			return s.ownTasks(x, r)
		case x.Era == mcp.Modern && r.Says("resultType", "task"), x.Era == mcp.Legacy && m.Get("task").OK():
			return s.inward(x, m, r)
		}
	}
	if x.Era == mcp.Modern && r.Says("resultType", "input_required") {
		return s.reseal(x, m, r)
	}
	return r, nil
}

// listable takes out of a list of tools for a legacy client what a client of the modern era must
// not list (2026-07-28, x-mcp-header): before such a backend over HTTP the edge is that client.
func (s *Server) listable(b *backend.Backend, r *edge.Response) (*edge.Response, error) {
	if _, lines := b.Local.(backend.OverLines); lines {
		return r, nil
	}
	if in := b.Known(); in == nil || in.Era != mcp.Modern {
		return r, nil
	}
	may, why := catalog.Listable(r.Get("tools").Of(r.Raw))
	if may == nil {
		return r, nil
	}
	s.o.Log.Debug("tools are not listed", "backend", b.Name, "why", why)
	return changed(r, r.Get("tools"), may)
}

// changed returns an answer with other text in a place.
func changed(r *edge.Response, at mcp.Span, with []byte) (*edge.Response, error) {
	if err := r.Decode(mcp.Splice(nil, r.Raw, mcp.Edit{Span: at, With: with})); err != nil {
		return nil, edge.Errorf(edge.Internal, "route", "%w", err)
	}
	return r, nil
}

// credential returns the credential of a message to a backend, for the one that a program
// chose: with the header lines that go in any case. nil is the configured one.
func (s *Server) credential(b *backend.Backend, chosen *edge.Credential) *edge.Credential {
	beside := s.Beside[b]
	if chosen == nil || beside == nil {
		return chosen
	}
	of := choice{b, chosen}
	if both, ok := s.credentials.Load(of); ok {
		return both.(*edge.Credential)
	}
	both, _ := s.credentials.LoadOrStore(of, chosen.With(beside)) // bounded by the credentials that are granted
	return both.(*edge.Credential)
}

// ask sends an exchange to a backend. If a legacy backend may ask a modern client in the
// middle of the call, the call is parked: the client gets input_required and comes back.
func (s *Server) ask(ctx context.Context, x *edge.Exchange, b *backend.Backend) (*edge.Response, error) {
	next := edge.Handler(b)
	if s.Beyond != nil {
		next = s.Beyond[b]
	}
	if x.Era == mcp.Modern {
		if s.Sealed(x) {
			// A retry begins no other call, whatever the backend is by now.
			at, ok := s.o.Parked.Verify(x, x.Request)
			if ok {
				return s.goOn(ctx, x, at)
			}
			// Nor does a state that cannot be opened, unless it may be a modern
			// backend's own, which the backend judges.
			if in := b.Known(); at.Call != "" || in != nil && in.Era == mcp.Legacy {
				return nil, ErrState()
			}
		}
		if in, err := b.Introduced(ctx, x.Identity); err == nil && in.Era == mcp.Legacy {
			if caps := MayAsk(x.Request); caps != nil && x.Capabilities == nil { // else it is made for a call that is parked
				return s.o.Parked.Serve(ctx, x, caps, next)
			}
		}
	}
	return next.Handle(ctx, x)
}

// goOn continues a parked call with a retry, at the replica that holds it. A state that was
// refused for good is refused again without asking that replica.
func (s *Server) goOn(ctx context.Context, x *edge.Exchange, at State) (r *edge.Response, err error) {
	spent, text := &s.o.Replicas.Spent, x.Request.Text("requestState")
	if spent.Has(text) {
		return nil, &edge.Error{Kind: edge.Params, Op: "resume", Err: &relay.SpentState{Before: true}}
	}
	if path := s.path(at.Node); path != nil {
		r, err = s.o.Replicas.serve(ctx, path, x, at)
	} else if s.o.Parked.Claims.Kept(time.Now(), at.Key()) {
		err = relay.ErrClaimed()
	} else {
		r, err = s.o.Parked.Resume(ctx, x, "")
	}
	if why := new(relay.SpentState); errors.As(err, &why) {
		spent.Add(time.Now(), text, at.Expires)
	}
	return r, err
}

// path returns the link to the replica that holds a call; nil if this edge does, or if there
// is no link.
func (s *Server) path(node string) *relay.Link {
	if node == s.o.Parked.Node || s.o.Path == nil {
		return nil
	}
	return s.o.Path(node)
}

// Sealed reports whether a request carries a requestState.
func (s *Server) Sealed(x *edge.Exchange) bool {
	return x.Era == mcp.Modern && x.Request.Get("requestState").OK()
}

// InWordsOf returns the request in the words of its backend: with the backend's own name
// for the thing, and its own requestState.
func (s *Server) InWordsOf(x *edge.Exchange) (*mcp.Message, error) {
	m, t := x.Request, x.Target
	var edits []mcp.Edit
	if t.Original != t.Name {
		quoted := mcp.Quote(t.Original)
		if m.Method == "completion/complete" {
			ref := m.Get("ref")
			member := "name"
			if t.Thing != edge.Prompt {
				member = "uri"
			}
			edits = append(edits, mcp.Edit{Span: ref, With: mcp.Change(ref.Of(m.Raw), nil, mcp.Raw(member, quoted))})
		} else if name := m.Get(mcp.MethodOf(m.Method).Target); name.OK() {
			edits = append(edits, mcp.Edit{Span: name, With: quoted})
		}
	}
	if s.Sealed(x) {
		at := m.Get("requestState")
		v, ok := s.o.Parked.Sealer().Open(mcp.String(at.Of(m.Raw)))
		switch {
		case ok && v.Call != "": // of a parked call, which looks at it itself
		case ok && v.Server == s.Name && v.Backend == t.Backend && v.Principal == x.Identity.Principal() && repeats(x, m, v.Digest):
			edits = append(edits, mcp.Edit{Span: at, With: mcp.Quote(v.Inner)})
		default:
			return nil, edge.Errorf(edge.Params, "route", "requestState is not valid for this request")
		}
	}
	if len(edits) == 0 {
		return m, nil
	}
	own, err := mcp.Decode(mcp.Splice(nil, m.Raw, edits...))
	if err != nil {
		return nil, edge.Errorf(edge.Internal, "route", "%w", err)
	}
	return own, nil
}

// inward remembers what later requests need of the answer to m: which backend a task is
// at, and whose the requestState is.
func (s *Server) inward(x *edge.Exchange, m *mcp.Message, r *edge.Response) (*edge.Response, error) {
	switch {
	case !mcp.MethodOf(m.Method).Interactive:
		return r, nil
	case x.Era == mcp.Legacy:
		if id := mcp.String(mcp.Lookup(r.Get("task").Of(r.Raw), "taskId")); id != "" {
			s.began(x, id)
		}
		return r, nil
	case r.Says("resultType", "task"):
		s.began(x, r.Text("taskId"))
		return r, nil
	case !r.Says("resultType", "input_required"):
		return r, nil
	}
	return s.reseal(x, m, r)
}

// reseal seals the requestState that a backend gave with its answer to m, so that it comes
// back to that backend only, from the same client and with the same request. A bare server
// passes its backend's state on as it is, unless it looks like one of the edge's. The state
// of a parked call is the edge's already.
func (s *Server) reseal(x *edge.Exchange, m *mcp.Message, r *edge.Response) (*edge.Response, error) {
	at := r.Get("requestState")
	inner := mcp.String(at.Of(r.Raw))
	if !at.OK() || s.only != nil && !IsSealed(inner) {
		return r, nil
	}
	if v, ok := s.o.Parked.Sealer().Open(inner); ok && v.Call != "" {
		return r, nil
	}
	text := s.o.Parked.Sealer().Seal(State{
		Server: s.Name, Backend: x.Target.Backend, Principal: x.Identity.Principal(), Digest: askedFor(x, m),
		Expires: s.o.Now().Add(s.o.Parked.TTL).Unix(), Inner: inner,
	})
	return changed(r, at, mcp.Quote(text))
}

// toAll passes a legacy client's notification on to every backend that has a session with
// it.
func (s *Server) toAll(ctx context.Context, x *edge.Exchange) {
	to := s.Backends
	if m := x.Request; m.Method == "notifications/progress" { // of a question, for those that ask
		token := m.Get("progressToken").Of(m.Raw)
		if asking := slices.DeleteFunc(slices.Clone(to), func(b *backend.Backend) bool { return !b.AsksWith(x.Session, token) }); len(asking) > 0 {
			to = asking
		}
	}
	for _, b := range to {
		if in := b.Known(); in != nil && in.Era == mcp.Legacy {
			_, _ = b.Handle(ctx, x) // a backend that is away learns it with its next session
		}
	}
}
