package serve

import (
	"bytes"
	"context"

	"github.com/valyala/fasthttp"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/session"
)

// initialize begins a legacy session.
func (e *Edge) initialize(ctx *fasthttp.RequestCtx, h *head, x *exchange) {
	s, r, err := e.begin(x, x.server.store, "")
	if err != nil {
		e.write(ctx, h, edge.Fail(mcp.Legacy, x.Request.IDText(), err))
		return
	}
	if e.sessions.Replaced() {
		e.sessions.HandOn(s)
	}
	result := r.Raw
	ctx.Response.Header.Set(mcp.HeaderSession, s.ID)
	e.cors(ctx, h)
	if h.takes.streamOnly() {
		ctx.Response.Header.SetContentType("text/event-stream")
		ctx.Response.SetBodyRaw(mcp.AppendEvent(nil, "message", "", result))
		return
	}
	ctx.Response.Header.SetContentTypeBytes(jsonType)
	ctx.Response.SetBodyRaw(result)
}

// begin makes the session that an initialize asks for, and the answer to it. The
// session lies in the store, if there is one. Its id is a new one, or that given,
// which belongs to a stream of the older transport: then it goes without a store
// that is away.
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
	s, err := e.sessions.Begin(session.Beginning{
		ID: id, Store: store, Server: x.server.Name, Owner: x.Identity.Principal(), Holder: edge.Holder(x.Identity, x.Head.Remote),
		Version: version, Info: bytes.Clone(info), Capabilities: bytes.Clone(caps),
	})
	if err != nil {
		return nil, nil, err
	}
	if err := e.begun(x, s); err != nil {
		return nil, nil, err
	}
	offered, instructions := x.server.Offer(&x.Call, mcp.Legacy)
	r, err := edge.Reply(m, mcp.Initialized(version, offered, x.server.info, instructions))
	return s, r, err
}
