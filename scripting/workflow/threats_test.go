package workflow_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-edge/weir/scripting/workflow"
)

// TestScripts holds what only a script can say.
func TestScripts(t *testing.T) {
	for script, want := range map[string]string{
		`return {"x": params["x"]}`: `{"x":"v"}`,
		`return [1, 2]`:             `{"result":[1,2]}`,
		``:                          `{"result":null}`,
		`a = step("a", lambda: call_step("w.rich"))` + "\nreturn a.output[\"n\"]":              `{"result":3}`,
		`a = step("a", lambda: 7)` + "\nreturn a":                                              `{"result":7}`,
		`a = step("a", lambda: call_step("w.fail"), on_error="continue")` + "\nreturn a.error": `{"result":"tool \"w.fail\": boom"}`,
		`a = step("a", lambda: 1, when=lambda: False)` + "\nreturn [a.status, a.content]":      `{"result":["skipped",null]}`,
		`return call_tool("w.list")`:                                                           `{"result":[1,2]}`,
		`return call_tool("w.text")`:                                                           `{"result":"hello"}`,
		`return call_tool("w.json")`:                                                           `{"k":[1,2]}`,
		`return call_tool_result("w.text")`:                                                    `{"content":[{"type":"text","text":"hello"}]}`,
		`return attempt(lambda: call_tool("w.fail"))["error"]["message"]`:                      `{"result":"tool \"w.fail\": boom"}`,
		`return attempt(lambda: call_step("w.denied"))["error"]`:                               `{"message":"tool \"w.denied\": denied by authorization policy","tool":"w.denied","code":403,"data":null}`,
		`return attempt(lambda: template("{{.params.nobody}}"))["ok"]`:                         `{"result":false}`,
		`return list_tools()`:                                                                  `{"result":["w.echo"]}`,
		`return template("{{.params.x}}!") + "!"`:                                              `{"result":"v!!"}`,
		`return len(parallel([lambda: call_step("w.slow") for _ in range(20)]))`:               `{"result":20}`,
		`return retry(2, "1s", lambda: call_step("w.odd"))`:                                    `{}`,
		`fail("no")`:                `failed 1:5: fail: no`,
		`return 1 // 0`:             `failed 1:10: floored division by zero`,
		`step("a", lambda: 1 // 0)`: `failed step "a": 1:21: floored division by zero`,
		`step("a", lambda: 1)` + "\n" + `step("a", lambda: 1)`:                                                  `failed 2:5: step: there are two steps "a"`,
		`step("a", lambda: step)`:                                                                               `failed step "a": its output: builtin_function_or_method has no JSON form`,
		`return call_tool("w.nobody", 1)`:                                                                       `failed 1:17: call_tool: got 2 positional arguments, want 1: the tool's name`,
		`return call_tool("x.nobody")`:                                                                          `failed 1:17: tool "x.nobody": not found`,
		`ask("a", "m")`:                                                                                         `failed 1:4: ask: stands in a step`,
		`each("a", lambda: [], lambda item, index: 1)`:                                                          `failed 1:5: each: stands in a step`,
		`step("a", lambda: each("a", lambda: [1, 2], lambda item, index: item * 2))`:                            `{"result":null}`,
		`step("a", lambda: 1, after=[3])`:                                                                       `failed 1:5: step: after: int is no step`,
		`step("a", lambda: 1, timeout="soon")`:                                                                  `failed 1:5: step: "soon": must be a number and a unit out of ns, us, µs, ms, s, m, h, such as 30s or 1m30s`,
		`retry(11, "1s", lambda: 1)`:                                                                            `failed 1:6: retry: 11 times, and it may be 1 to 10`,
		"b = []\n" + `a = step("a", lambda: b[0].output)` + "\n" + `b.append(a)`:                                `failed everything waits for something that never comes`,
		`[step(str(i), lambda: 1) for i in range(101)]`:                                                         `failed 1:6: step: more than 100 steps`,
		`t = template` + "\n" + `return t("{{.params.x}}")`:                                                     `failed 2:9: template: the template must stand in the program as a text`,
		`return output({"p": prop("string", "{{.params.x}}"), "q": prop("integer", default=1)})`:                `{"p":"v","q":1}`,
		`return output({"p": prop("string", value="{{.params.x}}", default="d")})`:                              `{"p":"v"}`,
		`return output({"p": prop(value="{{.params.x}}", type="string")})`:                                      `{"p":"v"}`,
		"def f(): return f\n" + `step("a", lambda: each("e", lambda: [1, f], lambda item, index: 1))`:           `failed step "a": item 1: function has no JSON form`,
		"def f(): return f\n" + `a = step("a", lambda: 1, when=lambda: False, default=f)` + "\nreturn a.status": `{"result":"skipped"}`,
		"def f(): return f\n" + `step("a", lambda: fail("x"), on_error="continue", default={"content": [f]})`:   `{"result":null}`,
		"t = ()\nfor i in range(60): t = (t, t)\n" + `step("a", lambda: 1, when=lambda: False, default=t)`:      `{"result":null}`,
		`return output({"p": prop("integer", default="x")})`:                                                    `failed 1:25: prop: default: "x" is no integer`,
	} {
		tool := composite(t, "parameters: {type: object, properties: {x: {type: string}}}")
		tool.Script = script
		if script == "" {
			tool.Script = "pass"
		}
		out, _ := play(t, parse(t, tool), `{"x":"v"}`, nil)
		if got := told(out); got != want {
			t.Errorf("%s\n got %s\nwant %s", script, got, want)
		}
	}
}

