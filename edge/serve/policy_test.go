package serve_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
)

// TestPolicies has a policy decide over calls and lists, for clients of both
// eras, before one backend whose names stay as they are and before several.
func TestPolicies(t *testing.T) {
	const rules = `incomingAuth:
  type: anonymous
  authz:
    type: policy
    policies:
    - permit(principal, action == Action::"call_tool", resource == Tool::"%s");
`
	for _, several := range []bool{false, true} {
		t.Run(fmt.Sprintf("several backends %v", several), func(t *testing.T) {
			t.Parallel()
			back, other := edgetest.NewServer(t, edgetest.Legacy), edgetest.NewServer(t, edgetest.Modern)
			offers(back, "echo", "danger")
			offers(other, "echo")
			name, yaml := "echo", edgetest.Manifest(back)
			if several {
				name, yaml = "a_echo", group(map[string]*edgetest.Server{"a": back, "b": other}, bestEffort)
			}
			e := edgetest.Start(t, strings.Replace(yaml, "incomingAuth: {type: anonymous}\n", fmt.Sprintf(rules, name), 1))
			f := &front{Edge: e, client: e.NewClient()}
			for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
				c := f.callerOf(t, era, "")
				if got := strings.Join(listed(t, c), " "); got != name {
					t.Errorf("%s: tools: %s", era, got)
				}
				if r := c.request(t, "1", "tools/call", edgetest.CallParams(name, "{}")); r.Status != 200 {
					t.Errorf("%s: status %d: %s", era, r.Status, r.Body)
				}
				// What is denied and what is not there look the same.
				for _, denied := range []string{strings.Replace(name, "echo", "danger", 1), "nothing"} {
					r := c.request(t, "2", "tools/call", edgetest.CallParams(denied, "{}"))
					fails(t, r, 403, 403, "2")
					if !strings.Contains(string(r.Body), "denied by authorization policy") {
						t.Errorf("%s: %s", denied, r.Body)
					}
				}
			}
			for _, r := range back.Requests("tools/call") {
				if strings.Contains(string(r.Message.Params), "danger") {
					t.Error("the backend saw what was denied")
				}
			}
		})
	}
}

// TestJudgedResultsArePrivate has no result say that it is everybody's where policies or webhooks may
// treat clients differently; without them it says what its backend says.
func TestJudgedResultsArePrivate(t *testing.T) {
	const policies = `incomingAuth:
  type: anonymous
  authz:
    type: policy
    policies:
    - permit(principal, action, resource);
`
	for _, several := range []bool{false, true} {
		for _, judge := range []string{"nobody", "policies", "webhook"} {
			t.Run(fmt.Sprintf("%s, several backends %v", judge, several), func(t *testing.T) {
				t.Parallel()
				backs := map[string]*edgetest.Server{"a": edgetest.NewServer(t, edgetest.Modern), "b": edgetest.NewServer(t, edgetest.Modern)}
				const public = `{"resultType":"complete","ttlMs":60000,"cacheScope":"public",`
				for _, s := range backs {
					s.Always("tools/list", func(c *edgetest.Call) { c.Result(public + `"tools":[]}`) })
					s.Always("resources/list", func(c *edgetest.Call) { c.Result(public + `"resources":[{"uri":"r://x","name":"x"}]}`) })
					s.Always("resources/read", func(c *edgetest.Call) { c.Result(public + `"contents":[{"uri":"r://x","text":"x"}]}`) })
				}
				yaml, want := edgetest.Manifest(backs["a"]), "private"
				if several {
					yaml = group(backs)
				}
				var hooks []string
				switch judge {
				case "nobody":
					want = "public"
				case "policies":
					yaml = strings.Replace(yaml, "incomingAuth: {type: anonymous}\n", policies, 1)
				case "webhook":
					hooks = append(hooks, write(t, filepath.Join(t.TempDir(), "hooks.yaml"), "validating:\n"+newHook(t, says(200, hookAllows)).entry("look", "fail")))
				}
				f, _ := hooked(t, yaml, hooks...)
				c := f.callerOf(t, edgetest.Modern, "")
				for method, params := range map[string]string{"tools/list": "", "resources/list": "", "resources/read": `{"uri":"r://x"}`} {
					if out := c.request(t, "1", method, params).Result(); !strings.Contains(out, `"cacheScope":"`+want+`"`) {
						t.Errorf("%s: %s, want %s", method, out, want)
					}
				}
			})
		}
	}
}

