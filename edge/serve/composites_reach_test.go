package serve_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/source"
)

// TestCompositeScriptReach: the script of a composite tool reaches the tools of backends by
// whole name, hidden ones too, and no composite tool, whatever its caller may see.
func TestCompositeScriptReach(t *testing.T) {
	t.Parallel()
	cellsOf(t, func(t *testing.T, client, back edgetest.Era) {
		f := composedWith(t, back, []string{flow, `- name: hand
  script: |
    def said(f):
        r = attempt(f)
        return r["value"] if r["ok"] else r["error"]["message"]
    d = describe_tool("back.hidden")
    return {"names": list_tools(), "described": [d["name"], d["inputSchema"]["properties"].keys()],
        "said": [call_tool("back.hidden", text="a")["text"], call_tool_result("echo", text="b")["structuredContent"]["text"]],
        "not": [said(lambda: call_tool("flow", x="1")), said(lambda: call_tool("hand")), said(lambda: describe_tool("flow")), said(lambda: call_tool("execute_tool_script", script="return 1")), said(lambda: call_tool("back.nobody"))]}`,
			codeMode()}, engine())
		c := f.callerOf(t, client, "")
		const want = `{"names":["back.echo","back.fail","back.hidden"],"described":["back.hidden",["text"]],"said":["a","b"],` +
			`"not":["tool \"flow\": not found","tool \"hand\": not found","tool \"flow\": not found","tool \"execute_tool_script\": not found","tool \"back.nobody\": not found"]}`
		if got := edgetest.Member(c.tool(t, "1", "hand", "{}"), "structuredContent"); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	})
}

// TestX38: a tool that is gone between two steps fails the step that calls it: step and tool
// are named, nothing after it runs, and no other tool is called in its place. One that is
// gone before the call has it fail before its first step.
func TestX38(t *testing.T) {
	t.Parallel()
	cellsOf(t, func(t *testing.T, client, back edgetest.Era) {
		f := composed(t, back, `compositeTools:
- name: flow
  steps: [{id: a, tool: back.echo}, {id: b, tool: back.hidden, dependsOn: [a]}, {id: c, tool: back.echo, dependsOn: [b]}]`)
		c := f.callerOf(t, client, "")
		if got := c.tool(t, "1", "flow", "{}"); strings.Contains(got, "isError") {
			t.Fatal(got)
		}
		f.back.Forget()
		complete := ""
		if back == edgetest.Modern {
			complete = `"resultType":"complete",`
		}
		f.back.Always("tools/call", func(c *edgetest.Call) {
			if edgetest.Member(string(c.Message.Params), "name") == `"hidden"` { // it was renamed meanwhile
				c.Error(map[edgetest.Era]int{edgetest.Legacy: 200, edgetest.Modern: 400}[back], -32602, "Unknown tool: hidden")
				return
			}
			c.Result(`{` + complete + `"content":[]}`)
		})
		if got := c.tool(t, "2", "flow", "{}"); !strings.Contains(got, `Workflow execution failed: step \"b\": tool \"back.hidden\": Unknown tool: hidden`) || !strings.Contains(got, `"completed":["a"]`) {
			t.Error(got)
		}
		if n := f.back.Count("tools/call"); n != 2 {
			t.Errorf("%d calls", n)
		}
	})
}

