// Package filters is the hallway that every exchange walks, in one order for
// every server.
package filters

import "github.com/weir-edge/weir/edge"

// Order is the hallway from the door to the living room: what a server's plan
// asks for is walked in this order and in no other. After authorization
// nothing changes a message, so that what was allowed is what is done. Webhooks
// stand on either side of guests: mutating ones before, validating ones after,
// so that these see what will be done.
//
// Who a client is stands in the exchange when the hallway begins: the door asks
// the gate of filters/incoming before it reads the message, since to a stranger
// nothing is wrong with it but that. Telemetry and audit are told of those who
// were turned away.
func Order() []string {
	return []string{"telemetry", "audit", "headers", "mutating", "guest", "validating", "authz", "ratelimit"}
}

// Entry is one filter of a server's hallway.
type Entry struct {
	Name   string // one of Order
	Filter edge.Filter
}

// Chain puts the filters around a handler in Order, whatever order the entries
// come in. Several entries of one name keep theirs.
func Chain(entries []Entry, last edge.Handler) edge.Handler {
	order := Order()
	for i := len(order) - 1; i >= 0; i-- {
		for j := len(entries) - 1; j >= 0; j-- {
			if entries[j].Name == order[i] {
				last = entries[j].Filter(last)
			}
		}
	}
	return last
}
