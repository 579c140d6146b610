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
	"github.com/weir-edge/weir/edge/edgetest/port"
	"github.com/weir-edge/weir/edge/edgetest/program"
)

// TestQuickStarts runs the commands of the quick start of every SDK, as they
// stand in its README.
func TestQuickStarts(t *testing.T) {
	for language, file := range map[string]string{
		"go": "README.md", "c": "c/README.md", "rust": "rust/README.md", "assemblyscript": "assemblyscript/README.md", "starlark": "starlark/README.md",
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
			if l, _ := plugin.LanguageNamed(language); l.Compiled() {
				needCompiler(t, language)
			}
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

// TestQuickStartInAnEdge goes on where the quick starts end, as the README of the
// SDKs says: the guest denies a call of the demo.
func TestQuickStartInAnEdge(t *testing.T) {
	text, err := os.ReadFile("../../sdk/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "## In an edge\n")
	_, block, _ := strings.Cut(section, "```sh\n")
	commands, block, _ := strings.Cut(block, "```")
	_, block, _ = strings.Cut(block, "```console\n$ ")
	call, block, _ := strings.Cut(block, "\n")
	want, _, found := strings.Cut(block, "```")
	commands = strings.TrimSpace(commands)
	last := strings.LastIndex(commands, "\n")
	if !found || last < 0 {
		t.Fatal("the README does not say how")
	}
	// What it takes for given are addresses that nobody has.
	replace := []string{"127.0.0.1:4483", "", "127.0.0.1:4485", "", "127.0.0.1:4486", ""}
	for i := 1; i < len(replace); i += 2 {
		if replace[i], err = port.Free(); err != nil {
			t.Fatal(err)
		}
	}
	free := strings.NewReplacer(replace...)
	started := func(t *testing.T, dir, command string) {
		t.Helper()
		cmd := exec.Command("sh", "-ec", "exec "+command)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "HOME="+t.TempDir())
		var out program.Tail
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Signal(os.Interrupt)
			if err := cmd.Wait(); err != nil {
				t.Errorf("%s: %v: %s", command, err, out.String())
			}
		})
	}
	ask := func(dir, command string) string {
		cmd := exec.Command("sh", "-c", command)
		cmd.Dir = dir
		out, _ := cmd.CombinedOutput() // whether it fails is in what it says
		return string(out)
	}
	started(t, t.TempDir(), free.Replace("weir serve --listen 127.0.0.1:4483 --admin-listen ''"))
	for _, language := range []string{"go", "c"} { // one with WASI, and one without
		t.Run(language, func(t *testing.T) {
			needCompiler(t, language)
			dir := t.TempDir()
			made := ask(dir, "weir plugin new --language "+language+" admins-only && cd admins-only && weir plugin pack > filter.yaml")
			dir = filepath.Join(dir, "admins-only")
			if said := ask(dir, "set -e\n"+free.Replace(commands[:last])); !strings.Contains(said, "filter.yaml: ok") {
				t.Fatalf("%s%s", made, said)
			}
			started(t, dir, free.Replace(commands[last+1:]))
			edgetest.Until(t, "the edge to list the tools of the demo", func() bool {
				return strings.Contains(ask(dir, free.Replace("weir tools http://127.0.0.1:4485/mcp")), "delete_echo")
			})
			if got := ask(dir, free.Replace(call)); got != want {
				t.Errorf("%s\nsays\n%s\nwant\n%s", call, got, want)
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
	scripted(t)
	// Its fixtures are such.
	_, cases, _ := strings.Cut(string(text), "```yaml\n")
	cases, _, _ = strings.Cut(cases, "```")
	if _, err := plugin.ParseFixtures("README.md", []byte(cases)); err != nil {
		t.Errorf("the fixtures in the README: %v", err)
	}
}

// scripted holds the filter in the README of Starlark to the one that is written.
func scripted(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile("../../sdk/starlark/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(text), "```starlark\n")
	block, _, _ = strings.Cut(block, "```")
	dir := filepath.Join(t.TempDir(), "admins-only")
	l, _ := plugin.LanguageNamed("starlark")
	if _, err := plugin.New(dir, "admins-only", l); err != nil {
		t.Fatal(err)
	}
	made, err := os.ReadFile(filepath.Join(dir, "admins-only.star"))
	if err != nil {
		t.Fatal(err)
	}
	if _, code, _ := strings.Cut(string(made), "\n\n"); code != block {
		t.Errorf("the README has\n%s\nand the new filter\n%s", block, code)
	}
	if plan, err := os.ReadFile(filepath.Join(dir, "weir.yaml")); err != nil || !strings.Contains(string(plan), "source: {path: admins-only.star}") {
		t.Errorf("%v: %s", err, plan)
	}
}
