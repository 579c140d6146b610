package serve

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/backend"
	"github.com/weir-edge/weir/edge/catalog"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/relay"
	"github.com/weir-edge/weir/edge/route"
)

// How the offers of several backends are one server: names lead to backends by
// the catalog's tables, and go out as the backend knows them.

// source is a backend as the catalog sees it.
type source struct{ *backend.Backend }

func (s source) Name() string   { return s.Backend.Name }
func (s source) Personal() bool { return false }

func (s source) Capabilities(ctx context.Context) ([]byte, error) {
	in, err := s.Introduced(ctx)
	if err != nil {
		return nil, err
	}
	return in.Capabilities, nil
}

// target finds where a message goes, before the hallway, so that every filter
// can see it. nil stands for what is not there.
func (s *server) target(ctx context.Context, x *edge.Exchange) (*edge.Target, error) {
	if s.only != nil {
		return s.only, nil
	}
	m := x.Request
	switch m.Method {
	case "tools/call":
		return s.named(ctx, x, edge.Tool, m.Get("name").Of(m.Raw))
	case "prompts/get":
		return s.named(ctx, x, edge.Prompt, m.Get("name").Of(m.Raw))
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		return s.located(ctx, x, m.Text("uri"))
	case "completion/complete":
		ref := m.Get("ref").Of(m.Raw)
		switch mcp.String(mcp.Lookup(ref, "type")) { // another is for nobody to guess at
		case "ref/prompt":
			return s.named(ctx, x, edge.Prompt, mcp.Lookup(ref, "name"))
		case "ref/resource":
			return s.templated(ctx, x, mcp.String(mcp.Lookup(ref, "uri")))
		}
		return nil, nil
	case "tasks/get", "tasks/result", "tasks/cancel", "tasks/update":
		return s.taskAt(x, m.Text("taskId"))
	}
	return s.local, nil
}

// named finds a tool or prompt by its advertised name, JSON text.
func (s *server) named(ctx context.Context, x *edge.Exchange, thing edge.Thing, name []byte) (*edge.Target, error) {
	if len(name) < 2 || name[0] != '"' {
		return nil, nil
	}
	plain := mcp.Unquote(name[1 : len(name)-1])
	for c := s.book.Settled(x.Identity); ; {
		if c != nil {
			if t := c.LookupBytes(thing, plain); t != nil {
				return t, nil
			}
			return nil, s.away(thing, string(plain))
		}
		// A name that only one backend's prefix can have led to need not wait for
		// what the others have to say.
		if c, err := s.book.Catalog(ctx, x.Identity, edge.NoThing); err == nil {
			if t := c.LookupBytes(thing, plain); t != nil && s.names.Sole(t.Backend, t.Name) {
				return t, nil
			}
		}
		soon, cancel := context.WithTimeout(ctx, glance)
		var err error
		c, err = s.book.Catalog(soon, x.Identity, thing)
		cancel()
		switch {
		case c == nil && ctx.Err() != nil:
			return nil, gone(ctx)
		case err != nil && edge.KindOf(err) != edge.Gone: // no waiting helps
			return nil, err
		}
	}
}

func gone(ctx context.Context) error {
	return edge.Errorf(edge.Gone, "route", "%w", context.Cause(ctx))
}

// away is the error for a name that is not there because the backend whose
// prefix it has cannot be asked; nil for a name that nobody has.
func (s *server) away(thing edge.Thing, name string) error {
	for _, b := range s.backends {
		if s.names.Leads(b.Name, name) && s.book.Lacks(b.Name, thing) {
			return edge.Errorf(edge.Unavailable, "route", "backend %q unavailable", b.Name)
		}
	}
	return nil
}

// glance is how long a call waits for all lists before it looks again whether
// its own backend's is there.
const glance = 20 * time.Millisecond

// located finds a resource.
func (s *server) located(ctx context.Context, x *edge.Exchange, uri string) (*edge.Target, error) {
	c, err := s.book.Catalog(ctx, x.Identity, edge.Resource)
	if err != nil {
		return nil, err
	}
	return c.Resource(uri), nil
}

// templated finds what a completion refers to: a template, by its own text, or
// a resource.
func (s *server) templated(ctx context.Context, x *edge.Exchange, uri string) (*edge.Target, error) {
	c, err := s.book.Catalog(ctx, x.Identity, edge.Template)
	if err != nil {
		return nil, err
	}
	if t := c.Lookup(edge.Template, uri); t != nil {
		return t, nil
	}
	return c.Resource(uri), nil
}

