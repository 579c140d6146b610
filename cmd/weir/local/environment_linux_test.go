package local

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
)

// A named pipe that a server holds open in the place of a file of variables keeps nobody waiting.
func TestEnvironmentIsNoPipe(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, ".env")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	held, err := os.OpenFile(pipe, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	for _, mounts := range [][]compile.Mount{nil, {{Source: dir, Target: "/work", Writable: true}}} {
		s := serve.Starting{Workload: compile.Workload{Name: "test", EnvFiles: []string{pipe}, Mounts: mounts}}
		done := make(chan error, 1)
		go func() {
			_, err := environment(&s, &handed{})(t.Context())
			done <- err
		}()
		if err := edgetest.Receive(t, done, "an answer"); err == nil || !strings.Contains(err.Error(), "is no file and no directory") {
			t.Errorf("%v", err)
		}
	}
}
