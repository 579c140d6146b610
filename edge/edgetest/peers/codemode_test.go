package peers_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/peers"
)

var update = flag.Bool("update", false, "write what the scripts of examples/code-mode return")

// TestCodeModeExamples runs the scripts of examples/code-mode, with the command that a user
// has, at an edge with the example's configuration before three npm servers. They run in the
// order in which they build on each other.
func TestCodeModeExamples(t *testing.T) {
	const folder = "../../../examples/code-mode/"
	_, shop := bridgeKit(t)
	program := edgeProgram(t, shop)
	bridge := peers.Bridges()[1]
	text, err := os.ReadFile(folder + "weir.yaml")
	if err != nil {
		t.Fatal(err)
	}
	yaml := string(text)
	for at, server := range map[string]string{"http://127.0.0.1:9001/mcp": "everything", "http://127.0.0.1:9002/mcp": "memory", "http://127.0.0.1:9003/mcp": "sequential-thinking"} {
		if !strings.Contains(yaml, at) {
			t.Fatalf("the example has no %s", at)
		}
		yaml = strings.Replace(yaml, at, lasting(t)(shop.StartBridge(t.Context(), bridge, server, t.TempDir())), 1)
	}
	edge := lasting(t)(peers.StartEdgeWith(t.Context(), program, t.TempDir(), yaml))
	edgetest.Until(t, "the tools of all three", func() bool {
		said, err := peers.Command(t.Context(), program, "tools", edge).Output()
		return err == nil && strings.Contains(string(said), "everything_echo") && strings.Contains(string(said), "memory_read_graph") && strings.Contains(string(said), "thinking_")
	})
	first := []string{"remember", "join"}
	last := []string{"clean-up"}
	all, err := filepath.Glob(folder + "*.star")
	if err != nil || len(all) < 10 {
		t.Fatalf("%d scripts: %v", len(all), err)
	}
	var names []string
	for _, file := range all {
		if name := strings.TrimSuffix(filepath.Base(file), ".star"); !slices.Contains(first, name) && !slices.Contains(last, name) {
			names = append(names, name)
		}
	}
	readme, err := os.ReadFile(folder + "README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, era := range []string{"modern", "legacy"} {
		for _, name := range slices.Concat(first, names, last) {
			t.Run(era+" "+name, func(t *testing.T) {
				if !strings.Contains(string(readme), "("+name+".star)") {
					t.Errorf("the README does not name it")
				}
				args := []string{"script", "run", folder + name + ".star", "--url", edge, "--era", era}
				if data := folder + name + ".json"; exists(data) {
					args = append(args, "--data", "@"+data)
				}
				var out, said bytes.Buffer
				cmd := peers.Command(t.Context(), program, args...)
				cmd.Stdout, cmd.Stderr = &out, &said
				if err := cmd.Run(); err != nil {
					t.Fatalf("%v\n%s%s", err, out.String(), said.String())
				}
				if *update {
					if err := os.WriteFile(folder+name+".want", out.Bytes(), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(folder + name + ".want")
				if err != nil || out.String() != string(want) {
					t.Errorf("it returned\n%s\nwant\n%s%s", out.String(), want, said.String())
				}
			})
		}
	}
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}
