package guest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/source"
)

// TestReadme compiles every manifest of the README with modules, and serves the first.
func TestReadme(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(text), "```yaml\n")[1:]
	if len(blocks) != 4 {
		t.Fatalf("%d manifests", len(blocks))
	}
	for i, block := range blocks[:2] {
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

// TestReadmeStarlark serves the manifests of the README with scripts, and has each do what
// the page says of it.
func TestReadmeStarlark(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(text), "```yaml\n")[1:]
	_, quota, ok := strings.Cut(string(text), "```python\n")
	if len(blocks) != 4 || !ok {
		t.Fatalf("%d manifests", len(blocks))
	}
	dir := t.TempDir()
	quota, _, _ = strings.Cut(quota, "```")
	if err := os.WriteFile(filepath.Join(dir, "quota.star"), []byte(quota), 0o600); err != nil {
		t.Fatal(err)
	}
	back := edgetest.NewServer(t, edgetest.Modern)
	offers(back, "delete_all", "write_file", "echo")
	serve := func(name, block string) client {
		block, _, _ = strings.Cut(block, "```")
		block = strings.Replace(block, "path: quota.star", "path: "+filepath.Join(dir, "quota.star"), 1)
		server := strings.Replace(manifest(t, backs{"back": back}, nil), "filterRefs: []", "filterRefs: [{name: "+name+"}]", 1)
		return newClient(start(t, block+"---\n"+server), edgetest.Modern)
	}

	careful := serve("careful", blocks[2])
	fails(t, careful.call(t, "delete_all", "{}"), 403, 403, "only admin may delete")
	if got := careful.call(t, "write_file", `{"path":"/tmp/a"}`).Result(); !strings.Contains(got, `/scratch/tmp/a`) {
		t.Errorf("a path that is moved: %s", got)
	}
	if got := careful.call(t, "echo", `{"n":"4111111111111111"}`).Result(); !strings.Contains(got, "[card]") || strings.Contains(got, "4111") {
		t.Errorf("a number that is hidden: %s", got)
	}

	counted := serve("quota", blocks[3])
	for range 2 {
		if got := counted.call(t, "echo", "{}").Result(); !strings.Contains(got, "content") {
			t.Errorf("a call that is within: %s", got)
		}
	}
	fails(t, counted.call(t, "echo", "{}"), 429, 429, "at most 2 calls a minute")
}
