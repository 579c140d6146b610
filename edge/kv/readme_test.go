package kv_test

import (
	"os"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/source"
)

// The manifest of the README is one that is served.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(text), "```yaml\n")[1:]
	if len(blocks) != 1 {
		t.Fatalf("%d manifests", len(blocks))
	}
	block, _, _ := strings.Cut(blocks[0], "```")
	set, err := source.Read("README.md", []byte(block))
	if err != nil {
		t.Fatal(err)
	}
	r := set.Compile()
	if err := r.Err(); err != nil || len(r.Findings) > 0 {
		t.Fatalf("%v: %v", err, r.Findings)
	}
	s := r.Plan.Servers[0].Store
	if s == nil || s.Address != "redis.example.com:6379" || s.KeyPrefix != "prod:" || s.Password == nil || s.Password.Name != "redis" {
		t.Errorf("%+v", s)
	}
}
