package serve_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
)

// flow is a composite tool of two steps, one of which calls a tool that clients do not see.
const flow = `compositeTools:
- name: flow
  description: two steps
  parameters: {type: object, properties: {x: {type: string}, n: {type: integer}}, required: [x]}
  steps:
  - {id: a, tool: back.echo, arguments: {text: "{{.params.x}}"}}
  - {id: b, tool: back.hidden, arguments: {text: "{{.steps.a.output.text}}!"}, condition: "{{ne .params.x \"skip\"}}", defaultResults: {text: none}}
  output: {properties: {said: {type: string, value: "{{.steps.b.output.text}}"}}, required: [said]}`

// composed is an edge with a composite tool before one fake server.
func composed(t *testing.T, era edgetest.Era, yaml ...string) *front {
	t.Helper()
	return composedWith(t, era, yaml)
}

func composedWith(t *testing.T, era edgetest.Era, yaml []string, options ...edgetest.Option) *front {
	t.Helper()
	back, manifest := composedOf(t, era, yaml)
	e := edgetest.Start(t, manifest, options...)
	return &front{Edge: e, back: back, client: e.NewClient()}
}

// composedOf is the server and the manifest of composed.
func composedOf(t *testing.T, era edgetest.Era, yaml []string) (_ *edgetest.Server, manifest string) {
	t.Helper()
	more := append([]string{"  tools: [{workload: back, filter: [echo, fail, ask]}]"}, yaml...)
	back := edgetest.NewServer(t, era)
	offersTools(back, tool{"echo", "", []string{"text"}, 0}, tool{"fail", "", nil, 0}, tool{"hidden", "", []string{"text"}, 0})
	results(back, map[string]string{"*": echoes["*"], "fail": `{"isError":true,"content":[{"type":"text","text":"boom"}]}`})
	plain := edgetest.Manifest(back, more[1:]...)
	if strings.Count(plain, "incomingAuth:") > 1 {
		plain = strings.Replace(plain, "incomingAuth: {type: anonymous}\n", "", 1)
	}
	return back, strings.Replace(plain, "backends:\n", more[0]+"\nbackends:\n", 1)
}

func cellsOf(t *testing.T, test func(t *testing.T, client, back edgetest.Era)) {
	for _, client := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		for _, back := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
			t.Run(fmt.Sprintf("%s client, %s backend", client, back), func(t *testing.T) {
				t.Parallel()
				test(t, client, back)
			})
		}
	}
}

func (c caller) tool(t *testing.T, id, name, arguments string, meta ...string) string {
	t.Helper()
	r := c.request(t, id, "tools/call", edgetest.CallParams(name, arguments), meta...)
	if r.Status != 200 {
		t.Fatalf("status %d: %s", r.Status, r.Body)
	}
	return r.Result()
}

// TestComposite: a composite tool is listed and called like any other; its steps reach tools
// by their whole names, hidden ones too.
func TestComposite(t *testing.T) {
	cellsOf(t, func(t *testing.T, client, back edgetest.Era) {
		f := composed(t, back, flow)
		c := f.callerOf(t, client, "")
		list := c.request(t, "1", "tools/list", "{}").Result()
		for _, want := range []string{`"name":"flow"`, `"outputSchema":{"type":"object","properties":{"said":{"type":"string"}},"anyOf":[{"required":["said"]},{"required":["error"]}]}`, `"destructiveHint":true`} {
			if !strings.Contains(list, want) {
				t.Errorf("%s is not in %s", want, list)
			}
		}
		if strings.Contains(list, `"hidden"`) {
			t.Errorf("the hidden tool is listed: %s", list)
		}
		for arguments, want := range map[string]string{
			`{"x":"hi"}`:          `"structuredContent":{"said":"hi!"}`,
			`{"x":"skip"}`:        `"structuredContent":{"said":"none"}`,
			`{"x":"{{.params}}"}`: `"structuredContent":{"said":"{{.params}}!"}`,
			`{}`:                  `"text":"invalid arguments: /: missing property 'x'"`,
			`{"x":"a","n":"b"}`:   `"text":"invalid arguments: /n: got string, want integer"`,
		} {
			got := c.tool(t, "2", "flow", arguments)
			if !strings.Contains(got, want) || strings.Contains(got, `"resultType":"complete"`) != (client == edgetest.Modern) {
				t.Errorf("%s: %s", arguments, got)
			}
		}
	})
}

