// Package edgetest is what tests of a whole edge stand on: an edge started from
// YAML or from a plan, a fake MCP server of any transport that does what a test
// tells it to, and a client that sees the bytes.
//
// Nothing in it sleeps. Everything that waits for an event gives up after
// Patience and fails the test.
package edgetest

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/serve"
	"github.com/weir-edge/weir/edge/source"
)

// Patience is how long anything in a test waits for what must come. Only a test
// that fails waits so long, on the busiest of machines.
const Patience = 60 * time.Second

// Edge is a running edge on a loopback port of its own.
type Edge struct {
	Serve *serve.Edge

	t      testing.TB
	log    *logbook
	cancel context.CancelFunc
	ended  chan struct{}
	err    error
}

// Option changes how an edge is started.
type Option func(*config)

type config struct {
	settings serve.Settings
	before   []func(*serve.Edge)
	serve    []serve.Option
	level    slog.Level
}

// Settings changes the settings of the process. They begin as serve.Defaults,
// on 127.0.0.1:0 and without an admin address.
func Settings(change func(*serve.Settings)) Option {
	return func(c *config) { change(&c.settings) }
}

// With passes an option on to serve.New.
func With(o serve.Option) Option {
	return func(c *config) { c.serve = append(c.serve, o) }
}

// Logging is the level of the process log, in place of debug.
func Logging(level slog.Level) Option {
	return func(c *config) { c.level = level }
}

// Before has f called on the edge before it serves.
func Before(f func(*serve.Edge)) Option {
	return func(c *config) { c.before = append(c.before, f) }
}

// Start starts the edge that a manifest describes, and stops it when the test
// ends. A manifest that weir validate would refuse fails the test.
func Start(t testing.TB, yaml string, options ...Option) *Edge {
	t.Helper()
	c := config{settings: serve.Defaults()}
	for _, o := range options {
		o(&c)
	}
	return StartPlan(t, plan(t, yaml, c.settings.LocalRateLimits), options...)
}

// Plan returns the plan that a manifest describes. One that weir validate would
// refuse fails the test.
func Plan(t testing.TB, yaml string) *compile.Plan {
	t.Helper()
	return plan(t, yaml, false)
}

// LocalPlan is Plan for an edge with --local-rate-limits.
func LocalPlan(t testing.TB, yaml string) *compile.Plan {
	t.Helper()
	return plan(t, yaml, true)
}

func plan(t testing.TB, yaml string, localRateLimits bool) *compile.Plan {
	t.Helper()
	set, _ := source.Read("test.yaml", []byte(yaml)) // what it finds wrong is in the result
	set.LocalRateLimits = localRateLimits
	r := set.Compile()
	if err := r.Err(); err != nil {
		var text strings.Builder
		_ = r.Render(&text)
		t.Fatalf("manifest: %v:\n%s", err, text.String())
	}
	return r.Plan
}

// StartPlan starts an edge that serves a plan, and stops it when the test ends.
func StartPlan(t testing.TB, plan *compile.Plan, options ...Option) *Edge {
	t.Helper()
	c := config{settings: serve.Defaults(), level: slog.LevelDebug}
	c.settings.Listen, c.settings.AdminListen = "127.0.0.1:0", ""
	c.settings.DrainTimeout = 5 * time.Second
	for _, o := range options {
		o(&c)
	}
	log := &logbook{}
	s, err := serve.New(c.settings, plan, slog.New(serve.Leveled(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}), c.level)), c.serve...)
	if err != nil {
		t.Fatalf("start the edge: %v", err)
	}
	for _, f := range c.before {
		f(s)
	}
	ctx, cancel := context.WithCancel(context.Background())
	e := &Edge{Serve: s, t: t, log: log, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(e.ended)
		e.err = s.Serve(ctx)
	}()
	t.Cleanup(func() {
		e.Stop()
		if t.Failed() {
			t.Logf("the edge's log:\n%s", log)
		}
	})
	return e
}

// Stop stops the edge and waits for its end. It may be called more than once.
func (e *Edge) Stop() {
	e.t.Helper()
	e.cancel()
	e.Ended()
}

// Ended waits for the end of the edge.
func (e *Edge) Ended() {
	e.t.Helper()
	select {
	case <-e.ended:
		if e.err != nil {
			e.t.Errorf("the edge ended with an error: %v", e.err)
		}
	case <-time.After(Patience):
		e.t.Errorf("the edge does not end; its goroutines:\n%s", stacks())
	}
}

// Addr returns host:port of the edge.
func (e *Edge) Addr() string { return e.Serve.Addr() }

// Base returns the URL of the edge without a path.
func (e *Edge) Base() string { return "http://" + e.Addr() }

// URL returns the URL of the endpoint that serves every revision.
func (e *Edge) URL() string { return e.Base() + "/mcp" }

// Log returns what the edge has logged so far.
func (e *Edge) Log() string { return e.log.String() }

// Manifest returns the YAML of an edge before one server: the backend "back".
// more is further YAML of the server's configuration.
func Manifest(s *Server, more ...string) string {
	transport := compile.StreamableHTTP
	if s.Era == SSE {
		transport = compile.SSE
	}
	return ManifestFor(s.URL, transport, more...)
}

// ManifestFor is Manifest for a server at url, spoken to over transport.
func ManifestFor(url string, transport compile.Transport, more ...string) string {
	return fmt.Sprintf(`name: edgetest
groupRef: edgetest
incomingAuth: {type: anonymous}
aggregation:
  conflictResolution: priority
  conflictResolutionConfig: {priorityOrder: [back]}
backends:
- {name: back, url: %q, transport: %s}
%s`, url, transport, strings.Join(more, "\n"))
}

// Object is the YAML of a whole VirtualMCPServer before one server, with the
// group that it needs: one document of several.
func Object(name string, s *Server) string {
	return fmt.Sprintf(`---
apiVersion: weir.dev/v1beta1
kind: MCPGroup
metadata: {name: %[1]s}
---
apiVersion: weir.dev/v1beta1
kind: VirtualMCPServer
metadata: {name: %[1]s}
spec:
  groupRef: {name: %[1]s}
  incomingAuth: {type: anonymous}
  outgoingAuth: {source: inline}
  config:
    aggregation: {conflictResolution: priority, conflictResolutionConfig: {priorityOrder: [back]}}
    backends: [{name: back, url: %[2]q, transport: streamable-http}]
`, name, s.URL)
}

// Timeout is the YAML that gives a backend up after so much silence.
func Timeout(d time.Duration) string {
	return fmt.Sprintf("operational: {timeouts: {default: %s}}", d)
}

// logbook keeps the end of a log.
type logbook struct {
	mu   sync.Mutex
	text []byte
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	if over := len(l.text) - 1<<20; over > 0 {
		l.text = append(l.text[:0], l.text[over:]...)
	}
	return len(p), nil
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}
