package container

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest/engine"
	"github.com/weir-edge/weir/edge/sandbox"
)

// What ignore patterns name of a mounted directory is not seen in a container.
func TestHidden(t *testing.T) {
	e := running(t)
	image(t, e, "probe:1", engine.Config{})
	dir := t.TempDir()
	ignore := filepath.Join(t.TempDir(), "ignore")
	for path, text := range map[string]string{filepath.Join(dir, ".env"): "content", filepath.Join(dir, "keys/one"): "content", filepath.Join(dir, "shown"): "content", ignore: ".env\nkeys/\n"} {
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{filepath.Dir(dir), dir, filepath.Join(dir, "keys"), filepath.Join(dir, ".env")} {
		if err := os.Chmod(path, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	m := machine(t, e)
	for _, writable := range []bool{true, false} {
		c := config(t, "read:/data/.env", "list:/data/keys", "write:/data/.env", "write:/data/keys/x", "read:/data/shown")
		c.Mounts, c.Ignore = []sandbox.Mount{{Host: dir, Inside: "/data", Writable: writable}}, ignore
		said := tried(t, opened(t, m, c))
		for try, want := range map[string]string{"read:/data/.env": `""`, "list:/data/keys": "", "read:/data/shown": `"content"`} {
			if result := said[try]; result != want {
				t.Errorf("writable %v: %s: %q, want %q", writable, try, result, want)
			}
		}
		for _, try := range []string{"write:/data/.env", "write:/data/keys/x"} {
			if !strings.HasPrefix(said[try], "refused: ") {
				t.Errorf("writable %v: %s: %q", writable, try, said[try])
			}
		}
		c.Ignore, c.Args = "", []string{"read:/data/.env", "list:/data/keys"}
		if said := tried(t, opened(t, m, c)); said["read:/data/.env"] != `"content"` || said["list:/data/keys"] != "one" {
			t.Errorf("without patterns: %v", said)
		}
	}
}