// TestCompositeFails: a step that fails ends the workflow with a result that says so.
func TestCompositeFails(t *testing.T) {
	cellsOf(t, func(t *testing.T, client, back edgetest.Era) {
		f := composed(t, back, `compositeTools:
- name: flow
  steps: [{id: a, tool: back.echo}, {id: b, tool: fail, dependsOn: [a]}, {id: c, tool: back.hidden, dependsOn: [b]}]
- name: lost
  steps: [{id: a, tool: back.echo}, {id: b, tool: back.nobody, dependsOn: [a]}]`)
		c := f.callerOf(t, client, "")
		if got := c.tool(t, "1", "flow", "{}"); !strings.Contains(got, `"text":"Workflow execution failed: step \"b\": tool \"fail\": boom"`) || !strings.Contains(got, `"completed":["a"]`) || !strings.Contains(got, `"isError":true`) {
			t.Error(got)
		}
		before := len(f.back.Requests("tools/call"))
		if got := c.tool(t, "2", "lost", "{}"); !strings.Contains(got, `step \"b\": tool \"back.nobody\": not found`) {
			t.Error(got)
		}
		if n := len(f.back.Requests("tools/call")); before != 2 || n != before {
			t.Errorf("%d and %d calls", before, n)
		}
	})
}

// TestC10CompositeSteps: each step is judged as a call of its own, with its caller's identity.
func TestC10CompositeSteps(t *testing.T) {
	for _, client := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		t.Run(client.String(), func(t *testing.T) {
			t.Parallel()
			f := composed(t, edgetest.Legacy, flow+`
- name: secret
  steps: [{id: a, tool: back.echo}]`, `incomingAuth:
  type: anonymous
  authz:
    type: policy
    policies:
    - permit(principal, action == Action::"call_tool", resource == Tool::"flow");
    - permit(principal, action == Action::"call_tool", resource == Tool::"echo");`)
			c := f.callerOf(t, client, "")
			got := c.tool(t, "1", "flow", `{"x":"hi"}`)
			if !strings.Contains(got, `step \"b\": tool \"back.hidden\": `) {
				t.Error(got)
			}
			if r := c.request(t, "2", "tools/call", edgetest.CallParams("secret", "{}")); r.Status != 403 {
				t.Errorf("%d %s", r.Status, r.Body)
			}
			if n := len(f.back.Requests("tools/call")); n != 1 {
				t.Errorf("%d calls", n)
			}
		})
	}
}

const question = `compositeTools:
- name: flow
  steps:
  - {id: sure, type: elicitation, message: "Sure?", schema: {type: object, properties: {ok: {type: boolean}}, required: [ok]}}
  - {id: b, tool: back.echo, condition: "{{.steps.sure.content.ok}}", arguments: {text: "{{.steps.sure.output.action}}"}, defaultResults: {text: no}}`

// TestCompositeAsksLegacy: a question goes out on the stream of a legacy client's call.
func TestCompositeAsksLegacy(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{
		`{"action":"accept","content":{"ok":true}}`:       `"structuredContent":{"text":"accept"}`,
		`{"action":"accept","content":{"ok":false}}`:      `"structuredContent":{"text":"no"}`,
		`{"action":"accept","content":{"ok":"yes"}}`:      `the answer does not fit: /ok: got string, want boolean`,
		`{"action":"accept","content":{"ok":true,"x":1}}`: `the answer does not fit: /x: the schema has no such property`,
		`{"action":"decline"}`:                            `step \"sure\": the user said: decline`,
	} {
		f := composed(t, edgetest.Legacy, question)
		c := f.callerOf(t, edgetest.Legacy, asks)
		r := c.session.Request("1", "tools/call", edgetest.CallParams("flow", "{}"))
		q := r.NextMessage()
		if q.Method != "elicitation/create" || !strings.Contains(string(q.Params), `"message":"Sure?"`) || !strings.Contains(string(q.Params), `"requestedSchema":{`) {
			t.Fatalf("%s %s", q.Method, q.Params)
		}
		c.session.Reply(q.ID, answer)
		if m := r.NextMessage(); !strings.Contains(string(m.Result), want) {
			t.Errorf("%s: %s %v", answer, m.Result, m.Error)
		}
	}
}