// TestC10Composites: each attempt and each item of a forEach is judged, by its arguments of
// that moment; a composite tool is permitted while a step of it is denied; what is denied is
// tried once.
func TestC10Composites(t *testing.T) {
	t.Parallel()
	const yaml = `compositeTools:
- name: flow
  steps:
  - {id: a, type: forEach, collection: "[1,2,3]", step: {tool: echo, arguments: {text: "{{.forEach.item}}"}, onError: {action: continue}}}
  - {id: b, tool: back.hidden, onError: {action: retry, retryCount: 3, retryDelay: 1ms}, dependsOn: [a]}
- name: calm
  steps:
  - {id: a, tool: back.hidden, onError: {action: continue}, defaultResults: {text: denied}}
  - {id: b, tool: echo, arguments: {text: "1"}, dependsOn: [a]}
  output: {properties: {said: {type: string, value: "{{.steps.a.output.text}} {{.steps.b.output.text}}: {{.steps.a.error}}"}}}`
	const rules = `incomingAuth:
  type: anonymous
  authz:
    type: policy
    policies:
    - permit(principal, action == Action::"call_tool", resource == Tool::"flow");
    - permit(principal, action == Action::"call_tool", resource == Tool::"calm");
    - permit(principal, action == Action::"call_tool", resource == Tool::"echo") when { context has arg_text && context.arg_text != "2" };`
	cellsOf(t, func(t *testing.T, client, back edgetest.Era) {
		file, audit := audited(t)
		f := composed(t, back, yaml, rules, audit)
		c := f.callerOf(t, client, "")
		if got := c.tool(t, "1", "flow", "{}"); !strings.Contains(got, `step \"b\": tool \"back.hidden\": denied by authorization policy`) {
			t.Error(got)
		}
		if n := f.back.Count("tools/call"); n != 2 {
			t.Errorf("the backend got %d calls", n)
		}
		if got := edgetest.Member(c.tool(t, "2", "calm", "{}"), "structuredContent", "said"); got != `"denied 1: tool \"back.hidden\": denied by authorization policy"` {
			t.Error(got)
		}
		f.Stop()
		outcomes := map[string]int{}
		for _, line := range lines(t, file) {
			if edgetest.Member(line, "type") == `"mcp_tool_call"` && edgetest.Member(line, "parent_id") != "" {
				outcomes[strings.Trim(edgetest.Member(line, "target", "name")+" "+edgetest.Member(line, "outcome"), `"`)]++
			}
		}
		if fmt.Sprint(outcomes) != `map[back.hidden" "denied:2 echo" "denied:1 echo" "success:3]` {
			t.Error(outcomes)
		}
	})
}

// TestR09Composites: each attempt and each item takes a token of its tool, and a composite
// tool those of its own name alone.
func TestR09Composites(t *testing.T) {
	t.Parallel()
	const yaml = `compositeTools:
- name: flow
  steps: [{id: a, type: forEach, collection: "[1,2,3,4,5]", maxParallel: 5, step: {tool: echo, onError: {action: continue}}}]
- name: again
  steps: [{id: a, tool: fail, onError: {action: retry, retryCount: 3, retryDelay: 1ms}, timeout: 2s}]`
	for _, client := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		t.Run(client.String(), func(t *testing.T) {
			t.Parallel()
			f := composedWith(t, edgetest.Modern, []string{yaml, fmt.Sprintf("rateLimiting: {shared: %s, tools: [{name: echo, shared: %s}, {name: fail, shared: %s}, {name: flow, shared: %s}]}", bucket(5), bucket(2), bucket(3), bucket(2))}, local)
			c := f.callerOf(t, client, "")
			got := c.tool(t, "1", "flow", "{}")
			if edgetest.Member(got, "structuredContent", "completed") != "2" || edgetest.Member(got, "structuredContent", "failed") != "3" || !strings.Contains(got, `tool \"echo\": rate limit exceeded, retry after `) {
				t.Error(got)
			}
			if got := c.tool(t, "2", "again", "{}"); !strings.Contains(got, `step \"a\": `) {
				t.Error(got)
			}
			if n := f.back.Count("tools/call"); n != 5 { // the fourth attempt would have come in a day
				t.Errorf("%d calls", n)
			}
			if got := c.tool(t, "3", "flow", "{}"); edgetest.Member(got, "structuredContent", "failed") != "5" {
				t.Error(got)
			}
			limited(t, c.request(t, "4", "tools/call", edgetest.CallParams("flow", "{}")), "4")
		})
	}
}

