package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
)

// guests are the modules, and their machine code.
var guests edgetest.Guests

func TestMain(m *testing.M) { guests.Main(m) }

// builds are the modules by the directory of their sources.
var builds = map[string]func() (string, error){
	"guardrail":      sync.OnceValues(func() (string, error) { return guests.Build("guardrail", "../guardrail", "") }),
	"definition-pin": sync.OnceValues(func() (string, error) { return guests.Build("definition-pin", "../definition-pin", "") }),
}

// servers are backends by name.
type servers map[string]*edgetest.Server

// start starts an edge before backends with a guest of a configuration.
func start(t *testing.T, guest, config string, backs servers) *edgetest.Edge {
	t.Helper()
	module, err := builds[guest]()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `apiVersion: weir.dev/v1beta1
kind: EdgeFilter
metadata: {name: f}
spec: {type: wasm, source: {path: %q}, config: %s, limits: {timeout: 30s, fuel: 50000000000}, grants: %s}
---
apiVersion: weir.dev/v1beta1
kind: MCPGroup
metadata: {name: g}
---
apiVersion: weir.dev/v1beta1
kind: VirtualMCPServer
metadata: {name: s}
spec:
  groupRef: {name: g}
  incomingAuth: {type: anonymous}
  outgoingAuth: {source: inline}
  filterRefs: [{name: f}]
  config:
    backends:
`, module, config, map[bool]string{true: "{metrics: true}", false: "{kv: true, metrics: true}"}[guest == "definition-pin"])
	var names []string
	for name := range backs {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(&b, "    - {name: %s, url: %q, transport: streamable-http}\n", name, backs[name].URL)
	}
	return edgetest.Start(t, b.String(), edgetest.Settings(guests.Cached))
}

// tool is JSON text of a tool with further members.
func tool(name string, more ...string) string {
	return fmt.Sprintf(`{"name":%s,"inputSchema":{"type":"object"}%s}`, quoted(name), strings.Join(append([]string{""}, more...), ","))
}

// offers is a fake server with tools.
func offers(t *testing.T, era edgetest.Era, tools ...string) *edgetest.Server {
	return edgetest.NewServer(t, era, func(s *edgetest.Server) { s.Tools = "[" + strings.Join(tools, ",") + "]" })
}

// answers has a server answer calls with members of a result.
func answers(s *edgetest.Server, members string) {
	if s.Era == edgetest.Modern {
		members = `"resultType":"complete",` + members
	}
	s.Always("tools/call", func(c *edgetest.Call) { c.Result("{" + members + "}") })
}

// said waits for a text in the edge's log.
func said(t *testing.T, e *edgetest.Edge, text string) {
	t.Helper()
	edgetest.Until(t, text, func() bool { return strings.Contains(e.Log(), text) })
}
