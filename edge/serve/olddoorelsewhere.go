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
	return base64.RawURLEncoding.EncodeToString(sum[:idBytes])
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
	id, t := oldSession(address), server.shared
	conn := e.door.Apart(x.way.conn.From) // the call is not over with the connection of the POST
	x.way.conn, x.way.able = conn, true
	who := relay.Who(&x.Exchange)
	x.way.out = func(raw []byte) error {
		return t.Deliver(context.Background(), node, who, relay.Message{Kind: relay.KindSay, Stream: keyOf(id)}, raw)
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
		_ = e.endCommon(s) // what the store cannot be told ends with its lifetime
		e.sessions.end(s.ID)
		err = errNoSession()
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
	s, result, err := e.begin(x, x.server.shared, id)
	switch {
	case err != nil:
	case s.common.key == "":
		e.sessions.end(s.ID)
		err = relay.ErrAway()
	default:
		if err = e.openThere(x.server.shared, node, relay.Who(&x.Exchange), keyOf(id), result.Raw); err != nil {
			_ = e.endCommon(s) // what the store cannot be told ends with its lifetime
			e.sessions.end(s.ID)
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
func (e *Edge) openThere(t *shared, node, who, key string, result []byte) error {
	if !t.Alive(node) { // no call is lost with it
		return errNoSession()
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
		err = errNoSession()
	}
	return err
}

// opened gives a stream here the session that its client has begun at another
// edge.
func (e *Edge) opened(t *shared, l relay.Message, result []byte) {
	back := relay.Message{Kind: relay.KindTaken, From: e.relay.Node, Stream: l.Stream}
	if err := e.openHere(t, l.Session, result); err != nil {
		back.Kind, back.Error = relay.KindError, relay.FaultOf(err)
	}
	_ = t.Send(l.From, back, nil) // who waits gives up by itself
}

func (e *Edge) openHere(t *shared, key string, result []byte) error {
	d := e.doors.known(key)
	if d == nil {
		return errNoSession()
	}
	served := e.live.Load().servers[d.server]
	if served == nil || served.shared != t {
		return errNoSession()
	}
	s, err := e.restore(t, served, d.session, d.owner, d.holder) // which compares whose it is
	if err != nil {
		return err
	}
	if err := e.attach(d, s); err != nil {
		return err
	}
	return d.out.write("message", result)
}

// attach gives a stream the session that its client has begun, and has it say
// what other edges post for it.
func (e *Edge) attach(d *sseDoor, s *session) error {
	d.mu.Lock()
	had, over := d.s, d.over
	if had == nil && !over {
		d.s = s
	}
	d.mu.Unlock()
	if had != nil || over {
		if had != s {
			e.sessions.end(s.ID)
		}
		if over {
			return errNoSession()
		}
		return errBegunBefore()
	}
	if s.common.key != "" {
		one, err := e.relay.Open(s.common.key, relay.WhoIs(d.owner, s.common.key))
		if err != nil {
			return err
		}
		e.work.Go(func() {
			defer edge.Contain(e.log, "older transport")
			defer one.Close()
			d.out.say(one)
		})
	}
	d.out.join(s)
	s.open(d.out, e.listener(s))
	return nil
}

func errBegunBefore() error {
	return edge.Errorf(edge.Invalid, "door", "initialize was sent before")
}

// say writes what other edges post for the client of a stream, until that ends.
// A client that reads too slowly for it loses the stream: something would be
// missing from there on.
func (o *outlet) say(one *relay.Stream) {
	for {
		d, there, over := one.Take()
		switch {
		case there:
			if o.write("message", d.Body) != nil {
				return
			}
			continue
		case over:
			o.close()
			return
		}
		select {
		case <-one.Wake:
		case <-o.done:
			return
		}
	}
}
