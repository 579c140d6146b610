//go:build unix

package cli

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/weir-edge/weir/edge"
)

// What the user names to write to keeps its kind: a file gets the text, and so does that which a
// link leads to and who reads from a pipe; a directory is refused.
func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	kinds := map[string]fs.FileMode{"new": 0, "file": 0, "link": fs.ModeSymlink, "pipe": fs.ModeNamedPipe}
	if err := errors.Join(os.WriteFile(in("file"), []byte("before"), 0o644), os.WriteFile(in("target"), nil, 0o644), os.Symlink("target", in("link")), syscall.Mkfifo(in("pipe"), 0o600)); err != nil {
		t.Fatal(err)
	}
	pipe, err := edge.OpenFile(in("pipe"))
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	for name, kind := range kinds {
		if err := WriteFile(in(name), []byte("text"), 0o600); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if info, err := os.Lstat(in(name)); err != nil || info.Mode().Type() != kind {
			t.Errorf("%s has become %v, %v", name, info, err)
		}
	}
	for _, name := range []string{"new", "file", "target"} {
		if text, err := os.ReadFile(in(name)); string(text) != "text" {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
	if text, err := io.ReadAll(pipe); string(text) != "text" {
		t.Errorf("the pipe brought %q, %v", text, err)
	}

	// Nobody reads more than they could before, or than the umask lets them.
	defer syscall.Umask(syscall.Umask(0o027))
	if err := errors.Join(os.WriteFile(in("private"), nil, 0o600), WriteFile(in("private"), nil, 0o666), WriteFile(in("begun"), nil, 0o666)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{"private": 0o600, "begun": 0o640} {
		if info, err := os.Stat(in(name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want %v", name, info.Mode(), err, want)
		}
	}

	for path, said := range map[string]string{"": "no file is named", dir: "is a directory: name a file in it", in("none/file"): in("none/file") + ": no such file"} {
		if err := WriteFile(path, nil, 0o600); err == nil || !strings.Contains(err.Error(), said) {
			t.Errorf("%q: %v, want %q", path, err, said)
		}
	}
	if left, err := filepath.Glob(in(".*")); len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}
