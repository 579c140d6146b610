package serve_test

import (
	"context"
	"encoding/hex"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	metricspb "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	spanpb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// collector is an OpenTelemetry collector that keeps what it is sent.
type collector struct {
	tracepb.UnimplementedTraceServiceServer
	metricspb.UnimplementedMetricsServiceServer

	endpoint string
	ca       string // of https

	mu      sync.Mutex
	spans   []*spanpb.Span
	metrics map[string]bool
	bytes   []byte // of everything, one after the other
	headers http.Header
}

// newCollector starts a collector that speaks "grpc", "http" or "https", until
// the test ends.
func newCollector(t testing.TB, protocol string) *collector {
	t.Helper()
	c := &collector{metrics: map[string]bool{}}
	switch protocol {
	case "http":
		s := httptest.NewServer(c)
		t.Cleanup(s.Close)
		c.endpoint = s.URL
		return c
	case "https":
		s := httptest.NewTLSServer(c)
		t.Cleanup(s.Close)
		c.endpoint = s.URL
		c.ca = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
		return c
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	tracepb.RegisterTraceServiceServer(g, c)
	metricspb.RegisterMetricsServiceServer(g, (*numbers)(c))
	served := make(chan error, 1)
	go func() { served <- g.Serve(ln) }()
	t.Cleanup(func() {
		g.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	c.endpoint = "grpc://" + ln.Addr().String()
	return c
}

// numbers is the other half of a collector, whose method has the same name.
type numbers collector

func (n *numbers) Export(_ context.Context, r *metricspb.ExportMetricsServiceRequest) (*metricspb.ExportMetricsServiceResponse, error) {
	(*collector)(n).takeMetrics(r)
	return &metricspb.ExportMetricsServiceResponse{}, nil
}

func (c *collector) Export(_ context.Context, r *tracepb.ExportTraceServiceRequest) (*tracepb.ExportTraceServiceResponse, error) {
	c.takeSpans(r)
	return &tracepb.ExportTraceServiceResponse{}, nil
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the edge left in the middle of its request
	}
	c.mu.Lock()
	c.bytes, c.headers = append(c.bytes, body...), r.Header
	c.mu.Unlock()
	var spans tracepb.ExportTraceServiceRequest
	var metrics metricspb.ExportMetricsServiceRequest
	switch {
	case strings.HasSuffix(r.URL.Path, "/v1/traces"):
		if err = proto.Unmarshal(body, &spans); err == nil {
			c.takeSpans(&spans)
		}
	default:
		if err = proto.Unmarshal(body, &metrics); err == nil {
			c.takeMetrics(&metrics)
		}
	}
	if err != nil {
		http.Error(w, err.Error(), 400)
		return
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func (c *collector) takeSpans(r *tracepb.ExportTraceServiceRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, rs := range r.ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			c.spans = append(c.spans, ss.Spans...)
		}
	}
}

func (c *collector) takeMetrics(r *metricspb.ExportMetricsServiceRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, rm := range r.ResourceMetrics {
		for _, sm := range rm.ScopeMetrics {
			for _, m := range sm.Metrics {
				c.metrics[m.Name] = true
			}
		}
	}
}

// span returns the one span of a trace and a kind.
func (c *collector) span(t testing.TB, trace string, kind spanpb.Span_SpanKind) *spanpb.Span {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []*spanpb.Span
	for _, s := range c.spans {
		if hex.EncodeToString(s.TraceId) == trace && s.Kind == kind {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d spans of kind %s in trace %s", len(found), kind, trace)
	}
	return found[0]
}

// count returns how many spans came.
func (c *collector) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.spans)
}

// header is a line of the header of the last request.
func (c *collector) header(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.headers.Get(name)
}
