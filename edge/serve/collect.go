package serve

import (
	"log/slog"
	"runtime/metrics"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mount"
	"github.com/weir-edge/weir/edge/outgoing"
	"github.com/weir-edge/weir/filters/telemetry"
)

// Metrics are collected from the process as a whole and from the rooms of each server. A
// room adds its edge.Collector to the counting of its server, or of the edge, when it is
// opened.

// expose mounts the metrics: at each door those of its servers whose configuration says
// so, and puts all of them together for the admin address.
func (e *Edge) expose(l *live) (err error) {
	var all []*telemetry.Telemetry
	process := []edge.Collector{edge.CollectorFunc(e.collect)}
	rooms := process
	for _, s := range l.all() {
		if s.measure == nil {
			rooms = append(rooms[:len(rooms):len(rooms)], e.roomsOf(s.Name))
		} else {
			all = append(all, s.measure)
		}
	}
	for _, d := range l.doors {
		var fetched []*telemetry.Telemetry
		for _, s := range d.all() {
			if s.measure != nil && s.measure.Fetched() {
				fetched = append(fetched, s.measure)
			}
		}
		if len(fetched) == 0 {
			continue
		}
		metrics, err := telemetry.Expose(e.log, process, fetched...)
		if err != nil {
			return err
		}
		d.mounts.Add(edge.Mount{Prefix: "/metrics", Handler: metrics, MaxBody: mount.Ignored})
	}
	l.metrics, err = telemetry.Expose(e.log, rooms, all...)
	return err
}

// collect counts the process as a whole.
func (e *Edge) collect(m edge.Emitter) {
	m.With("version", e.given.version).Gauge("weir_build_info", "1, with the version.", 1)
	e.door.Collect(m)
	m.Gauge("weir_inflight", "Requests that are being answered.", float64(e.inflight.Load()))
	m.Gauge("weir_inflight_limit", "How many requests may be answered at a time.", float64(e.settings.MaxInflight))
	m.Gauge("weir_streams", "Open streams of clients.", float64(e.sessions.Streams.Places()))
	m.Gauge("weir_parked_calls", "Calls that wait for their client to come back with an answer.", float64(e.replicas.Parked.Len()))
	m.Counter("weir_parked_dropped", "Notifications of parked calls whose client was away.", float64(e.replicas.Parked.Dropped()))
	m.With("result", "ok").Counter("weir_reloads", "Reloads of the configuration.", float64(e.reloads.done.Load()))
	m.With("result", "error").Counter("weir_reloads", "Reloads of the configuration.", float64(e.reloads.failed.Load()))
	good := 1.0
	if e.reloads.fault.Load() != nil {
		good = 0
	}
	m.Gauge("weir_config_ok", "1 while the last reload succeeded, or there was none.", good)
	samples := []metrics.Sample{{Name: "/sched/goroutines:goroutines"}, {Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(samples)
	m.Gauge("weir_goroutines", "Goroutines of the process.", float64(samples[0].Value.Uint64()))
	m.Gauge("weir_heap_bytes", "Bytes of the process's heap that are in use.", float64(samples[1].Value.Uint64()))
	for _, c := range e.given.counting {
		contained(e.log, c, m)
	}
}

// roomsOf collects from the server that has a name at the time.
func (e *Edge) roomsOf(name string) edge.Collector {
	return edge.CollectorFunc(func(m edge.Emitter) {
		l := e.live.Load()
		if l == nil || l.servers[name] == nil {
			return
		}
		l.servers[name].count(m.With("server", name))
	})
}

// count collects from a server: its sessions, and its rooms.
func (s *server) count(m edge.Emitter) {
	m.Gauge("weir_sessions", "Sessions of legacy clients.", float64(len(s.edge.sessions.Of(s.Name))))
	for _, b := range s.Backends {
		b.Collect(m.With("backend", b.Name))
	}
	if s.policy != nil {
		s.policy.Collect(m)
	}
	if l := s.record; l != nil {
		l.Collect(m)
	}
	if s.gate != nil {
		s.gate.Collect(m)
	}
	if s.issues {
		s.login.Collect(m)
	}
	if s.webhooks != nil {
		s.webhooks.Collect(m)
	}
	if s.limits != nil {
		s.limits.Collect(m)
	}
	if s.store != nil {
		s.store.Collect(m)
	}
	if kept := outgoing.Kept(s.shared); kept != nil {
		s.exchanged.collect(m, kept)
	}
	for _, c := range s.counting {
		contained(s.log, c, m)
	}
}

// contained asks a collector. A panic in it costs its own numbers alone.
func contained(log *slog.Logger, c edge.Collector, m edge.Emitter) {
	defer edge.Contain(log, "collector")
	c.Collect(m)
}