// TestCompositeAsksModern: a question is input_required, and the retry goes on with the run.
func TestCompositeAsksModern(t *testing.T) {
	t.Parallel()
	f := composed(t, edgetest.Legacy, question)
	c := f.callerOf(t, edgetest.Modern, "")
	call := func(id, more string) *edgetest.Response {
		body, head := c.message(id, "tools/call", `{"name":"flow","arguments":{}`+more+`}`, edgetest.Capabilities(asks))
		return c.Post(body, head...)
	}
	asked := inputRequired(t, call(`"first"`, ""))
	key := asked.key(t)
	if q := asked.InputRequests[key]; q.Method != "elicitation/create" || !strings.Contains(string(q.Params), `"message":"Sure?"`) {
		t.Fatalf("%+v", asked)
	}
	again := fmt.Sprintf(`,"inputResponses":{%q:{"action":"accept","content":{"ok":true}}},"requestState":%s`, key, quote(asked.RequestState))
	if got := call(`"second"`, again).Result(); !strings.Contains(got, `"structuredContent":{"text":"accept"}`) {
		t.Error(got)
	}
	// X21: the answer a second time is refused, and nothing runs again.
	before := len(f.back.Requests("tools/call"))
	if r := call(`"third"`, again); r.Status == 200 && strings.Contains(string(r.Body), `"structuredContent"`) {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	if n := len(f.back.Requests("tools/call")); n != before {
		t.Errorf("%d calls more", n-before)
	}
}

// TestCompositeAsksNobody: a client that cannot be asked has the step fail.
func TestCompositeAsksNobody(t *testing.T) {
	t.Parallel()
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		f := composed(t, edgetest.Legacy, question)
		if got := f.callerOf(t, era, "").tool(t, "1", "flow", "{}"); !strings.Contains(got, `step \"sure\": the client cannot be asked`) {
			t.Errorf("%s: %s", era, got)
		}
	}
}

// TestCompositeNotes: what a program prints is in the log and not in the answer, and at its level
// for debugging which properties of the output have no value.
func TestCompositeNotes(t *testing.T) {
	t.Parallel()
	f := composed(t, edgetest.Modern, `compositeTools:
- {name: says, script: 'print("it was " + params["x"]); return 1', parameters: {type: object, properties: {x: {type: string}}}}
- {name: leaves, steps: [{id: a, tool: back.echo, arguments: {text: planted-value}}], output: {properties: {p: {type: integer, value: "{{.steps.a.output.text}}"}}}}`)
	c := f.callerOf(t, edgetest.Legacy, "")
	if got := c.tool(t, "1", "says", `{"x":"\u001bx"}`); !strings.Contains(got, `"structuredContent":{"result":1}`) || strings.Contains(got, "it was") {
		t.Error(got)
	}
	if got := c.tool(t, "2", "leaves", `{}`); !strings.Contains(got, `"structuredContent":{}`) {
		t.Error(got)
	}
	for _, want := range []string{
		`level=INFO msg="a composite tool prints" tool=says text="it was x"`,
		`level=DEBUG msg="a property of a composite tool's result is left out" tool=leaves property=output.p`,
	} {
		if !strings.Contains(f.Log(), want) {
			t.Errorf("%s is not in the log", want)
		}
	}
	if strings.Contains(f.Log(), "planted-value") {
		t.Error("a value is in the log")
	}
}

// TestX42Names: a composite tool and a backend's tool of one name are both withheld, whoever
// asks, and the status names both; steps reach the backend's tool by its whole name.
func TestX42Names(t *testing.T) {
	t.Parallel()
	cellsOf(t, func(t *testing.T, client, back edgetest.Era) {
		f := composedWith(t, back, []string{`compositeTools:
- {name: echo, steps: [{id: a, tool: back.echo, arguments: {text: composite}}]}
- {name: other, steps: [{id: a, tool: back.echo, arguments: {text: other}}]}
- {name: hidden, steps: [{id: a, tool: back.hidden, arguments: {text: no clash}}]}`, codeMode()}, engine())
		c := f.callerOf(t, client, "")
		if list := c.request(t, "1", "tools/list", "{}").Result(); strings.Contains(list, `"name":"echo"`) || !strings.Contains(list, `"name":"other"`) {
			t.Error(list)
		}
		if r := c.request(t, "2", "tools/call", edgetest.CallParams("echo", "{}")); r.Message().Error == nil || r.Message().Error.Code != -32602 {
			t.Errorf("%d %s", r.Status, r.Body)
		}
		for name, want := range map[string]string{"other": "other", "hidden": "no clash"} {
			if got := c.tool(t, "3", name, `{}`); !strings.Contains(got, `"structuredContent":{"text":"`+want+`"}`) {
				t.Error(got)
			}
		}
		if out := c.script(t, `return [attempt(lambda: call_tool("echo"))["ok"], list_tools()]`, ""); string(out.Result) != `[false,["fail","hidden","other"]]` {
			t.Error(out.Raw)
		}
		for _, want := range []string{`"CompositeNameTaken"`, `echo: back.echo has the name too`} {
			edgetest.Until(t, want+" in the status", func() bool {
				return strings.Contains(string(f.client.Do("GET", "/status", "").Body), want)
			})
		}
	})
}

