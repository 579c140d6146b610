package serve

import (
	"context"

	"github.com/weir-edge/weir/edge/relay"
	"github.com/weir-edge/weir/edge/session"
)

// Handlers for messages of replicas: see edge/relay.

// relaySize bounds a message between edges in bytes: the largest message of a client or a
// backend, and its head.
func relaySize(s Settings) int { return max(s.MaxBody, s.MaxMessage) + relay.MaxHead }

// handlers returns the handlers of messages through a store that are about no session, by
// kind.
func (e *Edge) handlers(t *session.Store) map[string]relay.Handler {
	return map[string]relay.Handler{
		relay.KindRetry: e.replicas.Retry(&t.Link),
		relay.KindOpen: func(m relay.Message, body []byte, size int) bool {
			t.Serve(m, size, m.Session, func(context.Context) { e.older.opened(t, m, body) })
			return true
		},
	}
}
