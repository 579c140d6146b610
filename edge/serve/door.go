package serve

import (
	"bytes"
	"context"
	"errors"
	"runtime/debug"
	"sync"

	"github.com/valyala/fasthttp"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/door"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/relay"
	"github.com/weir-edge/weir/edge/route"
	"github.com/weir-edge/weir/edge/session"
)

// handle is the front door: every HTTP request of a client comes in here. It
// runs on the goroutine of the client's connection from end to end.
func (e *Edge) handle(ctx *fasthttp.RequestCtx) {
	conn := ctx.Conn().(*door.Conn)
	defer func() {
		if r := recover(); r != nil {
			e.log.Error("panic in an exchange", "panic", r, "stack", string(debug.Stack()))
			e.refuse(ctx, nil, mcp.Legacy, nil, edge.Errorf(edge.Internal, "handle", "%v", r))
		}
		if !conn.Served() {
			ctx.SetConnectionClose()
		}
	}()
	conn.Arrived(&ctx.Request.Header)
	// 1. Whether the request has one reading, and what it says of itself.
	if f, bad := door.Refusal(&ctx.Request.Header); bad {
		e.unreadable(ctx, f.Status, f.Why)
		return
	}
	h := head{ctx: ctx}
	h.read(&ctx.Request.Header)
	origin := h.origin
	h.origin = nil // told to nobody before it is known to be allowed
	// 2. Who may knock: the host that was meant and the page that asks.
	if !e.door.AllowsHost(h.host) {
		e.forbid(ctx, &h, edge.Errorf(edge.Forbidden, "door", "this Host is not allowed; see --allowed-hosts"))
		return
	}
	if h.originSet && !e.door.AllowsOrigin(origin) {
		e.forbid(ctx, &h, edge.Errorf(edge.Forbidden, "door", "this Origin is not allowed; see --allowed-origins"))
		return
	}
	h.origin = origin
	// 3. Which door it is: the path as it was written, or none.
	path := ctx.Request.Header.RequestURI()
	query := []byte(nil)
	if i := bytes.IndexByte(path, '?'); i >= 0 {
		path, query = path[:i], path[i+1:]
	}
	if e.door.Leaving() {
		ctx.SetConnectionClose()
		e.door.Knock()
	}
	h.query = query
	live := e.live.Load()
	if string(path) == "/mcp" && live.main != nil {
		e.visit(ctx, &h, live.main, "/mcp")
		return
	}
	if document := live.documents[string(path)]; document != nil {
		e.describe(ctx, document)
		return
	}
	if s, door := live.server(string(path)); s != nil {
		switch door {
		case "/mcp", "/sse", "/messages":
			e.visit(ctx, &h, s, door)
			return
		}
	} else if door != "" || bytes.HasPrefix(path, []byte("/servers/")) {
		e.knocked(ctx, &h, edge.Errorf(edge.NotFound, "door", "there is no such server"))
	}
	switch string(path) {
	case "/metrics":
		e.metrics(ctx, live.fetched)
	case "/health":
		plain(ctx, 200, "ok\n")
	case "/readyz":
		e.readyz(ctx)
	case "/status":
		if servers := e.lookedAt(ctx, &h, live); len(servers) > 0 {
			e.status(ctx, servers)
		}
	default:
		plain(ctx, 404, "not found\n")
	}
}

// endpoint is the one URL of every revision.
func (e *Edge) endpoint(ctx *fasthttp.RequestCtx, h *head, s *server) {
	switch string(ctx.Method()) {
	case "POST":
		e.post(ctx, h, s)
	case "GET":
		e.get(ctx, h, s)
	case "DELETE":
		e.delete(ctx, h, s)
	case "OPTIONS":
		e.preflight(ctx, h)
	default:
		e.notAllowed(ctx, h, "POST, GET, DELETE, OPTIONS")
	}
}

