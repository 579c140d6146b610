package serve

import (
	"bytes"
	"context"
	"errors"
	"runtime/debug"

	"github.com/valyala/fasthttp"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/door"
	"github.com/weir-edge/weir/edge/mcp"
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
			(&request{ctx: ctx}).write(edge.Fail(mcp.Legacy, nil, edge.Errorf(edge.Internal, "handle", "%v", r)))
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
	req := request{ctx: ctx, conn: conn, at: e.doorOf(conn)}
	req.read(&ctx.Request.Header)
	origin := req.origin
	req.origin = nil // no answer names it before it is known to be allowed
	// 2. Whether the request means this host, and comes from a page that may send it.
	entrance := conn.Entrance()
	if !entrance.AllowsHost(req.host) {
		e.forbid(&req, edge.Errorf(edge.Forbidden, "door", "this Host is not allowed; see --allowed-hosts"))
		return
	}
	path := ctx.Request.Header.RequestURI()
	query := []byte(nil)
	if i := bytes.IndexByte(path, '?'); i >= 0 {
		path, query = path[:i], path[i+1:]
	}
	if req.originSet && !entrance.AllowsOrigin(origin) {
		if one, ok := req.at.mounts.Find(string(path)); !ok || !one.AnyOrigin {
			e.forbid(&req, edge.Errorf(edge.Forbidden, "door", "this Origin is not allowed; see --allowed-origins"))
			return
		}
	}
	req.origin = origin
	// 3. What the path leads to, as it was written.
	if entrance.Leaving() {
		ctx.SetConnectionClose()
		e.door.Knock()
	}
	req.query = query
	at, nothing := req.at, "not found\n"
	if string(path) == "/mcp" && at.main != nil {
		e.visit(&req, at.main, "/mcp")
		return
	}
	if s, door := at.server(string(path)); s != nil {
		switch door {
		case "/mcp", "/sse", "/messages":
			e.visit(&req, s, door)
			return
		}
	} else if door != "" || bytes.HasPrefix(path, []byte("/servers/")) {
		if nothing = "not found: there is no server at this path\n"; len(at.servers) > 1 {
			nothing = "not found: each of several servers is at /servers/NAME/mcp, and --default-server names the one at /mcp\n"
		}
	}
	switch string(path) {
	case "/health":
		door.Plain(ctx, 200, "ok\n")
	case "/readyz":
		e.readyz(ctx)
	case "/status":
		if servers := e.lookedAt(&req); len(servers) > 0 {
			writeStatus(ctx, servers)
		}
	default:
		if one, ok := at.mounts.Find(string(path)); ok {
			at.mounts.Serve(req.ctx, req.conn, one)
			return
		}
		e.knocked(&req, edge.Errorf(edge.NoServer, "door", "there is no such server"))
		door.Plain(ctx, 404, nothing)
	}
}

// doorOf returns the door that a client came in by, as the plan has it that is served now.
func (e *Edge) doorOf(conn *door.Conn) *doorway {
	if d := e.live.Load().at[conn.Entrance()]; d != nil {
		return d
	}
	return nowhere
}

// visit serves a request for one of a server's endpoints: programs see it first, then the
// client is authenticated.
func (e *Edge) visit(req *request, s *server, path string) {
	req.server, req.sse = s, path != "/mcp"
	s.coming.Add(1)
	req.comes = true
	defer req.came()
	if req.sse && s.stateless != nil {
		e.knocked(req, edge.Errorf(edge.NoServer, "door", "the server is stateless"))
		door.Plain(req.ctx, 404, "this server is stateless: POST to /mcp\n")
		return
	}
	if e.askPrograms(req) && req.admit(s) {
		switch path {
		case "/mcp":
			e.endpoint(req)
		case "/sse":
			e.older.open(req)
		case "/messages":
			e.older.post(req)
		}
	}
	if s.guest.HTTPResponse != nil {
		req.finish()
	}
}

// came notes that nobody waits for what a request holds any longer.
func (req *request) came() {
	if req != nil && req.comes {
		req.comes = false
		req.server.coming.Add(-1)
	}
}

