package edgetest_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/weir-edge/weir"

// rooms says which packages of the module a package may import, tests aside.
// A name that ends in /... stands for a package and all below it; what is not
// named may import nothing of the module.
var rooms = map[string][]string{
	"edge":                     {"edge/mcp"},
	"edge/mcp":                 {},
	"edge/turn":                {},
	"edge/near":                {},
	"edge/status":              {},
	"edge/settings":            {"edge", "edge/door", "edge/secret"},
	"edge/v1beta1":             {},
	"edge/authserver/upstream": {"edge", "edge/oauth", "edge/v1beta1"},
	"edge/authserver":          {"edge", "edge/mcp", "edge/oauth", "edge/v1beta1", "edge/authserver/upstream"},
	"edge/egress":              {"edge", "edge/mcp", "edge/v1beta1"},
	"edge/container":           {"edge/sandbox"},
	"edge/container/build":     {"edge", "edge/container", "edge/runner", "edge/sandbox"},
	"edge/image":               {"edge", "edge/v1beta1"},
	"edge/envfile":             {},
	"edge/compile":             {"edge", "edge/authserver", "edge/catalog", "edge/egress", "edge/kv", "edge/near", "edge/outgoing", "edge/runner", "edge/v1beta1", "filters/audit", "filters/authz", "filters/guest", "filters/headers", "filters/incoming", "filters/ratelimit", "filters/telemetry", "filters/webhook", "scripting/workflow"},
	"edge/source":              {"edge", "edge/compile", "edge/near", "edge/v1beta1", "filters/guest", "filters/webhook"},
	"edge/wire":                {"edge", "edge/mcp", "edge/turn"},
	"edge/backend":             {"edge", "edge/mcp", "edge/health", "edge/turn", "edge/wire"},
	"edge/catalog":             {"edge", "edge/mcp", "edge/v1beta1"},
	"edge/stdio":               {"edge", "edge/mcp"},
	"edge/checkup":             {"edge", "edge/mcp", "edge/backend", "edge/catalog", "edge/compile", "edge/composite", "edge/health", "edge/wire"},
	"edge/health":              {"edge", "edge/mcp"},
	"edge/kv":                  {"edge"},
	"edge/kv/kvtest":           {"edge", "edge/edgetest", "edge/edgetest/port"},
	"edge/oauth":               {"edge", "edge/mcp"},
	"edge/oauth/login":         {"edge", "edge/mcp", "edge/oauth"},
	"filters":                  {"edge", "edge/mcp"},
	"filters/authz":            {"edge", "edge/mcp", "edge/near", "edge/v1beta1", "edge/oauth"},
	"filters/incoming":         {"edge", "edge/mcp", "edge/v1beta1", "edge/oauth"},
	"edge/secret":              {"edge", "edge/v1beta1"},
	"edge/optimizer":           {"edge", "edge/mcp", "edge/v1beta1"},
	"edge/outgoing":            {"edge", "edge/mcp", "edge/v1beta1", "edge/oauth"},
	"filters/audit":            {"edge", "edge/mcp", "edge/v1beta1", "filters/audit/mask"},
	"filters/audit/mask":       {},
	"filters/guest":            {"edge", "edge/mcp", "edge/status", "edge/v1beta1", "edge/oauth", "edge/outgoing", "filters/guest/starlark", "sdk/abi", "wasm"},
	"filters/headers":          {"edge", "edge/mcp", "edge/v1beta1", "edge/outgoing"},
	"filters/telemetry":        {"edge", "edge/mcp", "edge/v1beta1", "filters/audit/mask"},
	"filters/webhook":          {"edge", "edge/mcp", "edge/v1beta1", "edge/oauth", "edge/outgoing"},
	"filters/ratelimit":        {"edge", "edge/mcp", "edge/v1beta1"},
	"wasm/...":                 {"edge", "edge/mcp", "sdk/abi", "wasm/..."},
	"scripting":                {"scripting/turns"},
	"scripting/turns":          {},
	"scripting/workflow":       {"edge/mcp", "edge/v1beta1", "scripting", "scripting/turns"},
	"edge/composite":           {"edge", "edge/mcp", "edge/catalog", "edge/progress", "scripting", "scripting/turns", "scripting/workflow"},
	"edge/progress":            {"edge", "edge/mcp"},
	"scripting/sandbox/...":    {"scripting", "scripting/sandbox/...", "scripting/turns", "wasm"},
	"examples/...":             {"sdk", "sdk/server"},
	"sdk":                      {"sdk/abi"},
	"sdk/abi":                  {},
	"sdk/server":               {"sdk/abi"},
	"sdk/examples/...":         {"sdk"},
	"sdk/weirtest":             {"sdk", "sdk/abi"},
	"edge/door":                {"edge", "edge/mcp", "edge/turn"},
	"edge/mount":               {"edge", "edge/door"},
	"edge/relay":               {"edge"},
	"edge/route":               {"edge", "edge/mcp", "edge/backend", "edge/catalog", "edge/relay"},
	"edge/session":             {"edge", "edge/mcp", "edge/backend", "edge/catalog", "edge/door", "edge/kv", "edge/relay"},
	"edge/serve":               {"edge", "edge/mcp", "edge/authserver", "edge/authserver/upstream", "edge/door", "edge/mount", "edge/relay", "edge/route", "edge/session", "edge/backend", "edge/catalog", "edge/codemode", "edge/compile", "edge/composite", "edge/health", "edge/kv", "edge/oauth", "edge/optimizer", "edge/outgoing", "edge/secret", "edge/settings", "edge/status", "edge/v1beta1", "filters", "filters/audit", "filters/authz", "filters/guest", "filters/headers", "filters/incoming", "filters/ratelimit", "filters/telemetry", "filters/webhook", "scripting", "scripting/sandbox", "scripting/turns", "scripting/workflow"},
	"edge/codemode":            {"edge", "edge/mcp", "edge/catalog", "edge/near", "edge/progress", "scripting", "scripting/sandbox"},
	"edge/demo":                {"edge/mcp"},
	"edge/runner":              {},
	"edge/registry":            {"edge", "edge/mcp", "edge/near", "edge/oauth", "edge/v1beta1"},
	"edge/workload":            {"edge", "edge/compile", "edge/egress", "edge/envfile", "edge/registry", "edge/runner", "edge/secret", "edge/source", "edge/v1beta1", "edge/workload/logs"},
	"edge/workload/logs":       {},
	"edge/sandbox":             {"edge/sandbox/link"},
	"edge/sandbox/link":        {},
	"edge/edgetest/...":        {"edge/...", "filters/...", "cmd/...", "wasm", "sdk/abi"},
	"cmd/...":                  {"edge/...", "filters/...", "cmd/...", "scripting/workflow", "wasm", "wasm/wasi", "sdk/..."},

	// The engine of filters in Starlark, beside that of modules.
	"filters/guest/starlark": {"scripting", "sdk/abi", "wasm/..."},
}

