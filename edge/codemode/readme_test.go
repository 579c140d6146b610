package codemode

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestReadmeNamesAll: the README has every metric and every member of the arguments.
func TestReadmeNamesAll(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("stats.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(Counter|Gauge)\("(weir_script_[a-z_]+)"`).FindAllStringSubmatch(string(source), -1) {
		name := m[2]
		if m[1] == "Counter" {
			name += "_total"
		}
		if !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("the README does not name %s", name)
		}
	}
}
