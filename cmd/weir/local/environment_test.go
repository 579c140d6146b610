package local

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/serve"
)

// A file of environment variables that a server may write to is read anew at each start, and is
// none when the server has made it a link to another file of this machine.
func TestEnvironmentOfServer(t *testing.T) {
	dir, other := t.TempDir(), filepath.Join(t.TempDir(), "secret")
	file := filepath.Join(dir, ".env")
	for path, text := range map[string]string{file: "A=1\n", other: "A=b\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, from := range []string{file, dir} { // a file, and a directory of such
		if from == dir {
			file = filepath.Join(dir, "env")
			if err := os.WriteFile(file, []byte("A=1\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s := serve.Starting{Workload: compile.Workload{Name: "test", EnvFiles: []string{from}, Mounts: []compile.Mount{{Source: dir, Target: "/work", Writable: true}}}}
		read := environment(&s, &handed{})
		if vars, err := read(t.Context()); err != nil || !slices.Equal(vars, []string{"A=1"}) {
			t.Errorf("%q, %v", vars, err)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(other, file); err != nil {
			t.Skip(err) // not everybody may make one on Windows
		}
		if vars, err := read(t.Context()); err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "which the server may write to") {
			t.Errorf("%q, %v", vars, err)
		}
	}
}
