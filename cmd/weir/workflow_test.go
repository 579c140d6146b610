package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestX17X20X42Findings: what is wrong with composite tools is said all at once, with file, line
// and field, and in the same words by validate, serve and workflow lint.
func TestX17X20X42Findings(t *testing.T) {
	mistakes(t, "workflows", nil)
	names, err := filepath.Glob("testdata/mistakes/workflows/*.txtar")
	if err != nil || len(names) == 0 {
		t.Fatalf("no texts: %v", err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		said, _, _ := strings.Cut(string(text), "\n-- ")
		by := map[string]map[string]string{} // file, command
		for _, one := range strings.Split(said, "\n$ weir ")[1:] {
			command, answer, _ := strings.Cut(one, "\n")
			words := strings.Fields(command)
			file := words[len(words)-1]
			if by[file] == nil {
				by[file] = map[string]string{}
			}
			by[file][words[0]] = strings.TrimSpace(answer)
		}
		for file, said := range by {
			if len(said) != 3 || said["validate"] != said["serve"] || said["validate"] != said["workflow"] || !strings.HasPrefix(said["validate"], file) {
				t.Errorf("%s: %s: %d commands, of which not all say\n%s", name, file, len(said), said["validate"])
			}
		}
	}
}
