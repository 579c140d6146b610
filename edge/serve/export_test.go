package serve

import (
	"context"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/relay"
	"github.com/weir-edge/weir/edge/session"
	"github.com/weir-edge/weir/filters"
)

// Heartbeat is how long a stream or a call may be silent.
const Heartbeat = session.Heartbeat

func (e *Edge) main() *server { return e.live.Load().doors[0].main }

// SetFilters gives the server these filters. It must be called before Serve.
func (e *Edge) SetFilters(entries ...filters.Entry) {
	s := e.main()
	s.chain = filters.Chain(entries, s.Server)
}

// FlushTelemetry sends what the telemetry of the main server has.
func (e *Edge) FlushTelemetry(ctx context.Context) error {
	return e.main().measure.Flush(ctx)
}

// Beat does what keepTime would at a moment.
func (e *Edge) Beat(now time.Time) { e.beat(now) }

// Underway returns how many exchanges are under way.
func (e *Edge) Underway() int { return e.door.Underway() }

// Sessions returns how many legacy sessions there are.
func (e *Edge) Sessions() int { return e.sessions.Len() }

// LoseUpstreams has the sessions of a server lose what backends had for them alone.
func (e *Edge) LoseUpstreams(server string) {
	for _, s := range e.sessions.Of(server) {
		e.sessions.LostUpstream(&s.Session)
	}
}

// Wide returns how many connections have more room in the kernel.
func (e *Edge) Wide() int { return e.door.Wide() }

// Count has a room of the process, and of its main server, asked for numbers. It
// must be called before Serve.
func (e *Edge) Count(process, server edge.Collector) {
	e.given.counting = append(e.given.counting, process)
	s := e.main()
	s.counting = append(s.counting, server)
}

// Inflight returns how many requests hold room for exchanges.
func (e *Edge) Inflight() int64 { return e.inflight.Load() }

// OpenedAt has the edge look as if it had been opened at a moment.
func (e *Edge) OpenedAt(at time.Time) { e.door.Clock.Tick(at) }

// Message is a message of a node to the box of another one, as an edge with the key
// of states writes it.
func Message(from, to string, key, text []byte) []byte {
	return relay.NewSigner(from, [][]byte{key}).Sign(relay.Box(to), text)
}

// Mount serves a handler beside MCP. It must be called before Serve.
func (e *Edge) Mount(m edge.Mount) { e.live.Load().doors[0].mounts.Add(m) }

// Hallway is the places of the filters of the main server, in the order in which they are
// walked.
func (e *Edge) Hallway() (all []filters.Place) {
	entries := e.main().hallway
	for _, p := range filters.Order() {
		for _, one := range entries {
			if one.Place == p {
				all = append(all, p)
			}
		}
	}
	return all
}