// doors says which packages may import a third-party module, or all of its
// packages below a path.
var doors = map[string][]string{
	"github.com/valyala/fasthttp":            {"edge/door", "edge/egress", "edge/mount", "edge/session", "edge/serve", "edge/edgetest/bench"},
	"github.com/knadh/koanf":                 {"cmd/..."},
	"github.com/spf13/cobra":                 {"cmd/..."},
	"github.com/spf13/pflag":                 {"cmd/..."},
	"github.com/modelcontextprotocol/go-sdk": {"edge/demo", "edge/edgetest/..."},
	"k8s.io/apimachinery":                    {"edge/v1beta1", "edge/compile", "edge/authserver/...", "edge/source", "edge/catalog", "edge/outgoing", "edge/workload", "filters/..."},
	"sigs.k8s.io/yaml":                       {"filters/authz", "edge/image", "edge/workload", "cmd/...", "edge/edgetest/..."},
	"go.yaml.in/yaml":                        {"edge/source", "edge/workload"},
	"github.com/google/jsonschema-go":        {"filters/guest"},
	"github.com/santhosh-tekuri/jsonschema":  {"scripting/workflow"},
	"golang.org/x/mod":                       {"edge/registry"},
	"github.com/go-json-experiment/json":     {"filters/authz"},
	"go.opentelemetry.io":                    {"filters/telemetry", "edge/edgetest/otlp"},
	"google.golang.org/grpc":                 {"filters/telemetry", "edge/edgetest/otlp"},
	"google.golang.org/protobuf":             {"edge/edgetest/otlp"},
	"github.com/prometheus":                  {"filters/telemetry"},
	"github.com/redis/go-redis":              {"edge/kv"},
	"github.com/dgraph-io/ristretto":         {"edge/kv"},
	"github.com/lestrrat-go/jwx":             {"edge/oauth"},
	"github.com/cedar-policy/cedar-go":       {"filters/authz"},
	"github.com/google/cel-go":               {"edge/outgoing"},
	"github.com/aws/aws-sdk-go-v2":           {"edge/edgetest/cloud"},
	"github.com/tetratelabs/wazero":          {"wasm/..."},
	"go.starlark.net":                        {"scripting/...", "filters/guest/starlark"},
	"github.com/zalando/go-keyring":          {"edge/secret"},
	"golang.org/x/crypto":                    {"edge/secret", "edge/edgetest/ociregistry"},
	"github.com/kljensen/snowball":           {"edge/optimizer"},
	"golang.org/x/text":                      {"edge/mcp", "edge/optimizer"},
	"golang.org/x/term":                      {"cmd/..."},
	"golang.org/x/sys":                       {"edge/container", "edge/door", "edge/edgetest/...", "edge/sandbox/...", "cmd/weir-inside", "wasm/..."},
	"github.com/containerd/errdefs":          {"edge/container"},
	"github.com/moby/moby":                   {"edge/container"},
	"github.com/fsnotify/fsnotify":           {"cmd/..."},
	"github.com/hashicorp/yamux":             {"edge/sandbox", "cmd/weir-inside"},
	"github.com/google/go-containerregistry": {"edge/image", "edge/edgetest/ociregistry", "edge/edgetest/signer"},
	"github.com/sigstore/protobuf-specs":     {"edge/image"},
	"github.com/sigstore/sigstore":           {"edge/image", "edge/edgetest/signer"},
	"github.com/sigstore/sigstore-go":        {"edge/image", "edge/edgetest/signer"},
	"github.com/theupdateframework/go-tuf":   {"edge/image", "edge/edgetest/signer"},
	"golang.org/x/net":                       {"edge/egress", "edge/edgetest/probe"},
	"github.com/pelletier/go-toml":           {"cmd/weir/apps"},
	"github.com/tailscale/hujson":            {"cmd/weir/apps"},
	"go.uber.org/goleak":                     {"edge/edgetest"},
}

