package telemetry

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	api "go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/filters/audit/mask"
)

const (
	library  = "github.com/weir-edge/weir" // the scope of spans and metrics
	interval = 30 * time.Second            // between two times that metrics are sent
	patience = 10 * time.Second            // with a collector
	lastly   = 5 * time.Second             // for what is left at the end, with a collector that is known to be slow
	briefly  = 200 * time.Millisecond      // the same with any other
	remind   = time.Minute                 // between two words about a collector that is away
	maxSaid  = 64 << 10                    // bytes of a collector's answer, and of its header; an answer says next to nothing
)

// Telemetry is the open telemetry of a server. It is safe for concurrent use.
type Telemetry struct {
	part        *Part
	log         *slog.Logger
	legacy      bool
	table       *table
	tracer      api.Tracer // nil when nothing is traced
	sampler     sampler
	environment []attribute.KeyValue

	registry  *prometheus.Registry // of what can be fetched
	providers []interface {
		ForceFlush(context.Context) error
		Shutdown(context.Context) error
	}
	traces, metrics sent
}

// Open is edge.Part.Open.
func (p *Part) Open(env edge.Env) (edge.Filter, error) {
	t, err := p.Start(env)
	if err != nil {
		return nil, err
	}
	return t.Filter, nil
}

// Start opens the telemetry, and has what is left sent when the plan retires.
// It fails for secrets and certificates that cannot be read; that the collector
// is away is no failure.
func (p *Part) Start(env edge.Env) (*Telemetry, error) {
	t := &Telemetry{part: p, log: env.Log, legacy: p.spec.Legacy, table: newTable(p.spec.Server, p.spec.Legacy)}
	t.sampler.share = p.sampling
	for _, name := range p.spec.Environment {
		if value, ok := os.LookupEnv(name); ok {
			if mask.Name(name) {
				value = mask.Redacted
			}
			t.environment = append(t.environment, attribute.String("environment."+name, short(value, maxValue)))
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := t.connect(ctx, env)
	env.Defer(t.close)
	if err != nil {
		return nil, edge.Errorf(edge.Internal, "telemetry", "%w", err)
	}
	return t, nil
}

// connect sets up what is sent and what can be fetched.
func (t *Telemetry) connect(ctx context.Context, env edge.Env) error {
	s := &t.part.spec
	about := []attribute.KeyValue{attribute.String("service.name", s.Service)}
	if s.Version != "" {
		about = append(about, attribute.String("service.version", s.Version))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Attributes)) {
		about = append(about, attribute.String(name, s.Attributes[name]))
	}
	what := resource.NewSchemaless(about...)
	out, err := t.outlet(ctx, env)
	if err != nil {
		return err
	}
	if s.Traces {
		e, err := out.spans(ctx)
		if err != nil {
			return fmt.Errorf("endpoint: %w", err)
		}
		provider := trace.NewTracerProvider(trace.WithResource(what), trace.WithSampler(trace.AlwaysSample()),
			trace.WithBatcher(&spanExporter{SpanExporter: e, sent: &t.traces, log: t.log}, trace.WithExportTimeout(patience)))
		t.tracer = provider.Tracer(library)
		t.providers = append(t.providers, provider)
	}
	var readers []metric.Option
	produce := producer{table: t.table, own: t.own, collectors: t.part.Collectors, log: t.log, began: t.table.began}
	if s.Metrics {
		whole := produce
		whole.collectors = slices.Concat(produce.collectors, t.part.Process)
		e, err := out.numbers(ctx)
		if err != nil {
			return fmt.Errorf("endpoint: %w", err)
		}
		readers = append(readers, metric.WithReader(metric.NewPeriodicReader(&metricExporter{Exporter: e, sent: &t.metrics, log: t.log},
			metric.WithInterval(interval), metric.WithTimeout(patience), metric.WithProducer(&whole))))
	}
	t.registry = prometheus.NewRegistry()
	e, err := otelprometheus.New(otelprometheus.WithRegisterer(t.registry), otelprometheus.WithProducer(&produce), otelprometheus.WithoutScopeInfo())
	if err != nil {
		return err
	}
	readers = append(readers, metric.WithReader(e), metric.WithResource(what))
	t.providers = append(t.providers, metric.NewMeterProvider(readers...))
	return nil
}

// Fetched reports whether the configuration has the metrics fetched by whoever
// reaches the main port.
func (t *Telemetry) Fetched() bool { return t.part.spec.Prometheus }

// own are the metrics that the telemetry has of itself.
func (t *Telemetry) own(m edge.Emitter) {
	for _, s := range []struct {
		signal string
		on     bool
		sent   *sent
	}{{"traces", t.part.spec.Traces, &t.traces}, {"metrics", t.part.spec.Metrics, &t.metrics}} {
		if s.on {
			m := m.With("server", t.table.server).With("signal", s.signal)
			m.Counter("weir_telemetry_export_failures", "Times that the collector did not take what was sent.", float64(s.sent.failures.Load()))
			m.Counter("weir_telemetry_exported", "Spans and metrics that the collector took.", float64(s.sent.items.Load()))
		}
	}
}

// Flush sends what there is to the collector.
func (t *Telemetry) Flush(ctx context.Context) error {
	var all []error
	for _, p := range t.providers {
		all = append(all, p.ForceFlush(ctx))
	}
	return errors.Join(all...)
}

// close sends what is left. A collector has as long as it may be expected to
// need, by what it took before: one that is away does not hold up the end of
// the process.
func (t *Telemetry) close() {
	ctx, cancel := context.WithTimeout(context.Background(), max(t.traces.needs(), t.metrics.needs()))
	defer cancel()
	var work sync.WaitGroup
	for _, p := range t.providers {
		work.Go(func() {
			if err := p.Shutdown(ctx); err != nil {
				t.log.Warn("telemetry: not all was sent", "err", err, "server", t.table.server)
			}
		})
	}
	work.Wait()
}

// outlet is how a collector is spoken to.
type outlet struct {
	at      place
	headers map[string]string
	tls     *tls.Config
	http    *http.Client // that of the Env, where it trusts what the collector is to be trusted by; nil for one of its own
}

// outlet reads what is needed to speak to the collector.
func (t *Telemetry) outlet(ctx context.Context, env edge.Env) (*outlet, error) {
	s := &t.part.spec
	o := &outlet{at: t.part.place, headers: maps.Clone(s.Headers), tls: &tls.Config{MinVersion: tls.VersionTLS12}, http: env.HTTP}
	if !s.Traces && !s.Metrics {
		return o, nil
	}
	if o.headers == nil {
		o.headers = make(map[string]string)
	}
	for _, h := range s.SecretHeaders {
		v, err := env.Secrets.Secret(ctx, h.SecretKeyRef.Name, h.SecretKeyRef.Key)
		if err != nil {
			return nil, fmt.Errorf("header %s: %w", h.Name, err)
		}
		if v = v.Trimmed(); !v.OneLine() {
			return nil, fmt.Errorf("header %s: secret %s, key %s: it holds what cannot stand in a header", h.Name, h.SecretKeyRef.Name, h.SecretKeyRef.Key)
		}
		o.headers[h.Name] = string(v)
	}
	pem := s.CA
	if s.CAFile != "" {
		var err error
		if pem, err = edge.ReadKeys(s.CAFile); err != nil {
			return nil, fmt.Errorf("caCertPath: %w", err)
		}
	}
	if pem != nil {
		o.http = nil
		if !x509.NewCertPool().AppendCertsFromPEM(pem) {
			return nil, errors.New("caCertPath: there is no certificate in it")
		}
	}
	var err error
	if o.tls.RootCAs, err = edge.Roots(pem, env.Reach.CAs); err != nil {
		return nil, fmt.Errorf("caCertPath: %w", err)
	}
	return o, nil
}

// client returns an HTTP client for the collector, and what is to be called when it is
// used no longer. It follows no redirects: headers with secrets are for the collector
// alone.
func (o *outlet) client() (*http.Client, func()) {
	if o.http != nil {
		return o.http, func() {}
	}
	c := edge.NewHTTP(o.tls)
	return c, c.CloseIdleConnections
}

// brief has a collector say no more than that over gRPC.
func brief() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxSaid)), grpc.WithMaxHeaderListSize(maxSaid)}
}

