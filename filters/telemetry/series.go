package telemetry

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// Bounds of what is counted for one server.
const (
	maxNames  = 1_000 // tools and prompts that have series of their own
	maxSeries = 8_000
	maxLabel  = 128 // bytes
)

// other stands for all that has no name of its own in metrics.
const other = "other"

// bounds returns the upper bounds of the buckets of durations, in seconds.
func bounds() [14]float64 {
	return [...]float64{0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300}
}

// key tells series apart. All in it comes from sets that are bounded.
type key struct {
	method    string
	thing     edge.Thing
	name      string // of the tool or prompt; "" for none
	backend   string // of a call to one; "" for an exchange
	fault     string // error.type; "" for none
	status    int    // of HTTP; 0 where it is not told
	transport string // "" where it is not told
}

// series counts the exchanges of one key.
type series struct {
	key        key
	attributes attribute.Set
	buckets    [15]atomic.Uint64 // the last is for what is above all bounds
	sum        atomic.Uint64     // nanoseconds
}

func (s *series) observe(took time.Duration) {
	i := 0
	for _, b := range [...]time.Duration{10e6, 20e6, 50e6, 100e6, 200e6, 500e6, 1e9, 2e9, 5e9, 10e9, 30e9, 60e9, 120e9, 300e9} {
		if took <= b {
			break
		}
		i++
	}
	s.buckets[i].Add(1)
	s.sum.Add(uint64(max(took, 0)))
}

// table is all series of a server. It is safe for concurrent use.
type table struct {
	server string
	legacy bool
	began  time.Time
	active atomic.Int64

	mu     sync.RWMutex
	names  map[string]string // by themselves
	series map[key]*series
	order  []*series
}

func newTable(server string, legacy bool) *table {
	return &table{server: cut(server), legacy: legacy, began: time.Now(), names: make(map[string]string), series: make(map[key]*series)}
}

// cut bounds a label's value, and makes it text.
func cut(s string) string {
	if len(s) > maxLabel {
		s = s[:maxLabel]
	}
	return strings.ToValidUTF8(s, "")
}

// method is the name of a method in metrics: those that the protocol has keep
// theirs.
func method(name string) string {
	if mcp.MethodOf(name).Known {
		return name
	}
	return other
}

// name is the name of a tool or prompt in metrics: the advertised one where the
// catalog knows it. Where one backend is served as it is, there is no catalog,
// and a name counts as known once a call of it has succeeded. Any other is
// "other", so that clients cannot make series by making up names.
func (t *table) name(x *edge.Exchange, m *mcp.Message, good bool) (edge.Thing, string) {
	var thing edge.Thing
	switch m.Method {
	case "tools/call":
		thing = edge.Tool
	case "prompts/get":
		thing = edge.Prompt
	default:
		return edge.NoThing, ""
	}
	if x.Target != nil && x.Target.Thing == thing && x.Target.Name != "" {
		t.mu.RLock()
		name, ok := t.names[x.Target.Name]
		t.mu.RUnlock()
		if ok {
			return thing, name
		}
		return thing, t.admit(x.Target.Name)
	}
	said := m.Get("name").Of(m.Raw)
	if len(said) < 2 || said[0] != '"' {
		return thing, other
	}
	said = mcp.Unquote(said[1 : len(said)-1])
	t.mu.RLock()
	name, ok := t.names[string(said)]
	t.mu.RUnlock()
	if ok {
		return thing, name
	}
	if !good || len(said) == 0 || len(said) > maxLabel {
		return thing, other
	}
	return thing, t.admit(string(said))
}

// admit gives a name series of its own, as long as there is room.
func (t *table) admit(name string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if kept, ok := t.names[name]; ok {
		return kept
	}
	if len(t.names) >= maxNames {
		return other
	}
	kept := cut(strings.Clone(name))
	t.names[strings.Clone(name)] = kept
	return kept
}

