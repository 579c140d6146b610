package serve

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strings"

	"github.com/valyala/fasthttp"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/relay"
	"github.com/weir-edge/weir/edge/session"
)

// The stream of the older transport is at one edge; what its client POSTs may
// come to any edge that shares the store. The address that it POSTs to names the
// edge that has the stream. Whichever edge a message comes to serves it, in the
// common session of the stream, and what is to be said to the client goes to the
// stream as letters.

// oldSession is the id of the session that belongs to a stream, by the id in the
// address of the stream. Nobody learns one from the other.
func oldSession(address string) string {
	sum := sha256.Sum256([]byte("sse\x00" + address))
	return base64.RawURLEncoding.EncodeToString(sum[:session.IDBytes])
}

// elsewhere returns the edge that a stream is at by its address, when it is not
// this one.
func (t *sseDoors) elsewhere(address, here string) (node string, ok bool) {
	node, _, ok = strings.Cut(address, ".")
	return node, ok && relay.IsNode(node) && node != here
}

// postAway takes a message whose stream is at another edge.
func (e *Edge) postAway(ctx *fasthttp.RequestCtx, h *head, server *server, node, address string) {
	x := e.newExchange(ctx, h, server)
	id, t := oldSession(address), server.store
	conn := e.door.Apart(x.way.conn.From) // the call is not over with the connection of the POST
	x.way.conn, x.way.able = conn, true
	who := relay.Who(&x.Exchange)
	x.way.out = func(raw []byte) error {
		return t.Deliver(context.Background(), node, who, relay.Message{Kind: relay.KindSay, Stream: session.Key(id)}, raw)
	}
	if !e.readOld(ctx, h, x) {
		return
	}
	if x.Request.Method == "initialize" && x.Request.Kind == mcp.Request {
		e.initializeAway(ctx, h, x, node, id)
		return
	}
	s, err := e.sessionByID(h, server, id)
	if err == nil && t.Gone(node) { // and with it the stream
		_ = e.sessions.EndShared(s) // what the store cannot be told ends with its lifetime
		e.sessions.End(s.ID)
		err = session.ErrNone()
	}
	if err != nil {
		e.refuse(ctx, h, mcp.Legacy, x.Request.IDText(), err)
		return
	}
	x.s = s
	e.door.BeginApart(conn)
	e.serveOld(ctx, h, x, func() { e.door.EndApart(conn) })
}

// initializeAway begins the session of a stream at another edge, which goes on
// there with it and tells the client.
func (e *Edge) initializeAway(ctx *fasthttp.RequestCtx, h *head, x *exchange, node, id string) {
	s, result, err := e.begin(x, x.server.store, id)
	switch {
	case err != nil:
	case !s.Shared():
		e.sessions.End(s.ID)
		err = relay.ErrAway()
	default:
		if err = e.openThere(x.server.store, node, relay.Who(&x.Exchange), session.Key(id), result.Raw); err != nil {
			_ = e.sessions.EndShared(s) // what the store cannot be told ends with its lifetime
			e.sessions.End(s.ID)
		}
	}
	if err != nil {
		e.refuse(ctx, h, mcp.Legacy, x.Request.IDText(), err)
		return
	}
	e.cors(ctx, h)
	ctx.SetStatusCode(202)
}

// openThere has the edge that has a stream go on there with the session that its
// client has begun here.
func (e *Edge) openThere(t *session.Store, node, who, key string, result []byte) error {
	if !t.Alive(node) { // no call is lost with it
		return session.ErrNone()
	}
	one, err := e.relay.Open(relay.NewName(), who)
	if err != nil {
		return err
	}
	defer one.Close()
	if t.Send(node, relay.Message{Kind: relay.KindOpen, From: e.relay.Node, Stream: one.Name, Session: key}, result) != nil {
		return relay.ErrAway()
	}
	if _, err = t.First(t.Life, one, node); errors.Is(err, relay.ErrGone) {
		err = session.ErrNone()
	}
	return err
}

// opened gives a stream here the session that its client has begun at another
// edge.
func (e *Edge) opened(t *session.Store, l relay.Message, result []byte) {
	back := relay.Message{Kind: relay.KindTaken, From: e.relay.Node, Stream: l.Stream}
	if err := e.openHere(t, l.Session, result); err != nil {
		back.Kind, back.Error = relay.KindError, relay.FaultOf(err)
	}
	_ = t.Send(l.From, back, nil) // who waits gives up by itself
}

func (e *Edge) openHere(t *session.Store, key string, result []byte) error {
	d := e.doors.known(key)
	if d == nil {
		return session.ErrNone()
	}
	served := e.live.Load().servers[d.server]
	if served == nil || served.store != t {
		return session.ErrNone()
	}
	s, err := e.sessions.Restore(t, served.Name, d.session, d.owner, d.holder) // which compares whose it is
	if err != nil {
		return err
	}
	if err := e.attach(d, s); err != nil {
		return err
	}
	return d.out.Write("message", result)
}

// attach gives a stream the session that its client has begun, and has it say
// what other edges post for it.
func (e *Edge) attach(d *sseDoor, s *session.Session) error {
	d.mu.Lock()
	had, over := d.s, d.over
	if had == nil && !over {
		d.s = s
	}
	d.mu.Unlock()
	if had != nil || over {
		if had != s {
			e.sessions.End(s.ID)
		}
		if over {
			return session.ErrNone()
		}
		return session.ErrBegun()
	}
	if key := s.Key(); key != "" {
		one, err := e.relay.Open(key, relay.WhoIs(d.owner, key))
		if err != nil {
			return err
		}
		e.work.Go(func() {
			defer edge.Contain(e.log, "older transport")
			defer one.Close()
			d.out.Say(one)
		})
	}
	s.EndsWithStream()
	d.out.Join(s)
	s.Open(d.out)
	return nil
}