// spans is where spans go.
func (o *outlet) spans(ctx context.Context) (trace.SpanExporter, error) {
	if o.at.grpc {
		options := []otlptracegrpc.Option{otlptracegrpc.WithEndpoint(o.at.host), otlptracegrpc.WithHeaders(o.headers), otlptracegrpc.WithTimeout(patience), otlptracegrpc.WithDialOption(brief()...)}
		if o.at.plain {
			return otlptracegrpc.New(ctx, append(options, otlptracegrpc.WithInsecure())...)
		}
		return otlptracegrpc.New(ctx, append(options, otlptracegrpc.WithTLSCredentials(credentials.NewTLS(o.tls)))...)
	}
	client, done := o.client()
	options := []otlptracehttp.Option{otlptracehttp.WithEndpoint(o.at.host), otlptracehttp.WithURLPath(o.at.path + "/v1/traces"), otlptracehttp.WithHeaders(o.headers),
		otlptracehttp.WithHTTPClient(client), otlptracehttp.WithMaxResponseSize(maxSaid)}
	if o.at.plain {
		options = append(options, otlptracehttp.WithInsecure())
	}
	e, err := otlptracehttp.New(ctx, options...)
	return &closingSpans{e, done}, err
}

// numbers is where metrics go.
func (o *outlet) numbers(ctx context.Context) (metric.Exporter, error) {
	if o.at.grpc {
		options := []otlpmetricgrpc.Option{otlpmetricgrpc.WithEndpoint(o.at.host), otlpmetricgrpc.WithHeaders(o.headers), otlpmetricgrpc.WithTimeout(patience), otlpmetricgrpc.WithDialOption(brief()...)}
		if o.at.plain {
			return otlpmetricgrpc.New(ctx, append(options, otlpmetricgrpc.WithInsecure())...)
		}
		return otlpmetricgrpc.New(ctx, append(options, otlpmetricgrpc.WithTLSCredentials(credentials.NewTLS(o.tls)))...)
	}
	client, done := o.client()
	options := []otlpmetrichttp.Option{otlpmetrichttp.WithEndpoint(o.at.host), otlpmetrichttp.WithURLPath(o.at.path + "/v1/metrics"), otlpmetrichttp.WithHeaders(o.headers),
		otlpmetrichttp.WithHTTPClient(client), otlpmetrichttp.WithMaxResponseSize(maxSaid)}
	if o.at.plain {
		options = append(options, otlpmetrichttp.WithInsecure())
	}
	e, err := otlpmetrichttp.New(ctx, options...)
	return &closingNumbers{e, done}, err
}

