package guest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/source"
)

// TestReadme compiles every manifest of the README, and serves the first.
func TestReadme(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(text), "```yaml\n")[1:]
	if len(blocks) != 2 {
		t.Fatalf("%d manifests", len(blocks))
	}
	for i, block := range blocks {
		block, _, _ = strings.Cut(block, "```")
		if i == 0 {
			back := edgetest.NewServer(t, edgetest.Modern)
			offers(back, "delete_all", "echo")
			c := newClient(start(t, strings.Replace(block, "http://127.0.0.1:9000/mcp", back.URL, 1)), edgetest.Modern)
			fails(t, c.call(t, "back_delete_all", "{}"), 403, 403, "no")
			text := c.call(t, "back_echo", "{}").Result()
			if !strings.Contains(text, "content") {
				t.Errorf("another tool: %s", text)
			}
			continue
		}
		name := filepath.Join(t.TempDir(), "filter.yaml")
		copyFile(t, path(t), filepath.Join(filepath.Dir(name), "tenants.wasm"))
		server := strings.Replace(manifest(t, backs{"back": edgetest.NewServer(t, edgetest.Modern)}, nil), "filterRefs: []", "filterRefs: [{name: tenants}]", 1)
		if err := os.WriteFile(name, []byte(block+"---\n"+server), 0o600); err != nil {
			t.Fatal(err)
		}
		r := source.Open(name)
		if r.Err() != nil || r.Plan == nil {
			t.Fatalf("%v", r.Findings)
		}
		// The file is beside the manifest.
		if got, want := r.Plan.Servers[0].Filters[0].Path, filepath.Join(filepath.Dir(name), "tenants.wasm"); got != want {
			t.Errorf("the module's file is %s, want %s", got, want)
		}
	}
}

// copyFile puts what is in one file into another.
func copyFile(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, content, 0o600); err != nil {
		t.Fatal(err)
	}
}
