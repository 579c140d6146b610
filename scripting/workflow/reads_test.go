package workflow_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-edge/weir/scripting/workflow"
)

// A step waits for another that its template reads, in whatever words: by a with, a variable,
// parentheses, an index of the root, or a template within.
func TestReadsInOtherWords(t *testing.T) {
	for _, read := range []string{
		`{{.steps.a.status}}`,
		`{{with .steps}}{{.a.status}}{{end}}`,
		`{{with .steps.a}}{{.status}}{{end}}`,
		`{{with $}}{{.steps.a.status}}{{end}}`,
		`{{with $s := .steps}}{{$s.a.status}}{{end}}`,
		`{{$s := .steps}}{{$s.a.status}}`,
		`{{$s := index .steps "a"}}{{$s.status}}`,
		`{{(.steps).a.status}}`,
		`{{(index . "steps").a.status}}`,
		`{{index . "steps" "a" "status"}}`,
		`{{(index $ "steps" "a").status}}`,
		`{{define "t"}}{{.a.status}}{{end}}{{template "t" .steps}}`,
		`{{define "t"}}{{$.steps.a.status}}{{end}}{{template "t" .}}`,
		`{{define "t"}}{{with .steps}}{{template "u" .a}}{{end}}{{end}}{{define "u"}}{{.status}}{{end}}{{template "t" $}}`,
		`{{range .params.l}}{{else}}{{$.steps.a.status}}{{end}}`,
	} {
		tool := composite(t, fmt.Sprintf(`
parameters: {type: object, properties: {l: {type: array}}}
steps:
- {id: b, tool: w.echo, arguments: {x: %q}}
- {id: a, tool: w.slow}
output: {properties: {x: {type: string, value: "{{.steps.b.output.x}}"}}}`, read))
		if out, seen := play(t, parse(t, tool), "", nil); told(out) != `{"x":"completed"}` {
			t.Errorf("%s: %s, %q", read, told(out), seen.events)
		}
		none := composite(t, fmt.Sprintf("steps: [{id: b, tool: w.echo, arguments: {x: %q}}]", strings.ReplaceAll(read, ".params.l", ".params")))
		if _, err := workflow.Parse(none); err == nil || strings.Count(err.Error(), "arguments[x]: there is no step a") != 1 || strings.Count(err.Error(), "Invalid value: there is no step a") != 1 { // by the model too
			t.Errorf("%s: without a step a: %v", read, err)
		}
	}
}

// A step that reads the steps as a whole sees those that it depends on, and no other one,
// whichever has ended by then.
func TestReadsOfAllSteps(t *testing.T) {
	for _, others := range []string{"w.slow", "w.echo"} {
		tool := composite(t, fmt.Sprintf(`
steps:
- {id: c, tool: %s}
- {id: z, tool: w.echo, condition: "{{false}}"}
- {id: n, tool: w.echo, arguments: {x: "{{len .steps}}"}}
- {id: a, tool: w.slow, dependsOn: [z]}
- {id: b, tool: w.echo, dependsOn: [a], arguments: {x: "{{range $id, $s := .steps}}{{$id}} {{end}}"}}
output: {properties: {x: {type: string, value: "{{.steps.b.output.x}}{{len .steps}} {{.steps.n.output.x}}"}}}`, others))
		w := parse(t, tool)
		for _, form := range []*workflow.Workflow{w, parse(t, asScript(w, tool))} {
			if out, _ := play(t, form, "", nil); told(out) != `{"x":"a z 5 0"}` {
				t.Errorf("%s: %s", others, told(out))
			}
		}
	}
}

// What a template within is given is its own root, whatever names that has; and a variable
// that is given other values, or the dot of a range, may be anything.
func TestReadsOfOthers(t *testing.T) {
	for read, want := range map[string]string{
		`{{define "t"}}{{$.name}}{{end}}{{template "t" .params.o}}`:                                         "n",
		`{{define "t"}}{{$.steps}}{{end}}{{template "t" .params.o}}`:                                        "s",
		`{{with .params.o}}{{.name}}{{.steps}}{{end}}`:                                                      "ns",
		`{{$x := .params}}{{$x = .params.o}}{{$x.name}}`:                                                    "n",
		`{{range .params.l}}{{.steps}}{{end}}`:                                                              "s",
		`{{define "t"}}{{if .next}}{{template "t" .next}}{{end}}{{.name}}{{end}}{{template "t" .params.o}}`: "mn",
	} {
		tool := composite(t, fmt.Sprintf(`
parameters: {type: object, properties: {o: {type: object}, l: {type: array}}, additionalProperties: false}
steps: [{id: b, tool: w.echo, arguments: {x: %q}}]`, read))
		w, err := workflow.Parse(tool)
		if err != nil {
			t.Errorf("%s: %s", read, err)
			continue
		}
		if out, _ := play(t, w, `{"o":{"name":"n","steps":"s","next":{"name":"m","next":null}},"l":[{"steps":"s"}]}`, nil); told(out) != fmt.Sprintf(`{"x":%q}`, want) {
			t.Errorf("%s: %s", read, told(out))
		}
	}
}
