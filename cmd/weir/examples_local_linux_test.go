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

// TestExampleWasmLinks builds and serves the server that reads notes, as the README says, with
// a note whose links lead to no host that it may ask.
func TestExampleWasmLinks(t *testing.T) {
	notes := t.TempDir()
	e := newExample(t, "wasm-links", "/home/me/notes", notes)
	if err := os.WriteFile(filepath.Join(notes, "go.md"), []byte("A mirror, https://mirror.example/go, and http://127.0.0.1/status."), 0o600); err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.Abs("../../examples/wasm-links")
	if err != nil {
		t.Fatal(err)
	}
	denied := ": the permission profile of the server does not let it out to this host\n"
	e.run(e.swap.Replace("```console\n$ weir plugin build --server " + dir + " -o build/wasm-links.wasm\n$ weir serve -c weir.yaml --allow-workloads wasm &\n" +
		"$ weir call http://127.0.0.1:4483/mcp links_list_notes\ngo.md\n" +
		"$ weir call http://127.0.0.1:4483/mcp links_check_links note=go.md\nhttps://mirror.example/go" + denied + "http://127.0.0.1/status" + denied + "```"))
}
