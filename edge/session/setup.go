package session

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/backend"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/relay"
)

// What a client sets up in a common session at one edge, its log level and its
// subscriptions, holds at the others.

// learn takes what other edges have written down of a session. What it is
// subscribed to is read by whoever needs it: catchUp.
func (ss *Sessions) learn(t *Store, s *Session, r *storedSession) {
	if last := s.stored.last.Load(); last != nil && len(r.said.Capabilities) == 0 {
		r.said = last.said
	}
	s.stored.last.Store(r)
	if r.Level != s.LogLevel() && r.Level != "" {
		s.SetLogLevel(r.Level)
		if served := ss.o.Servers()[s.Server]; served != nil {
			t.Work.Go(func() {
				defer edge.Contain(ss.o.Log, "log level")
				served.Level(context.Background(), &s.Session, r.Level)
			})
		}
	}
}

// Remember writes down what a session has set up, for the other edges.
func (ss *Sessions) Remember(s *Session, m *mcp.Message) error {
	store := s.stored.store.Load()
	if store == nil {
		return nil
	}
	uri, level := m.Text("uri"), m.Text("level")
	r, err := ss.change(store, s.stored.key, func(r *storedSession) {
		switch m.Method {
		case "logging/setLevel":
			if mcp.LogLevel(level) {
				r.Level = level
				r.Set++ // by which of two records one is known to be newer
				r.said.set = r.Set
			}
		default:
			r.subscribe(uri, m.Method == "resources/subscribe") // what finds no room now holds here alone
		}
	})
	switch {
	case errors.Is(err, errEndedElsewhere):
		return ErrNone()
	case err != nil:
		return relay.ErrAway()
	}
	s.stored.last.Store(r)
	if m.Method != "logging/setLevel" {
		s.stored.note(uri, m.Method == "resources/subscribe")
	}
	ss.tellOthers(store, r, relay.Message{Kind: relay.KindLook, Session: s.stored.key}, nil)
	return nil
}

// Memorable reports whether a request sets up something that a session keeps.
func Memorable(method string) bool {
	switch method {
	case "logging/setLevel", "resources/subscribe", "resources/unsubscribe":
		return true
	}
	return false
}

// RoomToSubscribe refuses a subscription of a common session that has too many, as
// the store knows it.
func (s *Session) RoomToSubscribe(m *mcp.Message) error {
	r, store := s.stored.last.Load(), s.stored.store.Load()
	if r == nil || store == nil || m.Method != "resources/subscribe" {
		return nil
	}
	uri := m.Text("uri")
	fits := func() bool { return r.said.room(uri) || slices.Contains(r.said.Subscribed, uri) }
	if len(uri) <= maxSubscribed && !fits() { // unless another edge has given some up
		text, err := store.Get(context.Background(), s.stored.key)
		if now := readRecord(text); err == nil && now != nil {
			r = now
			s.stored.last.Store(r)
		}
	}
	if !fits() {
		return edge.Errorf(edge.Params, "subscribe", "params.uri: a session can subscribe to %d resources with %d bytes of URIs: unsubscribe from some", backend.MaxWished, maxSubscribed)
	}
	return nil
}

// note notes whether the backends of this edge are subscribed to a resource.
func (c *stored) note(uri string, yes bool) {
	c.following.Lock()
	defer c.following.Unlock()
	if !yes {
		delete(c.subscribed, uri)
		return
	}
	if c.subscribed == nil {
		c.subscribed = make(map[string]bool)
	}
	c.subscribed[uri] = true
}