// endpoint is the one URL of every revision.
func (e *Edge) endpoint(req *request) {
	if req.server.stateless != nil && !req.ctx.IsPost() && !req.ctx.IsOptions() {
		req.notAllowed("POST, OPTIONS")
		return
	}
	switch string(req.ctx.Method()) {
	case "POST":
		e.post(req)
	case "GET":
		e.get(req)
	case "DELETE":
		e.delete(req)
	case "OPTIONS":
		req.preflight()
	default:
		req.notAllowed("POST, GET, DELETE, OPTIONS")
	}
}

// admit authenticates the client before anything else that it sent is looked at. It
// reports false when it has refused the request. A preflight request of a browser needs no
// credential.
func (req *request) admit(s *server) bool {
	if s.gate == nil || req.ctx.IsOptions() {
		return true
	}
	if req.who = s.gate.Remembered(req.authorization); req.who != nil {
		return true
	}
	who, err := s.gate.Identify(context.Background(), edge.Secret(req.authorization), req.client())
	if err != nil {
		who, err = s.known(req, err)
	}
	if err != nil {
		req.refuse(headEra(req), nil, err)
		return false
	}
	req.who = who
	return true
}

// post takes a message of either era.
func (e *Edge) post(req *request) {
	if err := checkBody(req); err != nil {
		req.refuse(headEra(req), nil, err)
		return
	}
	if e.inflight.Load() >= int64(e.settings.MaxInflight) && (!req.hasSession || req.server.stateless != nil) {
		req.refuse(headEra(req), nil, errFull())
		return
	}
	if !e.body(req) {
		return
	}
	full := e.inflight.Add(1) > int64(e.settings.MaxInflight)
	defer e.inflight.Add(-1)
	x := e.newExchange(req)
	m := x.Request
	x.Era = headEra(req)
	err := m.Decode(req.body)
	if err == nil {
		req.x, x.Era = x, era(m, req)
		err = m.CheckID()
	}
	if full && (err != nil || !forSession(m)) {
		req.refuse(headEra(req), m.IDText(), errFull())
		return
	}
	switch {
	case errors.Is(err, mcp.ErrBatch):
		e.batch(req)
		return
	case err != nil:
		kind := edge.Invalid
		var syntax *mcp.SyntaxError
		if errors.As(err, &syntax) {
			kind = edge.Malformed
		}
		req.refuse(x.Era, m.IDText(), edge.Errorf(kind, "door", "%w", err))
		return
	}
	if x.Era == mcp.Modern {
		if m.Method == "subscriptions/listen" {
			err = outlasts(m, req)
		}
		if err == nil {
			x.Name, err = checkModern(m, req)
		}
		if err != nil {
			req.refuse(mcp.Modern, m.IDText(), err)
			return
		}
		x.Head.Params = req.params
		e.serve(req, x)
		x.recycle()
		return
	}
	if m.Method == "initialize" && m.Kind == mcp.Request {
		e.initialize(req, x)
		return
	}
	if req.server.stateless != nil {
		e.withoutSession(req, x)
		return
	}
	s, err := e.sessionOf(req)
	if err != nil {
		req.refuse(mcp.Legacy, m.IDText(), err)
		return
	}
	x.within(s)
	if e.aside(x) {
		req.ctx.SetStatusCode(202)
		req.cors()
		return
	}
	e.serve(req, x)
	x.recycle()
}

// checkBody says whether the body is one that the endpoint takes.
func checkBody(req *request) error {
	kind := req.contentType
	if string(kind) == "application/json" && len(req.encoding) == 0 {
		return nil
	}
	if i := bytes.IndexByte(kind, ';'); i >= 0 {
		kind = kind[:i]
	}
	if !bytes.EqualFold(bytes.TrimSpace(kind), []byte("application/json")) {
		return edge.Errorf(edge.MediaType, "door", "Content-Type must be application/json")
	}
	if len(req.encoding) > 0 && !bytes.EqualFold(req.encoding, []byte("identity")) {
		return edge.Errorf(edge.MediaType, "door", "Content-Encoding is not supported; send the body as it is")
	}
	return nil
}

func errFull() error { return edge.Errorf(edge.Overload, "door", "too many requests at a time") }