type listed struct {
	ImportPath string
	Imports    []string
	Standard   bool
	Module     *struct{ Path string }
}

// TestImports holds every package to the packages that it may import.
func TestImports(t *testing.T) {
	for _, wrong := range violations(list(t)) {
		t.Error(wrong)
	}
}

// TestImportsNotices proves that the test above can fail.
func TestImportsNotices(t *testing.T) {
	cases := map[string]listed{
		"a room that reaches into another":   {ImportPath: module + "/edge/mcp", Imports: []string{module + "/edge/serve"}},
		"a door that is not its own":         {ImportPath: module + "/edge/source", Imports: []string{"github.com/valyala/fasthttp"}},
		"a module without a door":            {ImportPath: module + "/edge/serve", Imports: []string{"example.org/new/thing"}},
		"a package that is not in the table": {ImportPath: module + "/edge/attic", Imports: []string{module + "/edge"}},
	}
	for name, p := range cases {
		if len(violations([]listed{p})) != 1 {
			t.Errorf("%s was not noticed", name)
		}
	}
}

// nevers are packages that others must not reach, directly or through others: what runs
// workloads or an operator works without an edge, an authorization server is mounted on one
// and knows nothing of it, and scripts reach WebAssembly in their sandbox alone.
var nevers = []struct {
	from []string
	but  string // of those; "" for none
	to   string
}{
	{[]string{"edge/workload/...", "edge/container/...", "edge/operator/...", "cmd/weir-operator"}, "", "edge/serve"},
	{[]string{"edge/authserver/..."}, "", "edge/serve"},
	{[]string{"scripting/..."}, "scripting/sandbox/...", "wasm"},
}

// TestNevers holds every package to what it must not reach.
func TestNevers(t *testing.T) {
	for _, wrong := range reached(list(t)) {
		t.Error(wrong)
	}
	across := []listed{
		{ImportPath: module + "/edge/operator", Imports: []string{module + "/edge/tool"}},
		{ImportPath: module + "/edge/tool", Imports: []string{module + "/edge/serve"}},
		{ImportPath: module + "/edge/serve"},
		{ImportPath: module + "/scripting/sandbox", Imports: []string{module + "/wasm"}},
		{ImportPath: module + "/wasm"},
	}
	if got := reached(across); len(got) != 1 || !strings.Contains(got[0], "edge/operator") {
		t.Errorf("what is reached across another package: %q", got)
	}
}

