package telemetry

import (
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/weir-edge/weir/edge"
)

// fresh is how old an exposition may be: who asks more often than that is told
// the same again, so that asking costs little whoever asks.
const fresh = time.Second

// Exposition is what Prometheus fetches. It is safe for concurrent use.
type Exposition struct {
	log   *slog.Logger
	from  prometheus.Gatherers
	fresh time.Duration

	mu       sync.Mutex
	at       time.Time
	families []*dto.MetricFamily
}

// Expose puts together the metrics of servers and those of collectors that
// belong to no telemetry. Without any it returns nil.
func Expose(log *slog.Logger, collectors []edge.Collector, servers ...*Telemetry) (*Exposition, error) {
	e := &Exposition{log: log, fresh: fresh}
	for _, t := range servers {
		if t != nil {
			e.from = append(e.from, t.registry)
		}
	}
	if len(collectors) > 0 {
		registry := prometheus.NewRegistry()
		reader, err := otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo(), otelprometheus.WithoutTargetInfo(),
			otelprometheus.WithProducer(&producer{collectors: collectors, log: log, began: time.Now()}))
		if err != nil {
			return nil, err
		}
		metric.NewMeterProvider(metric.WithReader(reader)) // a reader without a provider has nothing to read
		e.from = append(e.from, registry)
	}
	if e.from == nil {
		return nil, nil
	}
	return e, nil
}

// Write writes all metrics in the form that an Accept header asks for, and
// returns its media type. What cannot be told is left out, and stands in the
// process log.
func (e *Exposition) Write(w io.Writer, accept string) (contentType string, err error) {
	format := expfmt.NegotiateAccept(http.Header{"Accept": {accept}}, expfmt.DefaultAcceptedFormats()...)
	enc := expfmt.NewEncoder(w, format)
	for _, f := range e.gather() {
		if err := enc.Encode(f); err != nil {
			return "", err
		}
	}
	if c, ok := enc.(expfmt.Closer); ok {
		err = c.Close()
	}
	return string(format), err
}

// ContentType is the media type of Write for an Accept header.
func ContentType(accept string) string {
	return string(expfmt.NegotiateAccept(http.Header{"Accept": {accept}}, expfmt.DefaultAcceptedFormats()...))
}

// ServeHTTP answers GET with all metrics.
func (e *Exposition) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET")
		http.Error(w, "GET reads the metrics", http.StatusMethodNotAllowed)
		return
	}
	accept := r.Header.Get("Accept")
	w.Header().Set("Content-Type", ContentType(accept))
	w.Header().Set("Cache-Control", "no-store")
	if r.Method == http.MethodGet {
		_, _ = e.Write(w, accept) // an error says that the client left
	}
}

func (e *Exposition) gather() []*dto.MetricFamily {
	e.mu.Lock()
	defer e.mu.Unlock()
	if now := time.Now(); e.families == nil || now.Sub(e.at) >= e.fresh {
		var err error
		if e.families, err = e.from.Gather(); err != nil {
			e.log.Warn("telemetry: some metrics could not be gathered", "err", short(err.Error(), maxValue))
		}
		e.at = now
	}
	return e.families
}