// TestScriptOutput holds that a script with output has its result made by it.
func TestScriptOutput(t *testing.T) {
	tool := composite(t, "output: {properties: {p: {type: integer, value: \"{{.steps.a.output.n}}\"}}}")
	tool.Script = `step("a", lambda: call_step("w.rich"))`
	w := parse(t, tool)
	if out, _ := play(t, w, "", nil); told(out) != `{"p":3}` {
		t.Error(told(out))
	}
	if definition, _ := w.Definition((&world{}).tool); !strings.Contains(string(definition), `"outputSchema"`) {
		t.Errorf("%s", definition)
	}
}

// TestX14Bounds holds what templates may not do to the edge.
func TestX14Bounds(t *testing.T) {
	for text, want := range map[string]string{
		`{{range 200000000}}x{{end}}`: "",
		`{{range 200000000}}{{end}}`:  "",
		`{{range .params.l}}{{range $.params.l}}{{range $.params.l}}{{end}}{{end}}{{end}}`: "",
		`{{printf "%999999999d" 1}}`:                                "printf: a width of more than 1000",
		`{{printf "%*d" 1000000000 1}}`:                             "printf: * is not available",
		`{{printf "%[1]s%[1]s" "x"}}`:                               "printf: [ is not available",
		`{{define "x"}}{{template "x" .}}{{end}}{{template "x" .}}`: "templates within each other more than 100 deep",
		`{{define "a"}}{{template "b" .}}{{template "b" .}}{{end}}{{define "b"}}{{template "c" .}}{{template "c" .}}{{end}}{{define "c"}}x{{end}}{{template "a" .}}`: "ok",
		`{{fromJson .params.deep}}`:                      "fromJson: deeper than 100",
		`{{fromJson "1e999999999"}}`:                     "fromJson: number out of range",
		`{{.params.s}}{{.params.s}}{{.params.s}}`:        "renders more than 1048576 bytes",
		`{{js (js (js (js (js (js (js .params.q))))))}}`: "",
		`{{call .params.s}}`:                             "error calling call",
		`{{.params.s.String}}`:                           "can't evaluate field String",
		`{{html .params.nothing}}`:                       "nothing has no text",
		`{{print .params.nothing}}`:                      "nothing has no text",
		`{{quote .params.nothing}}`:                      "nothing has no text",
		`{{json .params.nothing}}`:                       "ok",
	} {
		tool := composite(t, "parameters: {type: object, properties: {nothing: {type: string}}}\nsteps: [{id: a, tool: w.echo, arguments: {x: placeholder}}]")
		tool.Steps[0].Arguments = jsonObject("x", text)
		w := parse(t, tool)
		s := strings.Repeat("s", 400_000)
		began := time.Now()
		out, err := w.Run(t.Context(), []byte(`{"s":"`+s+`","q":"`+strings.Repeat(`\\`, 50_000)+`","deep":"`+strings.Repeat("[", 500_000)+`","l":[`+strings.Repeat("1,", 999)+`1]}`), (&world{t: t, attempts: map[string]int{}}).host())
		if err != nil {
			t.Fatal(err)
		}
		got := told(out)
		switch {
		case want == "ok":
			if out.Error != nil {
				t.Errorf("%s: %s", text, got)
			}
		case want == "" && (strings.Contains(got, "turns of range") || strings.Contains(got, "steps of a template") || strings.Contains(got, "renders more than 1048576 bytes")):
		case want == "" || !strings.Contains(got, want):
			t.Errorf("%s\n got %.300s\nwant %s", text, got, want)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s took %s", text, took)
		}
	}
}

