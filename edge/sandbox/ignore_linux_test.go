package sandbox

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What ignore patterns name is not seen inside: a file is empty, a directory has nothing, and
// neither can be written to or taken away. A grade that hides nothing is refused.
func TestHidden(t *testing.T) {
	dir := tree(t, ".env", "keys/one", "shown", "a/.env")
	ignore := filepath.Join(t.TempDir(), "ignore")
	for path, text := range map[string]string{ignore: ".env\nkeys/\n", filepath.Join(dir, IgnoreName): "!.env\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m := machine(t)
	bwrapped(t, m)
	c := config(t, Bwrap, "read:/data/.env", "read:/data/a/.env", "list:/data/keys", "write:/data/.env", "write:/data/keys/x", "write:/data/new", "read:/data/shown", "read:/data/.weirignore", "write:/data/.weirignore")
	c.Mounts, c.Ignore = []Mount{{Host: dir, Inside: "/data", Writable: true}}, ignore
	got, _ := said(t, openBox(t, m, c))
	for try, want := range map[string]string{"read:/data/.env": `""`, "read:/data/a/.env": `""`, "list:/data/keys": "", "read:/data/shown": `"content"`, "read:/data/.weirignore": `""`, "write:/data/new": "wrote"} {
		if result := got[try]; result != want {
			t.Errorf("%s: %q, want %q", try, result, want)
		}
	}
	for _, try := range []string{"write:/data/.env", "write:/data/keys/x", "write:/data/.weirignore"} {
		if !strings.HasPrefix(got[try], "refused: ") {
			t.Errorf("%s: %q", try, got[try])
		}
	}
	if text, err := os.ReadFile(filepath.Join(dir, ".env")); string(text) != "content" {
		t.Errorf("outside it is %q, %v", text, err)
	}
	c.Ignore, c.Command = "", append(c.Command[:1:1], "read:/data/.env")
	if got, _ := said(t, openBox(t, m, c)); got["read:/data/.env"] != `"content"` {
		t.Errorf("without patterns: %q", got["read:/data/.env"])
	}
	for _, grade := range []Grade{Landlock, None} {
		c := config(t, grade, "env")
		c.Mounts, c.Ignore = []Mount{{Host: dir}}, ignore
		if grade == Landlock && m.abi() < 4 {
			continue
		}
		var refused *MountError
		if s, err := m.Open(t.Context(), c); !errors.As(err, &refused) || !strings.Contains(refused.Why, "ignore patterns") {
			if err == nil {
				s.Close()
			}
			t.Errorf("%s: %v", grade, err)
		}
	}
}

// What is hidden of a mount is hidden, too, where the directory is shown as that of the program; what
// another mount shows there is not.
func TestHiddenBesideProgram(t *testing.T) {
	m := machine(t)
	bwrapped(t, m)
	program, err := os.ReadFile(probe(t))
	if err != nil {
		t.Fatal(err)
	}
	dir, other := tree(t, ".env", "keys/one", "shown", "in/x", "in/.env"), tree(t, ".env", "shown")
	ignore := filepath.Join(t.TempDir(), "ignore")
	for path, text := range map[string]string{ignore: "/.env\n/in/.env\nkeys/\n", filepath.Join(dir, "probe"): string(program)} {
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, writable := range []bool{false, true} {
		tries := map[string]string{
			"read:/data/.env": `""`, "read:" + dir + "/.env": `""`, "read:" + dir + "/shown": `"content"`, "read:" + dir + "/in/shown": `"content"`,
			"list:" + dir + "/keys": "",
		}
		c := config(t, Bwrap)
		c.Command = append([]string{filepath.Join(dir, "probe")}, slices.Collect(maps.Keys(tries))...)
		c.Mounts, c.Ignore = []Mount{{Host: dir, Inside: "/data", Writable: writable}, {Host: other, Inside: filepath.Join(dir, "in")}}, ignore
		got, _ := said(t, openBox(t, m, c))
		for try, want := range tries {
			if got[try] != want {
				t.Errorf("writable %t: %s: %q, want %q", writable, try, got[try], want)
			}
		}
	}
	// A mount that lies over the directory of the program has its own files.
	shown := []string{dir, "/usr"}
	for _, over := range []string{dir, filepath.Dir(dir)} {
		got, err := Overlays([]Mount{{Host: dir, Inside: "/data"}, {Host: filepath.Join(other, "shown"), Inside: over, Writable: true}}, ignore, shown...)
		if err != nil || slices.ContainsFunc(got, func(o Overlay) bool { return below(o.Inside, over) }) || len(got) != 3 {
			t.Errorf("below %s: %v, %v", over, got, err)
		}
	}
}

// A file of patterns that a server has made a link is read where that leads to a file of its own mount,
// and no other file of this machine says by what is hidden what it has in it.
func TestIgnoreIsNoLinkOut(t *testing.T) {
	outside := filepath.Join(tree(t, "notes"), "notes")
	if err := os.WriteFile(outside, []byte("guess\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := tree(t, "guess", "content", "deep/.patterns")
	for _, c := range []struct {
		to       string
		writable bool
		hides    string // of dir; "" where it is refused
	}{
		{outside, true, ""},
		{outside, false, "guess"}, // it is the user's
		{"deep/.patterns", true, "content"},
	} {
		link := filepath.Join(dir, IgnoreName)
		_ = os.Remove(link)
		if err := os.Symlink(c.to, link); err != nil {
			t.Fatal(err)
		}
		all, err := Overlays([]Mount{{Host: dir, Writable: c.writable}}, "")
		if c.hides == "" {
			if err == nil || !strings.Contains(err.Error(), link) || !strings.Contains(err.Error(), "no link is followed out") || len(all) > 0 {
				t.Errorf("a link to %s: %v, %v", c.to, all, err)
			}
			continue
		}
		if err != nil || !slices.ContainsFunc(all, func(o Overlay) bool { return o.Host == filepath.Join(dir, c.hides) }) {
			t.Errorf("a link to %s, writable %t: %v, %v", c.to, c.writable, all, err)
		}
	}
}

// A file of patterns that a server has made a named pipe is not waited for, also when it was a
// file still as it was looked at.
func TestIgnoreIsNoPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), IgnoreName)
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := readSome(pipe, nil)
		done <- err
	}()
	select {
	case err := <-done:
		if err == nil || !strings.Contains(err.Error(), "no file") {
			t.Errorf("a pipe of patterns: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("a pipe of patterns is waited for")
	}
}

// A mount in another one has its own files: a pattern that names one of the other's, which it
// lies over, makes none in it.
func TestHiddenBelowMount(t *testing.T) {
	dir, other := tree(t, "a/.env"), tree(t, "shown")
	ignore := filepath.Join(t.TempDir(), "ignore")
	if err := os.WriteFile(ignore, []byte(".env\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	m := machine(t)
	bwrapped(t, m)
	for _, writable := range []bool{true, false} {
		c := config(t, Bwrap, "read:/data/a/shown")
		c.Mounts, c.Ignore = []Mount{{Host: dir, Inside: "/data"}, {Host: other, Inside: "/data/a", Writable: writable}}, ignore
		if got, _ := said(t, openBox(t, m, c)); got["read:/data/a/shown"] != `"content"` {
			t.Errorf("writable %t: %q", writable, got["read:/data/a/shown"])
		}
		if _, err := os.Lstat(filepath.Join(other, ".env")); err == nil {
			t.Errorf("writable %t: a file was made outside", writable)
		}
	}
}

// What was asked for in a directory is seen, whatever else lies over the directory: memory, or
// that it is hidden. Memory over what is to be hidden has nothing of it, and can be written to.
func TestLayers(t *testing.T) {
	dir, other := tree(t, "keys/one", "cache/key", "cache/a/key", "built/x"), tree(t, "shown", "key")
	ignore := filepath.Join(t.TempDir(), "ignore")
	if err := os.WriteFile(ignore, []byte("keys/\nkey\nbuilt\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	m := machine(t)
	asNobody(t)
	bwrapped(t, m)
	wants := map[string]string{
		"read:/memory/in/shown": `"content"`, "write:/memory/in/new": "wrote", "write:/memory/x": "wrote", "read:/memory/in/key": `""`, // a mount in memory
		"write:/memory/in/deep/x": "wrote",                                                                              // memory in a mount in memory
		"list:/data/keys":         "other", "read:/data/keys/other/shown": `"content"`, "write:/data/keys/x": "refused", // a mount in what is hidden
		"list:/data/cache": "", "write:/data/cache/key": "wrote", "list:/data/built": "", "write:/data/built/y": "wrote", // memory over what is hidden
	}
	c := config(t, Bwrap)
	c.Ignore = ignore
	c.Mounts = []Mount{{Host: other, Inside: "/memory/in", Writable: true}, {Host: dir, Inside: "/data", Writable: true}, {Host: other, Inside: "/data/keys/other"}}
	c.Writable = []string{"/memory/in/deep", "/memory", "/data/cache", "/data/built"}
	c.Command = append(c.Command, "list:/data/keys", "list:/data/cache", "list:/data/built") // before something is written
	for try := range wants {
		if !strings.HasPrefix(try, "list:") {
			c.Command = append(c.Command, try)
		}
	}
	got, _ := said(t, openBox(t, m, c))
	for try, want := range wants {
		if result := got[try]; result != want && (want != "refused" || !strings.HasPrefix(result, "refused: ")) {
			t.Errorf("%s: %q, want %q", try, result, want)
		}
	}
	if _, err := os.Stat(filepath.Join(other, "new")); err != nil {
		t.Errorf("what was written is not outside: %v", err)
	}
}
