package serve

import (
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/filters"
)

// Heartbeat is how long a stream or a call may be silent.
const Heartbeat = heartbeat

// SetFilters gives the server these filters. It must be called before Serve.
func (e *Edge) SetFilters(entries ...filters.Entry) {
	s := e.live.Load().main
	s.chain = filters.Chain(entries, edge.HandlerFunc(s.route))
}

// Beat does what keepTime would at a moment.
func (e *Edge) Beat(now time.Time) { e.beat(now) }

// Underway returns how many exchanges are under way.
func (e *Edge) Underway() int { return len(e.underway.since(time.Now().Add(time.Hour))) }

// Sessions returns how many legacy sessions there are.
func (e *Edge) Sessions() int { return e.sessions.len() }