// TestX16Doubling holds that templates which call each other twice, 100 deep, end by what is counted.
func TestX16Doubling(t *testing.T) {
	var b strings.Builder
	for i := range 90 {
		fmt.Fprintf(&b, `{{define "t%d"}}{{template "t%d"}}{{template "t%d"}}{{end}}`, i, i+1, i+1)
	}
	tool := composite(t, "steps: [{id: a, tool: w.echo, arguments: {x: y}}]")
	tool.Steps[0].Arguments = jsonObject("x", b.String()+`{{define "t90"}}{{end}}{{template "t0"}}`)
	out, err := parse(t, tool).Run(t.Context(), nil, (&world{t: t, attempts: map[string]int{}}).host())
	if err != nil || !strings.Contains(told(out), "needs more than 3000000 steps of a template") {
		t.Error(err, told(out))
	}
}

// TestX36Bounds holds what a client's parameter may not make of an operator's program.
func TestX36Bounds(t *testing.T) {
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	for script, want := range map[string]string{
		`return "x" * params["n"]`:                                                     "a value of more than 8 MiB",
		`return [0] * params["n"]`:                                                     "a value of more than 1000000 elements",
		"t = (1,)\nfor _ in range(40):\n  t = (t, t)\nreturn {t: 1}":                   "a key or a side of a comparison",
		"t = (1,)\nfor _ in range(40):\n  t = (t, t)\nreturn t == (t,)":                "a key or a side of a comparison",
		"t = (1,)\nfor _ in range(40):\n  t = (t, t)\nreturn t in [t]":                 "a key or a side of a comparison",
		"t = [1]\nfor _ in range(40):\n  t = [t, t]\nstep(\"a\", lambda: t)\nreturn 1": "its output: more than 1000000 values",
		"while True:\n  pass":                                                          "too many steps (10000000)",
	} {
		tool := composite(t, "parameters: {type: object, properties: {n: {type: integer}}}")
		tool.Script = script
		out, err := parse(t, tool).Run(t.Context(), []byte(`{"n":1000000000}`), (&world{t: t, attempts: map[string]int{}}).host())
		if err != nil || !strings.Contains(told(out), want) {
			t.Errorf("%s\n got %v %s\nwant %s", script, err, told(out), want)
		}
		if out != nil && out.Spent != (want == "too many steps (10000000)") {
			t.Errorf("%s\nspent %v", script, out.Spent)
		}
	}
	var after runtime.MemStats
	runtime.ReadMemStats(&after)
	if grown := int64(after.Sys) - int64(before.Sys); grown > 120<<20 {
		t.Errorf("the process has %d MiB more", grown>>20)
	}
}

