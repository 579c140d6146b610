package serve

import (
	"context"
	"slices"
	"strings"

	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/relay"
)

// What a legacy client sends to this edge about calls and streams of its session
// that are at another one.

// elsewhere returns the edge that an event id of a session is from, when it is not
// this one.
func (e *Edge) elsewhere(s *session, eventID string) (node string, ok bool) {
	node, _, ok = strings.Cut(eventID, ".")
	return node, ok && s.common.node != "" && relay.IsNode(node) && node != e.relay.Node
}

// others returns the other edges that have a session, as the store has it now.
func (e *Edge) others(s *session) (*shared, *record) {
	store := s.common.store.Load()
	if store == nil {
		return nil, &record{}
	}
	text, err := store.Head(context.Background(), s.common.key, headBytes)
	r := readHead(text)
	if err != nil || r == nil {
		return store, &record{}
	}
	return store, r
}

// passAnswer hands an answer to the edge that asked, if it has the session. A
// large one is sent only when that edge says that it waits for it.
func (e *Edge) passAnswer(x *exchange) {
	s, m := x.s, x.Request
	node, _, ok := strings.Cut(mcp.String(m.IDText()), ".")
	if !ok || s.common.node == "" || node == e.relay.Node || !relay.IsNode(node) {
		return
	}
	path, key := e.mail, keyOf(s.ID)
	if path == nil || !path.Alive(node) {
		store, r := e.others(s)
		if !slices.Contains(r.Nodes, node) {
			return
		}
		path, key = store, s.common.key
	}
	who := relay.Who(&x.Exchange)
	left := func() {}
	if len(m.Raw) > relay.SmallMessage {
		one, err := e.relay.Open(relay.NewName(), who)
		if err != nil {
			return // who asked gives up by itself
		}
		defer one.Close()
		if path.Want(&x.Call, one, node, relay.Message{Kind: relay.KindAsk, Session: key}, m.IDText()) != nil {
			return
		}
		left = func() { path.Abandon(one, node) }
	}
	if path.SendFor(&x.Call, node, who, relay.Message{Kind: relay.KindAnswer, Session: key}, m.Raw) != nil {
		left() // the client may come with it again; who asked gives up by itself
	}
}

// passCancel hands a cancellation to the edges that may have the call: what it
// says of the call, and nothing else that it may hold.
func (e *Edge) passCancel(s *session, m *mcp.Message) {
	id := m.Get("requestId").Of(m.Raw)
	if len(id) == 0 || len(id) > mcp.MaxID {
		return
	}
	params := append([]byte(`{"requestId":`), id...)
	if reason := m.Text("reason"); reason != "" {
		params = mcp.AppendString(append(params, `,"reason":`...), printable(reason))
	}
	text := mcp.AppendRequest(nil, nil, m.Method, append(params, '}'))
	e.tellKin(s, relay.KindCancel, text)
	if s.common.key == "" {
		return
	}
	if store, r := e.others(s); store != nil {
		e.tellOthers(store, r, relay.Message{Kind: relay.KindCancel, Session: s.common.key}, text)
	}
}
