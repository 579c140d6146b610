package guest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
	"github.com/weir-edge/weir/scripting/sandbox"
)

// TestScriptsMeetPrograms: the calls of a script are shown to programs one by one, as the
// client's own are: what they change, deny and redact is changed, denied and redacted, and
// the call of the tool that runs scripts is shown to them as well.
func TestScriptsMeetPrograms(t *testing.T) {
	scripts := sandbox.New(sandbox.Options{})
	t.Cleanup(scripts.Close)
	if err := scripts.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	edgetest.Eras(t, func(t *testing.T, era, of edgetest.Era) {
		back := edgetest.NewServer(t, of)
		yaml := manifest(t, backs{"back": back}, []filter{{name: "f", rules: []string{
			"on_call_request|args~evil|deny|0|not here",
			"on_call_request|args~secret-word|deny|0|no such script",
			`on_call_request|tool=echo|set_arg|/seen|"$tool"`,
			"on_call_response|result~private|redact|/content/0/text|[hidden]",
		}}})
		yaml = strings.Replace(yaml, "  config:\n", "  config:\n    codeMode: {enabled: true}\n", 1)
		c := newClient(start(t, yaml, edgetest.With(serve.WithScripts(scripts.Run))), era)
		run := func(script string) string {
			return string(c.call(t, "execute_tool_script", fmt.Sprintf(`{"script":%q}`, script)).Body)
		}
		const want = `\"ok\":true,\"value\":`
		said := run(`return [attempt(lambda: echo(text="fine")), attempt(lambda: call_tool("echo", text="ev" + "il")), attempt(lambda: echo(text="pri" + "vate"))]`)
		switch {
		case strings.Count(said, want) != 2:
			t.Errorf("two of three calls are allowed: %s", said)
		case !strings.Contains(said, "not here") || !strings.Contains(said, "[hidden]") || strings.Contains(said, "private"):
			t.Errorf("the script got %s", said)
		}
		asked := back.Requests("tools/call")
		if len(asked) != 2 {
			t.Errorf("%d calls reached the backend, want 2", len(asked))
		}
		for _, r := range asked {
			if !strings.Contains(string(r.Body), `"seen":"echo"`) || strings.Contains(string(r.Body), "evil") {
				t.Errorf("the backend got %s", r.Body)
			}
		}
		if said := run(`return "secret-word"`); !strings.Contains(said, "no such script") {
			t.Errorf("a script that a program denies: %s", said)
		}
	})
}

// TestCompositesMeetPrograms: the calls of a composite tool are shown to programs one by one:
// each attempt, each item and each round of a question, and what they change, deny and redact
// is changed, denied and redacted.
func TestCompositesMeetPrograms(t *testing.T) {
	edgetest.Eras(t, func(t *testing.T, era, of edgetest.Era) {
		back := edgetest.NewServer(t, of)
		yaml := manifest(t, backs{"back": back}, []filter{{name: "f", rules: []string{
			"on_call_request|args~evil|deny|0|not here",
			"on_call_request|args~secret-word|deny|0|no such workflow",
			`on_call_request|tool=echo|set_arg|/seen|"$tool"`,
			"on_call_response|result~private|redact|/content/0/text|[hidden]",
		}}})
		yaml = strings.Replace(yaml, "  config:\n", `  config:
    compositeTools:
    - name: flow
      parameters: {type: object, properties: {x: {type: array}}, required: [x]}
      steps: [{id: a, type: forEach, collection: "{{json .params.x}}", step: {tool: echo, arguments: {text: "{{.forEach.item}}"}, onError: {action: continue}}}]
`, 1)
		c := newClient(start(t, yaml), era)
		run := func(x string) string { return string(c.call(t, "flow", `{"x":`+x+`}`).Body) }
		said := run(`["fine", "ev\u0069l", "pri\u0076ate"]`)
		if strings.Count(said, `"status":"completed"`) != 2 || !strings.Contains(said, "not here") || !strings.Contains(said, "[hidden]") {
			t.Errorf("two of three calls are allowed: %s", said)
		}
		asked := back.Requests("tools/call")
		if len(asked) != 2 {
			t.Errorf("%d calls reached the backend, want 2", len(asked))
		}
		for _, r := range asked {
			if !strings.Contains(string(r.Body), `"seen":"echo"`) || strings.Contains(string(r.Body), "evil") {
				t.Errorf("the backend got %s", r.Body)
			}
		}
		if said := run(`["secret-word"]`); !strings.Contains(said, "no such workflow") || back.Count("tools/call") != 2 {
			t.Errorf("a call that a program denies: %s", said)
		}
	})
}
