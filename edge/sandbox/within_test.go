package sandbox

import (
	"io"
	"os"
	"path/filepath"
	"testing"
)

// What is read for a server is no file that a link of the server's leads to: of a directory that
// it may write to none leads out, by whatever links one comes into that.
func TestOpenWithin(t *testing.T) {
	dir, other := tree(t, "work/.env", "work/deep/.env", "secret/.env", "plain/.env"), tree(t)
	work := filepath.Join(dir, "work")
	for path, to := range map[string]string{
		filepath.Join(other, "work"): work, filepath.Join(other, "plain"): filepath.Join(dir, "plain"), filepath.Join(other, "up"): "work/../secret",
		filepath.Join(work, "in"): "deep", filepath.Join(work, "out"): filepath.Join(dir, "secret"), filepath.Join(work, "out.env"): filepath.Join(dir, "secret", ".env"), filepath.Join(work, "up.env"): "../secret/.env",
		filepath.Join(other, "around"): filepath.Join(work, "out"),
	} {
		if err := os.Symlink(to, path); err != nil {
			t.Skip(err) // not everybody may make one on Windows
		}
	}
	for path, read := range map[string]bool{
		filepath.Join(work, ".env"): true, filepath.Join(work, "in", ".env"): true, filepath.Join(other, "work", ".env"): true,
		filepath.Join(dir, "plain", ".env"): true, filepath.Join(other, "plain", ".env"): true,
		filepath.Join(work, "out.env"): false, filepath.Join(work, "up.env"): false, filepath.Join(work, "out", ".env"): false, filepath.Join(other, "work", "out.env"): false,
		filepath.Join(other, "around", ".env"): false, filepath.Join(other, "up", ".env"): false, filepath.Join(work, "nowhere"): false, filepath.Join(dir, "nowhere"): false,
	} {
		for _, host := range []string{work, filepath.Join(other, "work")} {
			f, err := OpenWithin([]Mount{{Host: filepath.Join(dir, "secret")}, {Host: host, Writable: true}}, path)
			if err != nil {
				if read {
					t.Errorf("%s: %v", path, err)
				}
				continue
			}
			text, err := io.ReadAll(f)
			_ = f.Close()
			if !read || err != nil || string(text) != "content" {
				t.Errorf("%s: read %q, %v", path, text, err)
			}
		}
	}
	if f, err := OpenWithin([]Mount{{Host: work}}, filepath.Join(work, "out.env")); err != nil {
		t.Errorf("a link that the server cannot have made: %v", err)
	} else {
		_ = f.Close()
	}
}
