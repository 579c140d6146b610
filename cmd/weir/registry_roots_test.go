package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest/signer"
)

// `weir registry update` renews the roots of trust where something is verified by them, and
// only there; it says what became of them, and leaves a file of the user's own.
func TestRegistryUpdateRenewsRoots(t *testing.T) {
	home := t.TempDir()
	write := func(file, text string) string {
		t.Helper()
		path := filepath.Join(home, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	update := func(want int, words string) {
		t.Helper()
		said, code := inHome([]string{"registry", "update"}, home)
		if code != want || words == "" && strings.Contains(said, "roots") || !strings.Contains(said, words) {
			t.Errorf("exit %d: %s, want %d and %q", code, said, want, words)
		}
	}
	one := write("server.json", `{"name":"a.b/c","description":"d","version":"1"}`)
	if said, code := inHome([]string{"registry", "set", one}, home); code != 0 {
		t.Fatal(said)
	}
	update(0, "") // nothing is verified: nobody is asked
	repo := signer.NewRepository(t)
	first := signer.New(t).Roots()
	repo.Publish(1, first)
	policy := "roots:\n  mirror: " + repo.URL + "\n  root: " + write("root.json", string(repo.Root)) + "\n"
	write("config/image-policy.yaml", policy)
	update(0, "note: the roots of trust are new, from "+repo.URL)
	file := filepath.Join(home, "config", "trusted_root.json")
	if text, err := os.ReadFile(file); err != nil || !bytes.Equal(text, first) {
		t.Errorf("%v: %s", err, text)
	}
	update(0, "note: the roots of trust are those of "+repo.URL)
	repo.Publish(0, signer.New(t).Roots()) // older
	update(1, "the roots of trust cannot be renewed ("+repo.URL+": ")
	if text, err := os.ReadFile(file); err != nil || !bytes.Equal(text, first) {
		t.Errorf("%v: %s", err, text)
	}
	write("config/trusted_root.json", "{}")
	update(0, "note: the roots of trust are not renewed: "+file+": the file is your own")
	write("config/image-policy.yaml", "roots: 1")
	update(1, "image-policy.yaml: ")
}
