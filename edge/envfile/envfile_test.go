package envfile_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/envfile"
)

func TestParseEnv(t *testing.T) {
	vars, err := envfile.Parse([]byte("# first\n\nA=1\nexport B = two words \nC=\"a\\n\\\"b\\\\\\x\"\nD='x\\n \"y\"'\nE=\nF=a=b # c\r\n"))
	want := []string{"A=1", "B=two words", "C=a\n\"b\\\\x", "D=x\\n \"y\"", "E=", "F=a=b # c"}
	if err != nil || !slices.Equal(vars, want) {
		t.Errorf("%q, %v; want %q", vars, err, want)
	}
	for text, want := range map[string]string{
		"A=1\nB": "line 2", "=x": "line 1", "A B=1": "line 1", "A=\"x": "line 1", "A='x' y": "line 1", "A=\x00secret": "line 1",
	} {
		if _, err := envfile.Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestReadEnv(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"b.env": "B=2", "a.env": "A=1", ".hidden": "H=1", "one": "A=0"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	vars, err := envfile.Read(filepath.Join(dir, "one"), dir)
	if want := []string{"A=0", "A=1", "B=2", "A=0"}; err != nil || !slices.Equal(vars, want) {
		t.Errorf("%q, %v; want %q", vars, err, want)
	}
	many := t.TempDir()
	for i := range 4097 {
		if err := os.WriteFile(filepath.Join(many, fmt.Sprint(".", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := envfile.Read(many); err == nil || !strings.Contains(err.Error(), "more than 4096 entries") {
		t.Errorf("a directory of 4,097 files that are not read: %v", err)
	}
	if vars, err := envfile.Read(t.TempDir()); err != nil || len(vars) != 0 {
		t.Errorf("an empty directory: %q, %v", vars, err)
	}
	if _, err := envfile.Read(filepath.Join(dir, "none")); err == nil {
		t.Error("a file that is not there was read")
	}
}

// FuzzEnv: whatever a file holds, each variable of it can be given to a process.
func FuzzEnv(f *testing.F) {
	f.Add([]byte("A=1\nexport B=\"x\\ny\"\nC='z'"))
	f.Fuzz(func(t *testing.T, text []byte) {
		vars, err := envfile.Parse(text)
		if err != nil {
			return
		}
		for _, v := range vars {
			if name, _, ok := strings.Cut(v, "="); !ok || name == "" || strings.ContainsRune(v, 0) {
				t.Errorf("%q", v)
			}
		}
	})
}
