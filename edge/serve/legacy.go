package serve

import (
	"bytes"
	"context"
	"slices"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/relay"
	"github.com/weir-edge/weir/edge/session"
)

// What legacy clients have beside calls: their session, which initialize begins and DELETE
// ends, its streams, and what they send about it.

// initialize begins a legacy session.
func (e *Edge) initialize(req *request, x *exchange) {
	s, r, err := e.begin(x, x.server.store, "")
	if err != nil {
		req.write(edge.Fail(mcp.Legacy, x.Request.IDText(), err))
		return
	}
	if s != nil { // a stateless server has none
		if e.sessions.Replaced() {
			e.sessions.HandOn(s)
		}
		req.ctx.Response.Header.Set(mcp.HeaderSession, s.ID)
	}
	result := r.Raw
	req.cors()
	if req.takes.streamOnly() {
		req.ctx.Response.Header.SetContentType("text/event-stream")
		req.ctx.Response.SetBodyRaw(mcp.AppendEvent(nil, "message", "", result))
		return
	}
	req.ctx.Response.Header.SetContentTypeBytes(jsonType)
	req.ctx.Response.SetBodyRaw(result)
}

// begin makes the session that an initialize asks for, and the answer to it. The session
// lies in the store, if there is one. Its id is a new one, or id for a stream of the older
// transport: then it does without a store that is away.
func (e *Edge) begin(x *exchange, store *session.Store, id string) (s *session.Session, r *edge.Response, err error) {
	r, err = x.server.observed(&x.Call, &x.Exchange, func(context.Context, *edge.Exchange) (*edge.Response, error) {
		s, r, err = e.introduce(x, store, id)
		return r, err
	})
	return s, r, err
}

func (e *Edge) introduce(x *exchange, store *session.Store, id string) (*session.Session, *edge.Response, error) {
	m := x.Request
	version := m.Text("protocolVersion")
	if version == "" {
		return nil, nil, edge.Errorf(edge.Params, "initialize", "params.protocolVersion is missing")
	}
	if !mcp.LegacyVersion(version) {
		version = mcp.V2511 // the newest with sessions; the client decides whether it will do
	}
	caps := m.Get("capabilities").Of(m.Raw)
	if caps == nil || caps[0] != '{' {
		return nil, nil, edge.Errorf(edge.Params, "initialize", "params.capabilities is missing")
	}
	info := m.Get("clientInfo").Of(m.Raw)
	if err := session.ErrSaidMuch("params.clientInfo and params.capabilities", len(info), len(caps)); err != nil {
		return nil, nil, err
	}
	if x.server.stateless != nil {
		offered, instructions := x.server.Offer(&x.Call, mcp.Legacy)
		r, err := edge.Reply(m, mcp.Initialized(version, untold(offered), x.server.info, instructions))
		return nil, r, err
	}
	if x.server.passes != nil {
		if err := x.server.passes.Judge(&x.Exchange); err != nil {
			return nil, nil, err
		}
	}
	var lines []edge.Header // of what belongs to no call
	if x.server.Upstream == nil {
		lines = slices.Clone(x.Forward) // else filters say at each call which backend receives which
	}
	s, err := e.sessions.Begin(session.Beginning{
		ID: id, Store: store, Server: x.server.Name, Owner: x.Identity.Principal(), Holder: edge.Holder(x.Identity, x.Head.Remote),
		Version: version, Info: bytes.Clone(info), Capabilities: bytes.Clone(caps), Forward: lines,
		Judge: x.judge,
	})
	if err != nil {
		return nil, nil, err
	}
	offered, instructions := x.server.Offer(&x.Call, mcp.Legacy)
	r, err := edge.Reply(m, mcp.Initialized(version, offered, x.server.info, instructions))
	return s, r, err
}

// sessionOf finds the session of a legacy request.
func (e *Edge) sessionOf(req *request) (*session.Session, error) {
	if req.hasVersion && !mcp.LegacyVersion(string(req.version)) {
		return nil, badVersion(string(req.version))
	}
	if !req.hasSession {
		return nil, edge.Errorf(edge.Invalid, "door", "header Mcp-Session-Id is missing; send initialize first")
	}
	return e.sessionByID(req, string(req.session))
}

