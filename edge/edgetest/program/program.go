// Package program builds the edge's program and keeps what programs say, for
// what runs it from outside.
package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// Root is the directory of the module of the working directory.
func Root(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	root, ok := strings.CutSuffix(strings.TrimSpace(string(out)), "/go.mod")
	if !ok {
		return "", errors.New("this is no module; name the program with --weir")
	}
	return root, nil
}

// Build builds weir from the module of the working directory into dir, and
// returns its path.
func Build(ctx context.Context, dir string) (string, error) {
	root, err := Root(ctx)
	if err != nil {
		return "", fmt.Errorf("build weir: %w", err)
	}
	program := filepath.Join(dir, "weir")
	cmd := exec.CommandContext(ctx, "go", "build", "-tags", Tags, "-o", program, "./cmd/weir")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build weir: %w: %s", err, bytes.TrimSpace(out))
	}
	return program, nil
}

// MaxSize is how many bytes the program of a release may have, on linux/amd64.
const MaxSize = 53 << 20

// Tags are those that every build of the project has: see the Makefile.
const Tags = "grpcnotrace"

// Release is the command that builds weir into a file as `make build` does, but
// for the version, with further flags for the linker. root is that of the
// module.
func Release(ctx context.Context, root, file string, linker ...string) *exec.Cmd {
	flags := strings.Join(append([]string{"-s", "-w"}, linker...), " ")
	cmd := exec.CommandContext(ctx, "go", "build", "-tags", Tags, "-trimpath", "-ldflags", flags, "-o", file, "./cmd/weir")
	cmd.Dir = root
	return cmd
}

// tailSize is how many bytes a Tail keeps.
const tailSize = 4 << 10

// Tail keeps the end of what is written to it. It is safe for concurrent use.
type Tail struct {
	mu   sync.Mutex
	text []byte
}

// Write never fails.
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if over := len(t.text) - tailSize; over > 0 {
		t.text = append(t.text[:0], t.text[over:]...)
	}
	return len(p), nil
}

// String returns what is kept, without white space around it.
func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.text))
}
