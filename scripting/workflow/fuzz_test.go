package workflow_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/scripting/workflow"
)

// jsonObject is an object of one text.
func jsonObject(name, text string) v1beta1.JSONObject {
	b, _ := json.Marshal(map[string]string{name: text}) // texts
	return v1beta1.JSONObject(b)
}

// FuzzProgram holds that a workflow which is valid has a program, and that the program is a
// valid script with the same text.
func FuzzProgram(f *testing.F) {
	for _, r := range rows() {
		tool := composite(f, r.yaml)
		text, err := json.Marshal(tool)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(`{"name":"x","steps":[{"id":"print","tool":"w.t","arguments":{"\u0000\"\\":"\u2028\ufeff{{.params.x}}","n":-0.0,"e":1e-300}}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var tool v1beta1.CompositeTool
		if json.Unmarshal(text, &tool) != nil {
			return
		}
		w, err := workflow.Parse(&tool)
		if err != nil || tool.Script != "" {
			return
		}
		script := asScript(w, &tool)
		twin, err := workflow.Parse(script)
		if err != nil {
			t.Fatalf("%s\n%s", err, w.Show())
		}
		if twin.Show() != w.Show() {
			t.Errorf("%s\n%s", w.Show(), twin.Show())
		}
		if again, err := workflow.Parse(&tool); err != nil || again.Show() != w.Show() {
			t.Errorf("%v\n%s", err, w.Show())
		}
		w.Lint(nil)
		w.Graph()
	})
}

// FuzzTemplate holds that rendering ends, and never says that there was no value.
func FuzzTemplate(f *testing.F) {
	for _, s := range []string{
		"{{.params.x}}", "{{json .params}}", "{{range .params.l}}{{.}}{{end}}", `{{printf "%d%v" 1 .params.x}}`, "{{with .params.o}}{{.k}}{{end}}",
		`{{index .params.l 0}}`, `{{slice "abc" 1 2}}`, `{{define "x"}}{{.}}{{end}}{{template "x" .params}}`, `{{fromJson "[1]"}}`, `{{$x := 1}}{{$x}}`, `{{break}}`, `{{range $i, $e := .params.o}}{{$i}}{{$e}}{{end}}`,
		`{{and .params.x .params.z}}`, `{{len .params.l | printf "%03d"}}`, `{{not .params.z}}`, `{{- "x" -}}`, `{{/* x */}}`, `{{range 3}}{{.}}{{else}}{{end}}`,
	} {
		f.Add(s, "v")
	}
	f.Fuzz(func(t *testing.T, text, value string) {
		tool := v1beta1.CompositeTool{Name: "x", Steps: []v1beta1.WorkflowStep{{ID: "a", Type: v1beta1.StepTool, Tool: "w.echo", Arguments: jsonObject("x", text)}}}
		w, err := workflow.Parse(&tool)
		if err != nil {
			return
		}
		given, _ := json.Marshal(map[string]any{"x": value, "l": []any{value, 1, nil}, "o": map[string]any{"k": value}, "z": nil}) // plain values
		host := &workflow.Host{
			Tool: func(string) (*workflow.Tool, bool) { return &workflow.Tool{}, true },
			Call: func(_ context.Context, c *workflow.Call) workflow.Answer {
				return workflow.Answer{Result: []byte(`{"structuredContent":` + string(c.Arguments) + `}`)}
			},
		}
		out, err := w.Run(t.Context(), given, host)
		if err != nil {
			t.Fatal(err)
		}
		if out.Error == nil && strings.Contains(string(out.Value), "no value") && !strings.Contains(text+value, "no value") && !strings.Contains(text, "json") {
			t.Errorf("%s", out.Value)
		}
	})
}