// serve runs an exchange through the hallway and writes its answer.
func (e *Edge) serve(req *request, x *exchange) {
	x.way.headers = req.corsLines()
	if x.server.guest.HTTPResponse != nil {
		x.way.asked = x.server.asked(req)
	}
	r, err := e.run(req, x)
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
	if x.Era == mcp.Modern && x.Err() != nil {
		req.ctx.SetConnectionClose()
	}
	if x.way.end(raw, req.takes.streamOnly()) {
		x.way.conn.Swallow()
		if x.way.err != nil {
			req.ctx.SetConnectionClose()
		}
		return
	}
	switch {
	case raw == nil:
		req.ctx.SetStatusCode(202)
		req.cors()
	case err != nil:
		req.write(f)
	default:
		req.cors()
		req.ctx.SetStatusCode(r.Status)
		req.ctx.Response.Header.SetContentTypeBytes(jsonType)
		if door.SendLarge(req.ctx, r) {
			return
		}
		if r.Shared == nil {
			req.ctx.Response.SetBodyRaw(raw)
			return
		}
		req.ctx.Response.AppendBody(raw) // into a buffer that answers share one after the other
		req.ctx.Response.AppendBody(r.Shared)
		req.ctx.Response.AppendBodyString("}")
	}
}

var jsonType = []byte("application/json")

// run runs an exchange through the hallway. Meanwhile it is listed as under way, and its server no
// longer waits for the request that it came by; nil for one that is over. It returns neither an
// answer nor an error where nobody waits for one.
func (e *Edge) run(req *request, x *exchange) (r *edge.Response, err error) {
	defer func() {
		if err != nil && x.Err() != nil {
			err = x.ended()
		}
	}()
	defer func() {
		if p := recover(); p != nil {
			e.log.Error("panic in an exchange", "panic", p, "request", x.requestID(), "stack", string(debug.Stack()))
			x.way.keep() // somebody else may still hold it
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
		if x.server.gate != nil { // a list that the user lacks the credential for
			err = x.server.gate.StepUp(err)
		}
		return x.turned(err)
	}
	if x.Lasts = m.Method == "subscriptions/listen"; x.Lasts {
		who := edge.Holder(x.Identity, x.Head.Remote)
		if err := e.sessions.TakeStream(who); err != nil {
			return x.turned(err)
		}
		defer e.sessions.GiveStream(who)
		// It counts as a stream from here on: who only listens takes no room from calls, of
		// which there may be fewer at a time than there are streams.
		e.inflight.Add(-1)
		defer e.inflight.Add(1)
	}
	entered := x.way.conn.Enter(&x.Call, x.endsWithClient())
	req.came()
	if !entered {
		x.Cancel()
		return x.turned(edge.Errorf(edge.Gone, "door", "the client left"))
	}
	defer x.way.conn.Leave(&x.Call)
	if x.s != nil && m.Kind == mcp.Request {
		x.ID = x.request.IDText()
		x.s.Enter(&x.Call)
		defer x.s.Leave(&x.Call)
	}
	if x.pooled != nil {
		x.pooled.Enter(&x.Call) // so that the session does not end meanwhile
		defer x.pooled.Leave(&x.Call)
	}
	if x.s != nil && x.s.Shared() && session.Memorable(m.Method) {
		r, err = e.setUp(x)
	} else {
		r, err = x.server.chain.Handle(&x.Call, &x.Exchange)
	}
	if err == nil && m.Method == "notifications/roots/list_changed" && x.s != nil && x.s.Shared() {
		e.sessions.PassRoots(x.s)
	}
	if err != nil && x.Parked != nil {
		x.Parked() // its client will not hear what it waits for
	}
	if err != nil && x.server.gate != nil {
		err = x.server.gate.StepUp(err)
	}
	if err != nil && edge.KindOf(err) == edge.Internal {
		x.fault(err)
	}
	if x.s != nil && e.sessions.Replaced() {
		e.sessions.HandOn(x.s)
	}
	return r, err
}

// checkToken refuses a progress token that is longer than an id, since every message
// about the call repeats it.
func checkToken(m *mcp.Message) error {
	if len(m.Raw) <= mcp.MaxID { // there is no need to look
		return nil
	}
	if n := len(m.Meta("progressToken").Of(m.Raw)); n > mcp.MaxID {
		return edge.Errorf(edge.Params, "check", "params._meta.progressToken has %d bytes: at most %d", n, mcp.MaxID)
	}
	return nil
}
