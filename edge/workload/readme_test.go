package workload

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestReadmeHasEveryFlag: the README has a table of each theme, with a row for each flag.
func TestReadmeHasEveryFlag(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	theme := ""
	for _, f := range Flags() {
		if f.Theme != theme {
			theme = f.Theme
			fmt.Fprintf(&want, "\n#### %s\n\n| flag | default | does |\n|---|---|---|\n", theme)
		}
		name, usual, does := "--"+f.Name, f.Default, f.Help
		if f.Short != "" {
			name = "-" + f.Short + " " + name
		}
		if f.Value != "" {
			name += " " + strings.ReplaceAll(f.Value, "|", `\|`)
		}
		if usual != "" {
			usual = "`" + usual + "`"
		}
		if f.Later != "" {
			does += " (not supported yet)"
		}
		fmt.Fprintf(&want, "| `%s` | %s | %s |\n", name, usual, does)
	}
	if !strings.Contains(string(text), want.String()) {
		t.Errorf("the tables of flags should be\n%s", want.String())
	}
}

// Blocks of YAML in the README are manifests of workloads that compile.
func TestReadmeManifests(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(text), "```yaml\n")[1:]
	if len(blocks) < 2 {
		t.Fatalf("%d blocks", len(blocks))
	}
	for _, block := range blocks {
		block, _, _ = strings.Cut(block, "```")
		manifest, _, err := Import("README.yaml", []byte(block))
		if err == nil {
			_, _, err = Check(manifest)
		}
		if err != nil {
			t.Errorf("%v\n%s", err, block)
		}
	}
}
