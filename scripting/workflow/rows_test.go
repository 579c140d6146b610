package workflow_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/weir-edge/weir/scripting/workflow"
)

// row is a rule: a workflow, what it is given, and what must come of it.
type row struct {
	name, yaml, args, want string
	events                 string // that must be among those that were told, in this order, by |
	calls                  string // exactly, by |, unless empty; "none" for none
	asked                  string
	replies                []*workflow.Reply
}

func accept(content string) []*workflow.Reply {
	return []*workflow.Reply{{Action: "accept", Content: []byte(content)}}
}

func says(action string) []*workflow.Reply { return []*workflow.Reply{{Action: action}} }

const (
	params = `parameters: {type: object, properties: {x: {type: string}, k: {type: integer}, o: {type: object}, l: {type: array}, d: {type: string, default: dd}}}
`
	confirm = `type: elicitation, message: "sure?", schema: {type: object, properties: {ok: {type: boolean}}, required: [ok]}`
)

func rows() []row {
	return []row{
		// Tool steps and their arguments.
		{name: "a tool step", yaml: `steps: [{id: a, tool: w.echo, arguments: {x: hi}}]`, want: `{"x":"hi"}`, calls: `w.echo{"x":"hi"}`, events: "started|step_started a|step_completed a|completed"},
		{name: "a tool by its advertised name", yaml: `steps: [{id: a, tool: advertised}]`, want: `{}`},
		{name: "no arguments", yaml: `steps: [{id: a, tool: w.echo}]`, want: `{}`},
		{name: "a template", yaml: params + `steps: [{id: a, tool: w.echo, arguments: {x: "-{{.params.x}}-"}}]`, args: `{"x":"v"}`, want: `{"x":"-v-"}`},
		{name: "other values pass unchanged", yaml: params + `steps: [{id: a, tool: w.echo, arguments: {i: 3, f: 0.5, b: true, z: null, l: ["{{.params.x}}"], o: {k: "{{.params.x}}"}}}]`, args: `{"x":"v"}`, want: `{"b":true,"f":0.5,"i":3,"l":["{{.params.x}}"],"o":{"k":"{{.params.x}}"},"z":null}`},
		{name: "texts become what the schema asks for", yaml: params + `steps: [{id: a, tool: w.typed, arguments: {i: "{{.params.k}}", f: "0.5", b: "true", o: "{{json .params.o}}", l: "{{json .params.l}}", s: "{{.params.k}}"}}]`, args: `{"k":3,"o":{"q":1},"l":[1,2]}`, want: `{"b":true,"f":0.5,"i":3,"l":[1,2],"o":{"q":1},"s":"3"}`},
		{name: "a plain reference passes the value", yaml: params + `steps: [{id: a, tool: w.typed, arguments: {o: "{{.params.o}}", l: "{{.params.l}}", i: "{{.params.k}}"}}]`, args: `{"k":3,"o":{"q":[null]},"l":[1,"2"]}`, want: `{"i":3,"l":[1,"2"],"o":{"q":[null]}}`},
		{name: "a value that may be null", yaml: params + `steps: [{id: a, tool: w.typed, arguments: {n: "{{.params.k}}", m: "{{.params.l}}", u: "{{.params.k}}"}}]`, args: `{"k":3,"l":[1,2]}`, want: `{"m":[1,2],"n":3,"u":"3"}`},
		{name: "a value that may be null and is", yaml: params + `steps: [{id: a, tool: w.typed, arguments: {n: "{{json .params.k}}", m: "{{json .params.l}}"}}]`, args: `{}`, want: `{"m":null,"n":null}`},
		{name: "a value that may not be null", yaml: params + `steps: [{id: a, tool: w.typed, arguments: {i: "{{json .params.k}}"}}]`, args: `{}`, want: `failed step "a": tool "w.typed": arguments: i: "null" is no integer`, calls: "none"},
		{name: "a text becomes what the schema refers to", yaml: params + `steps: [{id: a, tool: w.typed, arguments: {ri: "{{.params.k}}", rl: "[1]", ra: "2", rp: "[{}]", rb: "true", r8: "8"}}]`, args: `{"k":3}`, want: `{"r8":8,"ra":2,"rb":true,"ri":3,"rl":[1],"rp":[{}]}`},
		{name: "a value that may be null by what the schema refers to", yaml: params + `steps: [{id: a, tool: w.typed, arguments: {rl: "{{json .params.l}}"}}]`, want: `{"rl":null}`},
		{name: "a text that does not become what the schema refers to", yaml: `steps: [{id: a, tool: w.typed, arguments: {ra: "one"}}]`, want: `failed step "a": tool "w.typed": arguments: ra: "one" is no integer`, calls: "none"},
		{name: "references that lead on and on, to a name or nowhere", yaml: `steps: [{id: a, tool: w.typed, arguments: {r9: "9", rr: "1", ro: "2", rn: "3"}}]`, want: `{"r9":"9","rn":"3","ro":"2","rr":"1"}`},
		{name: "a default within a default", yaml: `parameters: {type: object, properties: {o: {type: object, default: {}, required: [n], properties: {n: {type: integer, default: 10}}}}}
steps: [{id: a, tool: w.echo, arguments: {x: "{{.params.o.n}}"}}]`, want: `{"x":"10"}`},
		{name: "a text that does not become what the schema asks for", yaml: `steps: [{id: a, tool: w.typed, arguments: {i: "3.5"}}]`, want: `failed step "a": tool "w.typed": arguments: i: "3.5" is no integer`, calls: "none"},
		{name: "output of texts", yaml: `steps: [{id: a, tool: w.many}]`, want: `{"text":"a","text_1":"b","image_0":"aW1n","resource":"r"}`},
		{name: "a text read by name", yaml: `steps: [{id: a, tool: w.text}, {id: b, tool: w.echo, arguments: {x: "{{.steps.a.output.text}}"}}]`, want: `{"x":"hello"}`},
		{name: "fromJson", yaml: `steps: [{id: a, tool: w.json}, {id: b, tool: w.echo, arguments: {x: "{{index (fromJson .steps.a.output.text).k 1}}"}}]`, want: `{"x":"2"}`},
		{name: "quote", yaml: params + `steps: [{id: a, tool: w.echo, arguments: {x: "{{quote .params.x}}"}}]`, args: `{"x":"a\"b"}`, want: `{"x":"\"a\\\"b\""}`},
		{name: "a result that is no object", yaml: `steps: [{id: a, tool: w.echo, arguments: {}}]
output: {properties: {p: {type: string, default: only}}}`, want: `{"p":"only"}`},

		// Templates.
		{name: "a number prints without an exponent", yaml: `steps: [{id: a, tool: w.rich}, {id: b, tool: w.echo, arguments: {x: "{{.steps.a.output.n}} {{.steps.a.output.f}} {{.steps.a.output.big}}"}}]`, want: `{"x":"3 0.1 ` + big + `"}`},
		{name: "nothing cannot be printed", yaml: `steps: [{id: a, tool: w.rich}, {id: b, tool: w.echo, arguments: {x: "{{.steps.a.output.z}}"}}]`, want: `failed step "b": template: .steps.a.output.z has no value`},
		{name: "nothing cannot be printed by printf", yaml: params + `steps: [{id: b, tool: w.echo, arguments: {x: "{{printf \"%v\" .params.x}}"}}]`, want: `failed step "b": template: nothing has no text`},
		{name: "a parameter that was not given", yaml: params + `steps: [{id: a, tool: w.echo, arguments: {x: "{{if .params.x}}yes{{else}}no{{end}} {{or .params.x 7}}"}}]`, want: `{"x":"no 7"}`},
		{name: "a parameter that was not given is not among all", yaml: params + `steps: [{id: a, tool: w.echo, arguments: {x: "{{json .params}} {{len .params}}{{range $k, $v := .params}} {{$k}}={{$v}}{{end}}{{with .params}}{{if .l}}!{{end}}{{or .k 7}}{{end}}{{$p := .params}}{{or $p.k 8}}{{or (index .params \"k\") 9}}"}}]`, args: `{"x":"v"}`, want: `{"x":"{\"d\":\"dd\",\"x\":\"v\"} 2 d=dd x=v789"}`},
		{name: "a parameter's name elsewhere", yaml: params + `steps: [{id: a, tool: w.echo, arguments: {x: "{{.params.o.k}}"}}]`, args: `{"o":{}}`, want: `failed step "a": template: <.params.o.k>: map has no entry for key "k"`, calls: "none"},
		{name: "a parameter that was not given cannot be printed", yaml: params + `steps: [{id: a, tool: w.echo, arguments: {x: "{{.params.k}}"}}]`, want: `failed step "a": template: .params.k has no value`, calls: "none"},
		{name: "a whole number with a fraction", yaml: `parameters: {type: object, properties: {f: {type: number}}}
steps: [{id: a, tool: w.rich}, {id: b, tool: w.echo, arguments: {x: "{{printf \"%.2f %g %d\" .params.f .steps.a.output.n .params.f}} {{.params.f}}"}}]`, args: `{"f":3.0}`, want: `{"x":"3.00 3 3 3"}`},
		{name: "no error and no content", yaml: `steps: [{id: a, tool: w.echo}, {id: b, tool: w.echo, arguments: {x: "{{if .steps.a.error}}!{{end}}{{with .steps.a.content}}!{{end}}{{or .steps.a.error 7}} {{eq .steps.a.error nil}} {{json .steps.a}}"}}]`, want: `{"x":"7 true {\"content\":null,\"error\":null,\"output\":{},\"status\":\"completed\"}"}`},
		{name: "no error cannot be printed", yaml: `steps: [{id: a, tool: w.echo}, {id: b, tool: w.echo, arguments: {x: "{{.steps.a.error}}"}}]`, want: `failed step "b": template: .steps.a.error has no value`},
		{name: "a missing key", yaml: `steps: [{id: a, tool: w.echo}, {id: b, tool: w.echo, arguments: {x: "{{.steps.a.output.nothere}}"}}]`, want: `failed step "b": template: <.steps.a.output.nothere>: map has no entry for key "nothere"`},
		{name: "an object prints as JSON", yaml: `steps: [{id: a, tool: w.rich}, {id: b, tool: w.echo, arguments: {x: "{{.steps.a.output.o}} {{.steps.a.output.l}}"}}]`, want: `{"x":"{\"k\":\"v\"} [1,\"two\",null]"}`},
		{name: "a step with a minus", yaml: `steps: [{id: my-step, tool: w.text}, {id: b, tool: w.echo, arguments: {x: "{{(index .steps \"my-step\").output.text}}"}}]`, want: `{"x":"hello"}`},
		{name: "range and else", yaml: params + `steps: [{id: a, tool: w.echo, arguments: {x: "{{range .params.l}}<{{.}}>{{else}}none{{end}}"}}]`, args: `{"l":[1,"b"]}`, want: `{"x":"<1><b>"}`},
		{name: "a comparison", yaml: params + `steps: [{id: a, tool: w.echo, arguments: {x: "{{gt .params.k 2}}"}}]`, args: `{"k":3}`, want: `{"x":"true"}`},
		{name: "the workflow", yaml: `steps: [{id: a, tool: w.echo, arguments: {x: "{{.workflow.status}} {{.workflow.step_count}} {{len .workflow.id}} {{.workflow.start_time}}"}}]`, want: `{"x":"running 1 26 2000-01-01T00:00:00Z"}`},
		{name: "the workflow as a part of all there is", yaml: `steps: [{id: a, tool: w.echo, arguments: {x: "{{len .}}{{index . (printf \"%sflow\" \"work\") \"status\"}}{{range $k, $v := .}} {{$k}}{{end}}"}}]`, want: `{"x":"4running params steps vars workflow"}`},
		{name: "how long it took", yaml: `steps: [{id: a, tool: w.slow}, {id: b, tool: w.echo, dependsOn: [a], arguments: {x: "{{.workflow.duration_ms}}"}}]`, want: `{"x":"10000"}`},

		// Dependencies.
		{name: "dependsOn", yaml: `steps: [{id: a, tool: w.slow}, {id: b, tool: w.echo, dependsOn: [a]}]`, want: `{}`, events: "step_completed a 10s|step_started b"},
		{name: "no barrier", yaml: `steps: [{id: a, tool: w.slow}, {id: b, tool: w.slower}, {id: c, tool: w.slow, dependsOn: [a]}]`, want: `{}`, events: "step_started a|step_started b|step_completed a 10s|step_started c|completed 20s"},
		{name: "a read is a dependency", yaml: `steps: [{id: b, tool: w.echo, arguments: {x: "{{.steps.a.status}}"}}, {id: a, tool: w.slow}]`, want: `{}`, events: "step_completed a 10s|step_started b|step_completed b"},
		{name: "the last of the list is the result", yaml: `steps: [{id: b, tool: w.echo, dependsOn: [a], arguments: {x: b}}, {id: a, tool: w.echo, arguments: {x: a}}]`, want: `{"x":"a"}`},
		{name: "independent steps run at once", yaml: `steps: [{id: a, tool: w.slow}, {id: b, tool: w.slow}, {id: c, tool: w.slow}]`, want: `{}`, events: "completed 10s"},

		// Conditions.
		{name: "a condition that is true", yaml: params + `steps: [{id: a, tool: w.echo, condition: "{{eq .params.x \"v\"}}"}]`, args: `{"x":"v"}`, want: `{}`},
		{name: "any case and spaces", yaml: params + `steps: [{id: a, tool: w.echo, condition: "  {{.params.x}} "}]`, args: `{"x":"TRUE"}`, want: `{}`, events: "step_started a"},
		{name: "a skipped step", yaml: `steps: [{id: a, tool: w.echo, condition: "{{false}}"}]`, want: `{"result":null}`, calls: "none", events: "started|step_skipped a|completed"},
		{name: "a skipped step with defaults", yaml: `steps: [{id: a, tool: w.echo, condition: "false", defaultResults: {x: 1}}]`, want: `{"x":1}`},
		{name: "steps after a skipped one run", yaml: `steps: [{id: a, tool: w.echo, condition: "false", defaultResults: {x: d}}, {id: b, tool: w.echo, arguments: {x: "{{.steps.a.output.x}} {{.steps.a.status}}"}}]`, want: `{"x":"d skipped"}`},
		{name: "a condition that is neither", yaml: params + `steps: [{id: a, tool: w.echo, condition: "{{.params.x}}"}]`, args: `{"x":"yes"}`, want: `failed step "a": condition: "yes" is neither true nor false`},
		{name: "a condition that fails, and on_error", yaml: params + `steps: [{id: a, tool: w.echo, condition: "{{.params.x}}", onError: {action: continue}}, {id: b, tool: w.echo, arguments: {x: "{{.steps.a.error}}"}}]`, args: `{"x":"yes"}`, want: `{"x":"condition: \"yes\" is neither true nor false"}`},
		{name: "a condition of a step before", yaml: `steps: [{id: a, tool: w.rich}, {id: b, tool: w.echo, condition: "{{.steps.a.output.yes}}", arguments: {x: ran}}]`, want: `{"x":"ran"}`},

		// Errors.
		{name: "abort", yaml: `steps: [{id: a, tool: w.fail}, {id: b, tool: w.echo, dependsOn: [a]}]`, want: `failed step "a": tool "w.fail": boom`, calls: "w.fail{}", events: `step_failed a: step "a": tool "w.fail": boom|step_skipped b: the workflow ended before|failed: step "a"`},
		{name: "abort cancels what is under way", yaml: `steps: [{id: a, tool: w.hang}, {id: b, tool: w.slow}, {id: c, tool: w.fail, dependsOn: [b]}]`, want: `failed step "c": tool "w.fail": boom`, events: `step_failed c: step "c"|step_failed a 10s: ended with the workflow: step "c"`},
		{name: "continue", yaml: `steps: [{id: a, tool: w.fail, onError: {action: continue}, defaultResults: {x: d}}, {id: b, tool: w.echo, arguments: {x: "{{.steps.a.output.x}} {{.steps.a.status}} {{.steps.a.error}}"}}]`, want: `{"x":"d failed tool \"w.fail\": boom"}`},
		{name: "continue without defaults", yaml: `steps: [{id: a, tool: w.fail, onError: {action: continue}}, {id: b, tool: w.echo, arguments: {x: "{{.steps.a.status}}"}}]`, want: `{"x":"failed"}`},
		{name: "denied", yaml: `steps: [{id: a, tool: w.denied}]`, want: `failed step "a": tool "w.denied": denied by authorization policy`},
		{name: "a result that is too deep", yaml: `steps: [{id: a, tool: w.deep}]`, want: `failed step "a": tool "w.deep": result: deeper than 100`},
		{name: "a result that is too large", yaml: `steps: [{id: a, tool: w.huge}]`, want: `failed step "a": tool "w.huge": its result is longer than 4194304 bytes`},

		// Retries.
		{name: "retry", yaml: `steps: [{id: a, tool: w.odd, arguments: {x: v}, onError: {action: retry, retryCount: 2}}]`, want: `{"x":"v"}`, events: `step_retried a #2: tool "w.odd": not yet|step_completed a #2 1s`},
		{name: "retry of a backend that is down", yaml: `steps: [{id: a, tool: w.down, onError: {action: retry, retryCount: 3, retryDelay: 2s}}]`, want: `{}`, events: `step_retried a #2|step_retried a #3|step_completed a #3 6s`},
		{name: "retry at its end", yaml: `steps: [{id: a, tool: w.fail, onError: {action: retry, retryCount: 2}}]`, want: `failed step "a": tool "w.fail": boom`, calls: "w.fail{}|w.fail{}|w.fail{}", events: "step_retried a #2|step_retried a #3|step_failed a #3 3s"},
		{name: "retry never waits longer than 60 times", yaml: `steps: [{id: a, tool: w.fail, timeout: 10m, onError: {action: retry, retryCount: 10, retryDelay: 1s}}]`, want: `failed step "a": tool "w.fail": boom`, events: "step_retried a #11|step_failed a #11 5m3s"},
		{name: "X41 retry of a limit waits as long as it says", yaml: `steps: [{id: a, tool: w.limited, onError: {action: retry, retryCount: 1}}]`, want: `{}`, events: "step_retried a #2|step_completed a #2 7s"},
		{name: "X41 half answered is tried again", yaml: `steps: [{id: a, tool: w.half, onError: {action: retry, retryCount: 1}}]`, want: `{}`, calls: "w.half{}|w.half{}"},
		{name: "the time-out of an attempt is tried again", yaml: `steps: [{id: a, tool: w.late, onError: {action: retry, retryCount: 1}}]`, want: `{}`},
		{name: "retry of call_tool", yaml: `script: |
  return retry(2, "1s", lambda: call_tool("w.odd", x="v"))`, want: `{"x":"v"}`, calls: `w.odd{"x":"v"}|w.odd{"x":"v"}`},
		{name: "retry of call_tool in a step, by parallel", yaml: `script: |
  return step("a", lambda: retry(3, "2s", lambda: parallel([lambda: call_tool("w.down"), lambda: call_tool("w.text")])))`, want: `{"result":[{},"hello"]}`, events: `step_retried a #2|step_retried a #3|step_completed a`},
		{name: "X41 retry of call_tool for a limit", yaml: `script: |
  return step("a", lambda: retry(1, "1s", lambda: call_tool("w.limited")))`, want: `{}`, events: "step_retried a #2|step_completed a 7s"},
		{name: "X41 call_tool that is denied is never tried again", yaml: `script: |
  f = lambda: call_tool("w.denied")
  return retry(3, "1s", f)`, want: `failed 1:22: tool "w.denied": denied by authorization policy`, calls: "w.denied{}"},
		{name: "what a script says itself is never tried again", yaml: `script: |
  def f():
    attempt(lambda: call_tool("w.fail"))
    fail("tool \"w.fail\": boom")
  return retry(3, "1s", f)`, want: `failed 3:7: fail: tool "w.fail": boom`, calls: "w.fail{}"},
		{name: "X41 denied is never tried again", yaml: `steps: [{id: a, tool: w.denied, onError: {action: retry, retryCount: 3}}]`, want: `failed step "a": tool "w.denied": denied by authorization policy`, calls: "w.denied{}"},
		{name: "wrong arguments are never tried again", yaml: `steps: [{id: a, tool: w.wrong, onError: {action: retry, retryCount: 3}}]`, want: `failed step "a": tool "w.wrong": wrong arguments`, calls: "w.wrong{}"},
		{name: "no method is never tried again", yaml: `steps: [{id: a, tool: w.unknown, onError: {action: retry, retryCount: 3}}]`, want: `failed step "a": tool "w.unknown": method not found`, calls: "w.unknown{}"},
		{name: "a template is never tried again", yaml: params + `steps: [{id: a, tool: w.echo, arguments: {x: "{{.params.x}}"}, onError: {action: retry, retryCount: 3}}]`, want: `failed step "a": template: .params.x has no value`, calls: "none"},
		{name: "X19 retries end with the step", yaml: `steps: [{id: a, tool: w.fail, timeout: 5s, onError: {action: retry, retryCount: 10, retryDelay: 2s}}]`, want: `failed step "a": timed out after 5s`, calls: "w.fail{}|w.fail{}", events: "step_failed a #2 5s"},
		{name: "X19 a delay of nothing", yaml: `steps: [{id: a, tool: w.fail, onError: {action: retry, retryCount: 10, retryDelay: 0s}}]`, want: `failed step "a": tool "w.fail": boom`, events: "step_failed a #11:"},

		// Times.
		{name: "the time of a step", yaml: `steps: [{id: a, tool: w.hang, timeout: 5s}]`, want: `failed step "a": timed out after 5s`, events: "step_failed a 5s"},
		{name: "the time of a step, unless given", yaml: `steps: [{id: a, tool: w.hang}]`, want: `failed step "a": timed out after 300s`, events: "step_failed a 5m0s"},
		{name: "the time of a step, and on_error", yaml: `steps: [{id: a, tool: w.hang, timeout: 5s, onError: {action: continue}, defaultResults: {x: 1}}]`, want: `{"x":1}`},
		{name: "the time of the workflow", yaml: "timeout: 5s\n" + `steps: [{id: a, tool: w.slow}]`, want: `timeout ran longer than 5s`, events: "step_failed a 5s: ended with the workflow: ran longer than 5s|timed_out 5s"},
		{name: "waiting for others is not the step's time", yaml: `steps: [{id: a, tool: w.slow}, {id: b, tool: w.echo, timeout: 1s, dependsOn: [a]}]`, want: `{}`},

		// forEach.
		{name: "forEach", yaml: params + `steps: [{id: a, type: forEach, collection: "{{json .params.l}}", itemVar: row, step: {tool: w.echo, arguments: {x: "{{.forEach.row}} {{.forEach.index}}"}}}]`, args: `{"l":["p","q"]}`,
			want: `{"iterations":[{"index":0,"item":"p","status":"completed","output":{"x":"p 0"}},{"index":1,"item":"q","status":"completed","output":{"x":"q 1"}}],"count":2,"completed":2,"failed":0}`},
		{name: "a condition of an item that is no bool", yaml: `script: |
  return step("a", lambda: each("a", lambda: [1], lambda item, index: call_step("w.echo"), when=lambda: None))`, want: `failed step "a": item 0: the condition is NoneType, and must be bool`, calls: "none"},
		{name: "a condition of a step that is no bool", yaml: `script: |
  return step("a", lambda: call_step("w.echo"), when=lambda: 0)`, want: `failed step "a": the condition is int, and must be bool`, calls: "none"},
		{name: "forEach over a plain reference", yaml: params + `steps: [{id: a, type: forEach, collection: "{{.params.l}}", step: {tool: w.echo, arguments: {x: "{{.forEach.item.k}}"}}}]`, args: `{"l":[{"k":"v"}]}`,
			want: `{"iterations":[{"index":0,"item":{"k":"v"},"status":"completed","output":{"x":"v"}}],"count":1,"completed":1,"failed":0}`},
		{name: "forEach over nothing", yaml: `steps: [{id: a, type: forEach, collection: "[]", step: {tool: w.echo}}]`, want: `{"iterations":[],"count":0,"completed":0,"failed":0}`, calls: "none"},
		{name: "X18 no array", yaml: `steps: [{id: a, type: forEach, collection: "{\"k\":1}", step: {tool: w.echo}}]`, want: `failed step "a": collection: "{\"k\":1}" is no array`, calls: "none"},
		{name: "X18 too many items", yaml: `steps: [{id: a, type: forEach, collection: "[1,2,3]", maxIterations: 2, step: {tool: w.echo}}]`, want: `failed step "a": collection: 3 items, and at most 2 are allowed`, calls: "none"},
		{name: "maxParallel", yaml: `steps: [{id: a, type: forEach, collection: "[1,2,3,4]", maxParallel: 2, step: {tool: w.slow}}, {id: b, tool: w.echo, arguments: {x: "{{.steps.a.output.completed}}"}}]`, want: `{"x":"4"}`, events: "step_completed a 20s"},
		{name: "maxParallel has no barrier either", yaml: `steps: [{id: a, type: forEach, collection: "[1,2,3]", maxParallel: 1, step: {tool: w.slow}}, {id: b, tool: w.echo, dependsOn: [a]}]`, want: `{}`, events: "step_completed a 30s"},
		{name: "an item that fails", yaml: `steps: [{id: a, type: forEach, collection: "[0,1,2]", step: {tool: w.odds, arguments: {i: "{{.forEach.item}}"}}}]`, want: `failed step "a": item 1: tool "w.odds": odd`},
		{name: "an item that fails, and continue within", yaml: `steps: [{id: a, type: forEach, collection: "[0,1]", step: {tool: w.odds, arguments: {i: "{{.forEach.item}}"}, onError: {action: continue}, defaultResults: {d: 1}}}]`,
			want: `{"iterations":[{"index":0,"item":0,"status":"completed","output":{"i":"0"}},{"index":1,"item":1,"status":"failed","output":{"d":1},"error":"tool \"w.odds\": odd"}],"count":2,"completed":1,"failed":1}`},
		{name: "an item that fails, and continue without", yaml: `steps: [{id: a, type: forEach, collection: "[1]", onError: {action: continue}, defaultResults: {d: 1}, step: {tool: w.odds, arguments: {i: "{{.forEach.item}}"}}}]`, want: `{"d":1}`},
		{name: "an item that is skipped", yaml: `steps: [{id: a, type: forEach, collection: "[0,1]", step: {tool: w.echo, condition: "{{eq .forEach.index 1}}"}}]`,
			want: `{"iterations":[{"index":0,"item":0,"status":"skipped","output":null},{"index":1,"item":1,"status":"completed","output":{}}],"count":2,"completed":1,"failed":0}`},
		{name: "an item that is tried again", yaml: `steps: [{id: a, type: forEach, collection: "[7]", step: {tool: w.odd, onError: {action: retry, retryCount: 1}}}, {id: b, tool: w.echo, arguments: {x: "{{.steps.a.output.completed}}"}}]`, want: `{"x":"1"}`, events: "step_retried a[0] #2"},
		{name: "the time of an item", yaml: `steps: [{id: a, type: forEach, collection: "[7]", step: {tool: w.hang, timeout: 3s, onError: {action: continue}}}, {id: b, tool: w.echo, arguments: {x: "{{(index .steps.a.output.iterations 0).error}}"}}]`, want: `{"x":"timed out after 3s"}`},
		{name: "an item that fails ends the others", yaml: `steps: [{id: a, type: forEach, collection: "[0,1]", step: {tool: w.odds, arguments: {i: "{{.forEach.item}}"}}}, {id: b, tool: w.hang, onError: {action: continue}}]`, want: `failed step "a": item 1: tool "w.odds": odd`},
		{name: "a forEach that is tried again", yaml: `steps: [{id: a, type: forEach, collection: "[7]", onError: {action: retry, retryCount: 1}, step: {tool: w.odd}}, {id: b, tool: w.echo, arguments: {x: "{{.steps.a.output.completed}}"}}]`, want: `{"x":"1"}`, events: "step_retried a #2|step_completed a #2"},

		{name: "a forEach whose item is out of time is tried again", yaml: `steps: [{id: a, type: forEach, collection: "[7]", onError: {action: retry, retryCount: 1}, step: {tool: w.stuck, timeout: 5s}}, {id: b, tool: w.echo, arguments: {x: "{{.steps.a.output.completed}}"}}]`, want: `{"x":"1"}`, calls: `w.stuck{}|w.stuck{}|w.echo{"x":"1"}`, events: "step_retried a #2: item 0: timed out after|step_completed a #2"},

		// Elicitation.
		{name: "an answer", yaml: `steps: [{id: a, ` + confirm + `}]`, replies: accept(`{"ok":true}`), want: `{"action":"accept","content":{"ok":true}}`, asked: "a: sure?"},
		{name: "an answer is read", yaml: params + `steps: [{id: a, type: elicitation, message: "really {{.params.x}}?", schema: {type: object, properties: {why: {type: string}}}}, {id: b, tool: w.echo, arguments: {x: "{{.steps.a.output.content.why}} {{.steps.a.content.why}}"}}]`, args: `{"x":"v"}`, replies: accept(`{"why":"so"}`), want: `{"x":"so so"}`, asked: "a: really v?"},
		{name: "X39 an answer that breaks the schema", yaml: `steps: [{id: a, ` + confirm + `}, {id: b, tool: w.echo, dependsOn: [a]}]`, replies: accept(`{"ok":"yes"}`), want: `failed step "a": the answer does not fit: /ok: got string, want boolean`, calls: "none"},
		{name: "X39 an answer without what is required", yaml: `steps: [{id: a, ` + confirm + `}]`, replies: accept(`{}`), want: `failed step "a": the answer does not fit: /: missing property 'ok'`},
		{name: "X39 an answer with more than was asked", yaml: `steps: [{id: a, ` + confirm + `}]`, replies: accept(`{"ok":true,"more":1}`), want: `failed step "a": the answer does not fit: /more: the schema has no such property`},
		{name: "X39 an answer of 2 MiB", yaml: `steps: [{id: a, ` + confirm + `}]`, replies: accept(`{"ok":"` + strings.Repeat("x", 2<<20) + `"}`), want: `failed step "a": the answer does not fit: longer than 1048576 bytes`},
		{name: "declined", yaml: `steps: [{id: a, ` + confirm + `}]`, replies: says("decline"), want: `failed step "a": the user said: decline`},
		{name: "declined, and on_error", yaml: `steps: [{id: a, ` + confirm + `, onError: {action: continue}, defaultResults: {x: 1}}]`, replies: says("decline"), want: `{"x":1}`},
		{name: "declined, and continue", yaml: `steps: [{id: a, ` + confirm + `, onDecline: {action: continue}, defaultResults: {content: {ok: false}}}]`, replies: says("decline"), want: `{"action":"decline","content":{"ok":false}}`},
		{name: "declined, and the content of the defaults", yaml: `steps: [{id: a, ` + confirm + `, onDecline: {action: continue}, defaultResults: {content: {ok: false}}}, {id: b, tool: w.echo, arguments: {x: "{{.steps.a.content.ok}}{{if .steps.a.error}}!{{end}}"}}]`, replies: says("decline"), want: `{"x":"false"}`},
		{name: "declined, and no content", yaml: `steps: [{id: a, ` + confirm + `, onDecline: {action: continue}}, {id: b, tool: w.echo, arguments: {x: "{{if .steps.a.content}}!{{else}}none{{end}}"}}]`, replies: says("decline"), want: `{"x":"none"}`},
		{name: "the rest is skipped, and the content of the defaults", yaml: `steps: [{id: a, ` + confirm + `, onDecline: {action: skip_remaining}, defaultResults: {content: {ok: false}}}]
output: {properties: {p: {type: boolean, value: "{{.steps.a.content.ok}}"}}}`, replies: says("decline"), want: `{"p":false}`},
		{name: "a question that is skipped, and the content of the defaults", yaml: `steps: [{id: a, ` + confirm + `, condition: "false", defaultResults: {content: {ok: false}}}, {id: b, tool: w.echo, arguments: {x: "{{.steps.a.content.ok}}"}}]`, want: `{"x":"false"}`},
		{name: "a script reads the content of the defaults", yaml: `script: |
  a = step("a", lambda: call_step("w.fail"), on_error="continue", default={"content": 3})
  b = step("b", lambda: call_step("w.fail"), on_error="continue", default=(1, 2))
  return [a.content, b.content]`, want: `{"result":[3,null]}`},
		{name: "cancelled, and continue", yaml: `steps: [{id: a, ` + confirm + `, onCancel: {action: continue}}]`, replies: says("cancel"), want: `{"action":"cancel"}`},
		{name: "cancelled", yaml: `steps: [{id: a, ` + confirm + `, onDecline: {action: continue}}]`, replies: says("cancel"), want: `failed step "a": the user said: cancel`},
		{name: "skip_remaining", yaml: `steps: [{id: a, ` + confirm + `, onDecline: {action: skip_remaining}}, {id: b, tool: w.echo, dependsOn: [a], defaultResults: {x: d}}, {id: c, tool: w.slow, arguments: {x: c}}]
output: {properties: {b: {type: string, value: "{{.steps.b.output.x}} {{.steps.b.status}}"}, c: {type: string, value: "{{.steps.c.output.x}}"}}}`, replies: says("decline"), want: `{"b":"d skipped","c":"c"}`, events: "step_skipped b: the rest is skipped|step_completed c 10s|completed"},
		{name: "skip_remaining withdraws a question", yaml: `steps: [{id: a, ` + confirm + `, onDecline: {action: skip_remaining}}, {id: b, type: elicitation, message: "` + unanswered + `", defaultResults: {x: d}}]`, replies: says("decline"), want: `{"x":"d"}`, events: "step_skipped b: the rest is skipped|completed"},
		{name: "nobody answers: as cancelled", yaml: `steps: [{id: a, ` + confirm + `, timeout: 1m, onCancel: {action: continue}}]`, replies: []*workflow.Reply{nil}, want: `{"action":"cancel"}`, events: "step_completed a 1m0s"},
		{name: "nobody answers, and abort", yaml: `steps: [{id: a, ` + confirm + `, timeout: 3s, onCancel: {action: abort}}]`, replies: []*workflow.Reply{nil}, want: `failed step "a": nobody answered within 3s`, events: "step_failed a 3s"},
		{name: "nobody answers within ten minutes", yaml: `steps: [{id: a, ` + confirm + `, timeout: 20m}]`, replies: []*workflow.Reply{nil}, want: `failed step "a": nobody answered within 600s`, events: "step_failed a 10m0s"},
		{name: "a client that cannot be asked", yaml: `steps: [{id: a, ` + confirm + `}]`, want: `failed step "a": the client cannot be asked`},
		{name: "a client that cannot be asked, and on_error", yaml: `steps: [{id: a, ` + confirm + `, onError: {action: continue}, defaultResults: {content: {ok: false}}}]`, want: `{"content":{"ok":false}}`},
		{name: "a client that cannot be asked, and the content of the defaults", yaml: `steps: [{id: a, ` + confirm + `, onError: {action: continue}, defaultResults: {content: {ok: false}}}, {id: b, tool: w.echo, arguments: {x: "{{.steps.a.content.ok}} {{.steps.a.error}}"}}]`, want: `{"x":"false the client cannot be asked"}`},
		{name: "two questions at once", yaml: `steps: [{id: a, ` + confirm + `}, {id: b, ` + confirm + `}]`, replies: []*workflow.Reply{{Action: "accept", Content: []byte(`{"ok":true}`)}, {Action: "accept", Content: []byte(`{"ok":true}`)}}, want: `{"action":"accept","content":{"ok":true}}`},

		// Output.
		{name: "types of an output", yaml: `steps: [{id: a, tool: w.rich}]
output: {properties: {s: {type: string, value: "{{.steps.a.output.t}}"}, i: {type: integer, value: "{{.steps.a.output.n}}"}, g: {type: integer, value: "{{.steps.a.output.big}}"}, f: {type: number, value: "{{.steps.a.output.f}}"}, b: {type: boolean, value: "{{.steps.a.output.yes}}"}, o: {type: object, value: "{{json .steps.a.output.o}}"}, l: {type: array, value: "{{.steps.a.output.l}}"}}}`,
			want: `{"b":true,"f":0.1,"g":` + big + `,"i":3,"l":[1,"two",null],"o":{"k":"v"},"s":"text"}`},
		{name: "X23 what does not become its type", yaml: `steps: [{id: a, tool: w.echo}]
output: {properties: {p: {type: number, value: "NaN", default: 1}, q: {type: number, value: "1e400", default: 2}, r: {type: boolean, value: "true ", default: false}, s: {type: integer, value: "01"}, t: {type: integer, value: "+1"}, u: {type: boolean, value: "True"}}}`, want: `{"p":1,"q":2,"r":false}`},
		{name: "X23 a required property", yaml: `steps: [{id: a, tool: w.echo}]
output: {properties: {p: {type: number, value: "1e400"}}, required: [p]}`, want: `failed output: p is required: "1e400" is no number`},
		{name: "X15 a missing value is the default", yaml: `steps: [{id: a, tool: w.echo}]
output: {properties: {p: {type: string, value: "{{.steps.a.output.nothere}}", default: d}, q: {type: string, value: "{{.steps.a.output.nothere}}"}}}`, want: `{"p":"d"}`},
		{name: "a default that is a text", yaml: `steps: [{id: a, tool: w.echo}]
output: {properties: {p: {type: integer, default: "3"}, l: {type: array, default: "[1]"}, s: {type: string, default: 5}, t: {type: string, default: true}}}`, want: `{"l":[1],"p":3,"s":"5","t":"true"}`},
		{name: "properties of an object", yaml: `steps: [{id: a, tool: w.rich}]
output: {properties: {p: {type: object, properties: {q: {type: integer, value: "{{.steps.a.output.n}}"}, r: {type: object, properties: {s: {type: string, value: x}}}}}}}`, want: `{"p":{"q":3,"r":{"s":"x"}}}`},
		{name: "an output waits for all steps", yaml: `steps: [{id: a, tool: w.slow}]
output: {properties: {p: {type: string, value: done}}}`, want: `{"p":"done"}`, events: "step_completed a 10s|completed 10s"},

		// Parameters.
		{name: "a default of a parameter", yaml: params + `steps: [{id: a, tool: w.echo, arguments: {x: "{{.params.d}}"}}]`, want: `{"x":"dd"}`},
		{name: "an argument that is none of several", yaml: `parameters: {type: object, properties: {e: {oneOf: [{const: a}, {const: b}]}}}
steps: [{id: a, tool: w.echo}]`, args: `{"e":"x"}`, want: `arguments /e: value must be 'a', or value must be 'b'`, calls: "none"},
		{name: "an argument in none of several forms", yaml: `parameters: {type: object, $defs: {o: {type: object, properties: {k: {type: integer}}}}, properties: {e: {anyOf: [{$ref: "#/$defs/o"}, {type: array}, {const: 1}, {const: 2}, {const: 3}, {const: 4}, {const: 5}, {const: 6}, {const: 7}, {const: 8}, {const: 9}]}}}
steps: [{id: a, tool: w.echo}]`, args: `{"e":{"k":"v"}}`, want: `arguments /e: /e/k: got string, want integer, or got object, want array, or value must be 1, or value must be 2, or value must be 3, or value must be 4, or value must be 5, or value must be 6, or value must be 7, or value must be 8`, calls: "none"},
		{name: "an argument that is not allowed", yaml: `parameters: {type: object, properties: {e: false}}
steps: [{id: a, tool: w.echo}]`, args: `{"e":1}`, want: `arguments /e: is not allowed`, calls: "none"},
		{name: "defaults behind references", yaml: `parameters: {type: object, $defs: {env: {$ref: "#/$defs/text"}, text: {type: string, default: dev}, o: {type: object, default: {}, properties: {n: {$ref: "#/$defs/n"}}}, n: {type: integer, default: 10}}, properties: {e: {$ref: "#/$defs/env"}, f: {$ref: "#/$defs/env", default: own}, o: {$ref: "#/$defs/o"}, p: {$ref: "#/$defs/o"}}}
steps: [{id: a, tool: w.echo, arguments: {x: "{{.params.e}} {{.params.f}} {{.params.o.n}} {{.params.p.n}}"}}]`, args: `{"p":{"n":3}}`, want: `{"x":"dev own 10 3"}`},
		{name: "defaults of what a default came from", yaml: `parameters: {type: object, properties: {a: {$ref: "#", default: {}}, b: {$ref: "#", default: {}}, c: {$ref: "#"}, d: {$ref: "#/$defs/n", default: {next: {}}}}, $defs: {n: {type: object, properties: {v: {type: integer, default: 1}, next: {$ref: "#/$defs/n"}}}}}
steps: [{id: a, tool: w.echo, arguments: {x: "{{json .params}}"}}]`, args: `{"c":{"a":{}}}`, want: `{"x":"{\"a\":{},\"b\":{},\"c\":{\"a\":{\"a\":{},\"b\":{},\"d\":{\"next\":{\"v\":1},\"v\":1}},\"b\":{},\"d\":{\"next\":{\"v\":1},\"v\":1}},\"d\":{\"next\":{\"v\":1},\"v\":1}}"}`},
		{name: "an argument of the wrong type", yaml: params + `steps: [{id: a, tool: w.echo}]`, args: `{"k":"three"}`, want: `arguments /k: got string, want integer`, calls: "none"},
		{name: "a required argument", yaml: `parameters: {type: object, properties: {x: {type: string}}, required: [x]}
steps: [{id: a, tool: w.echo}]`, want: `arguments /: missing property 'x'`, calls: "none"},
		{name: "an argument within an argument", yaml: `parameters: {type: object, properties: {x: {type: object, properties: {"a/b": {type: integer, minimum: 3}}}}}
steps: [{id: a, tool: w.echo}]`, args: `{"x":{"a/b":2}}`, want: `arguments /x/a~1b: minimum: got 2, want 3`},
		{name: "X37 an argument is no template", yaml: params + `steps: [{id: a, tool: w.echo, arguments: {x: "{{.params.x}}"}}]`, args: `{"x":"{{.steps.x.output}} }}{{ \") + fail('\n"}`, want: `{"x":"{{.steps.x.output}} }}{{ \") + fail('\n"}`},
		{name: "X13 an output is no template", yaml: `steps: [{id: a, tool: w.evil}, {id: b, tool: w.echo, arguments: {x: "{{.steps.a.output.x}}"}}]`, want: `{"x":"{{.params.secret}} \"}}{{\" ') + fail('\n"}`},
		{name: "the default of an object whose properties have no value", yaml: `steps: [{id: a, tool: w.rich}]
output: {properties: {none: {type: object, properties: {q: {type: integer, value: "{{.steps.a.output.zz}}"}}, default: {q: 9}}, some: {type: object, properties: {q: {type: integer, value: "{{.steps.a.output.zz}}"}, r: {type: integer, value: "1"}}, default: {q: 9}}, bare: {type: object, properties: {q: {type: integer, value: "{{.steps.a.output.zz}}"}}}}, required: [none]}`, want: `{"bare":{},"none":{"q":9},"some":{"r":1}}`},
		{name: "X27 digits", yaml: params + `steps: [{id: a, tool: w.typed, arguments: {o: "{{json .params.o}}"}}]`, args: `{"o":{"a":9007199254740993,"b":0.1,"c":` + big + `}}`, want: `{"o":{"a":9007199254740993,"b":0.1,"c":` + big + `}}`},
	}
}

