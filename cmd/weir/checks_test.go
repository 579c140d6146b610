package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/sdk/abi"
)

// ran runs a command line in this process.
func ran(environ []string, args ...string) (out, said string, code int) {
	var stdout, stderr bytes.Buffer
	a := &app{in: strings.NewReader(""), out: &stdout, err: &stderr, environ: environ, exit: func(int) {}}
	code = a.run(args)
	return stdout.String(), stderr.String(), code
}

// filtered is the manifest of a server with one filter, of which spec is more.
func filtered(spec string) string {
	return `apiVersion: weir.dev/v1beta1
kind: MCPGroup
metadata: {name: g}
---
apiVersion: weir.dev/v1beta1
kind: EdgeFilter
metadata: {name: f}
spec:
  type: wasm
` + spec + `
---
apiVersion: weir.dev/v1beta1
kind: VirtualMCPServer
metadata: {name: main}
spec:
  groupRef: {name: g}
  incomingAuth: {type: anonymous}
  outgoingAuth: {source: inline}
  filterRefs: [{name: f}]
  config:
    backends: [{name: a, url: "http://127.0.0.1:1/mcp", transport: streamable-http}]
`
}

// TestZ31 wants what keeps a filter from being served to be said in the same
// words, with the same file and line, by validate, doctor and serve.
func TestZ31(t *testing.T) {
	t.Chdir(t.TempDir())
	schema := `{"name":"f","version":"1","configSchema":{"type":"object","required":["group"],"properties":{"group":{"type":"string"}},"additionalProperties":false}}`
	plain := string(edgetest.Module{}.Bytes())
	sum := sha256.Sum256([]byte(plain))
	written(t, map[string]string{"plain.wasm": plain, "random.wasm": string(edgetest.Module{Random: true}.Bytes()), "schema.wasm": string(edgetest.Module{Manifest: schema}.Bytes()), "empty.wasm": "", "text.wasm": "hello"})
	for _, c := range []struct{ name, spec, want string }{
		{"a missing grant", "  source: {path: random.wasm}\n  grants: {kv: true}",
			`weir.yaml:11: EdgeFilter/f: spec.grants: the module calls weir_v1.random: grant random, or use another module`},
		{"a configuration against the schema", "  source: {path: schema.wasm}\n  config:\n    group: 7",
			`weir.yaml:11: EdgeFilter/f: spec.config: does not match the module's schema: validating root: validating /properties/group: type: 7 has type "integer", want "string"`},
		{"a configuration that is missing", "  source: {path: schema.wasm}",
			`weir.yaml:8: EdgeFilter/f: spec.config: does not match the module's schema: validating root: required: missing properties: ["group"]`},
		{"a missing module", "  source:\n    path: build/none.wasm",
			"weir.yaml:11: EdgeFilter/f: spec.source.path: build/none.wasm: there is no such file: build the module (`weir plugin build`), or correct the path"},
		{"a wrong digest", "  source: {path: plain.wasm}\n  sha256: " + strings.Repeat("ab", 32),
			fmt.Sprintf("weir.yaml:11: EdgeFilter/f: spec.sha256: the module's digest is %s: use the module that is meant, or correct the digest", hex.EncodeToString(sum[:]))},
		{"a file that is empty", "  source: {path: empty.wasm}", `weir.yaml:10: EdgeFilter/f: spec.source.path: empty.wasm: the file is empty: build the module again`},
		{"a file that is no module", "  source: {path: text.wasm}", `weir.yaml:10: EdgeFilter/f: spec.source.path: module: module section: not a WebAssembly module`},
	} {
		t.Run(c.name, func(t *testing.T) {
			written(t, map[string]string{"weir.yaml": filtered(c.spec)})
			out, said, code := ran(nil, "validate", "weir.yaml")
			if code != exitFault || out != "" || said != c.want+"\n" {
				t.Fatalf("validate says, with %d,\n%s%swant\n%s", code, out, said, c.want)
			}
			if out, served, code := ran(nil, "serve", "-c", "weir.yaml", "--listen", "127.0.0.1:0", "--admin-listen", ""); code != exitFault || out != "" || served != said {
				t.Errorf("serve says, with %d,\n%s%swant\n%s", code, out, served, said)
			}
			out, _, code = ran(nil, "doctor", "-c", "weir.yaml", "--listen", "127.0.0.1:0", "--admin-listen", "", "--json")
			var found struct {
				Steps []struct{ Subject, Level, Cause string }
			}
			if err := json.Unmarshal([]byte(out), &found); err != nil {
				t.Fatal(err)
			}
			var lines []string
			for _, s := range found.Steps {
				if s.Level == "problem" {
					lines = append(lines, s.Subject+": "+s.Cause)
				}
			}
			if code != 11 || len(lines) != 1 || lines[0] != c.want {
				t.Errorf("doctor says, with %d,\n%s\nwant\n%s", code, strings.Join(lines, "\n"), c.want)
			}
		})
	}
}

