// Package otlp is an OpenTelemetry collector for tests.
package otlp

import (
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	metricspb "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	metricpb "go.opentelemetry.io/proto/otlp/metrics/v1"
	spanpb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Collector keeps what it is sent. Its fields are read and written under its
// lock.
type Collector struct {
	tracepb.UnimplementedTraceServiceServer
	metricspb.UnimplementedMetricsServiceServer

	Endpoint string
	CA       []byte // of one that is not in plain text, PEM

	sync.Mutex
	Down     bool   // it refuses everything
	Says     string // that it tells of what it was sent
	Zips     bool   // and compresses, over HTTP, whether it was asked to or not
	Resource map[string]string
	Spans    []*spanpb.Span
	Metrics  map[string]*metricpb.Metric
	Headers  map[string]string // of the last request, small letters
	Paths    map[string]bool
	Bytes    []byte // of all requests over HTTP, one after the other
}

// Start starts a collector that speaks "grpc" or "http", in plain text or not,
// until the test ends.
func Start(t testing.TB, protocol string, secure bool) *Collector {
	t.Helper()
	c := &Collector{Metrics: map[string]*metricpb.Metric{}, Paths: map[string]bool{}}
	s := httptest.NewUnstartedServer(c)
	if secure {
		s.StartTLS()
		c.CA = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	if protocol == "http" {
		c.Endpoint = s.URL
		return c
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var options []grpc.ServerOption
	scheme := "grpc://"
	if secure {
		scheme = "grpcs://"
		options = append(options, grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: s.TLS.Certificates})))
	}
	g := grpc.NewServer(options...)
	tracepb.RegisterTraceServiceServer(g, c)
	metricspb.RegisterMetricsServiceServer(g, (*numbers)(c))
	served := make(chan error, 1)
	go func() { served <- g.Serve(ln) }() // ends with the server
	t.Cleanup(func() {
		g.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	c.Endpoint = scheme + ln.Addr().String()
	return c
}

// numbers is the other half of a collector, whose method has the same name.
type numbers Collector

// Export takes metrics.
func (n *numbers) Export(ctx context.Context, r *metricspb.ExportMetricsServiceRequest) (*metricspb.ExportMetricsServiceResponse, error) {
	c := (*Collector)(n)
	if err := c.note(ctx); err != nil {
		return nil, err
	}
	c.takeMetrics(r)
	return c.aboutMetrics(), nil
}

// Export takes spans.
func (c *Collector) Export(ctx context.Context, r *tracepb.ExportTraceServiceRequest) (*tracepb.ExportTraceServiceResponse, error) {
	if err := c.note(ctx); err != nil {
		return nil, err
	}
	c.takeSpans(r)
	return c.aboutSpans(), nil
}

func (c *Collector) aboutSpans() *tracepb.ExportTraceServiceResponse {
	return &tracepb.ExportTraceServiceResponse{PartialSuccess: &tracepb.ExportTracePartialSuccess{ErrorMessage: c.Says}}
}

func (c *Collector) aboutMetrics() *metricspb.ExportMetricsServiceResponse {
	return &metricspb.ExportMetricsServiceResponse{PartialSuccess: &metricspb.ExportMetricsPartialSuccess{ErrorMessage: c.Says}}
}

func (c *Collector) note(ctx context.Context) error {
	c.Lock()
	defer c.Unlock()
	if c.Down {
		return status.Error(codes.InvalidArgument, "no") // which nobody tries again
	}
	md, _ := metadata.FromIncomingContext(ctx)
	c.Headers = map[string]string{}
	for k, v := range md {
		c.Headers[k] = strings.Join(v, ",")
	}
	return nil
}

// ServeHTTP takes either over HTTP.
func (c *Collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // whoever sends has left in the middle
	}
	c.Lock()
	c.Paths[r.URL.Path], c.Bytes = true, append(c.Bytes, body...)
	c.Headers = map[string]string{}
	for k := range r.Header {
		c.Headers[strings.ToLower(k)] = r.Header.Get(k)
	}
	down := c.Down
	c.Unlock()
	if down {
		http.Error(w, "no", 400)
		return
	}
	var about proto.Message
	if strings.HasSuffix(r.URL.Path, "/v1/traces") {
		var m tracepb.ExportTraceServiceRequest
		if err = proto.Unmarshal(body, &m); err == nil {
			c.takeSpans(&m)
		}
		about = c.aboutSpans()
	} else {
		var m metricspb.ExportMetricsServiceRequest
		if err = proto.Unmarshal(body, &m); err == nil {
			c.takeMetrics(&m)
		}
		about = c.aboutMetrics()
	}
	if err != nil {
		http.Error(w, err.Error(), 400)
		return
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
	if c.Says == "" {
		return
	}
	text, err := proto.Marshal(about)
	if err == nil && c.Zips {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, err = z.Write(text)
		err = errors.Join(err, z.Close())
	} else if err == nil {
		_, err = w.Write(text)
	}
	_ = err // the other end may have left
}

func (c *Collector) takeSpans(r *tracepb.ExportTraceServiceRequest) {
	c.Lock()
	defer c.Unlock()
	for _, rs := range r.ResourceSpans {
		c.Resource = Attributes(rs.Resource.Attributes)
		for _, ss := range rs.ScopeSpans {
			c.Spans = append(c.Spans, ss.Spans...)
		}
	}
}

func (c *Collector) takeMetrics(r *metricspb.ExportMetricsServiceRequest) {
	c.Lock()
	defer c.Unlock()
	for _, rm := range r.ResourceMetrics {
		c.Resource = Attributes(rm.Resource.Attributes)
		for _, sm := range rm.ScopeMetrics {
			for _, m := range sm.Metrics {
				c.Metrics[m.Name] = m
			}
		}
	}
}

// Attributes is the text of attributes by their names.
func Attributes(kvs []*commonpb.KeyValue) map[string]string {
	m := map[string]string{}
	for _, kv := range kvs {
		switch v := kv.Value.Value.(type) {
		case *commonpb.AnyValue_StringValue:
			m[kv.Key] = v.StringValue
		case *commonpb.AnyValue_IntValue:
			m[kv.Key] = fmt.Sprint(v.IntValue)
		}
	}
	return m
}

// Span returns the one span that is meant.
func (c *Collector) Span(t testing.TB, what string, is func(*spanpb.Span) bool) *spanpb.Span {
	t.Helper()
	c.Lock()
	defer c.Unlock()
	var found []*spanpb.Span
	var names []string
	for _, s := range c.Spans {
		if names = append(names, s.Name); is(s) {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%s: %d spans among %q", what, len(found), names)
	}
	return found[0]
}
