package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-edge/weir/cmd/weir/doctor"
	"github.com/weir-edge/weir/edge/settings"
)

func readme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestReadmeHasEveryCommandAndSetting(t *testing.T) {
	text := readme(t)
	for _, c := range testApp().command().Commands() {
		if !strings.Contains(text, "| `weir "+strings.ReplaceAll(strings.TrimSuffix(c.Use, " [flags]"), "|", `\|`)) {
			t.Errorf("no row for weir %s", c.Use)
		}
	}
	var want strings.Builder
	want.WriteString("|---|---|---|\n")
	for _, one := range settings.All() {
		value := one.Default
		if value != "" {
			value = "`" + value + "`"
		}
		fmt.Fprintf(&want, "| `%s` | %s | %s |\n", one.Name, value, one.Help)
	}
	if !strings.Contains(text, want.String()) {
		t.Errorf("the table of settings should be\n%s", want.String())
	}
}

func TestReadmeHasEveryClass(t *testing.T) {
	var want strings.Builder
	want.WriteString("| exit code | class | means |\n|---|---|---|\n")
	for _, c := range doctor.Classes() {
		fmt.Fprintf(&want, "| %d | `%s` | %s |\n", c.Code, c.Name, c.Means)
	}
	if !strings.Contains(readme(t), want.String()) {
		t.Errorf("the table of classes should be\n%s", want.String())
	}
}

// Every block of YAML in the README is a settings file that is accepted.
func TestReadmeSettingsAreAccepted(t *testing.T) {
	blocks := strings.Split(readme(t), "```yaml\n")[1:]
	if len(blocks) == 0 {
		t.Fatal("no blocks")
	}
	for _, block := range blocks {
		block, _, _ = strings.Cut(block, "```")
		l, err := given(t, block, nil)
		if err == nil {
			err = l.check()
		}
		if err != nil {
			t.Errorf("%s%v", block, err)
		}
	}
}

// Before the README of the project says weir for bin/weir, it says where a shell finds that.
func TestReadmeSaysWhereWeirIs(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	before, _, there := strings.Cut(string(text), "\n$ weir ")
	if !there || !strings.Contains(before, "install bin/weir ") || !strings.Contains(before, `export PATH="$PWD/bin:$PATH"`) {
		t.Error("the first command that begins with weir comes before the words on PATH")
	}
}

// The README of the project prints the file that `weir init` writes for the servers it names.
func TestReadmePrintsWhatInitWrites(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, line, there := strings.Cut(string(text), "$ bin/weir init ")
	if !there {
		t.Fatal("there is no command")
	}
	line, rest, _ := strings.Cut(line, "\n")
	file := filepath.Join(t.TempDir(), "weir.yaml")
	if code := runWeir(append([]string{"init", "-o", file}, strings.Fields(line)...), io.Discard, io.Discard); code != exitOK {
		t.Fatalf("exit code %d", code)
	}
	_, printed, _ := strings.Cut(rest, "```yaml\n")
	printed, _, _ = strings.Cut(printed, "```")
	if written, err := os.ReadFile(file); err != nil || printed != string(written) {
		t.Errorf("%v, written is\n%s\nand the README has\n%s", err, written, printed)
	}
}
