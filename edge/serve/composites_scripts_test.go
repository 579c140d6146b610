package serve_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
)

// TestX31Composites: the steps of a composite tool count as calls of the script that calls it.
func TestX31Composites(t *testing.T) {
	t.Parallel()
	var steps []string
	for i := range 100 {
		after := ""
		if i > 0 {
			after = fmt.Sprintf(", dependsOn: [s%d]", i-1)
		}
		steps = append(steps, fmt.Sprintf("{id: s%d, tool: back.hidden%s}", i, after))
	}
	yaml := "compositeTools:\n- {name: flow, steps: [" + strings.Join(steps, ", ") + "]}\n- {name: small, steps: [{id: a, tool: back.echo, onError: {action: continue}}]}"
	cellsOf(t, func(t *testing.T, client, back edgetest.Era) {
		f := composedWith(t, back, []string{yaml, codeMode()}, engine())
		c := f.callerOf(t, client, "")
		out := c.script(t, "for _ in range(1000):\n    attempt(lambda: flow())\nreturn 1", "")
		if out.Error.Message != "more than 1000 tool calls" || out.Error.Tool != "" {
			t.Error(out.Raw)
		}
		if n := f.back.Count("tools/call"); n != 990 { // and ten of flow itself
			t.Errorf("the backend got %d calls", n)
		}
		out = c.script(t, "return len(parallel([lambda: attempt(lambda: small()) for _ in range(501)]))", "")
		if out.Error.Message != "more than 1000 tool calls" {
			t.Error(out.Raw)
		}
		if out = c.script(t, "return len(parallel([lambda: small() for _ in range(500)]))", ""); string(out.Result) != "500" {
			t.Error(out.Raw)
		}
		// A client's own call of a composite tool has no such bound.
		if got := c.tool(t, "7", "flow", "{}"); strings.Contains(got, "isError") {
			t.Error(got)
		}
	})
}

// TestScriptCompositeQuestions: a composite tool that asks cannot be called by a script,
// whoever asks, and whatever client could be asked.
func TestScriptCompositeQuestions(t *testing.T) {
	t.Parallel()
	const yaml = `compositeTools:
- name: own
  steps: [{id: sure, type: elicitation, message: "Sure?", onError: {action: continue}}, {id: b, tool: back.echo, dependsOn: [sure]}]
- name: theirs
  steps: [{id: a, tool: back.hidden, onError: {action: continue}}, {id: b, tool: back.echo, dependsOn: [a]}]`
	const q = `{"message":"Who?","requestedSchema":{"type":"object","properties":{}}}`
	cellsOf(t, func(t *testing.T, client, back edgetest.Era) {
		for _, can := range []string{"", asks} {
			f := composedWith(t, back, []string{yaml, codeMode()}, engine())
			if back == edgetest.Modern {
				wantsInput(f.back, "hidden", "elicitation/create", q)
			} else {
				f.back.Always("tools/call", func(c *edgetest.Call) {
					c.Ask("7", "elicitation/create", q)
					c.Result(`{"content":[]}`)
				})
			}
			c := f.callerOf(t, client, can)
			var meta []string
			if client == edgetest.Modern && can != "" {
				meta = []string{edgetest.Capabilities(can)}
			}
			for _, name := range []string{"own", "theirs"} {
				out := c.script(t, fmt.Sprintf("return %s()", name), "", meta...)
				if want := fmt.Sprintf("tool %q asks the user, which a script cannot: call it directly", name); out.Error.Message != want {
					t.Errorf("%s, client can %q: %s", name, can, out.Raw)
				}
			}
		}
	})
}

// TestCompositeErrorData: the script of a composite tool has the data of an error that it
// catches, by both ways to call, where that is no longer than 64 KiB.
func TestCompositeErrorData(t *testing.T) {
	t.Parallel()
	const yaml = `compositeTools:
- name: flow
  script: |
    found = [attempt(f)["error"]["data"] for f in [lambda: call_tool("back.echo"), lambda: call_step("back.echo"), lambda: call_tool("back.fail")]]
    return {"left": [d and d["left"] for d in found], "code": attempt(lambda: call_step("back.echo"))["error"]["code"]}`
	cellsOf(t, func(t *testing.T, client, back edgetest.Era) {
		f := composed(t, back, yaml)
		f.back.Always("tools/call", func(c *edgetest.Call) {
			left := "3"
			if edgetest.Member(string(c.Message.Params), "name") == `"fail"` {
				left = quote(strings.Repeat("x", 64<<10))
			}
			c.JSON(200, `{"jsonrpc":"2.0","id":`+c.ID()+`,"error":{"code":-32000,"message":"quota","data":{"left":`+left+`}}}`)
		})
		got := f.callerOf(t, client, "").tool(t, "1", "flow", "{}")
		if want := `"structuredContent":{"left":[3,3,null],"code":-32000}`; !strings.Contains(got, want) {
			t.Errorf("%s is not in %s", want, got)
		}
	})
}

// traced is what a trace says of a call.
type tracedCall struct {
	ID, Parent          int64
	Tool, Step, Outcome string
	Attempt             int
	MS                  *float64
}

