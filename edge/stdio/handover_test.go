//go:build unix

package stdio_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/backend"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
	"github.com/weir-edge/weir/edge/stdio"
)

// latched starts servers once open is closed, and says when it is asked to.
type latched struct {
	stdio.Starter
	asked chan struct{}
	open  chan struct{}
}

func (l latched) Start(ctx context.Context, principal string) (stdio.Process, error) {
	select {
	case l.asked <- struct{}{}:
	default:
	}
	select {
	case <-l.open:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return l.Starter.Start(ctx, principal)
}

// successors are edges of a plan, of which each takes over from the one before.
func successors(t *testing.T, plan *compile.Plan, server edgetest.Era) (next func(asked, open chan struct{}) *edgetest.Edge) {
	t.Helper()
	dir, err := os.MkdirTemp("", "weir") // the name of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.WriteFile(filepath.Join(dir, "told.tools"), []byte(`,{"name":"ask","inputSchema":{"type":"object"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "sock")
	return func(asked, open chan struct{}) *edgetest.Edge {
		t.Helper()
		return edgetest.StartPlan(t, plan, edgetest.Settings(func(c *serve.Settings) { c.HandOver = socket }), edgetest.With(serve.WithWorkloads(func(s serve.Starting) (backend.Local, error) {
			start := latched{program(t, server.String(), filepath.Join(dir, "told")), asked, open}
			return stdio.New(stdio.Config{Name: s.Workload.Name, Digest: s.Digest, Timeout: 3 * time.Second, Starter: start})
		})))
	}
}

// begun is the first of them, once it serves and has its servers listed.
func begun(t *testing.T, next func(asked, open chan struct{}) *edgetest.Edge) *edgetest.Edge {
	t.Helper()
	now := make(chan struct{})
	close(now)
	e := next(nil, now)
	await(t, "both servers are listed", func() bool {
		text, err := e.NewClient().Modern("1", "tools/list", "").TryAnswer()
		return err == nil && strings.Contains(string(text), "one_echo") && strings.Contains(string(text), "two_echo")
	})
	return e
}

// TestHandOverWaitsForServers: a process that takes over does so when its local servers have
// started: until then the one before serves, and goes on where the new one is told to end.
func TestHandOverWaitsForServers(t *testing.T) {
	next := successors(t, plannedAs(t, several), edgetest.Modern)
	first := begun(t, next)
	calls := func() {
		t.Helper()
		for _, tool := range []string{"one_echo", "two_echo"} {
			first.NewClient().Modern("2", "tools/call", edgetest.CallParams(tool, "{}")).Result()
		}
	}
	waits := func(e *edgetest.Edge, asked chan struct{}) {
		t.Helper()
		edgetest.Receive(t, asked, "the start of a server")
		await(t, "the new process waits", func() bool { return strings.Contains(e.Log(), "local servers start before this process takes over") })
		calls()
		if log := first.Log(); strings.Contains(log, "another process serves now") {
			t.Fatalf("the process before has left: %s", log)
		}
	}
	asked := make(chan struct{}, 1)
	given := next(asked, make(chan struct{}))
	waits(given, asked)
	given.Stop()
	calls()

	asked, open := make(chan struct{}, 1), make(chan struct{})
	second := next(asked, open)
	waits(second, asked)
	close(open)
	await(t, "the new process serves", func() bool { return strings.Contains(first.Log(), "another process serves now") })
	calls()
}

// TestHandOverWaitsForAServerAlone: so it does for the local server of a server that has no other.
func TestHandOverWaitsForAServerAlone(t *testing.T) {
	next := successors(t, planned(t), edgetest.Legacy)
	now := make(chan struct{})
	close(now)
	first := next(nil, now)
	first.NewClient().Initialize("{}").Call("1", "echo", "{}").Result()
	asked, open := make(chan struct{}, 1), make(chan struct{})
	second := next(asked, open)
	edgetest.Receive(t, asked, "the start of a server")
	await(t, "the new process waits", func() bool {
		return strings.Contains(second.Log(), "local servers start before this process takes over")
	})
	first.NewClient().Initialize("{}").Call("2", "echo", "{}").Result()
	if log := first.Log(); strings.Contains(log, "another process serves now") {
		t.Fatalf("the process before has left: %s", log)
	}
	close(open)
	await(t, "the new process serves", func() bool { return strings.Contains(first.Log(), "another process serves now") })
}

// TestHandOverOfAProcessThatEnds: a process that waits for its local servers serves at once where the
// one before ends meanwhile.
func TestHandOverOfAProcessThatEnds(t *testing.T) {
	dir, err := os.MkdirTemp("", "weir") // the name of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	next := func(asked, open chan struct{}) *edgetest.Edge {
		return edgetest.StartPlan(t, planned(t), edgetest.Settings(func(c *serve.Settings) { c.HandOver = filepath.Join(dir, "s") }), edgetest.With(serve.WithWorkloads(func(s serve.Starting) (backend.Local, error) {
			start := latched{program(t, edgetest.Legacy.String(), filepath.Join(dir, "told")), asked, open}
			return stdio.New(stdio.Config{Name: s.Workload.Name, Digest: s.Digest, Timeout: time.Minute, Starter: start})
		})))
	}
	now, asked := make(chan struct{}), make(chan struct{}, 1)
	close(now)
	first := next(nil, now)
	first.NewClient().Initialize("{}").Call("1", "echo", "{}").Result()
	second := next(asked, make(chan struct{})) // whose server never starts
	edgetest.Receive(t, asked, "the start of a server")
	await(t, "the new process waits", func() bool {
		return strings.Contains(second.Log(), "local servers start before this process takes over")
	})
	from := time.Now()
	first.Stop()
	await(t, "the new process serves", func() bool { return strings.Contains(second.Log(), "msg=serving ") })
	if took := time.Since(from); took > 15*time.Second { // of the 30 for which it would wait
		t.Errorf("nobody served for %s", took)
	}
}

