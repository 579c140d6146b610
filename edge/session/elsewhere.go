package session

import (
	"context"
	"slices"
	"strings"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/relay"
)

// What a legacy client sends to this edge about calls and streams of its session
// that are at another one.

// Elsewhere returns the edge that an event id of a session is from, when it is not
// this one.
func (ss *Sessions) Elsewhere(s *Session, eventID string) (node string, ok bool) {
	node, _, ok = strings.Cut(eventID, ".")
	return node, ok && s.stored.node != "" && relay.IsNode(node) && node != ss.o.Relay.Node
}

// others returns the other edges that have a session, as the store has it now.
func (ss *Sessions) others(s *Session) (*Store, *storedSession) {
	store := s.stored.store.Load()
	if store == nil {
		return nil, &storedSession{}
	}
	text, err := store.Head(context.Background(), s.stored.key, headBytes)
	r := readHead(text)
	if err != nil || r == nil {
		return store, &storedSession{}
	}
	return store, r
}

// PassAnswer hands the answer of an exchange to the edge that asked, if it has the session. A
// large one is sent only when that edge says that it waits for it.
func (ss *Sessions) PassAnswer(ctx context.Context, s *Session, x *edge.Exchange) {
	m := x.Request
	node, _, ok := strings.Cut(mcp.String(m.IDText()), ".")
	if !ok || s.stored.node == "" || node == ss.o.Relay.Node || !relay.IsNode(node) {
		return
	}
	path, key := ss.mail, Key(s.ID)
	if path == nil || !path.Alive(node) {
		store, r := ss.others(s)
		if !slices.Contains(r.Nodes, node) {
			return
		}
		path, key = store, s.stored.key
	}
	who := relay.Who(x)
	left := func() {}
	if len(m.Raw) > relay.SmallMessage {
		one, err := ss.o.Relay.Open(relay.NewName(), who)
		if err != nil {
			return // who asked gives up by itself
		}
		defer one.Close()
		if path.Want(ctx, one, node, relay.Message{Kind: relay.KindAsk, Session: key}, m.IDText()) != nil {
			return
		}
		left = func() { path.Abandon(one, node) }
	}
	if path.SendFor(ctx, node, who, relay.Message{Kind: relay.KindAnswer, Session: key}, m.Raw) != nil {
		left() // the client may come with it again; who asked gives up by itself
	}
}

// PassRoots tells the other edges that have a session that the roots of its client have changed:
// each has sessions of its own with the backends.
func (ss *Sessions) PassRoots(s *Session) {
	if store, r := ss.others(s); store != nil {
		ss.tellOthers(store, r, relay.Message{Kind: relay.KindRoots, Session: s.stored.key}, nil)
	}
}

// PassCancel hands a cancellation to the edges that may have the call: what it
// says of the call, and nothing else that it may hold.
func (ss *Sessions) PassCancel(s *Session, m *mcp.Message) {
	id := m.Get("requestId").Of(m.Raw)
	if len(id) == 0 || len(id) > mcp.MaxID {
		return
	}
	params := append([]byte(`{"requestId":`), id...)
	if reason := m.Text("reason"); reason != "" {
		params = mcp.AppendString(append(params, `,"reason":`...), edge.Printable(reason))
	}
	text := mcp.AppendRequest(nil, nil, m.Method, append(params, '}'))
	ss.TellKin(s, relay.KindCancel, text)
	if s.stored.key == "" {
		return
	}
	if store, r := ss.others(s); store != nil {
		ss.tellOthers(store, r, relay.Message{Kind: relay.KindCancel, Session: s.stored.key}, text)
	}
}