// TestX36Arguments: the values of a call that are all one text are not written out beyond what a
// call may have.
func TestX36Arguments(t *testing.T) {
	tool := composite(t, "parameters: {type: object}")
	tool.Script = `return call_step("w.echo", {str(i): params["x"] for i in range(2000)})`
	w := parse(t, tool)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	out, err := w.Run(t.Context(), []byte(`{"x":"`+strings.Repeat("x", 100_000)+`"}`), (&world{t: t, attempts: map[string]int{}}).host())
	runtime.ReadMemStats(&after)
	if err != nil || !strings.Contains(told(out), "larger than 1048576 bytes") || after.TotalAlloc-before.TotalAlloc > 32<<20 {
		t.Errorf("%v %.200s, %d MiB", err, told(out), (after.TotalAlloc-before.TotalAlloc)>>20)
	}
}

// TestX38ToolsGone holds what becomes of a run whose tools are not there.
func TestX38ToolsGone(t *testing.T) {
	w := parse(t, composite(t, `steps: [{id: a, tool: w.echo}, {id: b, tool: w.text, dependsOn: [a]}, {id: c, tool: w.echo, dependsOn: [b]}]`))
	out, seen := play(t, w, "", func(w *world) { w.gone = map[string]bool{"w.text": true} })
	if told(out) != `failed step "b": tool "w.text": not found` || len(seen.calls) > 0 || out.Error.Step != "b" {
		t.Errorf("before: %s %q", told(out), seen.calls)
	}
	out, seen = play(t, w, "", func(w *world) { w.lose = map[string]string{"w.echo": "w.text"} })
	if told(out) != `failed step "b": tool "w.text": not found` || strings.Join(seen.calls, "|") != "w.echo{}" {
		t.Errorf("between: %s %q", told(out), seen.calls)
	}
	if got := string(out.Result(false)); got != `{"content":[{"type":"text","text":"Workflow execution failed: step \"b\": tool \"w.text\": not found"}],"structuredContent":{"error":{"workflow":"flow","step":"b","message":"step \"b\": tool \"w.text\": not found","completed":["a"]}},"isError":true}` {
		t.Errorf("result: %s", got)
	}
}

// terminals counts the last events of each step.
func terminals(w *world) map[string]int {
	out := map[string]int{}
	for _, e := range w.all {
		switch e.Kind {
		case workflow.StepCompleted, workflow.StepFailed, workflow.StepSkipped:
			out[e.Step]++
		case workflow.Completed, workflow.Failed, workflow.TimedOut:
			out[""]++
		}
	}
	return out
}

// TestX40TimeOver holds a workflow that is ended by its time while steps call, wait to try
// again, ask, and wait for each other.
func TestX40TimeOver(t *testing.T) {
	w := parse(t, composite(t, `
timeout: 30s
steps:
- {id: call, tool: w.hang}
- {id: again, tool: w.fail, onError: {action: retry, retryCount: 10, retryDelay: 20s}}
- {id: ask, type: elicitation, message: m, onCancel: {action: continue}, onError: {action: continue}}
- {id: loop, type: forEach, collection: "[1,2,3]", step: {tool: w.hang, onError: {action: continue}}}
- {id: after, tool: w.echo, dependsOn: [call]}`))
	out, seen := play(t, w, "", func(w *world) { w.replies = []*workflow.Reply{nil} })
	if !out.TimedOut || out.Took != 30*time.Second || string(out.Result(false)[:70]) != `{"content":[{"type":"text","text":"Workflow execution timeout exceeded` {
		t.Errorf("%v %s %s", out.TimedOut, out.Took, out.Result(false))
	}
	for id, n := range terminals(seen) {
		if n != 1 {
			t.Errorf("%q has %d terminal events", id, n)
		}
	}
	if n := len(terminals(seen)); n != 6 {
		t.Errorf("%d of 5 steps and the workflow have terminal events: %q", n, seen.events)
	}
	if seen.open != 0 {
		t.Errorf("%d calls are under way", seen.open)
	}
}

// TestX22TimeOverInParallel holds a workflow of ten calls that is ended by its time.
func TestX22TimeOverInParallel(t *testing.T) {
	var b strings.Builder
	b.WriteString("timeout: 5s\nsteps:\n")
	for i := range 10 {
		fmt.Fprintf(&b, "- {id: s%d, tool: w.hang}\n", i)
	}
	out, seen := play(t, parse(t, composite(t, b.String())), "", nil)
	if !out.TimedOut || out.Took != 5*time.Second || seen.most != 10 || seen.open != 0 || len(terminals(seen)) != 11 {
		t.Errorf("%v %s %d %d %q", out.TimedOut, out.Took, seen.most, seen.open, seen.events)
	}
}