// TestRows holds every rule of a workflow, by its steps and by the program of them as a
// script.
func TestRows(t *testing.T) {
	if n := len(rows()); n < 80 {
		t.Errorf("%d rows", n)
	}
	for _, r := range rows() {
		t.Run(r.name, func(t *testing.T) {
			tool := composite(t, r.yaml)
			w := parse(t, tool)
			replies := func(w *world) { w.replies = append([]*workflow.Reply(nil), r.replies...) }
			out, seen := play(t, w, r.args, replies)
			if got := told(out); got != r.want {
				t.Errorf("got  %s\nwant %s\n%s", got, r.want, w.Show())
			}
			r.check(t, seen)

			again, twin := play(t, parse(t, asScript(w, tool)), r.args, replies)
			if a, b := string(out.Result(false)), string(again.Result(false)); a != b {
				t.Errorf("steps:  %s\nscript: %s\n%s", a, b, w.Show())
			}
			slices.Sort(seen.events) // what happens at one moment has no order
			slices.Sort(twin.events)
			if !slices.Equal(seen.events, twin.events) {
				t.Errorf("steps:  %q\nscript: %q", seen.events, twin.events)
			}
			slices.Sort(seen.asked)
			slices.Sort(twin.asked)
			if strings.Join(seen.asked, "|") != strings.Join(twin.asked, "|") {
				t.Errorf("steps asked %q, script %q", seen.asked, twin.asked)
			}
		})
	}
}

func (r *row) check(t *testing.T, w *world) {
	t.Helper()
	switch {
	case r.calls == "none" && len(w.calls) > 0:
		t.Errorf("calls: %q", w.calls)
	case r.calls != "" && r.calls != "none" && strings.Join(w.calls, "|") != r.calls:
		t.Errorf("calls: %q", w.calls)
	}
	if r.asked != "" && strings.Join(w.asked, "|") != r.asked {
		t.Errorf("asked: %q", w.asked)
	}
	rest := w.events
	for want := range strings.SplitSeq(r.events, "|") {
		found := false
		for i, e := range rest {
			if strings.HasPrefix(e, want) {
				rest, found = rest[i+1:], true
				break
			}
		}
		if want != "" && !found {
			t.Errorf("no event %q after those before it in %q", want, w.events)
		}
	}
}