// TestS35 sends backends the headers that are configured, once, and of the
// client's those alone that are allowed (rows S35 and S36).
func TestS35(t *testing.T) {
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			back := edgetest.NewServer(t, era)
			e := edgetest.Start(t, fmt.Sprintf(`apiVersion: weir.dev/v1beta1
kind: MCPGroup
metadata: {name: g}
---
apiVersion: weir.dev/v1beta1
kind: MCPServerEntry
metadata: {name: back}
spec:
  groupRef: {name: g}
  remoteUrl: %q
  transport: streamable-http
  allowPrivateEndpoint: true
  headerForward: {addPlaintextHeaders: {X-Api-Key: ours}}
---
apiVersion: weir.dev/v1beta1
kind: VirtualMCPServer
metadata: {name: s}
spec:
  groupRef: {name: g}
  incomingAuth: {type: anonymous}
  passthroughHeaders: [X-Trace, x-api-key]
  config: {aggregation: {conflictResolution: priority}}
`, back.URL))
			f := &front{Edge: e, back: back, client: e.NewClient()}
			c := f.callerOf(t, edgetest.Modern, "")
			body, head := c.message("1", "tools/call", edgetest.CallParams("echo", "{}"))
			head = append(head, "X-Api-Key", "evil", "X-Trace", "t1", "X-Other", "no", "Cookie", "a=b", "Authorization", "Bearer mine")
			if r := c.Post(body, head...); r.Status != 200 {
				t.Fatalf("status %d: %s", r.Status, r.Body)
			}
			got := back.Requests("tools/call")[0].Header
			if v := got.Values("X-Api-Key"); len(v) != 1 || v[0] != "ours" {
				t.Errorf("X-Api-Key: %q", v)
			}
			if v := got.Values("X-Trace"); len(v) != 1 || v[0] != "t1" {
				t.Errorf("X-Trace: %q", v)
			}
			for _, name := range []string{"X-Other", "Cookie", "Authorization"} {
				if got.Get(name) != "" {
					t.Errorf("the backend got %s", name)
				}
			}
			for _, r := range back.Requests("") {
				if r.Header.Get("X-Api-Key") != "ours" {
					t.Errorf("%s went out without what is configured", r.Kind)
				}
			}
		})
	}
}

// TestPrivateEndpoint keeps the edge from private addresses that nobody said
// were meant.
func TestPrivateEndpoint(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Modern)
	e := edgetest.Start(t, fmt.Sprintf(`apiVersion: weir.dev/v1beta1
kind: MCPGroup
metadata: {name: g}
---
apiVersion: weir.dev/v1beta1
kind: MCPServerEntry
metadata: {name: back}
spec: {groupRef: {name: g}, remoteUrl: %q, transport: streamable-http}
---
apiVersion: weir.dev/v1beta1
kind: VirtualMCPServer
metadata: {name: s}
spec:
  groupRef: {name: g}
  incomingAuth: {type: anonymous}
  config: {aggregation: {conflictResolution: priority}}
`, back.URL))
	f := &front{Edge: e, back: back, client: e.NewClient()}
	if r := f.callerOf(t, edgetest.Modern, "").call(t, "1", "{}"); r.Status != 502 {
		t.Errorf("status %d: %s", r.Status, r.Body)
	}
	if back.Count("") != 0 {
		t.Error("it was dialled")
	}
	edgetest.Until(t, "the reason", func() bool {
		return strings.Contains(string(f.client.Do("GET", "/status", "").Body), "allowPrivateEndpoint")
	})
}
