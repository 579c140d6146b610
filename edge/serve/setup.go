package serve

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/relay"
)

// What a client sets up in a common session at one edge, its log level and its
// subscriptions, holds at the others.

// learn takes what other edges have written down of a session. What it is
// subscribed to is read by whoever needs it: catchUp.
func (e *Edge) learn(t *shared, s *session, r *record) {
	if last := s.common.last.Load(); last != nil && len(r.said.Capabilities) == 0 {
		r.said = last.said
	}
	s.common.last.Store(r)
	if r.Level != s.LogLevel() && r.Level != "" {
		s.SetLogLevel(r.Level)
		if served := e.live.Load().servers[s.server]; served != nil {
			t.Work.Go(func() {
				defer edge.Contain(e.log, "log level")
				served.level(context.Background(), &s.Session, r.Level)
			})
		}
	}
}

// remember writes down what a session has set up, for the other edges.
func (e *Edge) remember(s *session, m *mcp.Message) error {
	store := s.common.store.Load()
	if store == nil {
		return nil
	}
	uri, level := m.Text("uri"), m.Text("level")
	r, err := e.change(store, s.common.key, func(r *record) {
		switch m.Method {
		case "logging/setLevel":
			if logLevel(level) {
				r.Level = level
			}
		default:
			r.subscribe(uri, m.Method == "resources/subscribe") // what finds no room now holds here alone
		}
	})
	switch {
	case errors.Is(err, errEndedElsewhere):
		return errNoSession()
	case err != nil:
		return relay.ErrAway()
	}
	s.common.last.Store(r)
	if m.Method != "logging/setLevel" {
		s.common.note(uri, m.Method == "resources/subscribe")
	}
	e.tellOthers(store, r, relay.Message{Kind: relay.KindLook, Session: s.common.key}, nil)
	return nil
}

// memorable reports whether a request sets up something that a session keeps.
func memorable(method string) bool {
	switch method {
	case "logging/setLevel", "resources/subscribe", "resources/unsubscribe":
		return true
	}
	return false
}

// roomToSubscribe refuses a subscription of a common session that has too many, as
// the store knows it.
func roomToSubscribe(s *session, m *mcp.Message) error {
	r, store := s.common.last.Load(), s.common.store.Load()
	if r == nil || store == nil || m.Method != "resources/subscribe" {
		return nil
	}
	uri := m.Text("uri")
	fits := func() bool { return r.said.room(uri) || slices.Contains(r.said.Subscribed, uri) }
	if len(uri) <= maxSubscribed && !fits() { // unless another edge has given some up
		text, err := store.Get(context.Background(), s.common.key)
		if now := readRecord(text); err == nil && now != nil {
			r = now
			s.common.last.Store(r)
		}
	}
	if !fits() {
		return edge.Errorf(edge.Params, "subscribe", "params.uri: a session can subscribe to %d resources with %d bytes of URIs: unsubscribe from some", maxWatched, maxSubscribed)
	}
	return nil
}

// note notes whether the backends of this edge are subscribed to a resource.
func (c *common) note(uri string, yes bool) {
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

// catchUp has the backends of this edge subscribed to what the session is,
// while it has a stream here that would hear of changes.
func (e *Edge) catchUp(s *session) {
	defer edge.Contain(e.log, "subscriptions")
	c := &s.common
	r, served := c.last.Load(), e.live.Load().servers[s.server]
	if r == nil || served == nil || (newest{s}).outlet() == nil {
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
		if e.subscribeFor(ctx, served, s, "resources/subscribe", uri) == nil {
			c.note(uri, true)
		}
	}
	for _, uri := range more {
		_ = e.subscribeFor(ctx, served, s, "resources/unsubscribe", uri) // what comes too much is no harm
		c.note(uri, false)
	}
}

// subscribeFor sends a request of the edge's own for a session, past the same
// filters as the client's.
func (e *Edge) subscribeFor(ctx context.Context, served *server, s *session, method, uri string) error {
	params := append(mcp.AppendString([]byte(`{"uri":`), uri), '}')
	m, err := mcp.Decode(mcp.AppendRequest(nil, []byte(`"weir-`+e.relay.Node+"-"+strconv.FormatUint(s.asks.Add(1), 10)+`"`), method, params))
	if err != nil {
		return err
	}
	x := &edge.Exchange{Server: served.name, Era: mcp.Legacy, Request: m, Session: &s.Session, Identity: s.common.who.Load(), Client: edge.NoClient{}}
	if x.Target, err = served.target(ctx, x); err != nil {
		return err
	}
	r, err := served.chain.Handle(ctx, x)
	if err == nil && r != nil && r.Kind == mcp.Failure {
		err = errors.New("refused")
	}
	return err
}
