package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "write the golden files")

// mistakes runs the commands of the golden texts in a folder of
// testdata/mistakes. A text is an archive: it begins with a remark and with each
// command after "$ ", what it says on both streams, and how it ends; below stand
// the files of the directory that it runs in, beside those that are given.
func mistakes(t *testing.T, folder string, given map[string]string, environ ...string) {
	t.Helper()
	mistakesAt(t, folder, given, nil, func(t *testing.T, args []string) (said string, code int) {
		var out bytes.Buffer
		code = runWeir(args, &out, &out, environ...)
		return out.String(), code
	})
}

// runWeir runs a command, with both streams and an environment.
func runWeir(args []string, out, err io.Writer, environ ...string) int {
	a := &app{in: strings.NewReader(""), out: out, err: err, environ: environ, exit: func(int) {}}
	return a.run(args)
}

// mistakesAt is mistakes with commands that run runs, in which names stand for
// places, such as URLs.
func mistakesAt(t *testing.T, folder string, given, places map[string]string, run func(t *testing.T, args []string) (said string, code int)) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("testdata", "mistakes", folder, "*.txtar"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no texts: %v", err)
	}
	for _, name := range names {
		golden, err := filepath.Abs(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			t.Chdir(t.TempDir())
			written(t, given)
			for _, f := range archive.Files {
				if err := os.MkdirAll(filepath.Dir(f.Name), 0o700); err != nil {
					t.Fatal(err)
				}
				written(t, map[string]string{f.Name: string(f.Data)})
			}
			want := string(archive.Comment)
			var got strings.Builder
			commands := 0
			for line := range strings.Lines(want) {
				command, ok := strings.CutPrefix(line, "$ weir ")
				if !ok {
					if commands == 0 {
						got.WriteString(line)
					}
					continue
				}
				commands++
				args := strings.Fields(command)
				for i := range args {
					args[i] = strings.ReplaceAll(args[i], "''", "")
					if place, ok := places[args[i]]; ok {
						args[i] = place
					}
				}
				said, code := run(t, args)
				for name, place := range places {
					said = strings.ReplaceAll(said, strings.TrimSuffix(place, "/mcp"), name)
				}
				fmt.Fprintf(&got, "%s%sexit code %d\n", line, strings.ReplaceAll(said, os.Args[0], "weir"), code)
			}
			got.WriteString("\n")
			if commands == 0 {
				t.Fatal("no command")
			}
			if got.String() == want {
				return
			}
			if !*update {
				t.Fatalf("got\n%s\nwant\n%s", got.String(), want)
			}
			archive.Comment = []byte(got.String())
			if err := os.WriteFile(golden, txtar.Format(archive), 0o644); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// written makes files of the working directory.
func written(t *testing.T, files map[string]string) {
	t.Helper()
	for name, text := range files {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
