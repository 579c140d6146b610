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

// A privileged container is one of the engine's, with nothing taken away but what is not about
// rights; and its user is that of the image.
func TestPrivileged(t *testing.T) {
	b := &Box{config: Config{Name: "x", Network: "none", Privileged: true}.withDefaults(), image: &Image{ID: "sha256:x"}}
	user, changed := b.config.user(b.image)
	if user != "" || changed {
		t.Errorf("it runs as %q", user)
	}
	config, host := b.shape("mark", user, nil)
	if !host.Privileged || len(host.CapDrop) > 0 || len(host.SecurityOpt) > 0 || !host.ReadonlyRootfs || host.NetworkMode != "none" || host.Memory == 0 || strings.Contains(config.Cmd[1], "drop") || strings.Contains(config.Cmd[1], "filter") {
		t.Errorf("%+v, %q", host, config.Cmd)
	}
	b.config.Privileged = false
	if _, host := b.shape("mark", user, nil); host.Privileged || len(host.CapDrop) == 0 {
		t.Errorf("%+v", host)
	}
}
