package serve_test

import (
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
)

// TestStructuredOfAnyType: a step and a script see the structured content that a modern
// backend sent, whatever it is and whatever the era of their client; an answer to the client
// itself has it only where the era allows it (2025-06-18, schema; 2026-07-28, schema).
func TestStructuredOfAnyType(t *testing.T) {
	for _, sent := range []string{`[1,"two",{"three":3}]`, `"text"`, `17`, `null`, `{"a":[1]}`} {
		for _, client := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
			t.Run(sent+", "+client.String()+" client", func(t *testing.T) {
				t.Parallel()
				f := composedWith(t, edgetest.Modern, []string{`compositeTools:
- name: flow
  steps: [{id: a, tool: back.echo}]
  output: {properties: {said: {type: string, value: "{{json .steps.a.output}}"}}}
- name: hand
  script: |
    r = call_tool("back.echo")
    return {"value": r, "whole": call_tool_result("back.echo")["structuredContent"]}
- name: each
  steps:
  - {id: a, tool: back.echo}
  - {id: b, type: forEach, collection: "{{json .steps.a.output}}", step: {tool: back.fail, arguments: {n: "{{.forEach.item}}"}, onError: {action: continue}}, dependsOn: [a]}`, codeMode()}, engine())
				results(f.back, map[string]string{"*": `{"content":[{"type":"text","text":"other words"}],"structuredContent":` + sent + `}`, "fail": `{"content":[]}`})
				c := f.callerOf(t, client, "")
				said := edgetest.Member(c.tool(t, "1", "flow", "{}"), "structuredContent", "said")
				if want := string(quote(sent)); said != want {
					t.Errorf("a step got %s, want %s", said, want)
				}
				want := `{"value":` + sent + `,"whole":` + sent + `}`
				if got := edgetest.Member(c.tool(t, "2", "hand", "{}"), "structuredContent"); got != want {
					t.Errorf("a program got %s, want %s", got, want)
				}
				if out := c.script(t, `return {"value": echo(), "whole": call_tool_result("echo")["structuredContent"]}`, ""); string(out.Result) != want {
					t.Errorf("a script got %s, want %s", out.Raw, want)
				}
				if got := c.tool(t, "4", "each", "{}"); strings.HasPrefix(sent, "[") && edgetest.Member(got, "structuredContent", "completed") != "3" {
					t.Errorf("the items: %s", got)
				}
				own := edgetest.Member(c.tool(t, "3", "echo", "{}"), "structuredContent")
				if client == edgetest.Legacy && !strings.HasPrefix(sent, "{") {
					if own != "" {
						t.Errorf("a legacy client got %s", own)
					}
				} else if own != sent {
					t.Errorf("the client got %s, want %s", own, sent)
				}
			})
		}
	}
}

// TestErrorsOfModernBackends: a script sees the code of a modern backend's error, whatever
// the era of its client, which itself gets one of its own era.
func TestErrorsOfModernBackends(t *testing.T) {
	for _, client := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		t.Run(client.String(), func(t *testing.T) {
			t.Parallel()
			f := composedWith(t, edgetest.Modern, []string{codeMode()}, engine())
			f.back.Always("tools/call", func(c *edgetest.Call) { c.Error(400, -32021, "needs elicitation") })
			c := f.callerOf(t, client, "")
			if out := c.script(t, `return attempt(lambda: echo())["error"]["message"]`, ""); !strings.Contains(string(out.Result), "asks the user, which a script cannot: call it directly") {
				t.Error(out.Raw)
			}
			code := map[edgetest.Era]int{edgetest.Legacy: -32600, edgetest.Modern: -32021}[client]
			status := map[edgetest.Era]int{edgetest.Legacy: 200, edgetest.Modern: 400}[client]
			fails(t, c.call(t, "2", "{}"), status, code, "2")
		})
	}
}
