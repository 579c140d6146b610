package guest_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
)

// TestMetrics counts what programs do where the edge's metrics are.
func TestMetrics(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Modern)
	f := filter{name: "f", rules: []string{"on_call_request|args~no|deny|0|no", "on_call_request|args~trap|trap"}}
	e := start(t, manifest(t, backs{"back": back}, []filter{f}), edgetest.Settings(func(s *serve.Settings) { s.AdminListen = "127.0.0.1:0" }))
	c := newClient(e, edgetest.Modern)
	text(t, c.call(t, "echo", `{}`))
	c.call(t, "echo", `{"a":"no"}`)
	c.call(t, "echo", `{"a":"trap"}`)
	got := string(edgetest.NewClient(t, "http://"+e.Serve.AdminAddr()).Do("GET", "/metrics", "").Body)
	for _, want := range []string{
		`weir_guest_calls_total{filter="f",hook="on_call_request",outcome="pass",server="s"} 1`,
		`weir_guest_calls_total{filter="f",hook="on_call_request",outcome="ops",server="s"} 1`,
		`weir_guest_calls_total{filter="f",hook="on_call_request",outcome="trap",server="s"} 1`,
		`weir_guest_denied_total{filter="f",hook="on_call_request",server="s"} 1`,
		`weir_guest_instances{filter="f",server="s"}`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
	if t.Failed() {
		for line := range strings.Lines(got) {
			if strings.Contains(line, "guest") {
				t.Log(line)
			}
		}
	}
}

// TestEvents shows programs the records of what happened, beside the messages.
func TestEvents(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Modern)
	f := filter{name: "f", rules: []string{"on_event|event~mcp_tool_call|trap", "on_event|event~\"method\":\"ping\"|hide"}}
	log := filepath.Join(t.TempDir(), "audit.log")
	yaml := strings.Replace(manifest(t, backs{"back": back}, []filter{f}), "  config:\n", fmt.Sprintf("  config:\n    audit: {enabled: true, logFile: %q}\n", log), 1)
	e := start(t, yaml)
	c := newClient(e, edgetest.Legacy)
	text(t, c.call(t, "echo", `{}`)) // whatever the program makes of it
	edgetest.Until(t, "the record of the call", func() bool { s := status(t, e); return len(s.Hooks) == 1 && s.Hooks[0].Failures == 1 })
	if s := status(t, e); s.Hooks[0].Hook != "on_event" || s.Hooks[0].Calls < 2 {
		t.Errorf("the status says %+v", s)
	}
	if !strings.Contains(e.Log(), "hook=on_event") {
		t.Error("the log lacks the failure")
	}
}
