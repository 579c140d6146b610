package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/weir-edge/weir/cmd/weir/plugin"
	"github.com/weir-edge/weir/edge/edgetest"
)

// TestZ35RustHidesPaths: the places of panics in a module of Rust name files as
// seen from the project, and say nothing of where its author keeps it.
func TestZ35RustHidesPaths(t *testing.T) {
	// A space and an equals sign are what flags could be split at.
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(top, "some where=else", "guest")
	l, _ := plugin.LanguageNamed("rust")
	if _, err := plugin.New(dir, "guest", l); err != nil {
		t.Fatal(err)
	}
	// Cargo names the files of a crate by their whole paths when it lies outside of
	// the project.
	sdk := filepath.Join(filepath.Dir(dir), "sdk")
	if err := os.Rename(filepath.Join(dir, "weir"), sdk); err != nil {
		t.Fatal(err)
	}
	cargo, err := os.ReadFile(filepath.Join(dir, "Cargo.toml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "Cargo.toml"), bytes.Replace(cargo, []byte(`path = "weir"`), []byte(`path = "../sdk"`), 1), 0o644); err != nil {
		t.Fatal(err)
	}
	appendTo(t, filepath.Join(sdk, "src", "lib.rs"), "\n#[inline(never)]\npub fn given_up(n: usize) -> u8 { if n > 3 { panic!(\"no {n}\") } 1 }\n")
	appendTo(t, filepath.Join(dir, "src", "lib.rs"), "\n#[no_mangle]\npub extern \"C\" fn give_up(n: usize) -> u8 { weir::given_up(n) }\n")
	out := filepath.Join(dir, "build", "guest.wasm")
	var missing *plugin.Missing
	if err := plugin.Build(t.Context(), l, dir, out); errors.As(err, &missing) {
		edgetest.Need(t, false, err.Error())
	} else if err != nil {
		t.Fatal(err)
	}
	module, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(module, []byte("../sdk/src/lib.rs")) {
		t.Error("the module does not say where in the SDK it gives up")
	}
	if bytes.Contains(module, []byte(top)) {
		t.Errorf("the module says that it was built in %s", top)
	}
	home, err := os.UserHomeDir()
	if err == nil && bytes.Contains(module, []byte(filepath.Join(home, ".cargo"))) {
		t.Errorf("the module says where the author keeps cargo's files")
	}
}

func appendTo(t *testing.T, file, text string) {
	t.Helper()
	old, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append(old, text...), 0o644); err != nil {
		t.Fatal(err)
	}
}
