// Package route is one virtual server behind the hallway of filters: where a message
// goes, under which name its backend knows it, and what of the answer concerns later
// messages. A call goes from Handle through forward and ask to a backend, and back
// through inward.
package route

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/backend"
	"github.com/weir-edge/weir/edge/catalog"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/relay"
)

// Options say how a server is made.
type Options struct {
	Name   string
	Info   []byte         // JSON text: serverInfo
	Client []byte         // JSON text: what the edge says of itself to backends
	Rules  *catalog.Rules // by which the offers of the backends become one
	Wait   time.Duration  // for a backend that has not said yet what it can do
	Log    *slog.Logger
	Now    func() time.Time // coarse and cheap

	Parked   *Parked   // calls that wait for a modern client's answers
	Replicas *Replicas // that may have them

	Store edge.Store                    // of tasks, which replicas share; nil for none
	Path  func(node string) *relay.Link // how a replica is reached; nil for not at all

	// Changed is told what of the merged lists is new.
	Changed func(catalog.Changes)

	// Hallway takes a call that the edge makes itself past the same filters as a
	// client's.
	Hallway edge.HandlerFunc

	// Local are the tools that the edge answers itself.
	Local Local
}

// Server is one virtual server behind the hallway. What it offers is known after
// Open; a name can be looked for before.
type Server struct {
	Name     string
	Backends []*backend.Backend
	Book     *catalog.Book // of what the backends offer; nil where one is served as it is

	// Upstream lets programs change the header lines that a message goes to its
	// backend with, and choose the credential; nil where none wants to.
	Upstream func(ctx context.Context, x *edge.Exchange, backend string) ([]edge.Header, *edge.Credential, error)

	// Beside are the lines of each backend that go with whatever credential a program
	// chooses; nil for none.
	Beside map[*backend.Backend]*edge.Credential

	// Beyond are handlers to ask in place of backends, as telemetry has them; nil
	// for none.
	Beyond map[*backend.Backend]edge.Handler

	o       Options
	byName  map[string]*backend.Backend
	targets map[string]*edge.Target // of messages that name nothing, by backend
	here    *edge.Target            // of what is answered here
	only    *edge.Target            // of every message, where the one backend is served as it is; else nil
	hub     *hub                    // of what changes behind it; nil where there is no Book
	tasks   tasks

	credentials sync.Map // of choice to *edge.Credential
}

// choice is a credential that a program chose for a backend.
type choice struct {
	to     *backend.Backend
	chosen *edge.Credential
}

// New makes a server without backends.
func New(o Options) *Server {
	return &Server{Name: o.Name, o: o, byName: make(map[string]*backend.Backend), targets: make(map[string]*edge.Target), here: &edge.Target{}}
}

// Add adds a backend. It must be called before Open.
func (s *Server) Add(b *backend.Backend) {
	s.Backends = append(s.Backends, b)
	s.byName[b.Name], s.targets[b.Name] = b, &edge.Target{Backend: b.Name}
}

// OpenBare serves the one backend as it is.
func (s *Server) OpenBare() { s.only = s.targets[s.Backends[0].Name] }

// Bare reports whether one backend is served as it is.
func (s *Server) Bare() bool { return s.only != nil }

// Open begins to ask the backends what they offer, and to hear what changes. before
// is the book of the server that this one stands in for; nil for none.
func (s *Server) Open(overrides edge.Overrides, before *catalog.Book, bestEffort bool, interval time.Duration) {
	sources := make([]catalog.Source, len(s.Backends))
	for i, b := range s.Backends {
		sources[i] = source{b}
	}
	s.Book = catalog.Open(catalog.Config{
		Rules: s.o.Rules, Sources: sources, Overrides: overrides, Before: before, BestEffort: bestEffort, Interval: interval,
		Wait: s.o.Wait, Changed: func(c catalog.Changes) { s.hub.changed(c) }, Log: s.o.Log,
	})
	s.hub = newHub(s)
}

// Close ends what the server hears of its backends. Its exchanges can still be
// answered, but for lists.
func (s *Server) Close() {
	if s.hub != nil {
		s.hub.close()
	}
	if s.Book != nil {
		s.Book.Close()
	}
}

