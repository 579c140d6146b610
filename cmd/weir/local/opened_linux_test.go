package local

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
	"github.com/weir-edge/weir/edge/workload"
)

// A workload that was opened together with one that cannot be says nothing yet once it is opened
// by itself.
func TestOpenedBesideOneThatCannotBe(t *testing.T) {
	needHelper(t)
	dir := t.TempDir()
	paths := workload.Paths{State: dir + "/state", Run: dir + "/state", Config: dir + "/config", Data: dir + "/data", Cache: dir + "/cache"}
	s := serve.Defaults()
	s.AdminListen = ""
	d := NewDoors(s, paths, slog.New(slog.DiscardHandler))
	_, end, err := d.Serve()
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	open := func(name, more string) <-chan error {
		text := fmt.Sprintf("apiVersion: weir.dev/v1beta1\nkind: MCPServer\nmetadata: {name: %s}\nspec:\n  image: exec:///bin/sleep\n  args: ['60']\n  transport: stdio\n  proxyPort: %d\n%s", name, free(t), more)
		done := make(chan error, 1)
		go func() {
			done <- d.Open(workload.Opening{Name: name, Manifest: []byte(text), Folder: filepath.Join(paths.Workloads(), name), Lines: func(workload.Line) {}, Say: func(string) {},
				Remembered: func(string) (bool, bool) { return false, false }, Remember: func(string, bool) {}})
		}()
		return done
	}
	d.applying.Lock()
	a, b := open("a", ""), open("b", "  secrets: [{name: nowhere, key: value, targetEnvName: X}]\n")
	edgetest.Until(t, "both to wait", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.pending) == 2
	})
	d.applying.Unlock()
	if err := <-b; err == nil {
		t.Error("b is open without its secret")
	}
	if err := <-a; err != nil {
		t.Fatal(err)
	}
	one := d.of("a")
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.state != "" {
		t.Errorf("a is %s before it has said anything", one.state)
	}
}

// What cannot be started is told before anything of it is made, by the words of a start.
func TestJudged(t *testing.T) {
	needHelper(t)
	dir := t.TempDir()
	paths := workload.Paths{State: dir + "/state", Run: dir + "/state", Config: dir + "/config", Data: dir + "/data", Cache: dir + "/cache"}
	d := NewDoors(serve.Defaults(), paths, slog.New(slog.DiscardHandler))
	t.Cleanup(d.locals.Close)
	junk := filepath.Join(dir, "junk.wasm")
	if err := os.WriteFile(junk, []byte("no module"), 0o600); err != nil {
		t.Fatal(err)
	}
	old, err := net.Listen("tcp", "127.0.0.1:0") // whose port is free once it is gone
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	for name, c := range map[string]struct {
		image, more string
		code        workload.Code // "" for none
		want        string
	}{
		"sound":                   {"exec:///bin/sleep", "args: ['60']", "", ""},
		"sound, with its port":    {"exec:///bin/sleep", fmt.Sprintf("transport: sse\n  mcpPort: %d", old.Addr().(*net.TCPAddr).Port), "", ""},
		"a mount":                 {"exec:///bin/sleep", "volumes: [{name: v, hostPath: /, mountPath: /x}]", workload.CodeRefused, "mount /: it holds /"},
		"a mount that is missing": {"exec:///bin/sleep", "volumes: [{name: v, hostPath: " + dir + "/none, mountPath: /x}]", workload.CodeRefused, "no such file"},
		"no sandbox, elsewhere":   {"exec:///bin/sleep", "volumes: [{name: v, hostPath: " + junk + ", mountPath: /x}]\n  run: {sandbox: off}", workload.CodeRefused, "at no other path than its own"},
		"a module":                {"wasm://" + junk, "", workload.CodeRefused, "not a WebAssembly module"},
		"a mount of a module":     {"wasm://" + junk, "volumes: [{name: v, hostPath: /etc, mountPath: /x}]", workload.CodeRefused, "mount /etc"},
	} {
		text := "apiVersion: weir.dev/v1beta1\nkind: MCPServer\nmetadata: {name: one}\nspec:\n  image: " + c.image + "\n  " + c.more + "\n"
		if !strings.Contains(text, "transport: ") {
			text += "  transport: stdio\n"
		}
		err := d.Judge(t.Context(), []byte(text), func(string) {})
		var e *workload.Error
		if c.code == "" && err != nil || c.code != "" && (!errors.As(err, &e) || e.Code != c.code || e.Next == "" || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v; want %s with %q", name, err, c.code, c.want)
		}
	}
	if left, _ := os.ReadDir(paths.Workloads()); len(left) > 0 {
		t.Errorf("%v is there", left)
	}
}
