package plugin

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weir-edge/weir/wasm"
)

// MCP servers in WebAssembly, which `weir run` starts: no guests of an edge, but written and
// built by the same tools.

// serverLanguages are those that `weir plugin new --server` knows.
var serverLanguages = []string{"go", "rust"}

// serverTargets are the names of WASI preview 1 in newer compilers of Rust, and in older ones.
var serverTargets = []string{"wasm32-wasip1", "wasm32-wasi"}

// NewServer makes a directory with an MCP server that works, and the SDK.
func NewServer(dir, name string, l Language) ([]string, error) {
	if err := servers(l); err != nil {
		return nil, err
	}
	return layOut(dir, name, l.Name, "server", "server-"+l.Name)
}

// servers says that there are no servers in a language; nil where there are.
func servers(l Language) error {
	if slices.Contains(serverLanguages, l.Name) {
		return nil
	}
	return fmt.Errorf("there are no servers in %s: use one of %s", l.Name, strings.Join(serverLanguages, ", "))
}

// isServer reports whether a directory is that of an MCP server: it is laid out as one, and no
// plugin.yaml says that it is a guest.
func isServer(dir string) bool {
	there := func(file string) bool {
		_, err := os.Stat(filepath.Join(dir, file))
		return err == nil
	}
	return !there(ManifestFile) && (there("weir/sdk/server") || there("src/main.rs"))
}

// BuildServer compiles the server in dir to the file out, and checks it as `weir run` does.
func BuildServer(ctx context.Context, l Language, dir, out string) error {
	if err := servers(l); err != nil {
		return err
	}
	out, err := filepath.Abs(out)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	if l.Name == "rust" {
		err = cargoBuild(ctx, dir, out, "one [[bin]]", "--bins", serverTargets...)
	} else {
		err = goBuild(ctx, dir, out)
	}
	if err != nil {
		return err
	}
	module, err := os.ReadFile(out)
	if err != nil {
		return err
	}
	if err := wasm.CheckServer(module); err != nil {
		return fmt.Errorf("%s: %w", out, err)
	}
	return nil
}
