package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
	"github.com/weir-edge/weir/wasm"
)

// place holds the modules, and their machine code.
var place string

func TestMain(m *testing.M) {
	var err error
	if place, err = os.MkdirTemp("", "weir-guardrail"); err != nil {
		panic(err)
	}
	edgetest.Main(m, func() { os.RemoveAll(place) })
}

// builds are the modules by the directory of their sources.
var builds = map[string]func() (string, error){
	"guardrail":      sync.OnceValues(func() (string, error) { return build("guardrail") }),
	"definition-pin": sync.OnceValues(func() (string, error) { return build("definition-pin") }),
}

func build(name string) (string, error) {
	out := filepath.Join(place, name+".wasm")
	cmd := exec.Command("go", "build", "-buildmode=c-shared", "-ldflags=-s -w", "-o", out, "../"+name)
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0", "GOFLAGS=")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, text)
	}
	binary, err := os.ReadFile(out)
	if err != nil {
		return "", err
	}
	c, err := wasm.NewCompiler(wasm.Compilation{Dir: filepath.Join(place, "cache", "code"), Timeout: 10 * time.Minute}) // the race detector is slow
	if err != nil {
		return "", err
	}
	defer c.Close()
	m, err := c.Compile(context.Background(), binary, "")
	if err == nil {
		m.Close()
	}
	return out, err
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
	return edgetest.Start(t, b.String(), edgetest.Settings(func(s *serve.Settings) { s.FilterCache = filepath.Join(place, "cache") }))
}

// eras runs a test for clients and a backend of each era.
func eras(t *testing.T, test func(t *testing.T, client, back edgetest.Era)) {
	for _, c := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		for _, b := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
			t.Run(c.String()+" client, "+b.String()+" backend", func(t *testing.T) {
				t.Parallel()
				test(t, c, b)
			})
		}
	}
}

type client struct {
	*edgetest.Client
	session *edgetest.Session // nil for a modern one
}

func as(e *edgetest.Edge, era edgetest.Era) client {
	c := client{Client: e.NewClient()}
	if era == edgetest.Legacy {
		c.session = c.Initialize("")
	}
	return c
}

func (c client) request(t *testing.T, method, params string) *edgetest.Response {
	t.Helper()
	var r *edgetest.Response
	var err error
	if c.session != nil {
		text := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q`, method)
		if params != "" {
			text += `,"params":` + params
		}
		r, err = c.session.TrySend(text + "}")
	} else {
		body, head := edgetest.ModernRequest("1", method, params, edgetest.Meta())
		r, err = c.Try("POST", "/mcp", body, head...)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (c client) call(t *testing.T, tool string) *edgetest.Response {
	t.Helper()
	return c.request(t, "tools/call", edgetest.CallParams(tool, "{}"))
}

// listed returns what a client sees of a kind, JSON texts by name.
func (c client) listed(t *testing.T, kind string) map[string]string {
	t.Helper()
	var list []json.RawMessage
	text := c.request(t, kind+"/list", "").Result()
	if err := json.Unmarshal([]byte(edgetest.Member(text, kind)), &list); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	all := map[string]string{}
	for _, one := range list {
		var name string
		if err := json.Unmarshal([]byte(edgetest.Member(string(one), "name")), &name); err != nil {
			t.Fatal(err)
		}
		all[name] = string(one)
	}
	return all
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