// admit finds out who the client is, before anything else that it sent is looked
// at. It reports false when that has been refused. A page that asks what it may
// send needs no credential.
func (e *Edge) admit(ctx *fasthttp.RequestCtx, h *head, s *server) bool {
	if s.gate == nil || ctx.IsOptions() {
		return true
	}
	if h.who = s.gate.Remembered(h.authorization); h.who != nil {
		return true
	}
	who, err := s.gate.Identify(context.Background(), edge.Secret(h.authorization), e.door.ClientOf(ctx))
	if err != nil {
		who, err = s.known(&ctx.Request.Header, err)
	}
	if err != nil {
		e.refuse(ctx, h, headEra(h), nil, err)
		return false
	}
	h.who = who
	return true
}

// post takes a message of either era.
func (e *Edge) post(ctx *fasthttp.RequestCtx, h *head, server *server) {
	if err := checkBody(h); err != nil {
		e.refuse(ctx, h, headEra(h), nil, err)
		return
	}
	if e.inflight.Load() >= int64(e.settings.MaxInflight) && !h.hasSession {
		e.refuse(ctx, h, headEra(h), nil, errFull())
		return
	}
	if !e.body(ctx, h) {
		return
	}
	full := e.inflight.Add(1) > int64(e.settings.MaxInflight)
	defer e.inflight.Add(-1)
	x := e.newExchange(ctx, h, server)
	m := x.Request
	x.Era = headEra(h)
	err := m.Decode(h.body)
	if err == nil {
		h.x, x.Era = x, era(m, h)
		err = m.CheckID()
	}
	if full && (err != nil || !forSession(m)) {
		e.refuse(ctx, h, headEra(h), m.IDText(), errFull())
		return
	}
	switch {
	case errors.Is(err, mcp.ErrBatch):
		e.batch(ctx, h, server)
		return
	case err != nil:
		kind := edge.Invalid
		var syntax *mcp.SyntaxError
		if errors.As(err, &syntax) {
			kind = edge.Malformed
		}
		e.refuse(ctx, h, x.Era, m.IDText(), edge.Errorf(kind, "door", "%w", err))
		return
	}
	if x.Era == mcp.Modern {
		if m.Method == "subscriptions/listen" {
			err = outlasts(x.way.conn, m, h)
		}
		if err == nil {
			x.Name, err = checkModern(m, h)
		}
		if err != nil {
			e.refuse(ctx, h, mcp.Modern, m.IDText(), err)
			return
		}
		x.Head.Params = h.params
		e.serve(ctx, h, x)
		e.recycle(x)
		return
	}
	if m.Method == "initialize" && m.Kind == mcp.Request {
		e.initialize(ctx, h, x)
		return
	}
	s, err := e.sessionOf(h, server)
	if err != nil {
		e.refuse(ctx, h, mcp.Legacy, m.IDText(), err)
		return
	}
	x.s, x.Session = s, &s.Session
	if e.aside(x) {
		ctx.SetStatusCode(202)
		e.cors(ctx, h)
		return
	}
	e.serve(ctx, h, x)
	e.recycle(x)
}

// checkBody says whether the body is one that the endpoint takes.
func checkBody(h *head) error {
	kind := h.contentType
	if string(kind) == "application/json" && len(h.encoding) == 0 {
		return nil
	}
	if i := bytes.IndexByte(kind, ';'); i >= 0 {
		kind = kind[:i]
	}
	if !bytes.EqualFold(bytes.TrimSpace(kind), []byte("application/json")) {
		return edge.Errorf(edge.MediaType, "door", "Content-Type must be application/json")
	}
	if len(h.encoding) > 0 && !bytes.EqualFold(h.encoding, []byte("identity")) {
		return edge.Errorf(edge.MediaType, "door", "Content-Encoding is not supported; send the body as it is")
	}
	return nil
}

