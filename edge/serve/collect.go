package serve

import (
	"log/slog"
	"runtime/metrics"

	"github.com/valyala/fasthttp"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/backend"
	"github.com/weir-edge/weir/edge/health"
	"github.com/weir-edge/weir/filters/incoming"
	"github.com/weir-edge/weir/filters/telemetry"
	"github.com/weir-edge/weir/filters/webhook"
)

// What counts for itself is asked when somebody collects metrics: the process
// as a whole, and the rooms of each server. A room that wants to be asked puts
// a collector into the counting of its server when it is opened, or of the edge.

// expose puts together what can be fetched: on the main port what the servers
// that have it fetched count, on the admin address all there is.
func (e *Edge) expose(l *live) (err error) {
	var fetched, all []*telemetry.Telemetry
	process := []telemetry.Collector{telemetry.CollectorFunc(e.collect)}
	rooms := process
	for _, s := range l.inOrder() {
		t := s.measures()
		if t == nil {
			rooms = append(rooms[:len(rooms):len(rooms)], e.roomsOf(s.name))
			continue
		}
		if all = append(all, t); t.Fetched() {
			fetched = append(fetched, t)
		}
	}
	if len(fetched) > 0 {
		if l.fetched, err = telemetry.Expose(e.log, process, fetched...); err != nil {
			return err
		}
	}
	l.metrics, err = telemetry.Expose(e.log, rooms, all...)
	return err
}

// metrics answers /metrics.
func (e *Edge) metrics(ctx *fasthttp.RequestCtx, from *telemetry.Exposition) {
	switch {
	case from == nil:
		plain(ctx, 404, "not found\n")
		return
	case !ctx.IsGet() && !ctx.IsHead():
		ctx.Response.Header.Set("Allow", "GET")
		plain(ctx, 405, "GET reads the metrics\n")
		return
	}
	contentType, err := from.Write(ctx.Response.BodyWriter(), string(ctx.Request.Header.Peek("Accept")))
	if err != nil {
		e.log.Error("metrics", "error", err)
		ctx.Response.ResetBody()
		plain(ctx, 500, "internal error\n")
		return
	}
	ctx.Response.Header.SetContentType(contentType)
	ctx.Response.Header.Set("Cache-Control", "no-store")
}

// emitter makes samples with the same labels.
type emitter struct {
	emit   func(telemetry.Sample)
	labels []edge.Header
}

func (m emitter) with(name, value string) emitter {
	m.labels = append(m.labels[:len(m.labels):len(m.labels)], edge.Header{Name: name, Value: value})
	return m
}

func (m emitter) gauge(name, help string, v float64) {
	m.emit(telemetry.Sample{Name: name, Help: help, Gauge: true, Value: v, Labels: m.labels})
}

func (m emitter) counter(name, help string, v float64) {
	m.emit(telemetry.Sample{Name: name, Help: help, Value: v, Labels: m.labels})
}

