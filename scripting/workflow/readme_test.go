package workflow_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/source"
	"github.com/weir-edge/weir/edge/v1beta1"
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

// TestReadmeErrors holds every error text of README.md to the composite tool beside it: those
// of manifests, then those of runs.
func TestReadmeErrors(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	tables := strings.Split(string(text), "| composite tool | error |\n|---|---|\n")
	if len(tables) != 3 {
		t.Fatalf("%d tables", len(tables)-1)
	}
	row := regexp.MustCompile("^\\| `(.*)` \\| `(.*)` \\|$")
	rows := func(table string, check func(t *testing.T, yaml, want string)) {
		n := 0
		for line := range strings.Lines(table) {
			found := row.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
			if found == nil {
				break
			}
			n++
			t.Run(found[2], func(t *testing.T) { check(t, found[1], found[2]) })
		}
		if n < 15 {
			t.Errorf("%d rows", n)
		}
	}
	rows(tables[1], func(t *testing.T, yaml, want string) {
		if got := said(t, composite(t, yaml)); got != want {
			t.Errorf("%s\n got %s\nwant %s", yaml, got, want)
		}
	})
	rows(tables[2], func(t *testing.T, yaml, want string) {
		out, _ := play(t, parse(t, composite(t, yaml)), "", nil)
		if got := told(out); got != "failed "+want {
			t.Errorf("%s\n got %s\nwant %s", yaml, got, want)
		}
	})
}

// said is what is said of a composite tool in the manifest of a server.
func said(t *testing.T, tool *v1beta1.CompositeTool) string {
	t.Helper()
	text, err := json.Marshal(tool)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "weir.yaml")
	manifest := fmt.Sprintf("name: s\ngroupRef: g\nincomingAuth: {type: anonymous}\nbackends: [{name: w, url: \"http://127.0.0.1:1/mcp\", transport: streamable-http}]\ncompositeTools: [%s]\n", text)
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, f := range source.Open(file).Findings.Errors() {
		lines = append(lines, strings.TrimPrefix(f.Path, "compositeTools[0].")+": "+f.Message)
	}
	return strings.Join(lines, "\n")
}

// TestReadmeFields: README.md names every field of a composite tool.
func TestReadmeFields(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	fields, seen := 0, map[reflect.Type]bool{}
	var walk func(of reflect.Type)
	walk = func(of reflect.Type) {
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice || of.Kind() == reflect.Map {
			of = of.Elem()
		}
		if of.Kind() != reflect.Struct || seen[of] || of.PkgPath() != reflect.TypeFor[v1beta1.CompositeTool]().PkgPath() {
			return
		}
		seen[of] = true
		for i := range of.NumField() {
			f := of.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if fields++; name != "" && !strings.Contains(string(text), "`"+name+"`") {
				t.Errorf("no field %s", name)
			}
			walk(f.Type)
		}
	}
	walk(reflect.TypeFor[v1beta1.CompositeTool]())
	if fields < 40 {
		t.Errorf("%d fields", fields)
	}
}