// reached says which packages reach what they never must.
func reached(all []listed) (wrong []string) {
	imports := map[string][]string{}
	for _, p := range all {
		for _, i := range p.Imports {
			if name, ours := strings.CutPrefix(i, module+"/"); ours {
				imports[strings.TrimPrefix(p.ImportPath, module+"/")] = append(imports[strings.TrimPrefix(p.ImportPath, module+"/")], name)
			}
		}
	}
	var reaches func(from, to string, seen map[string]bool) bool
	reaches = func(from, to string, seen map[string]bool) bool {
		seen[from] = true
		return slices.ContainsFunc(imports[from], func(next string) bool { return covers(to, next) || !seen[next] && reaches(next, to, seen) })
	}
	for from := range imports {
		for _, n := range nevers {
			if slices.ContainsFunc(n.from, func(p string) bool { return covers(p, from) }) && (n.but == "" || !covers(n.but, from)) && reaches(from, n.to, map[string]bool{}) {
				wrong = append(wrong, from+" must never reach "+n.to)
			}
		}
	}
	return wrong
}

// TestDoorsAreUsed holds that nobody has a door through which nothing comes.
func TestDoorsAreUsed(t *testing.T) {
	all := list(t)
	for door, packages := range doors {
		for _, p := range packages {
			if !slices.ContainsFunc(all, func(one listed) bool {
				return covers(p, strings.TrimPrefix(one.ImportPath, module+"/")) && slices.ContainsFunc(one.Imports, func(i string) bool { return covers(door+"/...", i) })
			}) {
				t.Errorf("%s may import %s and does not", p, door)
			}
		}
	}
}

// TestDependenciesOfTests holds RATIONALE.md to what is imported: a module that
// it says is for tests only is, and any other has a door.
func TestDependenciesOfTests(t *testing.T) {
	text, err := os.ReadFile("../../RATIONALE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "## What is each dependency for?")
	named := regexp.MustCompile("`([a-z0-9.]+\\.[a-z]+/[^`]+)`")
	all, rows := list(t), 0
	for row := range strings.Lines(table) {
		cells := strings.Split(row, "|")
		if len(cells) < 4 || strings.Contains(cells[1], "(tool)") {
			continue
		}
		for _, m := range named.FindAllStringSubmatch(cells[1], -1) {
			rows++
			used := slices.ContainsFunc(all, func(p listed) bool {
				return !covers(module+"/edge/edgetest/...", p.ImportPath) && slices.ContainsFunc(p.Imports, func(i string) bool { return covers(m[1]+"/...", i) })
			})
			if tests := strings.Contains(cells[2], "tests only"); used == tests {
				t.Errorf("RATIONALE.md says that %s is for tests only: %v; imported by others: %v", m[1], tests, used)
			}
		}
	}
	if rows < 20 {
		t.Errorf("only %d modules were found in the table", rows)
	}
}

func list(t *testing.T) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,Standard,Module", "./...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var all []listed
	d := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func violations(all []listed) []string {
	var wrong []string
	for _, p := range all {
		from := strings.TrimPrefix(p.ImportPath, module+"/")
		for _, imported := range p.Imports {
			if to, ours := strings.CutPrefix(imported, module+"/"); ours {
				if !allowed(rooms, from, to) {
					wrong = append(wrong, from+" must not import "+to)
				}
				continue
			}
			if !strings.Contains(strings.SplitN(imported, "/", 2)[0], ".") {
				continue // the standard library
			}
			if !door(from, imported) {
				wrong = append(wrong, from+" must not import "+imported+": see doors")
			}
		}
	}
	slices.Sort(wrong)
	return wrong
}

func allowed(table map[string][]string, from, to string) bool {
	for name, targets := range table {
		if !covers(name, from) {
			continue
		}
		for _, target := range targets {
			if covers(target, to) {
				return true
			}
		}
	}
	return false
}

func door(from, imported string) bool {
	for prefix, packages := range doors {
		if imported != prefix && !strings.HasPrefix(imported, prefix+"/") {
			continue
		}
		return slices.ContainsFunc(packages, func(p string) bool { return covers(p, from) })
	}
	return false
}

func covers(pattern, path string) bool {
	if below, ok := strings.CutSuffix(pattern, "/..."); ok {
		return path == below || strings.HasPrefix(path, below+"/")
	}
	return pattern == path
}
