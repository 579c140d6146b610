package serve_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
)

// TestC10WorkflowCalls: every call of a workflow is judged with its caller's identity and the
// arguments of that moment: in a step, an item, an attempt, a call of a script.
func TestC10WorkflowCalls(t *testing.T) {
	const yaml = `compositeTools:
- name: plain
  steps: [{id: a, tool: back.guarded, arguments: {text: x}}]
- name: retried
  steps: [{id: a, tool: back.guarded, arguments: {text: x}, onError: {action: retry, retryCount: 3, retryDelay: 1ms}}]
- name: items
  steps: [{id: a, type: forEach, collection: "[1,2,3]", step: {tool: back.guarded, arguments: {text: "{{.forEach.item}}"}}}]
- name: lenient
  steps: [{id: a, type: forEach, collection: "[1,2,3]", step: {tool: back.guarded, arguments: {text: "{{.forEach.item}}"}, onError: {action: continue}}}]
- name: script
  script: return call_tool("back.guarded", text="x")
- name: caught
  script: |
    return attempt(lambda: call_tool("back.guarded", text="x"))["error"]["message"]
- name: advertised
  steps: [{id: a, tool: guarded, arguments: {text: x}}]`
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			m := newMint(t)
			back := edgetest.NewServer(t, edgetest.Legacy)
			offersTools(back, tool{"echo", "", nil, 0}, tool{"guarded", "", []string{"text"}, 0})
			results(back, echoes)
			manifest := asPeople(m, edgetest.Manifest(back, yaml))
			manifest = strings.Replace(manifest, "incomingAuth: {type: oidc,", `incomingAuth: {type: oidc, authz: {type: policy, policies: ['permit(principal, action, resource) unless { resource == Tool::"guarded" && principal != Client::"bob" };']},`, 1)
			e := edgetest.Start(t, manifest)
			f := &front{Edge: e, back: back, client: e.NewClient()}
			alice, bob := f.person(t, m, era, "alice", ""), f.person(t, m, era, "bob", "")
			for name, want := range map[string]string{
				"plain":      `step \"a\": tool \"back.guarded\": denied by authorization policy`,
				"retried":    `step \"a\": tool \"back.guarded\": denied by authorization policy`,
				"items":      `step \"a\": item `,
				"lenient":    `"failed":3`,
				"script":     `tool \"back.guarded\": denied by authorization policy`,
				"caught":     `{"result":"tool \"back.guarded\": denied by authorization policy"}`,
				"advertised": `step \"a\": tool \"guarded\": denied by authorization policy`,
			} {
				if got := alice.tool(t, "1", name, "{}"); !strings.Contains(got, want) {
					t.Errorf("%s: %s", name, got)
				}
			}
			if n := f.back.Count("tools/call"); n != 0 {
				t.Errorf("%d calls of a tool that is denied", n)
			}
			if got := bob.tool(t, "2", "plain", "{}"); !strings.Contains(got, `"structuredContent":{"text":"x"}`) {
				t.Error(got)
			}
		})
	}
}

// TestR09WorkflowCalls: a call of a workflow takes a token of its tool, whatever makes it: a
// step, an item, an attempt after the first, a call of a script; one that is refused takes
// none.
func TestR09WorkflowCalls(t *testing.T) {
	composites := `compositeTools:
- name: steps
  steps: [` + func() string {
		var all []string
		for i := range 5 {
			all = append(all, fmt.Sprintf(`{id: s%d, tool: back.echo, arguments: {text: x}, onError: {action: continue}}`, i))
		}
		return strings.Join(all, ", ")
	}() + `]
- name: items
  steps: [{id: a, type: forEach, collection: "[1,2,3,4,5]", step: {tool: back.echo, arguments: {text: x}, onError: {action: continue}}}]
- name: attempts
  steps: [{id: a, tool: back.echo, arguments: {text: fail}, onError: {action: retry, retryCount: 4, retryDelay: 1ms}, timeout: 2s}]
- name: script
  script: |
    return len([r for r in parallel([lambda: attempt(lambda: call_tool("back.echo", text="x"))] * 5) if r["ok"]])
- name: other
  steps: [{id: a, tool: echo, arguments: {text: x}}]`
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		for _, name := range []string{"steps", "items", "attempts", "script"} {
			t.Run(name+" "+era.String(), func(t *testing.T) {
				t.Parallel()
				back := edgetest.NewServer(t, edgetest.Legacy)
				offersTools(back, tool{"echo", "", []string{"text"}, 0})
				back.Always("tools/call", func(c *edgetest.Call) {
					if strings.Contains(string(c.Message.Params), `"fail"`) {
						c.Result(`{"isError":true,"content":[{"type":"text","text":"boom"}]}`)
						return
					}
					c.Result(`{"content":[],"structuredContent":{"text":"x"}}`)
				})
				e := edgetest.Start(t, edgetest.Manifest(back, composites, "rateLimiting: {tools: [{name: echo, shared: "+bucket(3)+"}]}"), local)
				f := &front{Edge: e, back: back, client: e.NewClient()}
				c := f.callerOf(t, era, "")
				got := c.tool(t, "1", name, "{}")
				if n := f.back.Count("tools/call"); n != 3 {
					t.Errorf("%d calls: %s", n, got)
				}
				if name == "script" && !strings.Contains(got, `{"result":3}`) || name == "items" && !strings.Contains(got, `"completed":3,"failed":2`) || name == "attempts" && !strings.Contains(got, `"isError":true`) {
					t.Error(got)
				}
				// Nothing is left for anybody, by whatever name.
				if got := c.tool(t, "2", "other", "{}"); !strings.Contains(got, `tool \"echo\": rate limit exceeded, retry after `) {
					t.Error(got)
				}
				if r := c.call(t, "3", "{}"); r.Status != 429 {
					t.Errorf("%d %s", r.Status, r.Answer())
				}
				// The composite itself has no limit.
				if got := c.tool(t, "4", name, "{}"); got == "" {
					t.Error("nothing")
				}
			})
		}
	}
}

