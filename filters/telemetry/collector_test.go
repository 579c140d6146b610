package telemetry

import (
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

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

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// collector is an OpenTelemetry collector that keeps what it is sent.
type collector struct {
	tracepb.UnimplementedTraceServiceServer
	metricspb.UnimplementedMetricsServiceServer

	endpoint string
	ca       []byte

	mu       sync.Mutex
	down     bool
	says     string // that it tells of what it was sent
	zips     bool   // and compresses, over HTTP, whether it was asked to or not
	resource map[string]string
	spans    []*spanpb.Span
	metrics  map[string]*metricpb.Metric
	headers  map[string]string // of the last request, small letters
	paths    map[string]bool
}

// startCollector starts a collector that speaks "grpc" or "http", in plain text
// or not, until the test ends.
func startCollector(t testing.TB, protocol string, secure bool) *collector {
	t.Helper()
	c := &collector{metrics: map[string]*metricpb.Metric{}, paths: map[string]bool{}}
	s := httptest.NewUnstartedServer(c)
	if secure {
		s.StartTLS()
		c.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	if protocol == "http" {
		c.endpoint = s.URL + "/otlp/"
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
	go func() { served <- g.Serve(ln) }()
	t.Cleanup(func() {
		g.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	c.endpoint = scheme + ln.Addr().String()
	return c
}

// numbers is the other half of a collector, whose method has the same name.
type numbers collector

func (n *numbers) Export(ctx context.Context, r *metricspb.ExportMetricsServiceRequest) (*metricspb.ExportMetricsServiceResponse, error) {
	c := (*collector)(n)
	if err := c.note(ctx); err != nil {
		return nil, err
	}
	c.takeMetrics(r)
	return c.aboutMetrics(), nil
}

func (c *collector) Export(ctx context.Context, r *tracepb.ExportTraceServiceRequest) (*tracepb.ExportTraceServiceResponse, error) {
	if err := c.note(ctx); err != nil {
		return nil, err
	}
	c.takeSpans(r)
	return c.aboutSpans(), nil
}

func (c *collector) aboutSpans() *tracepb.ExportTraceServiceResponse {
	return &tracepb.ExportTraceServiceResponse{PartialSuccess: &tracepb.ExportTracePartialSuccess{ErrorMessage: c.says}}
}

func (c *collector) aboutMetrics() *metricspb.ExportMetricsServiceResponse {
	return &metricspb.ExportMetricsServiceResponse{PartialSuccess: &metricspb.ExportMetricsPartialSuccess{ErrorMessage: c.says}}
}

func (c *collector) note(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down {
		return status.Error(codes.InvalidArgument, "no") // which nobody tries again
	}
	md, _ := metadata.FromIncomingContext(ctx)
	c.headers = map[string]string{}
	for k, v := range md {
		c.headers[k] = strings.Join(v, ",")
	}
	return nil
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), 400)
		return
	}
	c.mu.Lock()
	c.paths[r.URL.Path] = true
	c.headers = map[string]string{}
	for k := range r.Header {
		c.headers[strings.ToLower(k)] = r.Header.Get(k)
	}
	down := c.down
	c.mu.Unlock()
	if down {
		http.Error(w, "no", 400)
		return
	}
	if strings.HasSuffix(r.URL.Path, "/v1/traces") {
		var m tracepb.ExportTraceServiceRequest
		if err := proto.Unmarshal(body, &m); err != nil {
			http.Error(w, err.Error(), 400)
			return
		}
		c.takeSpans(&m)
	} else {
		var m metricspb.ExportMetricsServiceRequest
		if err := proto.Unmarshal(body, &m); err != nil {
			http.Error(w, err.Error(), 400)
			return
		}
		c.takeMetrics(&m)
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
	if c.says == "" {
		return
	}
	var about proto.Message = c.aboutMetrics()
	if strings.HasSuffix(r.URL.Path, "/v1/traces") {
		about = c.aboutSpans()
	}
	text, err := proto.Marshal(about)
	if err == nil && c.zips {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, err = z.Write(text)
		err = errors.Join(err, z.Close())
	} else if err == nil {
		_, err = w.Write(text)
	}
	_ = err // the other end may have left
}

func (c *collector) takeSpans(r *tracepb.ExportTraceServiceRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, rs := range r.ResourceSpans {
		c.resource = attributes(rs.Resource.Attributes)
		for _, ss := range rs.ScopeSpans {
			c.spans = append(c.spans, ss.Spans...)
		}
	}
}

func (c *collector) takeMetrics(r *metricspb.ExportMetricsServiceRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, rm := range r.ResourceMetrics {
		c.resource = attributes(rm.Resource.Attributes)
		for _, sm := range rm.ScopeMetrics {
			for _, m := range sm.Metrics {
				c.metrics[m.Name] = m
			}
		}
	}
}

func attributes(kvs []*commonpb.KeyValue) map[string]string {
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

// span returns the one span of a name.
func (c *collector) span(t testing.TB, name string) *spanpb.Span {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	var found *spanpb.Span
	var names []string
	for _, s := range c.spans {
		if names = append(names, s.Name); s.Name == name {
			if found != nil {
				t.Fatalf("%s twice", name)
			}
			found = s
		}
	}
	if found == nil {
		t.Fatalf("no span %q among %q", name, names)
	}
	return found
}

// log is a process log that tests can read.
type log struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// secrets are those of a test.
type secrets map[string]edge.Secret

func (s secrets) Secret(_ context.Context, name, key string) (edge.Secret, error) {
	if v, ok := s[name+"/"+key]; ok {
		return v, nil
	}
	return "", edge.Errorf(edge.NotFound, "secret", "there is no %s/%s", name, key)
}

// open opens the telemetry of a spec, until the test ends.
func open(t testing.TB, s Spec, change ...func(*Part)) (*Telemetry, *log) {
	t.Helper()
	s.Server = "s"
	p, errs := Parse(s)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	p.Answer = func(k edge.Kind, era mcp.Era) (int, int) {
		switch k {
		case edge.Denied:
			return 403, 403
		case edge.Limited:
			return 429, 429
		}
		return 500, mcp.CodeInternal
	}
	for _, f := range change {
		f(p)
	}
	l := &log{}
	tel, err := p.Start(edge.Env{Log: slog.New(slog.NewTextHandler(l, nil)), Defer: t.Cleanup, Secrets: secrets{"otel/token": "PLANTED-TOKEN"}})
	if err != nil {
		t.Fatal(err)
	}
	return tel, l
}

func flush(t testing.TB, tel *Telemetry) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := tel.Flush(ctx); err != nil {
		t.Fatal(err)
	}
}

// exchange is a message of a client.
func exchange(t testing.TB, method, params string) *edge.Exchange {
	t.Helper()
	text := fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":%q,"params":%s}`, method, params)
	m, err := mcp.Decode([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return &edge.Exchange{Server: "s", Request: m, Head: edge.Head{Remote: "192.0.2.1"}}
}

// call is a call of a tool that the catalog knows.
func call(t testing.TB, name, rest string) *edge.Exchange {
	t.Helper()
	x := exchange(t, "tools/call", fmt.Sprintf(`{"name":%q%s}`, name, rest))
	x.Target = &edge.Target{Backend: "b", Thing: edge.Tool, Name: name, Original: name}
	return x
}

// answers is a handler that answers with a message.
func answers(t testing.TB, text string) edge.Handler {
	t.Helper()
	r := &edge.Response{Status: 200}
	if err := r.Decode([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return edge.HandlerFunc(func(context.Context, *edge.Exchange) (*edge.Response, error) { return r, nil })
}

func fails(err error) edge.Handler {
	return edge.HandlerFunc(func(context.Context, *edge.Exchange) (*edge.Response, error) { return nil, err })
}

const good = `{"jsonrpc":"2.0","id":7,"result":{"content":[]}}`