// TestCancelled holds that the end of a caller's context ends a workflow and its calls.
func TestCancelled(t *testing.T) {
	w := parse(t, composite(t, `steps: [{id: a, tool: w.hang}, {id: b, tool: w.slow, dependsOn: [a]}]`))
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(3*time.Second, cancel)
		seen := &world{t: t, attempts: map[string]int{}}
		_, err := w.Run(ctx, nil, seen.host())
		if !errors.Is(err, context.Canceled) || seen.open != 0 || len(terminals(seen)) != 3 {
			t.Errorf("%v %q", err, seen.events)
		}
	})
}

// TestDefaultsInACircle: defaults that have defaults within them for ever, two in each, end.
func TestDefaultsInACircle(t *testing.T) {
	w := parse(t, composite(t, `
parameters: {type: object, $defs: {n: {type: object, default: {}, $ref: "#/$defs/m"}, m: {properties: {a: {$ref: "#/$defs/n"}, b: {$ref: "#/$defs/n"}}}}, properties: {x: {$ref: "#/$defs/n"}}}
steps: [{id: a, tool: w.echo, arguments: {x: "{{len .params.x}}"}}]`))
	if out, _ := play(t, w, "", nil); told(out) != `{"x":"2"}` {
		t.Error(told(out))
	}
}

// TestReferencesAreBounded holds that of a large schema with many references so many are followed,
// and that the others say nothing.
func TestReferencesAreBounded(t *testing.T) {
	var properties, arguments []string
	for i := range 40 {
		properties = append(properties, fmt.Sprintf(`"p%02d":{"$ref":"#/$defs/int"}`, i))
		arguments = append(arguments, fmt.Sprintf(`p%02d: "1"`, i))
	}
	seen := &world{t: t, attempts: map[string]int{}}
	host := seen.host()
	host.Tool = func(string) (*workflow.Tool, bool) {
		return &workflow.Tool{InputSchema: []byte(`{"type":"object","description":"` + strings.Repeat("x", 1<<20) + `","properties":{` + strings.Join(properties, ",") + `},"$defs":{"int":{"type":"integer"}}}`)}, true
	}
	out, err := parse(t, composite(t, `steps: [{id: a, tool: w.echo, arguments: {`+strings.Join(arguments, ", ")+`}}]`)).Run(t.Context(), nil, host)
	if err != nil || !strings.Contains(told(out), `"p00":1,`) || !strings.Contains(told(out), `"p10":1,`) || !strings.Contains(told(out), `"p39":"1"`) {
		t.Errorf("%v %s", err, told(out))
	}
}

// TestDefectIsTold holds that a run that a defect of the engine ends is told to have failed, in a
// step and beside them.
func TestDefectIsTold(t *testing.T) {
	for name, text := range map[string]string{
		"in a step":    `steps: [{id: a, tool: w.echo}]`,
		"beside steps": `script: return call_step("w.echo")`,
	} {
		t.Run(name, func(t *testing.T) {
			seen := &world{t: t, attempts: map[string]int{}}
			host, looked := seen.host(), 0
			host.Tool = func(name string) (*workflow.Tool, bool) {
				if looked++; looked > 1 { // it was there when the run began
					panic("a fault")
				}
				return seen.tool(name)
			}
			out, err := parse(t, composite(t, text)).Run(t.Context(), nil, host)
			if out != nil || err == nil || err.Error() != "workflow: the interpreter failed" {
				t.Errorf("%v, %v", out, err)
			}
			if n := len(seen.all); n < 2 || seen.all[0].Kind != workflow.Started || seen.all[n-1].Kind != workflow.Failed || seen.all[n-1].Error != "the interpreter failed" {
				t.Errorf("%q", seen.events)
			}
		})
	}
}