// TestZ31Sound is the same module with what it asks for: it is served.
func TestZ31Sound(t *testing.T) {
	t.Chdir(t.TempDir())
	written(t, map[string]string{
		"weir.yaml":   filtered("  source: {path: random.wasm}\n  grants: {random: true}"),
		"off.yaml":    filtered("  source: {path: none.wasm}\n  mode: \"off\""),
		"random.wasm": string(edgetest.Module{Random: true}.Bytes()),
	})
	for _, name := range []string{"weir.yaml", "off.yaml"} {
		if out, said, code := ran(nil, "validate", name); code != exitOK || out != name+": ok (1 server, 1 backend)\n" || said != "" {
			t.Errorf("validate says, with %d,\n%s%s", code, out, said)
		}
		out, _, _ := ran(nil, "doctor", "-c", name, "--listen", "127.0.0.1:0", "--admin-listen", "", "--json")
		if !strings.Contains(out, `"step": "filters",
      "subject": "`+name+`:5",
      "ok": true,`) {
			t.Errorf("doctor says of %s\n%s", name, out)
		}
	}
}

// TestZ31Started is of what only a module that is started shows: the doctor says
// it in the words of serve, and where.
func TestZ31Started(t *testing.T) {
	t.Chdir(t.TempDir())
	written(t, map[string]string{"weir.yaml": filtered("  source: {path: refuses.wasm}"), "refuses.wasm": string(edgetest.Module{Refuses: true}.Bytes())})
	if _, said, code := ran(nil, "validate", "weir.yaml"); code != exitOK {
		t.Fatalf("validate says, with %d, %s", code, said)
	}
	_, said, code := ran(nil, "serve", "-c", "weir.yaml", "--listen", "127.0.0.1:0", "--admin-listen", "")
	_, why, found := strings.Cut(said, `server main: filter "f": `)
	if code != exitFault || !found {
		t.Fatalf("serve says, with %d, %s", code, said)
	}
	out, _, code := ran(nil, "doctor", "-c", "weir.yaml", "--listen", "127.0.0.1:0", "--admin-listen", "")
	if want := "problem: filters weir.yaml:5 (manifest)\n  cause: EdgeFilter/f: server main: filter \"f\": " + why; code != 11 || !strings.Contains(out, want) {
		t.Errorf("doctor says, with %d,\n%swant\n%s", code, out, want)
	}
}

// TestZ22Mistakes holds what validate says of files that are a part of a set, of
// references that lead nowhere and of secrets that are missing.
func TestZ22Mistakes(t *testing.T) { mistakes(t, "validate", nil) }

