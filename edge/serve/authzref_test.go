package serve_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
)

// TestPoliciesOfAnObject has two servers of one process share an MCPAuthzConfig,
// and a third go without: each asks what it refers to, and nothing else.
func TestPoliciesOfAnObject(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Modern)
	offers(back, "echo", "danger")
	server := func(name, auth string) string {
		return strings.Replace(edgetest.Object(name, back), "incomingAuth: {type: anonymous}", "incomingAuth: {type: anonymous"+auth+"}", 1)
	}
	e := edgetest.Start(t, server("a", ", authzConfigRef: {name: shared}")+server("b", ", authzConfigRef: {name: shared}")+server("c", "")+`---
apiVersion: weir.dev/v1beta1
kind: MCPAuthzConfig
metadata: {name: shared}
spec:
  type: policyv1
  config:
    policies:
      - permit(principal, action == Action::"call_tool", resource == Tool::"echo");
`)
	client := e.NewClient()
	for _, name := range []string{"a", "b", "c"} {
		for _, tool := range []string{"echo", "danger"} {
			body, head := edgetest.ModernRequest("1", "tools/call", edgetest.CallParams(tool, "{}"), edgetest.Meta())
			want := 200
			if tool == "danger" && name != "c" {
				want = 403
			}
			if r := client.Do("POST", fmt.Sprintf("/servers/%s/mcp", name), body, append(head, "Content-Type", "application/json", "Accept", "application/json, text/event-stream")...); r.Status != want {
				t.Errorf("%s at %s: status %d: %s", tool, name, r.Status, r.Body)
			}
		}
	}
}
