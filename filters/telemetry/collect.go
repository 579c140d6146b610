package telemetry

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/weir-edge/weir/edge"
)

// maxSamples is how many samples of a collector count.
const maxSamples = 10_000

// producer hands what was counted to a reader, and asks the collectors. It is
// a metric.Producer.
type producer struct {
	table      *table // nil for none
	own        func(edge.Emitter)
	collectors []edge.Collector
	log        *slog.Logger
	began      time.Time // of the counting
}

// Produce is metric.Producer.Produce. It returns no error.
func (p *producer) Produce(context.Context) ([]metricdata.ScopeMetrics, error) {
	now := time.Now()
	scope := metricdata.ScopeMetrics{Scope: instrumentation.Scope{Name: library}}
	if p.table != nil {
		scope.Metrics = p.table.scope(now)
	}
	g := gathering{now: now, began: p.began, at: make(map[string]*points), seen: make(map[string]map[attribute.Distinct]bool)}
	if p.own != nil {
		g.left = maxSamples
		p.own(edge.Emitter{Emit: g.add})
	}
	for _, c := range p.collectors {
		g.left = maxSamples
		p.ask(c, &g)
	}
	scope.Metrics = append(scope.Metrics, g.metrics()...)
	return []metricdata.ScopeMetrics{scope}, nil
}

// ask asks a collector. One that panics costs its own numbers and no others.
func (p *producer) ask(c edge.Collector, g *gathering) {
	defer edge.Contain(p.log, "collector")
	c.Collect(edge.Emitter{Emit: g.add})
}

// gathering puts samples together by name.
type gathering struct {
	now, began time.Time
	left       int
	order      []string
	at         map[string]*points
	seen       map[string]map[attribute.Distinct]bool
}

type points struct {
	first edge.Sample
	data  []metricdata.DataPoint[float64]
}

// add takes a sample. One whose name is none of ours, or that was there
// already, is left out: it would spoil all the others for a scrape.
func (g *gathering) add(s edge.Sample) {
	if g.left--; g.left < 0 || !sound(s.Name) {
		return
	}
	p := g.at[s.Name]
	if p == nil {
		p = &points{first: s}
		g.at[s.Name] = p
		g.seen[s.Name] = make(map[attribute.Distinct]bool)
		g.order = append(g.order, s.Name)
	}
	labels := make([]attribute.KeyValue, 0, len(s.Labels))
	for _, l := range s.Labels {
		labels = append(labels, attribute.String(l.Name, cut(l.Value)))
	}
	set := attribute.NewSet(labels...)
	if id := set.Equivalent(); p.first.Gauge == s.Gauge && !g.seen[s.Name][id] {
		g.seen[s.Name][id] = true
		p.data = append(p.data, metricdata.DataPoint[float64]{Attributes: set, StartTime: g.began, Time: g.now, Value: s.Value})
	}
}

// sound reports whether a name is one of ours.
func sound(name string) bool {
	rest, ours := strings.CutPrefix(name, "weir_")
	if !ours || rest == "" || len(name) > maxLabel {
		return false
	}
	for _, c := range []byte(rest) {
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_') {
			return false
		}
	}
	return true
}

func (g *gathering) metrics() []metricdata.Metrics {
	var all []metricdata.Metrics
	for _, name := range g.order {
		p := g.at[name]
		m := metricdata.Metrics{Name: name, Description: p.first.Help}
		if p.first.Gauge {
			m.Data = metricdata.Gauge[float64]{DataPoints: p.data}
		} else {
			m.Data = metricdata.Sum[float64]{Temporality: metricdata.CumulativeTemporality, IsMonotonic: true, DataPoints: p.data}
		}
		all = append(all, m)
	}
	return all
}
