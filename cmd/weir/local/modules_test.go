package local

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-edge/weir/cmd/weir/plugin"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/sandbox"
	"github.com/weir-edge/weir/edge/serve"
	"github.com/weir-edge/weir/edge/source"
	"github.com/weir-edge/weir/edge/workload"
)

// builtModule builds a server for WASI.
func builtModule(t *testing.T, dir string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "server.wasm")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", file, dir)
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return file
}

// shared is a directory for what several tests need and takes long to make.
var shared = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "weir-modules-") })

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, err := shared(); err == nil {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

func sharedDir(t *testing.T) string {
	t.Helper()
	dir, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// rustModule builds the server that `weir plugin new --server --language rust` begins.
func rustModule(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(sharedDir(t), "calculator")
	file := filepath.Join(dir, "server.wasm")
	if _, err := os.Stat(file); err == nil {
		return file
	}
	l, _ := plugin.LanguageNamed("rust")
	if _, err := plugin.NewServer(dir, "calculator", l); err != nil {
		t.Fatal(err)
	}
	err := plugin.BuildServer(t.Context(), l, dir, file)
	_, missing := err.(*plugin.Missing)
	edgetest.Need(t, !missing, fmt.Sprint(err))
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// modulePlan is the plan of a server in WebAssembly. more is of its spec.
func modulePlan(t *testing.T, image, more string) *compile.Plan {
	t.Helper()
	set, _ := source.Read("test.yaml", []byte(fmt.Sprintf("apiVersion: weir.dev/v1beta1\nkind: MCPServer\nmetadata: {name: back}\nspec:\n  image: %q\n  transport: stdio\n%s", image, more)))
	set.Starts = []compile.Form{compile.FormWasm}
	r := set.Compile()
	if err := r.Err(); err != nil {
		t.Fatal(err, r.Findings)
	}
	return r.Plan
}

// startModule starts an edge before a server in WebAssembly.
func startModule(t *testing.T, l *Locals, image, more string) *edgetest.Edge {
	t.Helper()
	return edgetest.StartPlan(t, modulePlan(t, image, more), edgetest.With(serve.WithWorkloads(l.Start)))
}

func testLocals(t *testing.T) *Locals {
	t.Helper()
	state := filepath.Join(t.TempDir(), "state")
	l := New(serve.Settings{StateDir: state})
	l.cache = filepath.Join(sharedDir(t), "cache")
	t.Cleanup(l.Close)
	return l
}

// said is the text of a tool's result, and whether it is a failure.
func said(t *testing.T, r *edgetest.Response) (text string, failed bool) {
	t.Helper()
	var m struct {
		Content []struct{ Text string }
		IsError bool
	}
	result := r.Result()
	if err := json.Unmarshal([]byte(result), &m); err != nil || len(m.Content) != 1 {
		t.Fatalf("a result without a text: %s", result)
	}
	return m.Content[0].Text, m.IsError
}

// Servers of the official Go SDK, of our own and in Rust answer clients of both eras by way of
// an edge, which compiles each once.
func TestModuleServers(t *testing.T) {
	sdk := filepath.Join("..", "..", "..", "wasm", "testdata", "sdkserver")
	for name, build := range map[string]func() string{
		"the Go SDK": func() string { return builtModule(t, "./"+sdk) },
		"Rust":       func() string { return rustModule(t) },
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name == "the Go SDK" {
				t.Skip("it takes half a minute to build and to compile one")
			}
			e := startModule(t, testLocals(t), "wasm://"+build(), "")
			for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
				c := e.NewClient().As(era, "")
				if list := c.Ask("1", "tools/list", "").Result(); !strings.Contains(list, `"add"`) {
					t.Errorf("%s: the tools are %s", era, list)
				}
				if text, failed := said(t, c.CallTool("2", "add", `{"a":2,"b":3.5}`)); text != "5.5" || failed {
					t.Errorf("%s: 2 and 3.5 are %q", era, text)
				}
			}
		})
	}
}