// newExchange makes the exchange for a POST.
func (e *Edge) newExchange(ctx *fasthttp.RequestCtx, h *head, server *server) *exchange {
	conn := ctx.Conn().(*door.Conn)
	x := exchanges.Get().(*exchange)
	x.Began = e.door.Clock.Now()
	x.server, x.Server, x.Identity = server, server.Name, h.who
	x.Head.Remote = conn.Client(&ctx.Request.Header)
	x.Head.SSE = h.sse
	x.id.set(h.requestID)
	if len(server.entries) > 0 {
		h.tell(&x.Head, server, conn)
		if server.record != nil {
			x.requestID()
		}
	}
	x.Request = &x.request
	if server.passes != nil {
		for name, value := range ctx.Request.Header.All() {
			x.Forward = server.passes.Take(x.Forward, name, value)
		}
	}
	if len(server.guest.Headers) > 0 {
		x.Heard = server.hear(&ctx.Request.Header)
	}
	w := &x.way
	w.mu.Lock()
	w.x, w.conn, w.able = x, conn, h.takes&takesStream != 0 && ctx.Request.Header.IsHTTP11()
	w.last, w.written = ctx.Request.Header.ConnectionClose() || e.door.Leaving(), x.Began
	x.number = w.number
	x.Client = way{w, x.number}
	w.mu.Unlock()
	return x
}

// exchanges spares the allocation of an exchange that ended in the ordinary way.
var exchanges = sync.Pool{New: newExchange}

// recycle gives an exchange back that ended in the ordinary way: its client was
// told and asked nothing before the answer. What still waits for the client of
// any other, such as a question, ends here.
func (e *Edge) recycle(x *exchange) {
	if !x.Untouched() || !x.way.free() {
		x.Cancel()
		return
	}
	x.Reset()
	x.request.Forget()
	x.server, x.s = nil, nil
	exchanges.Put(x)
}

// sessionOf finds the session of a legacy request.
func (e *Edge) sessionOf(h *head, server *server) (*session.Session, error) {
	if h.hasVersion && !mcp.LegacyVersion(string(h.version)) {
		return nil, badVersion(string(h.version))
	}
	if !h.hasSession {
		return nil, edge.Errorf(edge.Invalid, "door", "header Mcp-Session-Id is missing; send initialize first")
	}
	return e.sessionByID(h, server, string(h.session))
}

// sessionByID finds the session of an id for the client of a request.
func (e *Edge) sessionByID(h *head, server *server, id string) (*session.Session, error) {
	s, err := e.sessions.Find(server.Name, server.store, id, h.who.Principal())
	if err == session.ErrNotHere {
		s, err = e.sessions.Restore(server.store, server.Name, id, h.who.Principal(), e.holder(h))
	}
	return s, err
}

func errFull() error { return edge.Errorf(edge.Overload, "door", "too many requests at a time") }

// forSession reports whether a legacy client's message is one that aside takes.
// It passes a full edge: what fills the edge may be waiting for it.
func forSession(m *mcp.Message) bool {
	return m.Kind == mcp.Result || m.Kind == mcp.Failure || m.Method == "notifications/initialized" || m.Method == "notifications/cancelled"
}

// aside takes what a legacy client sends that is not for a backend: its
// answers to questions, and notifications about its session and its calls.
func (e *Edge) aside(x *exchange) bool {
	m := x.Request
	if !forSession(m) {
		return false
	}
	_, _ = x.server.observed(&x.Call, &x.Exchange, func(context.Context, *edge.Exchange) (*edge.Response, error) {
		switch {
		case m.Kind == mcp.Result || m.Kind == mcp.Failure:
			if !x.s.Answered(m) {
				e.sessions.PassAnswer(&x.Call, x.s, &x.Exchange)
			}
		case m.Method == "notifications/cancelled":
			if !x.s.Cancel(m) {
				e.sessions.PassCancel(x.s, m)
			}
		}
		return nil, nil
	}) // nothing of it can fail
	return true
}

