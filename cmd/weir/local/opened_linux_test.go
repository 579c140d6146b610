package local

import (
	"fmt"
	"log/slog"
	"path/filepath"
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
