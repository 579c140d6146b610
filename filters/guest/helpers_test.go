package guest_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
)

// guests are the modules that all tests share, and their machine code.
var guests edgetest.Guests

func TestMain(m *testing.M) { guests.Main(m) }

// module builds testdata/guest with the Go toolchain, once, and caller the one
// that asks others, which takes grants.
var (
	module = sync.OnceValues(func() (string, error) { return guests.Build("guest", "./testdata/guest", "") })
	caller = sync.OnceValues(func() (string, error) { return guests.Build("caller", "./testdata/guest", "caller") })
)

func path(t testing.TB) string {
	t.Helper()
	p, err := module()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// filter is an EdgeFilter of the test module. Of a machine that does much else
// its calls may take their time, unless more says otherwise.
type filter struct {
	name   string
	rules  []string
	more   string // further YAML of its spec, in flow style
	limits string // further limits
	path   string // of another module
}

func (f filter) yaml(t testing.TB) string {
	p := f.path
	if p == "" {
		p = path(t)
	}
	limits := "timeout: 30s"
	if f.limits != "" {
		limits += ", " + f.limits
	}
	more := ""
	if f.more != "" {
		more = ", " + f.more
	}
	return fmt.Sprintf("---\napiVersion: weir.dev/v1beta1\nkind: EdgeFilter\nmetadata: {name: %s}\nspec: {type: wasm, source: {path: %q}, config: {rules: %q}, limits: {%s}%s}\n",
		f.name, p, strings.Join(f.rules, "\n"), limits, more)
}

// backs are the backends of an edge by name.
type backs map[string]*edgetest.Server

// manifest is the YAML of an edge before some backends with some filters. One
// backend that is called back is served as it is.
func manifest(t testing.TB, all backs, filters []filter, more ...string) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("apiVersion: weir.dev/v1beta1\nkind: MCPGroup\nmetadata: {name: g}\n")
	var names []string
	for _, f := range filters {
		b.WriteString(f.yaml(t))
		names = append(names, "{name: "+f.name+"}")
	}
	fmt.Fprintf(&b, `---
apiVersion: weir.dev/v1beta1
kind: VirtualMCPServer
metadata: {name: s}
spec:
  groupRef: {name: g}
  incomingAuth: {type: anonymous}
  outgoingAuth: {source: inline}
  filterRefs: [%s]
`, strings.Join(names, ", "))
	for _, line := range more {
		b.WriteString("  " + line + "\n")
	}
	b.WriteString("  config:\n")
	if all["back"] != nil {
		b.WriteString("    aggregation: {conflictResolution: priority, conflictResolutionConfig: {priorityOrder: [back]}}\n")
	}
	b.WriteString("    backends:\n")
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range all {
			if !yield(name) {
				return
			}
		}
	}) {
		fmt.Fprintf(&b, "    - {name: %s, url: %q, transport: streamable-http}\n", name, all[name].URL)
	}
	return b.String()
}

func start(t testing.TB, yaml string, options ...edgetest.Option) *edgetest.Edge {
	t.Helper()
	return edgetest.Start(t, yaml, append(options, edgetest.Settings(guests.Cached))...)
}

// client is a client of either era.
type client struct{ edgetest.Caller }

func newClient(e *edgetest.Edge, era edgetest.Era) client { return client{e.NewClient().As(era, "")} }

// try sends a request. It may be called from any goroutine.
func (c client) try(method, params string, header ...string) (*edgetest.Response, error) {
	body, head := c.Message("1", method, params)
	return c.Try("POST", "/mcp", body, append(head, header...)...)
}

func (c client) request(t testing.TB, method, params string, header ...string) *edgetest.Response {
	t.Helper()
	r, err := c.try(method, params, header...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (c client) call(t testing.TB, tool, arguments string, header ...string) *edgetest.Response {
	t.Helper()
	return c.request(t, "tools/call", edgetest.CallParams(tool, arguments), header...)
}

// text is what the first content of a result says.
func text(t testing.TB, r *edgetest.Response) string {
	t.Helper()
	result := r.Result()
	var out struct{ Content []struct{ Text string } }
	if err := json.Unmarshal([]byte(result), &out); err != nil || len(out.Content) == 0 {
		t.Fatalf("no content: %v: %s", err, result)
	}
	return out.Content[0].Text
}

// fails checks that an answer is an error.
func fails(t testing.TB, r *edgetest.Response, status, code int, want string) {
	t.Helper()
	m := r.Message()
	if r.Status != status || m.Error == nil || m.Error.Code != code || !strings.Contains(m.Error.Message, want) {
		t.Errorf("status %d: %s; want %d with code %d and %q", r.Status, r.Body, status, code, want)
	}
}

// offers has a fake server list these tools, with a schema of some properties.
func offers(s *edgetest.Server, tools ...string) {
	var all []string
	for _, name := range tools {
		all = append(all, fmt.Sprintf(`{"name":%q,"description":"of %s","inputSchema":{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}},"required":["a","b"]}}`, name, name))
	}
	s.Tools = "[" + strings.Join(all, ",") + "]"
}