// What a server is given it has, and nothing else; one that loops ends, and others do not.
func TestModuleIsHeld(t *testing.T) {
	base := t.TempDir()
	for _, dir := range []string{"data", "shown", "outside"} {
		if err := os.Mkdir(filepath.Join(base, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for file, text := range map[string]string{"shown/a": "of a", "outside/secret": "a secret"} {
		if err := os.WriteFile(filepath.Join(base, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../outside/secret", filepath.Join(base, "shown", "link")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("WEIR_TEST_OF_OURS", "not for servers")
	e := startModule(t, testLocals(t), "wasm://"+builtModule(t, "./testdata/files"), fmt.Sprintf(`  args: [one, two]
  env: [{name: GIVEN, value: "yes"}]
  volumes:
    - {name: a, hostPath: %q, mountPath: /data}
    - {name: b, hostPath: %q, mountPath: /shown, readOnly: true}
`, filepath.Join(base, "data"), filepath.Join(base, "shown")))
	c := e.NewClient().As(edgetest.Legacy, "")
	for _, ask := range []struct{ tool, text, want string }{
		{"read", "/shown/a", "of a"},
		{"list", "/shown", "a link"},
		{"write", "/data/new", "written"},
		{"read", "/data/new", "of the server"},
		{"env", "", "[GIVEN=yes] [one two]"},
	} {
		if text, failed := said(t, c.CallTool("1", ask.tool, fmt.Sprintf(`{"text":%q}`, ask.text))); failed || text != ask.want {
			t.Errorf("%s %s: %q", ask.tool, ask.text, text)
		}
	}
	if b, err := os.ReadFile(filepath.Join(base, "data", "new")); err != nil || string(b) != "of the server" {
		t.Errorf("the file that it wrote: %q, %v", b, err)
	}
	for _, ask := range [][2]string{
		{"write", "/shown/new"}, {"write", "/shown/a"}, {"read", "/shown/link"}, {"read", "/shown/../outside/secret"}, {"read", "/data/../../../../../../../etc/passwd"},
		{"read", "/etc/passwd"}, {"read", filepath.Join(base, "outside", "secret")}, {"list", "/"}, {"read", "/proc/self/environ"},
	} {
		if text, failed := said(t, c.CallTool("2", ask[0], fmt.Sprintf(`{"text":%q}`, ask[1]))); !failed {
			t.Errorf("%s %s: %q", ask[0], ask[1], text)
		}
	}
	// What it says on stderr is in the log of servers.
	c.CallTool("3", "complain", `{"text":"something is odd"}`)
	edgetest.Until(t, "what it says on stderr is logged", func() bool { return strings.Contains(e.Log(), "something is odd") })

	other := e.NewClient().As(edgetest.Legacy, "")
	if text, _ := said(t, other.CallTool("1", "read", `{"text":"/shown/a"}`)); text != "of a" {
		t.Errorf("another session: %q", text)
	}
	if m := c.CallTool("4", "loop", "{}").Message(); m.Error == nil {
		t.Errorf("a loop is answered: %+v", m)
	}
	edgetest.Until(t, "why it ended is told", func() bool { return strings.Contains(e.Log(), "fuel") })
	if text, _ := said(t, other.CallTool("2", "read", `{"text":"/shown/a"}`)); text != "of a" {
		t.Errorf("another session after that: %q", text)
	}
}

// A module at a URL is fetched once, and only where it has the digest that was asked for.
func TestModuleAtURL(t *testing.T) {
	module, err := os.ReadFile(rustModule(t))
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.URL.Path == "/elsewhere.wasm" {
			http.Redirect(w, r, "http://"+r.Host+"/server.wasm", http.StatusFound)
			return
		}
		_, _ = w.Write(module)
	}))
	defer s.Close()
	sum := sha256.Sum256(module)
	digest := hex.EncodeToString(sum[:])
	l := testLocals(t)
	l.cache = filepath.Join(t.TempDir(), "cache") // in which it is not yet
	_, all, err := l.openModules(nil)
	if err != nil {
		t.Fatal(err)
	}
	ca := filepath.Join(t.TempDir(), "ca.pem")
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(ca, authority, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		e := startModule(t, l, "wasm+"+s.URL+"/server.wasm#sha256="+digest, fmt.Sprintf("  run: {caBundle: %q}\n", ca))
		if text, _ := said(t, e.NewClient().As(edgetest.Legacy, "").CallTool("1", "add", `{"a":1,"b":1}`)); text != "2" {
			t.Errorf("1 and 1 are %q", text)
		}
		e.Stop()
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("it was fetched %d times", n)
	}
	for path, want := range map[string]string{"/server.wasm": "is asked for", "/elsewhere.wasm": "redirect: it leads away from https"} {
		w := &compile.Workload{Program: s.URL + path, SHA256: strings.Repeat("0", 64)}
		if _, err := all.read(t.Context(), w, edge.Reach{CAs: authority}, func(string) {}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
	// One under a private authority is fetched where the workload names the authority.
	for more, want := range map[string]string{
		"": "certificate signed by unknown authority",
		fmt.Sprintf("  run: {caBundle: %q}\n", ca):              "",
		fmt.Sprintf("  run: {caBundle: %q}\n", ca+".not-there"): "spec.run.caBundle: ",
	} {
		if err := os.RemoveAll(all.dir); err != nil {
			t.Fatal(err)
		}
		plan := modulePlan(t, "wasm+"+s.URL+"/server.wasm#sha256="+digest, more)
		w := plan.Servers[0].Backends[0].Workload
		cas, err := l.trusted(w)
		if err == nil {
			_, err = all.read(t.Context(), w, edge.Reach{CAs: cas}, func(string) {})
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, and should say %q", more, err, want)
		}
	}
	e := startModule(t, l, "wasm+"+s.URL+"/server.wasm#sha256="+digest, fmt.Sprintf("  run: {caBundle: %q}\n", ca))
	if text, _ := said(t, e.NewClient().As(edgetest.Legacy, "").CallTool("1", "add", `{"a":1,"b":1}`)); text != "2" {
		t.Errorf("1 and 1 are %q", text)
	}
	e.Stop()
	if left, _ := filepath.Glob(filepath.Join(all.dir, "*")); len(left) != 1 {
		t.Errorf("kept are %v", left)
	}
}

// A module that is none, and a directory that must not be shown, keep a server from starting,
// which tells why; what it opened is closed.
func TestModuleRefused(t *testing.T) {
	l := testLocals(t)
	none := filepath.Join(t.TempDir(), "none.wasm")
	if err := os.WriteFile(none, []byte("\x00asm\x0d\x00\x01\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ image, more, want string }{
		{"wasm://" + none, "", "components are not supported"},
		{"wasm://" + none + "#sha256=" + strings.Repeat("0", 64), "", "is asked for"},
		{"wasm:///nowhere/none.wasm", "", "no such file"},
		{"wasm://" + none, "  volumes: [{name: a, hostPath: /etc, mountPath: /data}]\n", "it has secrets or controls this machine"},
		{"wasm://" + none, fmt.Sprintf("  volumes: [{name: a, hostPath: %q, mountPath: /data}]\n", none), "not a directory"},
	} {
		plan := modulePlan(t, c.image, c.more)
		local, err := l.Start(serve.Starting{Workload: *plan.Servers[0].Backends[0].Workload, Log: slog.New(slog.DiscardHandler), MaxMessage: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		h := local.(*hosted)
		began := time.Now()
		if _, err := h.host.Start(t.Context(), "somebody"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %v, and should say %q", c.image, c.more, err, c.want)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("to say so takes %s", took)
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A directory with something to hide is given to no module, also where another one is to lie
// over that: both are open to it.
func TestModuleHidesNothing(t *testing.T) {
	l := testLocals(t)
	l.config = t.TempDir()
	base := t.TempDir()
	for _, file := range []string{filepath.Join(l.config, IgnoreName), filepath.Join(base, "all/sub/key"), filepath.Join(base, "other/shown")} {
		err := os.MkdirAll(filepath.Dir(file), 0o700)
		if err == nil {
			err = os.WriteFile(file, []byte("key\n"), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	plan := modulePlan(t, "wasm:///nowhere/none.wasm", fmt.Sprintf("  volumes: [{name: a, hostPath: %q, mountPath: /data}, {name: b, hostPath: %q, mountPath: /data/sub}]\n", filepath.Join(base, "all"), filepath.Join(base, "other")))
	local, err := l.Start(serve.Starting{Workload: *plan.Servers[0].Backends[0].Workload, Log: slog.New(slog.DiscardHandler), MaxMessage: 1 << 20})
	if err == nil {
		_ = local.Close()
	}
	if refused := new(sandbox.MountError); !errors.As(err, &refused) || !strings.Contains(refused.Why, "has directories whole") {
		t.Errorf("%v", err)
	}
}

// A URL of a module leads where its operator wrote it. What it leads on to is a stranger's word:
// a private address is not asked for it, and nobody is told the query, which may be a credential.
func TestModuleLeadsElsewhere(t *testing.T) {
	var asked []string
	private := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Referer())
	}))
	defer private.Close()
	named := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/moved.wasm":
			http.Redirect(w, r, private.URL+"/admin", http.StatusFound)
		case "/gone.wasm":
			http.NotFound(w, r)
		}
	}))
	defer named.Close()
	cas := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: named.Certificate().Raw})
	_, all, err := testLocals(t).openModules(nil)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"/moved.wasm": "not a public address", "/gone.wasm": "/gone.wasm says 404 Not Found", "/other.wasm": "is asked for"} {
		var said []string
		w := &compile.Workload{Program: named.URL + path + "?signature=s3cret", SHA256: strings.Repeat("0", 64)}
		_, err := all.read(t.Context(), w, edge.Reach{CAs: cas}, func(text string) { said = append(said, text) })
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(fmt.Sprint(err, said), "s3cret") {
			t.Errorf("%s: %v, and should say %q; said: %q", path, err, want, said)
		}
	}
	for where, want := range map[string]string{"https://host.test/a/one.wasm?signature=s3cret": "https://host.test/a/one.wasm", "/srv/what?.wasm": "/srv/what?.wasm"} {
		if got := located(&compile.Workload{Program: where}); got != want {
			t.Errorf("%s: its log and the server itself have it as %s", where, got)
		}
	}
	if len(asked) > 0 {
		t.Errorf("a private address was asked, and told of %q", asked)
	}
}

// Of modules that were fetched those are kept that were used last, and nothing that a process
// which was killed has left half written.
func TestFetchedModulesAreBounded(t *testing.T) {
	m := &modules{dir: t.TempDir()}
	half := filepath.Join(m.dir, halfWritten+"1")
	if err := os.WriteFile(half, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	long := time.Now().Add(-48 * time.Hour)
	if err := os.Chtimes(half, long, long); err != nil {
		t.Fatal(err)
	}
	var all []string
	for i := range maxFetched + 10 {
		b := fmt.Appendf(nil, "module %d", i)
		all = append(all, digestOf(b))
		if err := m.keep(all[i], b); err != nil {
			t.Fatal(err)
		}
		at := long.Add(time.Duration(i) * time.Minute)
		if err := os.Chtimes(m.file(all[i]), at, at); err != nil {
			t.Fatal(err)
		}
		if m.kept(all[0]) == nil {
			t.Fatalf("the module that is used is gone after %d", i)
		}
	}
	if left, err := os.ReadDir(m.dir); err != nil || len(left) != maxFetched {
		t.Errorf("%d files are left, %v", len(left), err)
	}
	if newest := len(all) - 1; m.kept(all[1]) != nil || m.kept(all[newest]) == nil {
		t.Error("the oldest is kept, or the newest is not")
	}
}

// TestQueryOfAModule: nobody is told the query of a module's URL, which may be a credential.
func TestQueryOfAModule(t *testing.T) {
	manifest := []byte("apiVersion: weir.dev/v1beta1\nkind: MCPServer\nmetadata: {name: m}\nspec: {image: 'wasm+https://a.example/m.wasm?token=planted#sha256=" + strings.Repeat("0", 64) + "', transport: stdio}\n")
	f, err := NewDoors(serve.Defaults(), workload.Paths{}, slog.New(slog.DiscardHandler)).Read(manifest)
	if err != nil || strings.Contains(fmt.Sprint(*f), "planted") {
		t.Errorf("%v %+v", err, f)
	}
	if text := workload.Shown(manifest); strings.Contains(text, "planted") || !strings.Contains(text, "m.wasm") {
		t.Errorf("its manifest is shown as\n%s", text)
	}
}

// TestModuleThatCannotBeKept: a module that was fetched runs where there is no room to keep it.
func TestModuleThatCannotBeKept(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("module")) }))
	defer s.Close()
	m := &modules{dir: filepath.Join(t.TempDir(), "file")}
	if err := os.WriteFile(m.dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	w := &compile.Workload{Program: s.URL + "/s.wasm", SHA256: digestOf([]byte("module"))}
	b, err := m.read(t.Context(), w, edge.Reach{CAs: ca}, func(string) {})
	if err != nil || string(b) != "module" {
		t.Errorf("%q, %v", b, err)
	}
}