// find returns the series of a key, which it makes when it is not there yet.
func (t *table) find(k key) *series {
	t.mu.RLock()
	s := t.series[k]
	t.mu.RUnlock()
	if s != nil {
		return s
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if s = t.series[k]; s != nil {
		return s
	}
	if len(t.series) >= maxSeries {
		k = key{method: other, backend: k.backend, fault: k.fault}
		if s = t.series[k]; s != nil {
			return s
		}
	}
	s = &series{key: k, attributes: t.attributes(k)}
	t.series[k] = s
	t.order = append(t.order, s)
	return s
}

// attributes of a series: those of the semantic conventions for MCP, and the
// older ones beside them.
func (t *table) attributes(k key) attribute.Set {
	a := []attribute.KeyValue{attribute.String("server", t.server), attribute.String("mcp.method.name", k.method)}
	add := func(name, value string) {
		if value != "" {
			a = append(a, attribute.String(name, value))
		}
	}
	switch k.thing {
	case edge.Tool:
		add("gen_ai.tool.name", k.name)
	case edge.Prompt:
		add("gen_ai.prompt.name", k.name)
	}
	add("error.type", k.fault)
	add("target.workload_name", k.backend)
	if t.legacy {
		add("status", outcome(k.fault))
		if k.backend == "" {
			add("mcp_method", k.method)
			add("transport", k.transport)
			if k.status != 0 {
				add("status_code", strconv.Itoa(k.status))
			}
		} else if k.thing == edge.Tool {
			add("tool_name", k.name)
		}
	}
	return attribute.NewSet(a...)
}

func outcome(fault string) string {
	if fault == "" {
		return "success"
	}
	return "error"
}

// scope returns what has been counted, as an OpenTelemetry reader takes it.
func (t *table) scope(now time.Time) []metricdata.Metrics {
	t.mu.RLock()
	all := t.order
	t.mu.RUnlock()

	type pair struct{ tool, outcome string }
	var requests, backendRequests, backendErrors []metricdata.DataPoint[int64]
	var durations, backendDurations []metricdata.HistogramDataPoint[float64]
	calls := make(map[pair]int64)
	var tools []pair
	limits := bounds()
	for _, s := range all {
		h := metricdata.HistogramDataPoint[float64]{
			Attributes: s.attributes, StartTime: t.began, Time: now,
			Bounds: limits[:], BucketCounts: make([]uint64, len(s.buckets)), Sum: float64(s.sum.Load()) / 1e9,
		}
		for i := range s.buckets {
			h.BucketCounts[i] = s.buckets[i].Load()
			h.Count += h.BucketCounts[i]
		}
		n := metricdata.DataPoint[int64]{Attributes: s.attributes, StartTime: t.began, Time: now, Value: int64(h.Count)}
		if s.key.backend != "" {
			backendRequests, backendDurations = append(backendRequests, n), append(backendDurations, h)
			if s.key.fault != "" {
				backendErrors = append(backendErrors, n)
			}
			continue
		}
		requests, durations = append(requests, n), append(durations, h)
		if s.key.thing == edge.Tool {
			p := pair{s.key.name, outcome(s.key.fault)}
			if _, seen := calls[p]; !seen {
				tools = append(tools, p)
			}
			calls[p] += n.Value
		}
	}
	toolCalls := make([]metricdata.DataPoint[int64], 0, len(tools))
	for _, p := range tools {
		a := []attribute.KeyValue{attribute.String("server", t.server), attribute.String("gen_ai.tool.name", p.tool), attribute.String("status", p.outcome)}
		if t.legacy {
			a = append(a, attribute.String("tool", p.tool))
		}
		toolCalls = append(toolCalls, metricdata.DataPoint[int64]{Attributes: attribute.NewSet(a...), StartTime: t.began, Time: now, Value: calls[p]})
	}
	server := attribute.NewSet(attribute.String("server", t.server))
	gauge := func(name, what string, v int64) metricdata.Metrics {
		return metricdata.Metrics{Name: name, Description: what, Data: metricdata.Gauge[int64]{DataPoints: []metricdata.DataPoint[int64]{{Attributes: server, Time: now, Value: v}}}}
	}
	return []metricdata.Metrics{
		counter("weir_mcp_requests", "Messages of clients.", requests),
		histogram("weir_mcp_request_duration", "Time to the answer of a message of a client.", durations),
		histogram("mcp.server.operation.duration", "Time to the answer of a message of a client.", durations),
		counter("weir_mcp_tool_calls", "Calls of tools by clients.", toolCalls),
		gauge("weir_mcp_active_requests", "Messages of clients on their way to an answer.", t.active.Load()),
		counter("weir_vmcp_backend_requests", "Messages to backends.", backendRequests),
		counter("weir_vmcp_backend_errors", "Messages to backends that failed.", backendErrors),
		histogram("weir_vmcp_backend_requests_duration", "Time to the answer of a backend.", backendDurations),
		histogram("mcp.client.operation.duration", "Time to the answer of a backend.", backendDurations),
		gauge("weir_telemetry_series", "Series of messages; there are at most 8000.", int64(len(all))),
	}
}

func counter(name, what string, points []metricdata.DataPoint[int64]) metricdata.Metrics {
	return metricdata.Metrics{Name: name, Description: what,
		Data: metricdata.Sum[int64]{Temporality: metricdata.CumulativeTemporality, IsMonotonic: true, DataPoints: points}}
}

func histogram(name, what string, points []metricdata.HistogramDataPoint[float64]) metricdata.Metrics {
	return metricdata.Metrics{Name: name, Description: what, Unit: "s",
		Data: metricdata.Histogram[float64]{Temporality: metricdata.CumulativeTemporality, DataPoints: points}}
}