// TestX38ToolsThatGo: a tool that is gone when a step calls it fails the step by its name, and
// nothing after it runs; no other tool is called in its place.
func TestX38ToolsThatGo(t *testing.T) {
	cellsOf(t, func(t *testing.T, client, back edgetest.Era) {
		f := composed(t, back, `compositeTools:
- name: flow
  steps:
  - {id: a, tool: back.echo, arguments: {text: a}}
  - {id: b, tool: back.hidden, dependsOn: [a], arguments: {text: b}}
  - {id: c, tool: back.echo, dependsOn: [b], arguments: {text: c}}`)
		c := f.callerOf(t, client, "")
		if got := c.tool(t, "1", "flow", "{}"); !strings.Contains(got, `"structuredContent":{"text":"c"}`) {
			t.Fatal(got)
		}
		before := f.back.Count("tools/call")
		// Between two steps: the backend answers as one that does not have it any longer.
		f.back.Always("tools/call", func(c *edgetest.Call) {
			if strings.Contains(string(c.Message.Params), `"hidden"`) {
				c.Error(200, -32602, "Unknown tool: hidden")
				return
			}
			result := `{"content":[],"structuredContent":{"text":"x"}}`
			if back == edgetest.Modern {
				result = `{"resultType":"complete",` + result[1:]
			}
			c.Result(result)
		})
		got := c.tool(t, "2", "flow", "{}")
		if !strings.Contains(got, `step \"b\": tool \"back.hidden\": Unknown tool: hidden`) || !strings.Contains(got, `"completed":["a"]`) {
			t.Error(got)
		}
		if n := f.back.Count("tools/call") - before; n != 2 {
			t.Errorf("%d calls", n)
		}
	})
}

// TestX42Conflicts: what has the name of a backend's tool, of a tool of the edge's own or of
// another composite is withheld or refused, and a composite reaches no composite.
func TestX42Conflicts(t *testing.T) {
	t.Parallel()
	f := composed(t, edgetest.Legacy, `compositeTools:
- name: one
  steps: [{id: a, tool: two}]
- name: two
  steps: [{id: a, tool: back.echo, arguments: {text: x}}]
- name: three
  script: return call_tool("two")
- name: itself
  steps: [{id: a, tool: itself}]`)
	c := f.callerOf(t, edgetest.Legacy, "")
	for name, tool := range map[string]string{"one": "two", "three": "two", "itself": "itself"} {
		if got := c.tool(t, "1", name, "{}"); !strings.Contains(got, fmt.Sprintf(`tool \"%s\": not found`, tool)) {
			t.Errorf("%s: %s", name, got)
		}
	}
	if n := f.back.Count("tools/call"); n != 0 {
		t.Errorf("%d calls", n)
	}
	// The status says it once the lists of the backends are there.
	status, last := "", time.Now().Add(10*time.Second)
	for !strings.Contains(status, `calls itself`) && time.Now().Before(last) {
		status = string(f.client.Do("GET", "/status", "").Body)
	}
	for _, want := range []string{`one: step \"a\" calls two`, `itself: step \"a\" calls itself`} {
		if !strings.Contains(status, want) {
			t.Errorf("%s is not in the status", want)
		}
	}
	if !json.Valid([]byte(status)) {
		t.Error("the status is no JSON")
	}
}
