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

// TestEventsOfSomeTools: what a filter is for narrows the records that it is shown, too.
func TestEventsOfSomeTools(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Modern)
	of := func(name, more string) filter {
		return filter{name: name, more: more, rules: []string{"on_event|event~mcp_tool_call|trap", "on_event|*|trap"}}
	}
	log := filepath.Join(t.TempDir(), "audit.log")
	yaml := strings.Replace(manifest(t, backs{"back": back}, []filter{
		of("tools", "match: {tools: [ec*]}"), of("backends", "match: {backends: [back]}"), of("methods", "match: {methods: [tools/call]}"), of("others", "match: {tools: [other]}"), of("all", ""),
	}), "  config:\n", fmt.Sprintf("  config:\n    audit: {enabled: true, logFile: %q}\n", log), 1)
	e := start(t, yaml)
	c := newClient(e, edgetest.Legacy)
	c.request(t, "tools/list", "")
	text(t, c.call(t, "echo", `{}`))
	shown := func() map[string]uint64 {
		n := map[string]uint64{}
		for _, s := range statuses(t, e) {
			for _, h := range s.Hooks {
				n[s.Name] += h.Calls
			}
		}
		return n
	}
	edgetest.Until(t, "the records", func() bool { return shown()["all"] >= 3 }) // of initialize, the list and the call
	if n := shown(); n["tools"] != 1 || n["methods"] != 1 || n["others"] != 0 || n["backends"] == 0 || n["backends"] >= n["all"] {
		t.Errorf("shown: %v", n)
	}
}
