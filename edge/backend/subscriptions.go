package backend

import (
	"maps"
	"slices"

	"github.com/weir-edge/weir/edge"
)

// What one client's session may subscribe to at a backend. The edge's own
// session stands for all clients of a server.
const (
	maxSubscriptions     = 1000
	maxSubscriptionBytes = 128 << 10 // of their URIs
	sharedSubscriptions  = 10        // times as much for the edge's own session
)

// subscriptions are the URIs that a session is subscribed to. They are no more
// than a session may have. Whoever holds them guards them.
type subscriptions struct {
	uris  map[string]bool
	bytes int
}

// add notes a URI. It reports whether it was not there before; an error says
// that the session of client has no room for it.
func (u *subscriptions) add(client *edge.Session, uri string) (fresh bool, err error) {
	if u.uris[uri] {
		return false, nil
	}
	times := 1
	if client == nil || client.ID == "" {
		times = sharedSubscriptions
	}
	if len(u.uris) >= times*maxSubscriptions || u.bytes+len(uri) > times*maxSubscriptionBytes {
		return false, edge.Errorf(edge.Overload, "resources/subscribe",
			"a session can subscribe to %d resources with %d bytes of URIs: unsubscribe from some", times*maxSubscriptions, times*maxSubscriptionBytes)
	}
	if u.uris == nil {
		u.uris = make(map[string]bool)
	}
	u.uris[uri] = true
	u.bytes += len(uri)
	return true, nil
}

// drop forgets a URI.
func (u *subscriptions) drop(uri string) {
	if u.uris[uri] {
		delete(u.uris, uri)
		u.bytes -= len(uri)
	}
}

// list returns the URIs in order.
func (u *subscriptions) list() []string { return slices.Sorted(maps.Keys(u.uris)) }