// sessionByID finds the session of an id for the client of a request.
func (e *Edge) sessionByID(req *request, id string) (*session.Session, error) {
	server := req.server
	s, err := e.sessions.Find(server.Name, server.store, id, req.who.Principal())
	if err == session.ErrNotHere {
		s, err = e.sessions.Restore(server.store, server.Name, id, req.who.Principal(), req.holder())
	}
	return s, err
}

// forSession reports whether a legacy client's message is one that aside takes.
// It passes a full edge: what fills the edge may be waiting for it.
func forSession(m *mcp.Message) bool {
	return m.Kind == mcp.Result || m.Kind == mcp.Failure || m.Method == "notifications/initialized" || m.Method == "notifications/cancelled"
}

// aside handles messages of a legacy client that are not for a backend: answers to
// questions, and notifications about its session and its calls. It reports whether the
// message was one.
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
	}) // neither can fail
	return true
}

// setUp serves a request whose effect a session keeps, such as a subscription, also at the
// other edges that have the session.
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
func (e *Edge) get(req *request) {
	if headEra(req) == mcp.Modern {
		req.notAllowed("POST")
		return
	}
	if req.takes&takesStream == 0 || !req.ctx.Request.Header.IsHTTP11() {
		req.refuse(mcp.Legacy, nil, errNoSuchStream())
		return
	}
	s, err := e.sessionOf(req)
	var place *session.Place
	if err == nil && len(req.lastEvent) == 0 && s.Lost() {
		err = session.ErrNone()
	}
	if err == nil {
		place, err = e.sessions.Place(req.holder(), req.server.Name, req.who)
	}
	if err == nil {
		defer place.Release()
		place.Lines, err = req.streamLines()
	}
	if err != nil {
		req.refuse(mcp.Legacy, nil, err)
		return
	}
	if len(req.lastEvent) == 0 {
		req.done()
		s.OpenedBy(req.who)
		place.TakeOver(req.ctx, s, func(o *session.Stream) {
			s.Open(o)
			if s.Shared() {
				e.work.Go(func() { e.sessions.CatchUp(s) })
			}
		}, s.Shut)
		return
	}
	if node, ok := e.sessions.Elsewhere(s, string(req.lastEvent)); ok {
		d, err := e.sessions.OpenRemote(s, node, string(req.lastEvent), relay.WhoIs(req.who.Principal(), "address "+req.client()))
		if err != nil {
			req.refuse(mcp.Legacy, nil, err)
			return
		}
		req.done()
		begun := false
		place.TakeOver(req.ctx, s, func(o *session.Stream) {
			begun = true
			e.work.Go(func() { d.Pass(o) })
		}, func(*session.Stream) {
			if !begun {
				d.Close()
			}
		})
		return
	}
	log, after := s.Find(string(req.lastEvent))
	if log != nil && log.Settled(false) {
		log, after = s.Find(string(req.lastEvent))
	}
	if log == nil {
		req.refuse(mcp.Legacy, nil, session.ErrLostEvents())
		return
	}
	req.done()
	place.TakeOver(req.ctx, s, func(o *session.Stream) { log.Resume(o, after) }, func(o *session.Stream) { log.Left(o) })
}

func errNoSuchStream() error {
	return edge.Errorf(edge.NotAcceptable, "door", "Accept must hold text/event-stream, and the request be HTTP/1.1")
}

// delete ends a legacy session.
func (e *Edge) delete(req *request) {
	if headEra(req) == mcp.Modern {
		req.notAllowed("POST")
		return
	}
	s, err := e.sessionOf(req)
	if err != nil {
		req.refuse(mcp.Legacy, nil, err)
		return
	}
	if err := e.sessions.EndShared(s); err != nil {
		req.refuse(mcp.Legacy, nil, err)
		return
	}
	e.sessions.TellKin(s, relay.KindEnd, nil)
	e.sessions.End(s.ID)
	req.done()
	req.cors()
	req.ctx.SetStatusCode(200)
}