func (c tracedCall) String() string {
	return fmt.Sprintf("%d/%d %s %s %d %s", c.Parent, c.ID, c.Tool, c.Step, c.Attempt, c.Outcome)
}

// tracesOf takes notifications apart: the calls of a trace, and what is said of the progress.
func tracesOf(t *testing.T, all []string) (calls []tracedCall, said []string) {
	t.Helper()
	rising(t, all)
	for _, m := range all {
		text := edgetest.Member(m, "params", "_meta", "weir.dev/trace")
		if text == "" {
			said = append(said, edgetest.Member(m, "params", "message"))
			continue
		}
		var c tracedCall
		if err := json.Unmarshal([]byte(text), &c); err != nil || c.MS == nil {
			t.Errorf("%v: %s", err, text)
		}
		calls = append(calls, c)
	}
	return calls, said
}

// TestCompositeTrace: a client that asks for a trace hears of each call of its composite
// tool: step, attempt, what became of it, and the tool where it may see that.
func TestCompositeTrace(t *testing.T) {
	t.Parallel()
	const yaml = `compositeTools:
- name: flow
  steps:
  - {id: a, tool: back.echo}
  - {id: b, tool: back.hidden, dependsOn: [a]}
  - {id: c, tool: fail, dependsOn: [b], onError: {action: retry, retryCount: 1, retryDelay: 1ms}}`
	cellsOf(t, func(t *testing.T, client, back edgetest.Era) {
		f := composedWith(t, back, []string{yaml, codeMode()}, engine())
		c := f.callerOf(t, client, "")
		trace := func(params string, meta ...string) string {
			before, _ := messages(c.request(t, "1", "tools/call", params, meta...))
			calls, _ := tracesOf(t, before)
			return strings.Trim(fmt.Sprint(calls), "[]")
		}
		const on = `"weir.dev/trace":true`
		if got, want := trace(edgetest.CallParams("flow", "{}"), on, `"progressToken":"t"`), "0/1 echo a 1 ok 0/2  b 1 ok 0/3 fail c 1 error 0/4 fail c 2 error"; got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		if got, want := trace(scriptParams("echo()\nattempt(lambda: flow())", ""), on, `"progressToken":"t"`), "0/1 echo  1 ok 2/3 echo a 1 ok 2/4  b 1 ok 2/5 fail c 1 error 2/6 fail c 2 error 0/2 flow  1 error"; got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		if got := trace(edgetest.CallParams("flow", "{}"), on) + trace(edgetest.CallParams("flow", "{}"), `"progressToken":"t"`) + trace(edgetest.CallParams("flow", "{}"), `"weir.dev/trace":1`, `"progressToken":"t"`); got != "" {
			t.Error(got)
		}
	})
}

// TestCompositeTraceIsBounded: a trace tells of a thousand calls and of no more, as fast as
// they end; what is said of the progress comes ten times a second.
func TestCompositeTraceIsBounded(t *testing.T) {
	t.Parallel()
	for _, client := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		f := composed(t, edgetest.Modern, `compositeTools:
- name: flow
  parameters: {type: object, properties: {n: {type: array}}, required: [n]}
  steps:
  - {id: a, type: forEach, collection: "{{json .params.n}}", maxIterations: 1000, maxParallel: 50, step: {tool: back.echo}}
  - {id: b, type: forEach, collection: "{{json .params.n}}", maxIterations: 1000, step: {tool: back.echo}}`)
		c := f.callerOf(t, client, "")
		n := "[" + strings.Repeat("1,", 599) + "1]"
		before, answer := messages(c.request(t, "1", "tools/call", edgetest.CallParams("flow", `{"n":`+n+`}`), `"weir.dev/trace":true`, `"progressToken":"t"`))
		calls, said := tracesOf(t, before)
		if len(calls) != 1000 || len(said) != 2 && len(said) != 1 || strings.Contains(answer, "isError") {
			t.Errorf("%s: %d calls, said %v: %.200s", client, len(calls), said, answer)
		}
	}
	var steps []string
	for i := range 100 {
		steps = append(steps, fmt.Sprintf("{id: s%d, tool: back.echo}", i))
	}
	f := composed(t, edgetest.Modern, "compositeTools: [{name: flow, steps: ["+strings.Join(steps, ", ")+"]}]")
	began := time.Now()
	before, _ := messages(f.callerOf(t, edgetest.Modern, "").request(t, "1", "tools/call", edgetest.CallParams("flow", "{}"), `"progressToken":"t"`))
	last := rising(t, before)
	if most := 2 + int(time.Since(began)/(100*time.Millisecond)); len(before) == 0 || len(before) > most {
		t.Errorf("%d notifications", len(before))
	}
	if p := edgetest.Member(last, "params"); edgetest.Member(p, "progress") != "100" || edgetest.Member(p, "total") != "100" || !strings.HasSuffix(edgetest.Member(p, "message"), `: completed"`) {
		t.Errorf("the last one: %s", last)
	}
}