// CatchUp subscribes the backends of this edge to what the session is subscribed to,
// while it has a stream here that would hear of changes.
func (ss *Sessions) CatchUp(s *Session) {
	defer edge.Contain(ss.o.Log, "subscriptions")
	c := &s.stored
	r, served := c.last.Load(), ss.o.Servers()[s.Server]
	if r == nil || served == nil || (newest{s}).stream() == nil {
		return
	}
	if r.said.set != r.Set { // another edge has changed it
		store := c.store.Load()
		if store == nil {
			return
		}
		text, err := store.Get(context.Background(), c.key)
		if r = readRecord(text); err != nil || r == nil {
			return // who asks for the session next finds out
		}
		c.last.Store(r)
	}
	var missing, more []string
	c.following.Lock()
	for _, uri := range r.said.Subscribed {
		if !c.subscribed[uri] {
			missing = append(missing, uri)
		}
	}
	for uri := range c.subscribed {
		if !slices.Contains(r.said.Subscribed, uri) {
			more = append(more, uri)
		}
	}
	c.following.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, uri := range missing {
		if ss.subscribeFor(ctx, served, s, "resources/subscribe", uri) == nil {
			c.note(uri, true)
		}
	}
	for _, uri := range more {
		_ = ss.subscribeFor(ctx, served, s, "resources/unsubscribe", uri) // what comes too much is no harm
		c.note(uri, false)
	}
}

// How many sessions of a server subscribe again at a time, and how long each may take.
const (
	subscribesAtOnce = 8
	subscribesWithin = 30 * time.Second
)

// SubscribeAgain subscribes the backends to what sessions were subscribed to at those that they
// stand in for. A backend that does not answer holds up those of its own server alone.
func (ss *Sessions) SubscribeAgain(ctx context.Context, all map[*Session][]string) {
	queues := make(map[string]chan *Session)
	for s := range all {
		if queues[s.Server] == nil {
			queues[s.Server] = make(chan *Session, len(all))
		}
		queues[s.Server] <- s
	}
	var work sync.WaitGroup
	for server, queue := range queues {
		close(queue)
		lost := new(atomic.Int64)
		var own sync.WaitGroup
		for range min(subscribesAtOnce, len(queue)) {
			own.Go(func() {
				defer edge.Contain(ss.o.Log, "subscriptions")
				for s := range queue {
					lost.Add(ss.subscribeAgain(ctx, s, all[s]))
				}
			})
		}
		work.Go(func() {
			own.Wait()
			if n := lost.Load(); n > 0 {
				ss.o.Log.Warn("subscriptions are lost: what took the place of a backend did not take them", "server", server, "subscriptions", n)
			}
		})
	}
	work.Wait()
}

// subscribeAgain is SubscribeAgain of one session. It returns how many subscriptions are lost.
func (ss *Sessions) subscribeAgain(ctx context.Context, s *Session, uris []string) (lost int64) {
	ctx, cancel := context.WithTimeout(ctx, subscribesWithin)
	defer cancel()
	for _, uri := range uris {
		host := ss.o.Servers()[s.Server]
		if host == nil { // and the session has ended
			break
		}
		err := ctx.Err()
		if err == nil {
			err = ss.subscribeFor(ctx, host, s, "resources/subscribe", uri)
		}
		if err != nil {
			lost++
			ss.o.Log.Debug("a subscription is lost", "server", s.Server, "error", err)
		}
	}
	return lost
}

// subscribeFor sends a request of the edge's own for a session, past the same
// filters as the client's.
func (ss *Sessions) subscribeFor(ctx context.Context, host *Host, s *Session, method, uri string) error {
	params := append(mcp.AppendString([]byte(`{"uri":`), uri), '}')
	m, err := mcp.Decode(mcp.AppendRequest(nil, []byte(`"weir-`+ss.o.Relay.Node+"-"+strconv.FormatUint(s.asks.Add(1), 10)+`"`), method, params))
	if err != nil {
		return err
	}
	who := s.stored.who.Load()
	if who == nil {
		who = s.Who()
	}
	x := &edge.Exchange{Server: s.Server, Era: mcp.Legacy, Request: m, Session: &s.Session, Identity: who, Client: edge.NoClient{}}
	r, err := host.Ask(ctx, x)
	if err == nil && r != nil && r.Kind == mcp.Failure {
		err = errors.New("refused")
	}
	return err
}