// closingSpans and closingNumbers close the connections of a client of their own at the end.
type closingSpans struct {
	trace.SpanExporter
	done func()
}

func (e *closingSpans) Shutdown(ctx context.Context) error {
	defer e.done()
	return e.SpanExporter.Shutdown(ctx)
}

type closingNumbers struct {
	metric.Exporter
	done func()
}

func (e *closingNumbers) Shutdown(ctx context.Context) error {
	defer e.done()
	return e.Exporter.Shutdown(ctx)
}

// sent counts what a collector took and what it did not.
type sent struct {
	items, failures atomic.Uint64

	took    atomic.Int64 // nanoseconds that the last time took; 0 when it failed, or there was none
	pending atomic.Int64 // when the one began that is not over, Unix nanoseconds; 0 for none

	mu   sync.Mutex
	told time.Time
}

// send sends n things and notes what became of it.
func (s *sent) send(log *slog.Logger, signal string, n int, export func() error) {
	began := time.Now()
	s.pending.Store(began.UnixNano())
	err := export()
	took := time.Since(began)
	if err != nil {
		took = 0
	}
	s.took.Store(int64(took))
	s.pending.Store(0)
	s.note(log, signal, n, err)
}

// needs is how long the collector may be expected to need for what is left: some
// times as long as the last time, unless it did not take that.
func (s *sent) needs() time.Duration {
	took := time.Duration(s.took.Load())
	if began := s.pending.Load(); began != 0 && took != 0 && time.Since(time.Unix(0, began)) > 4*took {
		took = 0 // it hangs
	}
	return min(max(4*took, briefly), lastly)
}

// note counts, and tells the process log of a failure, though not of each.
// Nobody else hears of it: exporting is tried again with the next batch.
func (s *sent) note(log *slog.Logger, signal string, n int, err error) {
	if err == nil {
		s.items.Add(uint64(n))
		return
	}
	s.failures.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.Sub(s.told) >= remind {
		s.told = now
		log.Warn("telemetry: the collector did not take what was sent", "signal", signal, "err", short(err.Error(), maxValue), "failures", s.failures.Load())
	}
}

type spanExporter struct {
	trace.SpanExporter
	sent *sent
	log  *slog.Logger
}

func (e *spanExporter) ExportSpans(ctx context.Context, spans []trace.ReadOnlySpan) error {
	e.sent.send(e.log, "traces", len(spans), func() error { return e.SpanExporter.ExportSpans(ctx, spans) })
	return nil
}

type metricExporter struct {
	metric.Exporter
	sent *sent
	log  *slog.Logger
}

func (e *metricExporter) Export(ctx context.Context, m *metricdata.ResourceMetrics) error {
	n := 0
	for _, s := range m.ScopeMetrics {
		n += len(s.Metrics)
	}
	e.sent.send(e.log, "metrics", n, func() error { return e.Exporter.Export(ctx, m) })
	return nil
}