// TestCompositeWebhooks: webhooks hear of the call of a composite tool or of a script, and of
// none of their calls.
func TestCompositeWebhooks(t *testing.T) {
	t.Parallel()
	bothEras(t, func(t *testing.T, era edgetest.Era) {
		mutating, validating := newHook(t, says(200, hookAllows)), newHook(t, says(200, hookAllows))
		back, manifest := composedOf(t, edgetest.Modern, []string{flow, codeMode()})
		file := write(t, filepath.Join(t.TempDir(), "hooks.yaml"), "validating:\n"+validating.entry("look", "fail")+"mutating:\n"+mutating.entry("change", "fail"))
		opened := source.OpenWith(write(t, filepath.Join(t.TempDir(), "weir.yaml"), manifest), file)
		if opened.Err() != nil {
			t.Fatal(opened.Findings)
		}
		e := edgetest.StartPlan(t, opened.Plan, engine())
		f := &front{Edge: e, client: e.NewClient()}
		if got := f.callerOf(t, era, "").tool(t, "1", "flow", `{"x":"hi"}`); !strings.Contains(got, `"said":"hi!"`) {
			t.Error(got)
		}
		if out := f.callerOf(t, era, "").script(t, `return flow(x="ho")`, ""); string(out.Result) != `{"said":"ho!"}` {
			t.Error(out.Raw)
		}
		for _, h := range []*hook{mutating, validating} {
			calls := 0
			for _, method := range h.methods() {
				if method == "tools/call" {
					calls++
				}
			}
			if calls != 2 || back.Count("tools/call") != 4 {
				t.Errorf("told of %d calls: %v", calls, h.methods())
			}
		}
	})
}

// TestWebhooksOfCallsByFilters: what a filter calls when it is asked about a composite tool is shown
// to webhooks, unlike what the tool itself calls.
func TestWebhooksOfCallsByFilters(t *testing.T) {
	t.Parallel()
	bothEras(t, func(t *testing.T, era edgetest.Era) {
		mutating, validating := newHook(t, says(200, hookAllows)), newHook(t, says(200, hookAllows))
		back, plain := composedOf(t, edgetest.Modern, []string{flow})
		config := strings.Replace(plain, "incomingAuth: {type: anonymous}\n", "", 1)
		manifest := `apiVersion: weir.dev/v1beta1
kind: EdgeFilter
metadata: {name: asks}
spec:
  type: starlark
  source:
    inline: |
      subscribe("on_call_request", tools=["flow"], blocking=True)
      def on_call_request(c):
          call_tool("echo", {"x": "by a filter"})
  grants: {tools: [echo]}
---
apiVersion: weir.dev/v1beta1
kind: MCPGroup
metadata: {name: edgetest}
---
apiVersion: weir.dev/v1beta1
kind: VirtualMCPServer
metadata: {name: edgetest}
spec:
  groupRef: {name: edgetest}
  incomingAuth: {type: anonymous}
  outgoingAuth: {source: inline}
  filterRefs: [{name: asks}]
  config:
    ` + strings.ReplaceAll(strings.TrimSpace(config), "\n", "\n    ") + "\n"
		file := write(t, filepath.Join(t.TempDir(), "hooks.yaml"), "validating:\n"+validating.entry("look", "fail")+"mutating:\n"+mutating.entry("change", "fail"))
		opened := source.OpenWith(write(t, filepath.Join(t.TempDir(), "weir.yaml"), manifest), file)
		if opened.Err() != nil {
			t.Fatal(opened.Findings)
		}
		e := edgetest.StartPlan(t, opened.Plan, engine())
		f := &front{Edge: e, client: e.NewClient()}
		if got := f.callerOf(t, era, "").tool(t, "1", "flow", `{"x":"hi"}`); !strings.Contains(got, `"said":"hi!"`) {
			t.Error(got)
		}
		if n := back.Count("tools/call"); n != 3 {
			t.Errorf("%d calls at the backend", n)
		}
		for _, h := range []*hook{mutating, validating} {
			calls := slices.DeleteFunc(h.methods(), func(method string) bool { return method != "tools/call" })
			if len(calls) != 2 {
				t.Errorf("told of %v", h.methods())
			}
		}
	})
}
