package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-edge/weir/cmd/weir/plugin"
	"github.com/weir-edge/weir/edge/edgetest"
)

// TestQuickStarts runs the commands of the quick start of every SDK, as they
// stand in its README.
func TestQuickStarts(t *testing.T) {
	for language, file := range map[string]string{
		"go": "README.md", "c": "c/README.md", "rust": "rust/README.md", "assemblyscript": "assemblyscript/README.md",
	} {
		t.Run(language, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("../../sdk", file))
			if err != nil {
				t.Fatal(err)
			}
			_, block, found := strings.Cut(string(text), "```sh\n")
			commands, _, closed := strings.Cut(block, "```")
			if !found || !closed {
				t.Fatal("no commands")
			}
			needCompiler(t, language)
			dir := t.TempDir()
			cmd := exec.Command("sh", "-ex", "-c", commands)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "npm_config_prefer_offline=true", "npm_config_audit=false", "npm_config_fund=false", "XDG_CACHE_HOME="+cacheOf(t))
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if !strings.Contains(string(out), "4 passed, 0 failed") {
				t.Errorf("the cases were not asked:\n%s", out)
			}
			made, err := os.ReadFile(filepath.Join(dir, "admins-only", "filter.yaml"))
			if err != nil || !strings.Contains(string(made), "kind: EdgeFilter\n") {
				t.Errorf("%v: %s", err, made)
			}
		})
	}
}

// cacheOf is the cache of this user, so that what npm and Go have fetched is
// found again.
func cacheOf(t *testing.T) string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return t.TempDir()
	}
	return dir
}

// needCompiler skips where there is no compiler of a language.
func needCompiler(t *testing.T, language string) {
	t.Helper()
	dir := t.TempDir()
	l, _ := plugin.LanguageNamed(language)
	if language == "assemblyscript" { // whose compiler the quick start itself installs
		_, err := exec.LookPath("npm")
		_, installed := os.Stat("../../sdk/assemblyscript/node_modules/.bin/asc")
		edgetest.Need(t, err == nil && installed == nil, "the compiler of AssemblyScript is missing: run `make peers`")
		return
	}
	if _, err := plugin.New(filepath.Join(dir, "x"), "x", l); err != nil {
		t.Fatal(err)
	}
	var missing *plugin.Missing
	if err := plugin.Build(context.Background(), l, filepath.Join(dir, "x"), filepath.Join(dir, "x.wasm")); errors.As(err, &missing) {
		edgetest.Need(t, false, err.Error())
	} else if err != nil {
		t.Fatal(err)
	}
}

// TestReadmeHasTheQuickStart: the guest in the README of the SDKs is the one
// that `weir plugin new` writes.
func TestReadmeHasTheQuickStart(t *testing.T) {
	text, err := os.ReadFile("../../sdk/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(text), "```go\n")
	block, _, _ = strings.Cut(block, "```")
	dir := filepath.Join(t.TempDir(), "admins-only")
	l, _ := plugin.LanguageNamed("go")
	if _, err := plugin.New(dir, "admins-only", l); err != nil {
		t.Fatal(err)
	}
	made, err := os.ReadFile(filepath.Join(dir, "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(made), "package main\n")
	if block != "package main\n"+code {
		t.Errorf("the README has\n%s\nand the new guest\n%s", block, code)
	}
	// Its fixtures are such.
	_, cases, _ := strings.Cut(string(text), "```yaml\n")
	cases, _, _ = strings.Cut(cases, "```")
	if _, err := plugin.ParseFixtures([]byte(cases)); err != nil {
		t.Errorf("the fixtures in the README: %v", err)
	}
}