// TestZ22Secrets wants a missing secret to be worded as serve words it.
func TestZ22Secrets(t *testing.T) {
	archive, err := txtar.ParseFile(filepath.Join("testdata", "mistakes", "validate", "missing-secret.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	written(t, map[string]string{"weir.yaml": string(archive.Files[0].Data)})
	_, strict, code := ran(nil, "validate", "weir.yaml", "--strict")
	_, words, _ := strings.Cut(strings.TrimSpace(strict), ": ")
	words, _, found := strings.Cut(words, "; ")
	if code != exitFault || !found {
		t.Fatalf("validate says, with %d, %s", code, strict)
	}
	if _, said, code := ran(nil, "serve", "-c", "weir.yaml", "--listen", "127.0.0.1:0", "--admin-listen", ""); code != exitFault || !strings.Contains(said, words) {
		t.Errorf("serve says, with %d, %swant %s", code, said, words)
	}
	if out, said, code := ran([]string{"WEIR_SECRET_IDP_CLIENT=hunter2"}, "validate", "weir.yaml", "--strict"); code != exitOK || out != "weir.yaml: ok (1 server, 1 backend)\n" || said != "" {
		t.Errorf("with the secret validate says, with %d, %s%s", code, out, said)
	}
}

// TestZ22Config gives -c to every command that reads manifests, more than once.
func TestZ22Config(t *testing.T) {
	t.Chdir(t.TempDir())
	whole := filtered("  source: {path: plain.wasm}")
	cut := strings.LastIndex(whole, "---\n")
	written(t, map[string]string{"plain.wasm": string(edgetest.Module{}.Bytes()), "1.yaml": whole[:cut], "2.yaml": whole[cut:]})
	for _, c := range []struct{ command, want string }{
		{"validate", "1.yaml, 2.yaml: ok (1 server, 1 backend)"},
		{"doctor --listen 127.0.0.1:0 --admin-listen=", "manifests 1.yaml, 2.yaml: ok (1 server, 1 backend)"},
		{"authz explain --subject alice --tool x", "server main has no policies"},
		{"serve --listen nowhere", "nowhere"},
	} {
		if out, said, _ := ran(nil, append(strings.Fields(c.command), "-c", "1.yaml", "--config", "2.yaml")...); !strings.Contains(out+said, c.want) {
			t.Errorf("%s says %s%s, want %s", c.command, out, said, c.want)
		}
	}
	written(t, map[string]string{"t.yaml": whole[:cut]})
	if _, said, code := ran(nil, "serve", "-c", "t.yaml"); code != exitFault || !strings.Contains(said, "there is no VirtualMCPServer") {
		t.Errorf("serve says of a part, with %d, %s", code, said)
	}
}

// TestZ36Mistakes holds what plugin test says of fixtures and of what guests
// answer.
func TestZ36Mistakes(t *testing.T) { mistakes(t, "plugin", faultyModules()) }

// TestPluginTestSaysAll: where the report of the cases cannot be written, they did not pass.
func TestPluginTestSaysAll(t *testing.T) {
	t.Chdir(t.TempDir())
	written(t, map[string]string{
		"f.star": "def on_call_request(c):\n    return None\n", "f.yaml": "cases: [{name: a, hook: on_call_request, input: {tool: x}}]\n",
	})
	var said strings.Builder
	if code := runWeir([]string{"plugin", "test", "f.star", "--fixtures", "f.yaml"}, failing{}, &said); code != exitFault || !strings.Contains(said.String(), "no space left") {
		t.Errorf("%d, %s", code, said.String())
	}
}

// faultyModules are guests that do what they should not, by their files.
func faultyModules() map[string]string {
	op := func(kind int, fields ...string) []byte {
		var b []byte
		for i := 0; i < len(fields); i += 2 {
			b = abi.AppendString(b, map[string]int{"name": abi.ArgName, "text": abi.ArgText, "pointer": abi.ArgPointer, "raw": abi.ArgRaw}[fields[i]], fields[i+1])
		}
		return abi.AppendBytes(nil, abi.OpsOp, abi.AppendBytes(nil, kind, b))
	}
	counts := op(abi.OpLogField, "name", "calls", "text", "0")
	given := map[string]string{}
	for name, m := range map[string]edgetest.Module{
		"traps":   {Traps: true},
		"counts":  {Answer: counts, Counts: len(counts) - 1},
		"header":  {Answer: op(abi.OpSetHeader, "name", "Host", "text", "x")},
		"nowhere": {Answer: op(abi.OpSetArg, "pointer", "/a/b", "raw", "1")},
		"cookie":  {Answer: []byte{}, Sees: "cookie"},
		"redact":  {Answer: op(abi.OpRedact, "pointer", "/a", "text", "x")},
		"forges":  {Answer: []byte{}, Sees: "a\n\nHOOK  OF\ton_nothing", Manifest: `{"name":"x\ngrants   none\ny","version":"1\t2","grants":["kv\nz"]}`},
		"unclear": {Answer: []byte{}, Manifest: `{"name":1}`},
	} {
		given[name+".wasm"] = string(m.Bytes())
	}
	return given
}

// TestZ38ModuleIsWatched serves a module that is built anew under the same path,
// without a change of the manifest; one that cannot be served changes nothing.
func TestZ38ModuleIsWatched(t *testing.T) {
	dir := t.TempDir()
	module := filepath.Join(dir, "build", "f.wasm")
	if err := os.Mkdir(filepath.Dir(module), 0o700); err != nil {
		t.Fatal(err)
	}
	// A compiler writes a file beside it, and moves it there.
	build := func(content []byte) (digest string) {
		written(t, map[string]string{module + ".new": string(content)})
		if err := os.Rename(module+".new", module); err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(content)
		return hex.EncodeToString(sum[:])
	}
	version := func(n int) []byte {
		return edgetest.Module{Manifest: fmt.Sprintf(`{"name":"f","version":"%d"}`, n)}.Bytes()
	}
	first := build(version(1))
	manifest := filepath.Join(dir, "weir.yaml")
	written(t, map[string]string{manifest: filtered("  source: {path: build/f.wasm}")})
	p := run(t, "serve", "-c", manifest, "--listen", "127.0.0.1:0", "--admin-listen", "", "--log-format", "text")
	compiled := func() string { return p.until("a filter is compiled") }
	if line := compiled(); !strings.Contains(line, first) {
		t.Fatalf("%s is not %s", line, first)
	}
	p.until("msg=serving")
	for n := 2; n <= 3; n++ {
		digest := build(version(n))
		if line := compiled(); !strings.Contains(line, digest) {
			t.Fatalf("%s is not %s", line, digest)
		}
		p.until("a filter is closed")
		if n == 2 {
			build([]byte("half a modu"))
			p.until("level=ERROR")
		}
	}
}
