package local

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/serve"
)

// A named pipe in the place of a directory, or of a module, keeps a server from starting, and
// not its edge from stopping: nobody waits for the other end.
func TestModulePipes(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	l := testLocals(t)
	for more, want := range map[string]string{
		"": "is no file",
		fmt.Sprintf("  volumes: [{name: a, hostPath: %q, mountPath: /data}]\n", pipe): "not a directory",
	} {
		plan := modulePlan(t, "wasm://"+pipe, more)
		local, err := l.Start(serve.Starting{Workload: *plan.Servers[0].Backends[0].Workload, Log: slog.New(slog.DiscardHandler), MaxMessage: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			if _, err := local.(*hosted).host.Start(t.Context(), "somebody"); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, and should say %q", more, err, want)
			}
			if err := local.Close(); err != nil {
				t.Error(err)
			}
		}()
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			t.Errorf("%q: it waits", more)
			if f, err := os.OpenFile(pipe, os.O_RDWR|syscall.O_NONBLOCK, 0); err == nil { // so that it goes on
				defer f.Close()
			}
			<-done
		}
	}
}
