//go:build unix

package stdio_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/backend"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
	"github.com/weir-edge/weir/edge/stdio"
)

// A call may be silent for longer than a backend elsewhere may be: that the process lives is
// seen without it. What the edge asks for itself has its bound all the same.
func TestSilentCall(t *testing.T) {
	const silence = 2 * time.Second // in which a process begins, and introduces itself, too
	for _, server := range []string{"legacy", "modern"} {
		for _, client := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
			t.Run(server+" server, client of "+client.String(), func(t *testing.T) {
				t.Parallel()
				for _, patient := range []bool{true, false} {
					plan := planned(t)
					b := &plan.Servers[0].Backends[0]
					if !b.Patient {
						t.Fatal("a server that the edge starts has to speak during its calls")
					}
					b.Timeout, b.Patient = silence, patient
					r := startOf(t, plan, server).NewClient().As(client, "").CallTool("1", "wait", fmt.Sprintf(`{"ms":%d}`, 3*silence.Milliseconds()))
					if fault := fault(r.Message()); (fault == "") != patient || !patient && !strings.Contains(fault, "timed out") {
						t.Errorf("patient %t: %d %q", patient, r.Status, fault)
					}
				}
			})
		}
	}
}

// startOf starts an edge by a plan, before a played server.
func startOf(t *testing.T, plan *compile.Plan, how string) *edgetest.Edge {
	t.Helper()
	return edgetest.StartPlan(t, plan, edgetest.With(serve.WithWorkloads(func(serve.Starting) (backend.Local, error) {
		return stdio.New(stdio.Config{Name: "back", Starter: program(t, how, "")})
	})))
}

// TestLastWords: what a server printed before it ended is logged to its end, though whoever takes
// the lines is slow.
func TestLastWords(t *testing.T) {
	t.Parallel()
	b := start(t, "legacy", func(c *stdio.Config) {
		take := c.Lines
		c.Lines = func(l stdio.Line) {
			time.Sleep(20 * time.Millisecond)
			take(l)
		}
	})
	c := b.NewClient().As(edgetest.Legacy, "")
	c.CallTool("1", "stderr", `{"n":100,"text":"`+strings.Repeat("x", 1000)+`"}`).Result()
	if _, err := c.TryAsk("2", "tools/call", edgetest.CallParams("exit", "{}")); err != nil {
		t.Fatal(err)
	}
	await(t, "the last line is logged", func() bool { return strings.Contains(b.log(), "stderr: told to exit\n") })
}
