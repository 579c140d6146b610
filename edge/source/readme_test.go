package source_test

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/source"
)

// Every yaml block of the README compiles, with nothing to be said about it.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllSubmatchIndex(text, -1)
	if len(blocks) < 4 || len(blocks) != strings.Count(string(text), "```yaml") {
		t.Fatalf("%d yaml blocks found", len(blocks))
	}
	for _, b := range blocks {
		block := text[b[2]:b[3]]
		s, err := source.Read("README.md", block)
		if err != nil {
			t.Errorf("%v\nin\n%s", err, block)
			continue
		}
		r := s.Compile()
		var out bytes.Buffer
		if err := r.Render(&out); err != nil {
			t.Fatal(err)
		}
		if r.Plan == nil || out.Len() > 0 {
			t.Errorf("%s\nin\n%s", out.String(), block)
		}
	}
}

// The messages that the README shows are those that a user gets.
func TestReadmeMessages(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(readme)) {
		rest, ok := strings.CutPrefix(line, "edge.yaml:")
		if !ok {
			continue
		}
		_, message, _ := strings.Cut(rest, ": ")
		found := false
		for _, name := range []string{"misspelt-field", "dangling-group", "manual"} {
			want, err := os.ReadFile("testdata/broken/" + name + ".want")
			if err != nil {
				t.Fatal(err)
			}
			found = found || strings.Contains(string(want), message)
		}
		if !found {
			t.Errorf("nobody says %s", message)
		}
	}
}

// The embedded default is YAML of the same kind and needs nothing but its URL.
func TestDefault(t *testing.T) {
	r := source.OpenDefault("http://127.0.0.1:4485/mcp")
	if r.Err() != nil || len(r.Findings) != 0 {
		t.Fatalf("findings: %v", r.Findings)
	}
	if got := r.Plan.Servers[0].Backends[0].URL; got != "http://127.0.0.1:4485/mcp" {
		t.Errorf("url %s", got)
	}
	if r := source.OpenDefault("no url"); r.Err() == nil || !strings.Contains(r.Findings.Error(), "spec.remoteUrl") {
		t.Errorf("a URL that is none: %v", r.Findings)
	}
	if r := source.OpenDefault("\"\nkind: x"); r.Err() == nil || r.Set.Objects[0].Ref().Kind != "MCPGroup" {
		t.Errorf("a URL that is YAML: %v", r.Findings)
	}
}
