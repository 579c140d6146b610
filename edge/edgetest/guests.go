package edgetest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/serve"
	"github.com/weir-edge/weir/wasm"
)

// Guests is where the tests of a package have their guests, and the machine code
// of them, which all edges share. Its zero value has to be given to Main.
type Guests struct{ Dir string }

// Main is the body of a TestMain: it makes the directory, and removes it in the
// end.
func (g *Guests) Main(m *testing.M) {
	dir, err := os.MkdirTemp("", "weir-guests-")
	if err != nil {
		panic(err)
	}
	g.Dir = dir
	Main(m, func() { os.RemoveAll(dir) })
}

// Build builds the guest of a Go package under a name, with build tags or
// without, compiles it for all edges, and returns the file.
func (g *Guests) Build(name, pkg, tags string) (file string, err error) {
	file = filepath.Join(g.Dir, name+".wasm")
	cmd := exec.Command("go", "build", "-buildmode=c-shared", "-ldflags=-s -w", "-tags="+tags, "-o", file, pkg)
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0", "GOFLAGS=")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, text)
	}
	return file, g.Warm(file)
}

// Warm compiles a guest to where edges look for it: they would do it side by
// side, and with the race detector it takes longer than they wait.
func (g *Guests) Warm(file string) error {
	binary, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	c, err := wasm.NewCompiler(wasm.Compilation{Dir: filepath.Join(g.Dir, "cache", "code"), Timeout: 10 * time.Minute})
	if err != nil {
		return err
	}
	defer c.Close()
	m, err := c.Compile(context.Background(), binary, "")
	if err == nil {
		m.Close()
	}
	return err
}

// Cached is for Settings: the edge shares machine code with the others.
func (g *Guests) Cached(s *serve.Settings) { s.FilterCache = filepath.Join(g.Dir, "cache") }
