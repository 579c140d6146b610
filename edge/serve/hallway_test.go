package serve_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/source"
	"github.com/weir-edge/weir/filters"
)

// noDeletion is the manifest of a filter that denies calls of deleting tools, from the
// examples of filters/guest.
const noDeletion = `apiVersion: weir.dev/v1beta1
kind: EdgeFilter
metadata: {name: no-deletion}
spec:
  type: wasm
  source:
    inline: AGFzbQEAAAABDwNgAAF/YAF/AX9gAX8BfgMFBAABAgIEBQFwAQEBBQMBAAIGCAF/AUHgkAQLB0MFBm1lbW9yeQIACHdlaXJfYWJpAAAId2Vpcl9idWYAAQl3ZWlyX2luaXQAAhR3ZWlyX29uX2NhbGxfcmVxdWVzdAADCoUBBAYAQYCABAsSAEGgiICAAEEAIABBgYAESBsLRQBBAEEAKACPiICAADYAr4iEgABBAEEAKQOIiICAADcDqIiEgABBAEEAKQOAiICAADcDoIiEgABBoIiEgACtQiCGQhOECyMAQQBCioyooqDEgLfvADcDoIiEgABBoIiEgACtQiCGQgiECwsbAQBBgAgLFAoRCg9vbl9jYWxsX3JlcXVlc3QA
---
`

// TestHallwayIsItsList: a server that asks for everything walks every place of the list,
// each once and in its order, and a plain one walks none.
func TestHallwayIsItsList(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Legacy)
	hook := newHook(t, says(200, hookAllows))
	_, observed := audited(t)
	config := strings.Replace(edgetest.Manifest(back, observed, "rateLimiting: {shared: "+bucket(100)+"}", "passthroughHeaders: [x-tenant]"), "incomingAuth: {type: anonymous}\n", "", 1)
	manifest := noDeletion + fmt.Sprintf(`apiVersion: weir.dev/v1beta1
kind: MCPGroup
metadata: {name: edgetest}
---
apiVersion: weir.dev/v1beta1
kind: VirtualMCPServer
metadata: {name: edgetest}
spec:
  groupRef: {name: edgetest}
  incomingAuth: {type: anonymous, authzConfig: {type: inline, inline: {policies: ["permit(principal, action, resource);"]}}}
  outgoingAuth: {source: inline}
  filterRefs: [{name: no-deletion}]
  config:
    %s
`, strings.ReplaceAll(strings.TrimSpace(config), "\n", "\n    "))
	dir := t.TempDir()
	hooks := write(t, filepath.Join(dir, "hooks.yaml"), "validating:\n"+hook.entry("look", "fail")+"mutating:\n"+hook.entry("change", "fail"))
	opened := source.Open(write(t, filepath.Join(dir, "weir.yaml"), manifest), source.Webhooks(hooks), source.LocalRateLimits(true))
	if opened.Err() != nil {
		t.Fatal(opened.Findings)
	}
	all := edgetest.StartPlan(t, opened.Plan, local)
	if got := all.Serve.Hallway(); !slices.Equal(got, filters.Order()) {
		t.Errorf("it walks %v, and the list is %v", got, filters.Order())
	}
	if got := edgetest.Start(t, edgetest.Manifest(back)).Serve.Hallway(); len(got) != 0 {
		t.Errorf("a plain server walks %v", got)
	}
}
