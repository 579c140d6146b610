// Package filters is the hallway that every exchange walks, in one order for
// every server.
package filters

import "github.com/weir-edge/weir/edge"

// Place is where a filter stands in the hallway.
type Place uint8

// The hallway from the door to the living room: what a server's plan asks for is walked in
// this order and in no other. After authorization nothing changes a message, so that what
// was allowed is what is done. Webhooks stand on either side of guests: mutating ones
// before, validating ones after, so that these see what will be done.
//
// Who a client is stands in the exchange when the hallway begins: the door asks the gate of
// filters/incoming before it reads the message, since a stranger is to learn nothing else.
// Telemetry and audit are told of those who were turned away.
const (
	Telemetry Place = iota
	Audit
	Headers
	Mutating
	Guest
	Validating
	Authz
	RateLimit
	places // how many there are
)

// String is the name of a place in errors and logs.
func (p Place) String() string {
	return [places]string{"telemetry", "audit", "headers", "mutating", "guest", "validating", "authz", "ratelimit"}[p]
}

// Order is all places in the order in which they are walked.
func Order() []Place {
	all := make([]Place, places)
	for i := range all {
		all[i] = Place(i)
	}
	return all
}

// Entry is one filter of a server's hallway.
type Entry struct {
	Place  Place
	Filter edge.Filter
}

// Chain puts the filters around a handler in Order, whatever order the entries
// come in. Several entries of one place keep theirs.
func Chain(entries []Entry, last edge.Handler) edge.Handler {
	for p := places; p > 0; p-- {
		for i := len(entries) - 1; i >= 0; i-- {
			if entries[i].Place == p-1 {
				last = entries[i].Filter(last)
			}
		}
	}
	return last
}
