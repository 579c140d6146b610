package edgetest_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestSpecification holds SPECIFICATION.md to the tests and targets that it
// names.
func TestSpecification(t *testing.T) {
	text, err := os.ReadFile("../../SPECIFICATION.md")
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	there := tests(t)
	named := regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9_]+|make [a-z-]+)`").FindAllStringSubmatch(string(text), -1)
	if len(named) < 50 {
		t.Fatalf("only %d tests are named", len(named))
	}
	section, last := "", 0
	for _, m := range regexp.MustCompile(`(?m)^(?:## (\d+)\.|\| (\d+)\.(\d+) \|)`).FindAllStringSubmatch(string(text), -1) {
		if m[1] != "" {
			section, last = m[1], 0
			continue
		}
		if last++; m[2] != section || m[3] != strconv.Itoa(last) {
			t.Errorf("SPECIFICATION.md: the promise %s.%s stands in the place of %s.%d", m[2], m[3], section, last)
		}
	}
	for _, m := range named {
		if target, ok := strings.CutPrefix(m[1], "make "); ok {
			if !strings.Contains(string(makefile), "\n"+target+":") {
				t.Errorf("SPECIFICATION.md names %s, which the Makefile lacks", m[1])
			}
			continue
		}
		if !there[m[1]] {
			t.Errorf("SPECIFICATION.md names %s, which is not there", m[1])
		}
	}
}

// tests returns the names of every test and fuzz target of the module.
func tests(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	name := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Za-z0-9_]+)\(`)
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && d.Name() == "node_modules" {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		for _, m := range name.FindAllStringSubmatch(string(text), -1) {
			found[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
