package serve

import (
	"context"

	"github.com/weir-edge/weir/edge/relay"
	"github.com/weir-edge/weir/edge/session"
)

// What replicas tell each other, and what comes of it here: see edge/relay.

// relaySize is how many bytes a message between edges may have: the largest
// message that goes in or out, and its head.
func (s *Settings) relaySize() int { return max(s.MaxBody, s.MaxMessage) + relay.MaxHead }

// handlers are what comes of messages through a store that are about no session, by
// their kinds.
func (e *Edge) handlers(t *session.Store) map[string]relay.Handler {
	return map[string]relay.Handler{
		relay.KindRetry: e.replicas.Retry(&t.Link),
		relay.KindOpen: func(m relay.Message, body []byte, size int) bool {
			t.Serve(m, size, m.Session, func(context.Context) { e.older.opened(t, m, body) })
			return true
		},
	}
}
