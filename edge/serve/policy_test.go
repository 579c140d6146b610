package serve_test

import (
	"fmt"
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