// TestSessionsWithProcessesEndAtAHandOver: a legacy session whose process at a local server ends
// with the process before is 404 at its next request, as after any end of its process; one that
// has none goes on. The log says how many end.
func TestSessionsWithProcessesEndAtAHandOver(t *testing.T) {
	for _, server := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		t.Run(server.String(), func(t *testing.T) {
			next := successors(t, plannedAs(t, several), server)
			first := begun(t, next)
			used, unused := first.NewClient().Initialize("{}"), first.NewClient().Initialize("{}")
			used.Call("1", "one_echo", "{}").Result()
			asking := first.NewClient().Initialize(`{"roots":{}}`)
			under := asking.Request("1", "tools/call", edgetest.CallParams("one_ask", `{"method":"roots/list"}`))
			question := under.NextMessage()
			now := make(chan struct{})
			close(now)
			next(nil, now)
			await(t, "the new process serves", func() bool { return strings.Contains(first.Log(), "another process serves now") })
			asking.Reply(question.ID, `{"roots":[]}`) // which is passed on
			if m := under.NextMessage(); m.Result == nil {
				t.Errorf("the call under way: %+v", m.Error)
			}
			first.Ended()
			if r := asking.Call("2", "one_echo", "{}"); r.Status != 404 {
				t.Errorf("the session whose call was under way goes on: %d %s", r.Status, r.Body)
			}
			if r := used.Call("2", "one_echo", "{}"); r.Status != 404 {
				t.Errorf("the session goes on, and its process has ended: %d %s", r.Status, r.Body)
			}
			unused.Call("2", "one_echo", "{}").Result()
			if log := first.Log(); !strings.Contains(log, "left=2") || !strings.Contains(log, "it ends with its process of backend one") {
				t.Errorf("the log does not say what ends: %s", log)
			}
		})
	}
}
