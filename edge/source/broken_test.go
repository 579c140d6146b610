package source_test

import (
	"bytes"
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/source"
)

var update = flag.Bool("update", false, "write the golden files")

// Each broken file has beside it, as NAME.want, every line that a user gets to
// read about it.
func TestBroken(t *testing.T) {
	t.Chdir(filepath.Join("testdata", "broken"))
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, e := range entries {
		name := e.Name()
		if filepath.Ext(name) == ".want" {
			continue
		}
		seen++
		t.Run(name, func(t *testing.T) {
			r := source.Open(name)
			if r.Plan != nil || r.Err() == nil {
				t.Fatalf("Open made a plan of it: %v", r.Err())
			}
			var b bytes.Buffer
			if err := r.Render(&b); err != nil {
				t.Fatal(err)
			}
			got := b.String()
			if strings.Contains(got, "hunter2") || strings.Contains(got, "271828") {
				t.Errorf("a secret is shown:\n%s", got)
			}
			for line := range strings.Lines(got) {
				if !regexp.MustCompile(`^[a-z0-9./-]+:(\d+:)? .{15,}\n$|^there is no VirtualMCPServer`).MatchString(line) {
					t.Errorf("no place, or nothing to do, in: %s", line)
				}
			}
			want := strings.TrimSuffix(name, filepath.Ext(name)) + ".want"
			if filepath.Ext(name) == ".json" {
				want = name + ".want"
			}
			if *update {
				if err := os.WriteFile(want, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			golden, err := os.ReadFile(want)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(golden) {
				t.Errorf("got\n%s\nwant\n%s", got, golden)
			}
		})
	}
	if seen < 20 {
		t.Errorf("%d broken files, want 20 or more", seen)
	}
}

// A panic while a set is judged is an error that shows nothing of what was read.
func TestPanic(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.yaml")
	text := "apiVersion: weir.dev/v1beta1\nkind: EdgeFilter\nmetadata: {name: f}\nspec: {type: wasm, source: {path: m.wasm}}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	logged := slog.Default()
	t.Cleanup(func() { slog.SetDefault(logged) })
	var log bytes.Buffer
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	r := source.Open(path, source.Part(true), func(s *source.Set) {
		s.Modules = func(string) ([]byte, error) { panic("hunter2") }
	})
	var said bytes.Buffer
	if err := r.Render(&said); err != nil {
		t.Fatal(err)
	}
	if r.Plan != nil || r.Err() == nil || len(r.Findings) != 1 || !strings.Contains(said.String(), "weir.yaml: the configuration cannot be judged: this is a defect of weir, please report it") {
		t.Errorf("plan %v, %s", r.Plan != nil, said.String())
	}
	if !strings.Contains(log.String(), "compile.Compile") || strings.Contains(log.String()+said.String(), "hunter2") {
		t.Errorf("logged: %s", log.String())
	}
	if found := r.Missing(t.Context(), nil); len(found) != 0 {
		t.Error(found)
	}
}
