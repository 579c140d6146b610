package serve

import (
	"context"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/weir-edge/weir/edge/mcp"
)

// What a legacy client sends to this edge about calls and streams of its session
// that are at another one.

// elsewhere returns the edge that an event id of a session is from, when it is not
// this one.
func (e *Edge) elsewhere(s *session, eventID string) (node string, ok bool) {
	node, _, ok = strings.Cut(eventID, ".")
	return node, ok && s.common.node != "" && isNode(node) && node != e.node
}

func isNode(name string) bool {
	raw, err := hex.DecodeString(name)
	return err == nil && len(raw) == 8
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
	if !ok || s.common.node == "" || node == e.node || !isNode(node) {
		return
	}
	path, key := e.mail, keyOf(s.ID)
	if path == nil || !path.alive(node) {
		store, r := e.others(s)
		if !slices.Contains(r.Nodes, node) {
			return
		}
		path, key = store, s.common.key
	}
	who := whoOf(&x.Exchange)
	left := func() {}
	if len(m.Raw) > smallLetter {
		one, err := e.threads.open(newName(), who)
		if err != nil {
			return // who asked gives up by itself
		}
		defer e.threads.close(one)
		if e.want(&x.call, path, one, node, letter{Kind: letterAsk, Session: key}, m.IDText()) != nil {
			return
		}
		left = func() { e.leaveThere(path, one, node) }
	}
	if e.postFor(&x.call, path, node, who, letter{Kind: letterAnswer, Session: key}, m.Raw) != nil {
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
	e.tellKin(s, letterCancel, text)
	if s.common.key == "" {
		return
	}
	if store, r := e.others(s); store != nil {
		e.tellOthers(store, r, letter{Kind: letterCancel, Session: s.common.key}, text)
	}
}