// collect counts the process as a whole.
func (e *Edge) collect(emit func(telemetry.Sample)) {
	m := emitter{emit: emit}
	m.with("version", e.version).gauge("weir_build_info", "1, with the version.", 1)
	m.gauge("weir_connections", "Open connections of clients.", float64(e.underway.connections()))
	m.gauge("weir_inflight", "Requests that are being answered.", float64(e.inflight.Load()))
	m.gauge("weir_inflight_limit", "How many requests may be answered at a time.", float64(e.settings.MaxInflight))
	m.gauge("weir_streams", "Open streams of clients.", float64(e.outlets.len()))
	m.gauge("weir_parked_calls", "Calls that wait for their client to come back with an answer.", float64(e.lot.len()))
	m.counter("weir_parked_dropped", "Notifications of parked calls whose client was away.", float64(e.lot.dropped.Load()))
	m.gauge("weir_body_bytes", "Bytes of large requests that are held.", float64(e.budget.taken.Load()))
	m.gauge("weir_body_bytes_limit", "How many bytes of large requests may be held.", float64(e.budget.most))
	m.with("result", "ok").counter("weir_reloads", "Reloads of the configuration.", float64(e.reloads.Load()))
	m.with("result", "error").counter("weir_reloads", "Reloads of the configuration.", float64(e.badReloads.Load()))
	good := 1.0
	if e.badReload.Load() != nil {
		good = 0
	}
	m.gauge("weir_config_ok", "1 while the last reload succeeded, or there was none.", good)
	samples := []metrics.Sample{{Name: "/sched/goroutines:goroutines"}, {Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(samples)
	m.gauge("weir_goroutines", "Goroutines of the process.", float64(samples[0].Value.Uint64()))
	m.gauge("weir_heap_bytes", "Bytes of the process's heap that are in use.", float64(samples[1].Value.Uint64()))
	for _, c := range e.counting {
		contained(e.log, c, emit)
	}
}

// roomsOf counts what belongs to the server of a name, whichever that is at
// the time.
func (e *Edge) roomsOf(name string) telemetry.Collector {
	return telemetry.CollectorFunc(func(emit func(telemetry.Sample)) {
		l := e.live.Load()
		if l == nil || l.servers[name] == nil {
			return
		}
		l.servers[name].count(emit)
	})
}

// count counts what belongs to a server.
func (s *server) count(emit func(telemetry.Sample)) {
	m := emitter{emit: emit}.with("server", s.name)
	m.gauge("weir_sessions", "Sessions of legacy clients.", float64(len(s.edge.sessions.of(s.name))))
	for _, b := range s.backends {
		ofBackend(m.with("backend", b.Name), b)
	}
	if s.policy != nil {
		m.counter("weir_authz_denied", "Messages that policies denied.", float64(s.policy.Denied.Load()))
		m.counter("weir_authz_evaluated", "Decisions that were not known from before.", float64(s.policy.Evaluated.Load()))
	}
	if l := s.records(); l != nil {
		c := l.Counters()
		m.counter("weir_audit_recorded", "Records that were made.", float64(c.Recorded))
		m.counter("weir_audit_written", "Records that the log took.", float64(c.Written))
		m.counter("weir_audit_lost", "Records that nobody will find.", float64(c.Lost))
		m.counter("weir_audit_failures", "Attempts to write or to open the log that failed.", float64(c.Failures))
	}
	if s.guarded {
		ofGate(m, s.gate.Stats())
	}
	if s.webhooks != nil {
		for _, c := range s.webhooks.Counters() {
			ofWebhook(m.with("webhook", c.Name).with("type", c.Type), c)
		}
	}
	s.countLimits(m)
	s.countStore(m)
	for _, c := range s.counting {
		contained(s.log, c, emit)
	}
}

// ofGate counts what became of clients' tokens since the server was opened.
func ofGate(m emitter, s incoming.Stats) {
	m.counter("weir_auth_cached", "Messages whose token was remembered.", float64(s.Cached))
	m.counter("weir_auth_verified", "Tokens whose signature was checked and held.", float64(s.Verified))
	m.counter("weir_auth_introspected", "Tokens that their issuer called active.", float64(s.Introspected))
	m.counter("weir_auth_refused", "Messages without a token that holds.", float64(s.Refused))
	m.counter("weir_auth_away", "Messages that nobody could decide.", float64(s.Away))
	m.gauge("weir_auth_tokens", "Tokens that are remembered.", float64(s.Tokens))
	m.counter("weir_auth_key_fetches", "Times that the issuer was asked for its keys.", float64(s.Fetches))
	m.counter("weir_auth_key_failures", "Attempts to learn the keys that failed.", float64(s.Failures))
}

// ofWebhook counts what a webhook did since its server was opened.
func ofWebhook(m emitter, c webhook.Counters) {
	m.counter("weir_webhook_asked", "Requests to the webhook.", float64(c.Asked))
	m.counter("weir_webhook_denied", "Messages that it refused.", float64(c.Denied))
	m.counter("weir_webhook_changed", "Messages that it changed.", float64(c.Changed))
	m.counter("weir_webhook_failed", "Requests without a sound answer.", float64(c.Failed))
	m.counter("weir_webhook_ignored", "Of those, the ones whose message went on.", float64(c.Ignored))
	m.counter("weir_webhook_seconds", "Time that messages waited for it.", c.Time.Seconds())
}

// ofBackend counts what belongs to one backend.
func ofBackend(m emitter, b *backend.Backend) {
	now := b.Status()
	up := 0.0
	if is := now.Is(); is == health.Ready || is == health.Degraded {
		up = 1
	}
	m.gauge("weir_backend_up", "1 while the backend answers.", up)
	m.gauge("weir_backend_failed_checks", "Health checks that failed in a row.", float64(now.Failures))
	open := 0.0
	switch now.Circuit {
	case health.Open:
		open = 1
	case health.HalfOpen:
		open = 0.5
	}
	m.gauge("weir_backend_circuit_open", "1 while the circuit is open, 0.5 while it is half open.", open)
	calls, failed, mean := b.Calls()
	m.counter("weir_backend_calls", "Calls to the backend.", float64(calls))
	m.counter("weir_backend_calls_failed", "Calls that failed by the backend's fault.", float64(failed))
	m.counter("weir_backend_stray_answers", "Answers that came to others than who asked.", float64(b.Strays()))
	m.gauge("weir_backend_latency_seconds", "Time that calls took on average.", mean.Seconds())
}

// contained asks a collector, whose panic costs its own numbers alone.
func contained(log *slog.Logger, c telemetry.Collector, emit func(telemetry.Sample)) {
	defer edge.Contain(log, "collector")
	c.Collect(emit)
}
