package plugin

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"sigs.k8s.io/yaml"

	"github.com/weir-edge/weir/edge/compile"
)

// resolved is the schema of a file, ready to be asked.
func resolved(t *testing.T, name string) *jsonschema.Resolved {
	t.Helper()
	text, err := Schema(name)
	if err != nil {
		t.Fatal(err)
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	r, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// valid asks a schema about YAML text.
func valid(t *testing.T, r *jsonschema.Resolved, text []byte) error {
	t.Helper()
	var v any
	if err := yaml.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	return r.Validate(v)
}

// TestZ36Schemas holds the files of all examples to the schemas, and the schemas
// to what is read: a file is refused by both or by neither.
func TestZ36Schemas(t *testing.T) {
	for name, patterns := range map[string][]string{
		"fixtures": {"../../../examples/*/fixtures.yaml", "../../../sdk/fixtures/*.yaml"},
		"plugin":   {"../../../examples/*/plugin.yaml"},
	} {
		r := resolved(t, name)
		files := 0
		for _, pattern := range patterns {
			all, err := filepath.Glob(pattern)
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range all {
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				files++
				if err := valid(t, r, text); err != nil {
					t.Errorf("%s: %v", file, err)
				}
			}
		}
		if files < 6 {
			t.Errorf("%s: %d files", name, files)
		}
	}
	for text, wrong := range map[string]bool{
		"cases: [{name: a}]": false,
		"cases: [{name: a, hook: on_event, ops: [{deny: }]}]": false,
		"cases: []":                                                    true,
		"grants: [kv]":                                                 true,
		"cases: [{hook: on_event}]":                                    true,
		"cases: [{name: a, opps: []}]":                                 true,
		"cases: [{name: a, hook: on_calls}]":                           true,
		"cases: [{name: a, ops: [{denied: {}}]}]":                      true,
		"cases: [{name: a, ops: [{deny: {txt: x}}]}]":                  true,
		"cases: [{name: a, ops: [{deny: {code: no}}]}]":                true,
		"cases: [{name: a, ops: [{deny: {}, hide: {}}]}]":              true,
		"cases: [{name: a, input: {tool: 7}}]":                         true,
		"cases: [{name: a, input: {status: -1}}]":                      true,
		"cases: [{name: a, grants: [kvs]}]":                            true,
		"cases: [{name: a, isolation: per_call}]":                      true,
		"cases: [{name: a, input: {verbatim: {tool: '{}'}}}]":          true,
		"cases: [{name: a, input: {principal: {subjekt: ann}}}]":       true,
		"cases: [{name: a, subscriptions: [{hook: on_event, on: 1}]}]": true,
	} {
		if err := valid(t, resolved(t, "fixtures"), []byte(text)); (err != nil) != wrong {
			t.Errorf("the schema says of %s: %v", text, err)
		}
		if _, err := ParseFixtures("f.yaml", []byte(text)); (err != nil) != wrong {
			t.Errorf("of %s is read: %v", text, err)
		}
	}
	for text, wrong := range map[string]bool{
		"{name: a, version: '1'}":                           false,
		"{name: A, version: '1'}":                           true,
		"{name: a}":                                         true,
		"{name: a, version: 1}":                             true,
		"{name: a, version: '1', abi: '1.0'}":               true,
		"{name: a, version: '1', language: cobol}":          true,
		"{name: a, version: '1', grants: [everything]}":     true,
		"{name: a, version: '1', config: text}":             true,
		"{name: a, version: '1', licence: Apache-2.0}":      true,
		"{name: a, version: '1', config: {}, keys: {a: b}}": false,
	} {
		if err := valid(t, resolved(t, "plugin"), []byte(text)); (err != nil) != wrong {
			t.Errorf("the schema says of %s: %v", text, err)
		}
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, ManifestFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadProject(dir); (err != nil) != wrong || wrong && !strings.HasPrefix(err.Error(), filepath.Join(dir, ManifestFile)+":1: ") {
			t.Errorf("of %s is read: %v", text, err)
		}
	}
}

// TestZ36SchemaSaysWhat holds the tables to the types: each field is described,
// and nothing else is.
func TestZ36SchemaSaysWhat(t *testing.T) {
	for _, c := range []struct {
		of     reflect.Type
		fields map[string]about
	}{{reflect.TypeFor[Fixtures](), fixtureFields()}, {reflect.TypeFor[Project](), projectFields()}} {
		known := map[string]bool{}
		var walk func(t reflect.Type, path string)
		walk = func(of reflect.Type, path string) {
			known[path] = true
			switch {
			case of == reflect.TypeFor[json.RawMessage]():
			case of.Kind() == reflect.Pointer:
				walk(of.Elem(), path)
			case of.Kind() == reflect.Slice:
				walk(of.Elem(), path+"[]")
			case of.Kind() == reflect.Map:
				walk(of.Elem(), path+"{}")
			case of.Kind() == reflect.Struct:
				for _, f := range compile.Fields(of) {
					at := strings.TrimPrefix(path+"."+f.Name, ".")
					if a := c.fields[at]; a.text == "" && !a.out {
						t.Errorf("%s: nothing is said of %s", of, at)
					}
					walk(of.FieldByIndex(f.Index).Type, at)
				}
			}
		}
		walk(c.of, "")
		for at := range c.fields {
			if !known[at] {
				t.Errorf("%s has no %s", c.of, at)
			}
		}
	}
}