// lookup finds a thing for a message that names several.
func (s *server) lookup(_ string, thing edge.Thing, name string) *edge.Target {
	if s.book == nil {
		return nil
	}
	c, err := s.book.Catalog(s.hub.life, nil, thing)
	if err != nil {
		return nil
	}
	if thing == edge.Resource {
		return c.Resource(name)
	}
	return c.Lookup(thing, name)
}

// unknown is the error for a message whose target is not there.
func unknown(m *mcp.Message) error {
	switch m.Method {
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		return &edge.Error{
			Kind: edge.NotFound, Op: "route", Err: errors.New("resource not found"),
			Data: append(mcp.AppendString([]byte(`{"uri":`), edge.Printable(m.Text("uri"))), '}'),
		}
	case "tasks/get", "tasks/result", "tasks/cancel", "tasks/update":
		return edge.Errorf(edge.NotFound, "route", "task not found")
	case "completion/complete":
		return edge.Errorf(edge.NotFound, "route", "what params.ref refers to is not found")
	case "prompts/get":
		return edge.Errorf(edge.NotFound, "route", "prompt %s not found", edge.Printable(strconv.Quote(m.Text("name"))))
	}
	return edge.Errorf(edge.NotFound, "route", "tool %s not found", edge.Printable(strconv.Quote(m.Text("name"))))
}

