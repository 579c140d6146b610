package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestExampleLaptop does what the README of a laptop's servers says, with packages that are
// installed here in the place of those that npx would fetch.
func TestExampleLaptop(t *testing.T) {
	node, modules := everything(t)
	notes := filepath.Join(t.TempDir(), "notes")
	if err := os.Mkdir(notes, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(notes, "shopping.txt"), []byte("milk\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	swaps := []string{"/home/me/notes", notes}
	installed := func(name, more, volumes string) {
		swaps = append(swaps,
			fmt.Sprintf("image: npx\n  args: [-y, \"@modelcontextprotocol/server-%s\"%s]\n%s", name, more, volumes),
			fmt.Sprintf("image: exec://%s\n  args: [%s/@modelcontextprotocol/server-%s/dist/index.js%s]\n  volumes:\n  - {name: modules, hostPath: %[2]s, mountPath: %[2]s, readOnly: true}\n", node, modules, name, more))
	}
	installed("filesystem", ", /notes", "  volumes:\n")
	installed("memory", "", "")
	installed("everything", "", "")
	newExample(t, "laptop", swaps...).follow()
}

// TestExampleWasmServer lays out, builds and serves a server in WebAssembly, as the README says.
func TestExampleWasmServer(t *testing.T) { newExample(t, "wasm-server").follow() }
