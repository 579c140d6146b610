// Package scriptingtest holds what the tests of both engines share: the language's own test
// files, programs made by chance, and the plain interpreter to compare with.
package scriptingtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Chunk is a part of a test file of the interpreter, a program of its own.
type Chunk struct {
	File string // its base name
	Line int    // where it begins
	Text string // with empty lines in front, so that lines are those of the file, and without loads
	Want map[int]*regexp.Regexp

	Refused string // what its error says because the dialect refuses it; "" for a chunk that runs
}

// Name names the chunk.
func (c *Chunk) Name() string { return fmt.Sprintf("%s:%d", c.File, c.Line) }

// Except says why a chunk cannot be a test of scripts, or "". More than one in twenty must not.
func (c *Chunk) Except() string {
	if strings.Contains(c.Text, "# option:loadbindsglobally") || c.Name() == "assign.star:342" {
		return "asks what the name of a load is bound to"
	}
	return ""
}

// Chunks reads the test files of the interpreter in use: those of its package starlark.
func Chunks(t testing.TB) (chunks []*Chunk) {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "go.starlark.net").Output()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "starlark", "testdata", "*.star"))
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	for _, file := range files {
		switch filepath.Base(file) {
		case "benchmark.star", "function_param.star", "paths.star":
			continue // not run by the interpreter's own test of files
		}
		chunks = append(chunks, Read(t, file)...)
	}
	return chunks
}

// Read reads one test file: chunks between lines of ---, with a pattern of the error that is
// expected behind ### in the line of the error.
func Read(t testing.TB, file string) (chunks []*Chunk) {
	t.Helper()
	load := regexp.MustCompile(`(?m)^load\(["'](assert|json|math)\.star["'](, ["'](assert|freeze|json|math)["'])+\)`)
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	line := 1
	for text := range strings.SplitSeq(string(data), "\n---\n") {
		c := &Chunk{File: filepath.Base(file), Line: line, Want: map[int]*regexp.Regexp{}}
		text = strings.ReplaceAll(text, "global variable", "(global|local) variable") // a script is the body of a function
		if strings.Contains(text, "option:recursion") {
			c.Refused = "called recursively"
		}
		for i, l := range strings.Split(text, "\n") {
			_, quoted, ok := strings.Cut(l, "###")
			if !ok {
				continue
			}
			pattern, err := strconv.Unquote(strings.TrimSpace(quoted))
			if err != nil {
				t.Fatalf("%s:%d: %v", c.File, line+i, err)
			}
			c.Want[line+i] = regexp.MustCompile(pattern)
		}
		c.Text = strings.Repeat("\n", line-1) + load.ReplaceAllString(text, "")
		if strings.Contains(c.Text, "\nload(") {
			c.Refused = "load is not available"
		}
		line += strings.Count(text, "\n") + 2
		chunks = append(chunks, c)
	}
	return chunks
}