// forward sends an exchange to the backend of its target, under the name that
// the backend knows.
func (s *server) forward(ctx context.Context, x *edge.Exchange, b *backend.Backend) (*edge.Response, error) {
	t, m := x.Target, x.Request
	if t.Original != t.Name || s.sealed(x) && (s.only == nil || route.IsSealed(m.Text("requestState"))) {
		name := x.Name
		own, err := s.inWordsOf(x)
		if err != nil {
			return nil, err
		}
		x.Request = own
		if name != "" {
			x.Name = t.Original
		}
		defer func() { x.Request, x.Name = m, name }()
	}
	if s.guest.Upstream != nil {
		all := x.Forward
		defer func() { x.Forward, x.Chosen = all, nil }()
		if err := s.forwards(ctx, x, b.Name); err != nil {
			return nil, err
		}
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

// ask has a backend answer. A legacy backend may ask in the middle of the call.
// A modern client that says it can be asked hears of it by input_required, and
// comes back.
func (s *server) ask(ctx context.Context, x *edge.Exchange, b *backend.Backend) (*edge.Response, error) {
	next := edge.Handler(b)
	if s.beyond != nil {
		next = s.beyond[b]
	}
	if x.Era == mcp.Modern {
		if s.sealed(x) {
			// It begins no other call, whatever the backend is by now.
			at, ok := s.parked.Verify(x, x.Request)
			if ok {
				return s.goOn(ctx, x, at)
			}
			// Nor does one that leads to none, unless it is a backend's own: then the
			// backend says what it is good for. A legacy backend has none.
			if in := b.Known(); at.Call != "" || in != nil && in.Era == mcp.Legacy {
				return nil, route.ErrState()
			}
		}
		if in, err := b.Introduced(ctx); err == nil && in.Era == mcp.Legacy {
			if caps := route.MayAsk(x.Request); caps != nil {
				return s.parked.Serve(ctx, x, caps, next)
			}
		}
	}
	return next.Handle(ctx, x)
}

// goOn has a retry go on with its parked call, where that is. A state that was
// refused for good is refused again without asking anybody.
func (s *server) goOn(ctx context.Context, x *edge.Exchange, at route.State) (r *edge.Response, err error) {
	spent, text := &s.edge.spent, x.Request.Text("requestState")
	if spent.Has(text) {
		return nil, &edge.Error{Kind: edge.Params, Op: "resume", Err: &relay.SpentState{Before: true}}
	}
	if path := s.edge.sessions.PathTo(s.store, at.Node); at.Node != s.parked.Node && path != nil {
		r, err = s.edge.serveElsewhere(ctx, path, x, at)
	} else if s.parked.Claims.Kept(time.Now(), at.Key()) {
		err = relay.ErrClaimed()
	} else {
		r, err = s.parked.Resume(ctx, x, "")
	}
	if why := new(relay.SpentState); errors.As(err, &why) {
		spent.Add(time.Now(), text, at.Expires)
	}
	return r, err
}

// sealed reports whether a request carries a requestState.
func (s *server) sealed(x *edge.Exchange) bool {
	return x.Era == mcp.Modern && x.Request.Get("requestState").OK()
}

// inWordsOf returns the request as its backend knows it: with the backend's own
// name for what is asked for, and with its own requestState.
func (s *server) inWordsOf(x *edge.Exchange) (*mcp.Message, error) {
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
	if s.sealed(x) {
		at := m.Get("requestState")
		v, ok := s.parked.Sealer().Open(mcp.String(at.Of(m.Raw)))
		switch {
		case ok && v.Call != "": // of a parked call, which looks at it itself
		case ok && v.Server == s.name && v.Backend == t.Backend && v.Principal == x.Identity.Principal() && string(v.Digest) == string(route.Digest(m)):
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
func (s *server) inward(x *edge.Exchange, m *mcp.Message, r *edge.Response) (*edge.Response, error) {
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
func (s *server) reseal(x *edge.Exchange, m *mcp.Message, r *edge.Response) (*edge.Response, error) {
	at := r.Get("requestState")
	inner := mcp.String(at.Of(r.Raw))
	if !at.OK() || s.only != nil && !route.IsSealed(inner) {
		return r, nil
	}
	if v, ok := s.parked.Sealer().Open(inner); ok && v.Call != "" {
		return r, nil
	}
	text := s.parked.Sealer().Seal(route.State{
		Server: s.name, Backend: x.Target.Backend, Principal: x.Identity.Principal(), Digest: route.Digest(m),
		Expires: s.edge.door.Clock.Now().Add(s.parked.TTL).Unix(), Inner: inner,
	})
	status := r.Status
	if err := r.Decode(mcp.Splice(nil, r.Raw, mcp.Edit{Span: at, With: mcp.Quote(text)})); err != nil {
		return nil, edge.Errorf(edge.Internal, "route", "%w", err)
	}
	r.Status = status
	return r, nil
}

// list answers a list request from the catalog.
func (s *server) list(ctx context.Context, x *edge.Exchange) (*edge.Response, error) {
	m := x.Request
	cursor := m.Get("cursor").Of(m.Raw)
	if cursor != nil && cursor[0] != '"' {
		return nil, edge.Errorf(edge.Params, "route", "invalid cursor")
	}
	result, err := s.book.List(ctx, x.Identity, catalog.Thing(m.Method), x.Era, x.View, mcp.String(cursor))
	if err != nil {
		return nil, err
	}
	r := x.Answer()
	r.Share(m.IDText(), result, 200)
	return r, nil
}

// toAll passes a legacy client's notification on to every backend that it has
// met.
func (s *server) toAll(ctx context.Context, x *edge.Exchange) {
	for _, b := range s.backends {
		if in := b.Known(); in != nil && in.Era == mcp.Legacy {
			_, _ = b.Handle(ctx, x) // one that cannot be told now is told with its next session
		}
	}
}

// union is what a server can do whose backends can do this: what a client may
// ask for at one of them, as far as the edge relays it.
func union(all [][]byte, era mcp.Era) []byte {
	has := func(path ...string) bool {
		for _, caps := range all {
			if mcp.Lookup(caps, path...) != nil {
				return true
			}
		}
		return false
	}
	var set []mcp.Member
	add := func(name, value string) {
		if has(name) {
			set = append(set, mcp.With(name, value))
		}
	}
	add("completions", "{}")
	add("logging", "{}")
	add("prompts", `{"listChanged":true}`)
	resources := `{"listChanged":true}`
	if has("resources", "subscribe") {
		resources = `{"listChanged":true,"subscribe":true}`
	}
	add("resources", resources)
	add("tools", `{"listChanged":true}`)
	if era == mcp.Legacy && has("tasks", "requests", "tools", "call") {
		set = append(set, mcp.With("tasks", `{"cancel":{},"requests":{"tools":{"call":{}}}}`))
	}
	if era == mcp.Modern && has("extensions", "io.modelcontextprotocol/tasks") {
		set = append(set, mcp.With("extensions", `{"io.modelcontextprotocol/tasks":{}}`))
	}
	return mcp.Change(nil, nil, set...)
}

// maxGuidance bounds the instructions of all backends together, in bytes.
const maxGuidance = 64 << 10

// guidance is the instructions of all backends, each under its name, as JSON
// text of a string; nil for none.
func guidance(known []*backend.Introduction, names []string) []byte {
	var text strings.Builder
	for i, in := range known {
		said := mcp.String(in.Instructions)
		if said == "" || text.Len()+len(said) > maxGuidance {
			continue
		}
		if text.Len() > 0 {
			text.WriteString("\n\n")
		}
		text.WriteString("# " + names[i] + "\n\n" + said)
	}
	if text.Len() == 0 {
		return nil
	}
	return mcp.Quote(text.String())
}
