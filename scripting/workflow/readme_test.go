package workflow_test

import (
	"os"
	"regexp"
	"testing"
)

// TestReadme holds that each program in README.md is what comes of the YAML before it, and
// that the others are valid scripts.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```(yaml|python)\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	pairs, scripts := 0, 0
	for i, b := range blocks {
		switch {
		case b[1] == "yaml":
			if i+1 == len(blocks) || blocks[i+1][1] != "python" {
				t.Errorf("no program after\n%s", b[2])
				continue
			}
			pairs++
			if got := parse(t, composite(t, b[2])).Show(); got != blocks[i+1][2] {
				t.Errorf("got\n%s\nwant\n%s", got, blocks[i+1][2])
			}
		case i == 0 || blocks[i-1][1] == "python":
			scripts++
			tool := composite(t, "description: x")
			tool.Script = b[2]
			parse(t, tool)
		}
	}
	if pairs < 7 || scripts < 1 {
		t.Errorf("%d pairs, %d scripts", pairs, scripts)
	}
}