// serve runs an exchange through the hallway and writes its answer.
func (e *Edge) serve(ctx *fasthttp.RequestCtx, h *head, x *exchange) {
	x.way.headers = e.corsLines(h)
	if x.server.guest.HTTPResponse != nil {
		x.way.asked = x.server.asked(ctx)
	}
	r, err := e.run(x)
	var raw []byte
	var f edge.Failure
	switch {
	case err != nil:
		era := x.Era
		if x.Request.Kind == mcp.Notification {
			era = mcp.Modern // there is no answer to carry the error: the status says it
		}
		f = edge.Fail(era, x.Request.IDText(), err)
		raw = f.Body
	case r != nil:
		raw = r.Raw
		if r.Shared != nil {
			x.way.answer = r
		}
	}
	if err != nil && x.Err() != nil {
		raw = nil // cancelled: nobody waits for an answer
		if x.Era == mcp.Modern {
			ctx.SetConnectionClose()
		}
	}
	if x.way.end(raw, h.takes.streamOnly()) {
		x.way.conn.Swallow()
		if x.way.err != nil {
			ctx.SetConnectionClose()
		}
		return
	}
	switch {
	case raw == nil:
		ctx.SetStatusCode(202)
		e.cors(ctx, h)
	case err != nil:
		e.write(ctx, h, f)
	default:
		e.cors(ctx, h)
		ctx.SetStatusCode(r.Status)
		ctx.Response.Header.SetContentTypeBytes(jsonType)
		if door.SendLarge(ctx, r) {
			return
		}
		if r.Shared == nil {
			ctx.Response.SetBodyRaw(raw)
			return
		}
		ctx.Response.AppendBody(raw) // into a buffer that answers share one after the other
		ctx.Response.AppendBody(r.Shared)
		ctx.Response.AppendBodyString("}")
	}
}

var jsonType = []byte("application/json")

// run runs an exchange through the hallway. It is where an exchange counts as
// under way.
func (e *Edge) run(x *exchange) (r *edge.Response, err error) {
	defer func() {
		if p := recover(); p != nil {
			e.log.Error("panic in an exchange", "panic", p, "request", x.requestID(), "stack", string(debug.Stack()))
			x.way.keep() // nobody knows who else has a hold of it
			r, err = nil, edge.Errorf(edge.Internal, "handle", "%v", p)
		}
	}()
	m := x.Request
	if !x.server.Takes(m, x.Era) {
		return x.turned(route.ErrNoMethod(m))
	}
	if err := checkToken(m); err != nil {
		return x.turned(err)
	}
	if x.Target, err = x.server.Target(&x.Call, &x.Exchange); err != nil {
		return x.turned(err)
	}
	if x.Lasts = m.Method == "subscriptions/listen"; x.Lasts {
		who := edge.Holder(x.Identity, x.Head.Remote)
		if err := e.sessions.TakeStream(who); err != nil {
			return x.turned(err)
		}
		defer e.sessions.GiveStream(who)
	}
	if !x.way.conn.Enter(&x.Call, x.endsWithClient()) {
		x.Cancel()
		return x.turned(edge.Errorf(edge.Gone, "door", "the client left"))
	}
	defer x.way.conn.Leave(&x.Call)
	if x.s != nil && m.Kind == mcp.Request {
		x.ID = x.request.IDText()
		x.s.Enter(&x.Call)
		defer x.s.Leave(&x.Call)
	}
	if x.s != nil && x.s.Shared() && session.Memorable(m.Method) {
		r, err = e.setUp(x)
	} else {
		r, err = x.server.chain.Handle(&x.Call, &x.Exchange)
	}
	if err != nil && x.server.gate != nil {
		err = x.server.gate.StepUp(err)
	}
	if err != nil && edge.KindOf(err) == edge.Internal {
		e.fault(x, err)
	}
	if x.s != nil && e.sessions.Replaced() {
		e.sessions.HandOn(x.s)
	}
	return r, err
}

// checkToken refuses a progress token that is longer than an id: it stands in
// every message about its call.
func checkToken(m *mcp.Message) error {
	if len(m.Raw) <= mcp.MaxID { // there is no need to look
		return nil
	}
	if n := len(m.Meta("progressToken").Of(m.Raw)); n > mcp.MaxID {
		return edge.Errorf(edge.Params, "check", "params._meta.progressToken has %d bytes: at most %d", n, mcp.MaxID)
	}
	return nil
}