// Takes reports whether the server does anything about a message of a client of
// an era, itself or at a backend. What it does nothing about is told so before
// anybody is asked whether the client may. Methods that no revision defines are
// for the one backend of a server that serves it as it is; there may be no doubt
// that they are no others. Notifications are taken, for nobody answers them; who
// hears of them is said by told.
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

// Handle sends an exchange where its target says, or answers it here when it asks
// about the server itself.
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
			return s.local(ctx, x)
		}
	}
	b := s.byName[x.Target.Backend]
	if b == nil {
		return nil, edge.Errorf(edge.Internal, "route", "no backend %q", x.Target.Backend)
	}
	return s.forward(ctx, x, b)
}

// forward sends an exchange to the backend of its target, under the name that
// the backend knows.
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
	if s.only == nil {
		return s.inward(x, m, r)
	}
	if x.Era == mcp.Modern && r.Says("resultType", "input_required") {
		return s.reseal(x, m, r)
	}
	return r, nil
}

// credential is what a message goes to its backend with when a program has chosen one
// for it: that, and the lines that go in any case. nil stands for what is configured.
func (s *Server) credential(b *backend.Backend, chosen *edge.Credential) *edge.Credential {
	beside := s.Beside[b]
	if chosen == nil || beside == nil {
		return chosen
	}
	of := choice{b, chosen}
	if both, ok := s.credentials.Load(of); ok {
		return both.(*edge.Credential)
	}
	both, _ := s.credentials.LoadOrStore(of, chosen.With(beside)) // programs choose among those that they were granted
	return both.(*edge.Credential)
}

// ask has a backend answer. A legacy backend may ask in the middle of the call.
// A modern client that says it can be asked hears of it by input_required, and
// comes back.
func (s *Server) ask(ctx context.Context, x *edge.Exchange, b *backend.Backend) (*edge.Response, error) {
	next := edge.Handler(b)
	if s.Beyond != nil {
		next = s.Beyond[b]
	}
	if x.Era == mcp.Modern {
		if s.Sealed(x) {
			// It begins no other call, whatever the backend is by now.
			at, ok := s.o.Parked.Verify(x, x.Request)
			if ok {
				return s.goOn(ctx, x, at)
			}
			// Nor does one that leads to none, unless it is a backend's own: then the
			// backend says what it is good for. A legacy backend has none.
			if in := b.Known(); at.Call != "" || in != nil && in.Era == mcp.Legacy {
				return nil, ErrState()
			}
		}
		if in, err := b.Introduced(ctx); err == nil && in.Era == mcp.Legacy {
			if caps := MayAsk(x.Request); caps != nil {
				return s.o.Parked.Serve(ctx, x, caps, next)
			}
		}
	}
	return next.Handle(ctx, x)
}

// goOn has a retry go on with its parked call, where that is. A state that was
// refused for good is refused again without asking anybody.
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

// path is how another replica that holds a call is reached; nil for a call that is
// held here, and where nothing leads to others.
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

// InWordsOf returns the request as its backend knows it: with the backend's own
// name for what is asked for, and with its own requestState.
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
		case ok && v.Server == s.Name && v.Backend == t.Backend && v.Principal == x.Identity.Principal() && string(v.Digest) == string(Digest(m)):
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

// inward takes down what the answer to m says of later requests: which backend a
// task is at, and whose the requestState is.
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

// reseal seals the requestState that a backend gave with its answer to m, so that
// it comes back to that backend, from the same client and with the same request.
// Where there is one backend its own state goes out as it is, unless it looks like
// one of the edge's: what looks like that must be that when it comes back. A state
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
		Server: s.Name, Backend: x.Target.Backend, Principal: x.Identity.Principal(), Digest: Digest(m),
		Expires: s.o.Now().Add(s.o.Parked.TTL).Unix(), Inner: inner,
	})
	status := r.Status
	if err := r.Decode(mcp.Splice(nil, r.Raw, mcp.Edit{Span: at, With: mcp.Quote(text)})); err != nil {
		return nil, edge.Errorf(edge.Internal, "route", "%w", err)
	}
	r.Status = status
	return r, nil
}

// toAll passes a legacy client's notification on to every backend that it has
// met.
func (s *Server) toAll(ctx context.Context, x *edge.Exchange) {
	for _, b := range s.Backends {
		if in := b.Known(); in != nil && in.Era == mcp.Legacy {
			_, _ = b.Handle(ctx, x) // one that cannot be told now is told with its next session
		}
	}
}
