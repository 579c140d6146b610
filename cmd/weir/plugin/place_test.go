package plugin

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// TestZ38PathIsRelativeToTheManifest: a manifest names a module by the way from its
// own directory, wherever the command runs.
func TestZ38PathIsRelativeToTheManifest(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, c := range [][3]string{
		{"filter.yaml", "x.wasm", "x.wasm"},
		{"manifests/filter.yaml", "build/x.wasm", "../build/x.wasm"},
		{"build/filter.yaml", "build/x.wasm", "x.wasm"},
		{filepath.Join(dir, "a", "filter.yaml"), "x.wasm", "../x.wasm"},
	} {
		if got, err := Beside(c[0], c[1]); err != nil || got != c[2] {
			t.Errorf("in %s of %s: %q, %v: want %q", c[0], c[1], got, err, c[2])
		}
	}
	f, err := os.Create("out.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got := WrittenTo(f); runtime.GOOS == "linux" && filepath.Base(got) != "out.yaml" {
		t.Errorf("output to a file goes to %q", got)
	}
	if got := WrittenTo(&bytes.Buffer{}); got != "" {
		t.Errorf("output to no file goes to %q", got)
	}
}