// setUp serves a request that sets up something that a session keeps, also at
// the other edges that have it.
func (e *Edge) setUp(x *exchange) (*edge.Response, error) {
	if err := x.s.RoomToSubscribe(x.Request); err != nil {
		return nil, err
	}
	r, err := x.server.chain.Handle(&x.Call, &x.Exchange)
	if err == nil && r != nil && r.Kind == mcp.Result {
		err = e.sessions.Remember(x.s, x.Request)
	}
	return r, err
}

// get opens the stream of a legacy session.
func (e *Edge) get(ctx *fasthttp.RequestCtx, h *head, server *server) {
	if headEra(h) == mcp.Modern {
		e.notAllowed(ctx, h, "POST")
		return
	}
	if h.takes&takesStream == 0 || !ctx.Request.Header.IsHTTP11() {
		e.refuse(ctx, h, mcp.Legacy, nil, errNoSuchStream())
		return
	}
	s, err := e.sessionOf(h, server)
	var place *session.Place
	if err == nil {
		place, err = e.sessions.Place(e.holder(h), server.Name, h.who)
	}
	if err == nil {
		defer place.Release()
		place.Lines, err = e.streamLines(ctx, h, server)
	}
	if err != nil {
		e.refuse(ctx, h, mcp.Legacy, nil, err)
		return
	}
	if len(h.lastEvent) == 0 {
		e.done(ctx, h, server)
		s.OpenedBy(h.who)
		place.TakeOver(ctx, s, func(o *session.Stream) {
			s.Open(o)
			if s.Shared() {
				e.work.Go(func() { e.sessions.CatchUp(s) })
			}
		}, s.Shut)
		return
	}
	if node, ok := e.sessions.Elsewhere(s, string(h.lastEvent)); ok {
		d, err := e.sessions.OpenRemote(s, node, string(h.lastEvent), relay.WhoIs(h.who.Principal(), "address "+e.door.ClientOf(ctx)))
		if err != nil {
			e.refuse(ctx, h, mcp.Legacy, nil, err)
			return
		}
		e.done(ctx, h, server)
		begun := false
		place.TakeOver(ctx, s, func(o *session.Stream) {
			begun = true
			e.work.Go(func() { d.Pass(o) })
		}, func(*session.Stream) {
			if !begun {
				d.Close()
			}
		})
		return
	}
	log, after := s.Find(string(h.lastEvent))
	if log != nil && log.Settled(false) {
		log, after = s.Find(string(h.lastEvent))
	}
	if log == nil {
		e.refuse(ctx, h, mcp.Legacy, nil, session.ErrLostEvents())
		return
	}
	e.done(ctx, h, server)
	place.TakeOver(ctx, s, func(o *session.Stream) { log.Resume(o, after) }, func(o *session.Stream) { log.Left(o) })
}

func errNoSuchStream() error {
	return edge.Errorf(edge.NotAcceptable, "door", "Accept must hold text/event-stream, and the request be HTTP/1.1")
}

// delete ends a legacy session.
func (e *Edge) delete(ctx *fasthttp.RequestCtx, h *head, server *server) {
	if headEra(h) == mcp.Modern {
		e.notAllowed(ctx, h, "POST")
		return
	}
	s, err := e.sessionOf(h, server)
	if err != nil {
		e.refuse(ctx, h, mcp.Legacy, nil, err)
		return
	}
	if err := e.sessions.EndShared(s); err != nil {
		e.refuse(ctx, h, mcp.Legacy, nil, err)
		return
	}
	e.sessions.TellKin(s, relay.KindEnd, nil)
	e.sessions.End(s.ID)
	e.done(ctx, h, server)
	e.cors(ctx, h)
	ctx.SetStatusCode(200)
}