// TestCompositeProgress: a client with a progress token hears of each step that has ended.
func TestCompositeProgress(t *testing.T) {
	t.Parallel()
	f := composed(t, edgetest.Legacy, flow)
	c := f.callerOf(t, edgetest.Legacy, "")
	r := c.session.Request("1", "tools/call", `{"name":"flow","arguments":{"x":"hi"},"_meta":{"progressToken":"p"}}`)
	for last := ""; ; {
		m := r.NextMessage()
		if m.Method == "" {
			if !strings.Contains(string(m.Result), `"said":"hi!"`) || last != `{"progressToken":"p","progress":2,"total":2,"message":"step b: completed"}` {
				t.Errorf("%s %s", last, m.Result)
			}
			return
		}
		if last = string(m.Params); m.Method != "notifications/progress" || !strings.Contains(last, `,"total":2,"message":"step `) {
			t.Errorf("%s %s", m.Method, m.Params)
		}
	}
}

// TestCompositeRecords: a workflow has a record of its call, one for each call of a step that
// names it, and those of the workflow's own types.
func TestCompositeRecords(t *testing.T) {
	t.Parallel()
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		file, yaml := audited(t)
		f := composed(t, edgetest.Legacy, `compositeTools:
- name: flow
  steps: [{id: a, tool: back.echo}, {id: b, tool: back.fail, dependsOn: [a]}, {id: c, tool: back.echo, dependsOn: [b]}]`, yaml)
		f.callerOf(t, era, "").tool(t, "1", "flow", "{}")
		f.Stop()
		types, inner, outer, of := map[string]int{}, 0, "", map[string]int{}
		for _, line := range lines(t, file) {
			var r family
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatal(err)
			}
			kind := edgetest.Member(line, "type")
			types[kind]++
			if strings.HasPrefix(kind, `"vmcp_workflow`) || r.ParentID != "" {
				of[r.ParentID+" of "+r.Subjects["client_name"]]++
			}
			switch {
			case strings.HasPrefix(kind, `"vmcp_workflow`):
				if !strings.Contains(line, `"workflow_id":"`) {
					t.Error(line)
				}
			case r.ParentID != "":
				inner++
			case r.Target["name"] == "flow":
				outer = r.AuditID
			}
		}
		for kind, n := range map[string]int{"started": 1, "failed": 1, "step_started": 2, "step_completed": 1, "step_failed": 1, "step_skipped": 1} {
			if types[`"vmcp_workflow_`+kind+`"`] != n {
				t.Errorf("%s: %d, want %d of %s", era, types[`"vmcp_workflow_`+kind+`"`], n, kind)
			}
		}
		if inner != 2 || outer == "" {
			t.Errorf("%s: %d records of calls below %q: %v", era, inner, outer, types)
		}
		if n := of[outer+" of edgetest"]; n != 2+7 {
			t.Errorf("%s: %d records of steps and calls are those of %s of the client: %v", era, n, outer, of)
		}
	}
}

// TestCompositeStatus: the status says which step calls what is not there, and which
// annotations promise too much; runs are counted.
func TestCompositeStatus(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Legacy)
	offersTools(back, tool{"echo", "", []string{"text"}, 0})
	results(back, echoes)
	e := edgetest.Start(t, edgetest.Manifest(back, `compositeTools:
- name: flow
  annotations: {readOnlyHint: true}
  steps: [{id: a, tool: back.echo}]
- name: lost
  steps: [{id: b, tool: back.nobody}]
- name: endless
  script: |
    while True:
      pass
telemetry: {enablePrometheusMetricsPath: true}`))
	f := &front{Edge: e, back: back, client: e.NewClient()}
	c := f.callerOf(t, edgetest.Legacy, "")
	list := c.request(t, "1", "tools/list", "{}").Result()
	if !strings.Contains(list, `"name":"lost"`) || strings.Contains(list, `"readOnlyHint":true`) {
		t.Error(list)
	}
	c.tool(t, "2", "flow", "{}")
	c.tool(t, "3", "lost", "{}")
	c.tool(t, "4", "endless", "{}")
	for _, want := range []string{`"StepToolMissing"`, `lost: step \"b\" calls back.nobody`, `"AnnotationsTooLax"`, `flow: readOnlyHint`} {
		edgetest.Until(t, want+" in the status", func() bool {
			return strings.Contains(string(f.client.Do("GET", "/status", "").Body), want)
		})
	}
	metrics := string(f.client.Do("GET", "/metrics", "").Body)
	for _, want := range []string{`weir_workflow_executions_total{`, `workflow="flow"`, `outcome="ok"`, `outcome="error"`, `outcome="budget"`, "\nweir_workflow_duration_seconds", "\nweir_workflow_step_retries_total{"} {
		if !strings.Contains(metrics, want) {
			t.Errorf("%s is not in the metrics", want)
		}
	}
}
