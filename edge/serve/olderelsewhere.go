package serve

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strings"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/relay"
	"github.com/weir-edge/weir/edge/session"
)

// The stream of the older transport is at one edge; what its client POSTs may
// come to any edge that shares the store. The address that it POSTs to names the
// edge that has the stream. Whichever edge a message comes to serves it, in the
// common session of the stream, and sends messages for the client to the edge that has the
// stream.

// oldSession is the id of the session that belongs to a stream, by the id in the
// address of the stream. Nobody learns one from the other.
func oldSession(address string) string {
	sum := sha256.Sum256([]byte("sse\x00" + address))
	return base64.RawURLEncoding.EncodeToString(sum[:session.IDBytes])
}

// elsewhere returns the edge that a stream is at by its address, when it is not
// this one.
func (old *older) elsewhere(address, here string) (node string, ok bool) {
	node, _, ok = strings.Cut(address, ".")
	return node, ok && relay.IsNode(node) && node != here
}

// postElsewhere takes a message whose stream is at another edge.
func (old *older) postElsewhere(req *request, node, address string) {
	x := old.edge.newExchange(req)
	id, t := oldSession(address), req.server.store
	conn := old.edge.door.Apart(x.way.conn.From) // the call is not over with the connection of the POST
	x.way.conn, x.way.able = conn, true
	who := relay.Who(&x.Exchange)
	x.way.out = func(raw []byte) error {
		return t.Deliver(context.Background(), node, who, relay.Message{Kind: relay.KindSay, Stream: session.Key(id)}, raw)
	}
	if !old.read(req, x) {
		return
	}
	if x.Request.Method == "initialize" && x.Request.Kind == mcp.Request {
		old.initializeElsewhere(req, x, node, id)
		return
	}
	s, err := old.edge.sessionByID(req, id)
	if err == nil && t.Gone(node) { // and with it the stream
		_ = old.edge.sessions.EndShared(s) // what the store cannot be told ends with its lifetime
		old.edge.sessions.End(s.ID)
		err = session.ErrNone()
	}
	if err != nil {
		req.refuse(mcp.Legacy, x.Request.IDText(), err)
		return
	}
	x.s = s
	old.edge.door.BeginApart(conn)
	old.serve(req, x, func() { old.edge.door.EndApart(conn) })
}

// initializeElsewhere begins the session of a stream at another edge, which goes on
// there with it and tells the client.
func (old *older) initializeElsewhere(req *request, x *exchange, node, id string) {
	s, result, err := old.edge.begin(x, x.server.store, id)
	switch {
	case err != nil:
	case !s.Shared():
		old.edge.sessions.End(s.ID)
		err = relay.ErrAway()
	default:
		if err = old.openThere(x.server.store, node, relay.Who(&x.Exchange), session.Key(id), result.Raw); err != nil {
			_ = old.edge.sessions.EndShared(s) // what the store cannot be told ends with its lifetime
			old.edge.sessions.End(s.ID)
		}
	}
	if err != nil {
		req.refuse(mcp.Legacy, x.Request.IDText(), err)
		return
	}
	req.cors()
	req.ctx.SetStatusCode(202)
}

// openThere tells the edge that has a stream which session its client has begun here.
func (old *older) openThere(t *session.Store, node, who, key string, result []byte) error {
	if !t.Alive(node) { // no call is lost with it
		return session.ErrNone()
	}
	one, err := old.edge.relay.Open(relay.NewName(), who)
	if err != nil {
		return err
	}
	defer one.Close()
	if t.Send(node, relay.Message{Kind: relay.KindOpen, From: old.edge.relay.Node, Stream: one.Name, Session: key}, result) != nil {
		return relay.ErrAway()
	}
	if _, err = t.First(t.Life, one, node); errors.Is(err, relay.ErrGone) {
		err = session.ErrNone()
	}
	return err
}

// opened gives a stream here the session that its client has begun at another
// edge.
func (old *older) opened(t *session.Store, l relay.Message, result []byte) {
	back := relay.Message{Kind: relay.KindTaken, From: old.edge.relay.Node, Stream: l.Stream}
	if err := old.openHere(t, l.Session, result); err != nil {
		back.Kind, back.Error = relay.KindError, relay.FaultOf(err)
	}
	_ = t.Send(l.From, back, nil) // who waits gives up by itself
}

func (old *older) openHere(t *session.Store, key string, result []byte) error {
	d := old.known(key)
	if d == nil {
		return session.ErrNone()
	}
	served := old.edge.live.Load().servers[d.server]
	if served == nil || served.store != t {
		return session.ErrNone()
	}
	s, err := old.edge.sessions.Restore(t, served.Name, d.session, d.owner, d.holder) // which compares whose it is
	if err != nil {
		return err
	}
	if err := old.attach(d, s); err != nil {
		return err
	}
	return d.out.Write("message", result)
}

// attach gives a stream the session that its client has begun, and passes on to it what
// other edges post for it.
func (old *older) attach(d *olderStream, s *session.Session) error {
	d.mu.Lock()
	had, over := d.s, d.over
	if had == nil && !over {
		d.s = s
	}
	d.mu.Unlock()
	if had != nil || over {
		if had != s {
			undo(old.edge.sessions, s)
		}
		if over {
			return session.ErrNone()
		}
		return session.ErrBegun()
	}
	if key := s.Key(); key != "" {
		one, err := old.edge.relay.Open(key, relay.WhoIs(d.owner, key))
		if err != nil {
			d.mu.Lock()
			d.s = nil // its client is told to try again
			d.mu.Unlock()
			undo(old.edge.sessions, s)
			return err
		}
		old.edge.work.Go(func() {
			defer edge.Contain(old.edge.log, "older transport")
			defer one.Close()
			d.out.Say(one)
		})
	}
	s.EndsWithStream()
	d.out.Join(s)
	s.Open(d.out)
	return nil
}
