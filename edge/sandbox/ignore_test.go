package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
)

// What gitignore(5) says of patterns.
func TestPatterns(t *testing.T) {
	for _, one := range []struct{ lines, hidden, shown string }{
		{".env", ".env a/.env a/b/.env", ".envx a.env env"},
		{"/.env", ".env", "a/.env"},
		{"*.key", "x.key a/x.key .key", "x.keys"},
		{"secrets/", "secrets/ a/secrets/", "secrets a/secrets"},
		{"a/b", "a/b a/b/", "b c/a/b"},
		{"a/*.pem", "a/x.pem", "a/b/x.pem x.pem"},
		{"**/b", "b a/b a/c/b", "ab"},
		{"a/**", "a/b a/b/c", "a a/ b/a/c"},
		{"a/**/b", "a/b a/x/b a/x/y/b", "ab a/xb"},
		{"?.pem", "a.pem", "ab.pem /.pem .pem"},
		{"[ab].pem\n[!x]1\n[0-9][[:alpha:]]", "a.pem b.pem y1 7z", "c.pem x1 zz"},
		{"*.pem\n!ours.pem", "a.pem", "ours.pem a/ours.pem"},
		{"!ours.pem\n*.pem", "a.pem ours.pem", ""},
		{`\#x` + "\n" + `\!y` + "\n# .env\n\nz\\ \nw   \n", "#x !y w", ".env z"},
		{"[]]\n[a\\-c]", "] a - c", "b"},
		{"a**b", "ab axb", "a/b"},
		{"\xff?", "\xffa", "a"},
	} {
		file := filepath.Join(t.TempDir(), "ignore")
		if err := os.WriteFile(file, []byte(one.lines), 0o600); err != nil {
			t.Fatal(err)
		}
		all, err := readIgnore(file, nil)
		if err != nil {
			t.Fatalf("%q: %v", one.lines, err)
		}
		for list, want := range map[string]bool{one.hidden: true, one.shown: false} {
			for path := range strings.FieldsSeq(list) {
				if got := matches(all, strings.TrimSuffix(path, "/"), strings.HasSuffix(path, "/")); got != want {
					t.Errorf("%q hides %q: %v", one.lines, path, got)
				}
			}
		}
	}
	for _, bad := range []string{"[a", `a\`, "[]", "[!]", strings.Repeat("a\n", maxPatterns+1), strings.Repeat("a", maxIgnore+1)} {
		file := filepath.Join(t.TempDir(), "ignore")
		if err := os.WriteFile(file, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if all, err := readIgnore(file, nil); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%.10q: %d patterns, %v", bad, len(all), err)
		}
	}
	if _, err := readIgnore("/dev", nil); err == nil {
		t.Error("a directory has patterns")
	}
}

// tree makes files, and directories where a name ends in a slash.
func tree(t *testing.T, names ...string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil && strings.HasSuffix(name, "/") {
			err = os.MkdirAll(path, 0o755)
		} else if err == nil {
			err = os.WriteFile(path, []byte("content"), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// What is hidden of mounts, and where.
func TestOverlays(t *testing.T) {
	dir, other := tree(t, ".env", "a/.env", "secrets/key", "a/public", "real", "mine"), tree(t, ".env", "shown", "k")
	write := func(path, text string) string {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write(filepath.Join(dir, IgnoreName), "!.env\nmine\n")
	for link, to := range map[string]string{"linked.key": "real", "out.key": "/etc/hostname", "far.key": filepath.Join(other, "k"), "nowhere.key": "missing"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	global := write(filepath.Join(t.TempDir(), "ignore"), ".env\nsecrets/\n*.key\n")
	strs := func(all []Overlay) (out []string) {
		for _, o := range all {
			out = append(out, strings.ReplaceAll(strings.ReplaceAll(o.String(), dir, "DIR"), other, "OTHER"))
		}
		slices.Sort(out)
		return out
	}
	mounts := []Mount{{Host: dir, Inside: "/data", Writable: true}, {Host: other, Inside: "/other"}, {Host: filepath.Join(other, ".env"), Inside: "/asked"}, {Host: filepath.Join(dir, "missing")}}
	got, err := Overlays(mounts, global)
	want := []string{
		"DIR/.env → /data/.env (empty)", "DIR/.weirignore → /data/.weirignore (empty)", "DIR/a/.env → /data/a/.env (empty)", "DIR/mine → /data/mine (empty)", "DIR/real → /data/real (empty)", "DIR/secrets → /data/secrets (tmpfs)",
		"OTHER/.env → /other/.env (empty)", "OTHER/k → /other/k (empty)",
	}
	if err != nil || !slices.Equal(strs(got), want) {
		t.Errorf("%q, %v", strs(got), err)
	}
	// Without the user's, a directory's own are left.
	if got, err := Overlays(mounts, ""); err != nil || !slices.Equal(strs(got), []string{"DIR/.weirignore → /data/.weirignore (empty)", "DIR/mine → /data/mine (empty)"}) {
		t.Errorf("%q, %v", strs(got), err)
	}
	if got, err := Overlays([]Mount{{Host: other}}, filepath.Join(dir, "not-there")); err != nil || len(got) > 0 {
		t.Errorf("%q, %v", strs(got), err)
	}
	// What another mount lies over is not seen, and so not hidden: what is there is that one's.
	over := []Mount{{Host: dir, Inside: "/data"}, {Host: other, Inside: "/data/a", Writable: true}, {Host: filepath.Join(dir, "real"), Inside: "/data/secrets"}}
	if got, err := Overlays(over, global); err != nil || slices.Contains(strs(got), "DIR/secrets → /data/secrets (tmpfs)") || slices.Contains(strs(got), "DIR/a/.env → /data/a/.env (empty)") || !slices.Contains(strs(got), "OTHER/.env → /data/a/.env (empty)") {
		t.Errorf("%q, %v", strs(got), err)
	}
	// More than may be.
	many := t.TempDir()
	for i := range maxOverlays + 2 {
		if f, err := os.Create(filepath.Join(many, "x"+strings.Repeat("y", i%200)+string(rune('a'+i/200)))); err != nil {
			t.Fatal(err)
		} else {
			_ = f.Close()
		}
	}
	var refused *MountError
	if _, err := Overlays([]Mount{{Host: many}}, write(filepath.Join(t.TempDir(), "i"), "*")); !errors.As(err, &refused) || refused.Next == "" {
		t.Errorf("more than may be: %v", err)
	}
}

// A directory is looked through in portions: a server may have made as many files as it likes.
func TestOverlaysInPortions(t *testing.T) {
	dir := t.TempDir()
	for i := range 100_000 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%0200d", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, IgnoreName), []byte("0*\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := Overlays([]Mount{{Host: dir, Writable: true}}, "")
	runtime.ReadMemStats(&after)
	var refused *MountError
	if took := (after.TotalAlloc - before.TotalAlloc) >> 20; !errors.As(err, &refused) || took > 20*edgetest.Slower {
		t.Errorf("%v, after %d MiB", err, took)
	}
}
