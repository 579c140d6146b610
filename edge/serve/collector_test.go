package serve_test

import (
	"encoding/hex"
	"strings"
	"testing"

	spanpb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/weir-edge/weir/edge/edgetest/otlp"
)

// collector is an OpenTelemetry collector that keeps what it is sent.
type collector struct{ *otlp.Collector }

// newCollector starts a collector that speaks "grpc", "http" or "https", until
// the test ends.
func newCollector(t testing.TB, protocol string) *collector {
	t.Helper()
	plain := strings.TrimSuffix(protocol, "s")
	return &collector{otlp.Start(t, plain, plain != protocol)}
}

// span returns the one span of a trace and a kind.
func (c *collector) span(t testing.TB, trace string, kind spanpb.Span_SpanKind) *spanpb.Span {
	t.Helper()
	return c.Span(t, trace, func(s *spanpb.Span) bool { return hex.EncodeToString(s.TraceId) == trace && s.Kind == kind })
}

// count returns how many spans came.
func (c *collector) count() int {
	c.Lock()
	defer c.Unlock()
	return len(c.Spans)
}

// header is a line of the header of the last request.
func (c *collector) header(name string) string {
	c.Lock()
	defer c.Unlock()
	return c.Headers[strings.ToLower(name)]
}
