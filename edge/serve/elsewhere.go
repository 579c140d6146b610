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

// elsewhere returns the edge that an event id of a common session is from, when
// it is not this one.
func (e *Edge) elsewhere(s *session, eventID string) (node string, ok bool) {
	node, _, ok = strings.Cut(eventID, ".")
	return node, ok && s.common.key != "" && isNode(node) && node != e.node
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
	text, err := store.Get(context.Background(), s.common.key)
	r := readRecord(text)
	if err != nil || r == nil {
		return store, &record{}
	}
	return store, r
}

// passAnswer hands an answer to the edge that asked, if it has the session.
func (e *Edge) passAnswer(s *session, m *mcp.Message) {
	node, _, ok := strings.Cut(mcp.String(m.IDText()), ".")
	if !ok || s.common.key == "" || node == e.node || !isNode(node) {
		return
	}
	if store, r := e.others(s); slices.Contains(r.Nodes, node) {
		_ = store.post(node, letter{Kind: letterAnswer, Session: s.common.key}, m.Raw) // who asked gives up by itself
	}
}

// passCancel hands a cancellation to the edges that may have the call.
func (e *Edge) passCancel(s *session, m *mcp.Message) {
	if s.common.key == "" {
		return
	}
	if store, r := e.others(s); store != nil {
		e.tellOthers(store, r, letter{Kind: letterCancel, Session: s.common.key}, m.Raw)
	}
}