// TestManyRuns holds that runs of one workflow know nothing of each other.
func TestManyRuns(t *testing.T) {
	w := parse(t, composite(t, params+`
steps:
- {id: a, tool: w.echo, arguments: {x: "{{.params.x}}"}}
- {id: b, type: forEach, collection: "[1,2,3]", step: {tool: w.echo, arguments: {x: "{{.steps.a.output.x}}"}}}
output: {properties: {p: {type: string, value: "{{range .steps.b.output.iterations}}{{.output.x}}{{end}}"}}}`))
	var group sync.WaitGroup
	for i := range 50 {
		group.Go(func() {
			out, err := w.Run(t.Context(), fmt.Appendf(nil, `{"x":"<%d>"}`, i), (&world{t: t, attempts: map[string]int{}}).host())
			if want := fmt.Sprintf(`{"p":"<%d><%d><%d>"}`, i, i, i); err != nil || told(out) != want {
				t.Error(err, told(out))
			}
		})
	}
	group.Wait()
}

// TestX18Items holds a forEach over many items, and that no more are under way than it says.
func TestX18Items(t *testing.T) {
	w := parse(t, composite(t, params+`steps: [{id: a, type: forEach, collection: "{{.params.l}}", maxIterations: 1000, maxParallel: 7, step: {tool: w.slow}}, {id: b, tool: w.echo, arguments: {x: "{{.steps.a.output.completed}}"}}]`))
	out, seen := play(t, w, `{"l":[`+strings.Repeat("1,", 69)+`1]}`, nil)
	if told(out) != `{"x":"70"}` || seen.most != 7 || out.Took != 100*time.Second {
		t.Errorf("%s %d %s", told(out), seen.most, out.Took)
	}
	out, seen = play(t, w, `{"l":[`+strings.Repeat("1,", 200_000)+`1]}`, nil)
	if told(out) != `failed step "a": collection: 200001 items, and at most 1000 are allowed` || len(seen.calls) > 0 {
		t.Errorf("%s", told(out))
	}
}

// TestX20Schemas holds schemas that lead in circles and patterns that are slow elsewhere.
func TestX20Schemas(t *testing.T) {
	w := parse(t, composite(t, `
parameters: {type: object, properties: {child: {$ref: "#"}, s: {type: string, pattern: "^(a+)+$"}}}
steps: [{id: a, tool: w.echo}]`))
	began := time.Now()
	out, _ := play(t, w, `{"s":"`+strings.Repeat("a", 100_000)+`b"}`, nil)
	if !strings.HasPrefix(told(out), "arguments /s: ") || len(told(out)) > 3000 {
		t.Errorf("%.200s", told(out))
	}
	out, _ = play(t, w, strings.Repeat(`{"child":`, 60)+`{"s":1}`+strings.Repeat("}", 60), nil)
	if !strings.HasPrefix(told(out), "arguments /child/child/") {
		t.Errorf("%.200s", told(out))
	}
	if out, _ = play(t, w, strings.Repeat(`{"child":`, 200)+`1`+strings.Repeat("}", 200), nil); told(out) != "arguments /child: deeper than 100" {
		t.Errorf("%.200s", told(out))
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
}

// TestX35Texts holds that what a tool says of its failure forges nothing.
func TestX35Texts(t *testing.T) {
	w := parse(t, composite(t, `steps: [{id: a, tool: w.echo}]`))
	host := (&world{t: t, attempts: map[string]int{}}).host()
	host.Call = func(context.Context, *workflow.Call) workflow.Answer {
		return workflow.Answer{Result: []byte(`{"isError":true,"content":[{"type":"text","text":"\u001b[31m\nstep \"z\": ` + strings.Repeat("x", 100_000) + `"}]}`)}
	}
	out, err := w.Run(t.Context(), nil, host)
	if err != nil || out.Error.Step != "a" || len(out.Error.Message) > 4096 || strings.ContainsAny(out.Error.Message, "\x1b\n") {
		t.Errorf("%v %q", err, told(out))
	}
}
