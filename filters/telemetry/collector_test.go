package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	spanpb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest/fake"
	"github.com/weir-edge/weir/edge/edgetest/otlp"
	"github.com/weir-edge/weir/edge/mcp"
)

// startCollector starts a collector, over HTTP below a path of its own.
func startCollector(t testing.TB, protocol string, secure bool) *otlp.Collector {
	c := otlp.Start(t, protocol, secure)
	if protocol == "http" {
		c.Endpoint += "/otlp/"
	}
	return c
}

// spanOf returns the one span of a name.
func spanOf(t testing.TB, c *otlp.Collector, name string) *spanpb.Span {
	t.Helper()
	return c.Span(t, name, func(s *spanpb.Span) bool { return s.Name == name })
}

// open opens the telemetry of a spec, until the test ends.
func open(t testing.TB, s Spec, change ...func(*Part)) (*Telemetry, *fake.Log) {
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
	l := &fake.Log{}
	tel, err := p.Start(edge.Env{Log: slog.New(slog.NewTextHandler(l, nil)), Defer: t.Cleanup, Secrets: fake.Keep(map[string]edge.Secret{"otel/token": "PLANTED-TOKEN\n"})})
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
