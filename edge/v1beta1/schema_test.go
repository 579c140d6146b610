package v1beta1

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
)

// compiled returns the schema of a kind, ready to judge manifests.
func compiled(t testing.TB, kind string) *jsonschema.Resolved {
	t.Helper()
	text, err := Schema(kind)
	if err != nil {
		t.Fatal(err)
	}
	s := new(jsonschema.Schema)
	if err := json.Unmarshal(text, s); err != nil {
		t.Fatalf("%s: %v", kind, err)
	}
	r, err := s.Resolve(nil)
	if err != nil {
		t.Fatalf("%s: %v", kind, err)
	}
	return r
}

// instance returns a manifest as a validator wants it: with plain numbers.
func instance(t testing.TB, v any) any {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var out any
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestSchemasAcceptGoodManifests(t *testing.T) {
	for _, k := range Kinds() {
		s := compiled(t, k.Name)
		for _, d := range goodOf(t, k.Name) {
			if lookup(d.value, "metadata.name") == nil {
				continue // A generated name is for a cluster, not for a file.
			}
			if err := s.Validate(instance(t, d.value)); err != nil {
				t.Errorf("%s: %v", d.name, err)
			}
			// So is what Default makes of it.
			if err := s.Validate(instance(t, completed(t, k.Name, d.value))); err != nil {
				t.Errorf("%s, completed: %v", d.name, err)
			}
		}
	}
}

// TestSchemasRejectWhatTheDefinitionRejects breaks every rule of every
// definition, one at a time.
func TestSchemasRejectWhatTheDefinitionRejects(t *testing.T) {
	for _, k := range Kinds() {
		s, spec := compiled(t, k.Name), root(t, k.Name).Properties["spec"]
		for _, d := range goodOf(t, k.Name) {
			for _, v := range violations(spec, d.value["spec"], []string{"spec"}, "spec") {
				if v.rule == "format" {
					continue // Validators take a format for a remark.
				}
				if s.Validate(instance(t, edit(d.value, v.path, v.to))) == nil {
					t.Errorf("%s: %s of %s broken, and the schema accepts it", d.name, v.rule, v.want)
				}
			}
		}
	}
}

// typos returns a path to a misspelt field in every closed object of v.
func typos(s *structural, v any, path []string) [][]string {
	var out [][]string
	switch v := v.(type) {
	case map[string]any:
		if s.Open {
			return nil
		}
		if s.Properties != nil {
			out = append(out, append(slices.Clone(path), "mispelt"))
		}
		for _, key := range sorted(v) {
			at := append(slices.Clone(path), key)
			if p := s.Properties[key]; p != nil {
				out = append(out, typos(p, v[key], at)...)
			} else if s.Values != nil {
				out = append(out, typos(s.Values, v[key], at)...)
			}
		}
	case []any:
		for i, e := range v {
			out = append(out, typos(s.Items, e, append(slices.Clone(path), fmt.Sprint(i)))...)
		}
	}
	return out
}

// TestSchemasAndTypesRejectTypos puts a field that no kind has into every
// section of every good manifest: schema and decoder both refuse it.
func TestSchemasAndTypesRejectTypos(t *testing.T) {
	for _, k := range Kinds() {
		s, top := compiled(t, k.Name), root(t, k.Name)
		for _, d := range goodOf(t, k.Name) {
			for _, path := range typos(top, d.value, nil) {
				v := edit(d.value, path, "x")
				at := strings.Join(path, ".")
				if s.Validate(instance(t, v)) == nil {
					t.Errorf("%s: the schema accepts %s", d.name, at)
				}
				if _, err := object(k.Name, v); err == nil {
					t.Errorf("%s: the types accept %s", d.name, at)
				}
			}
		}
	}
}

// TestOpenSections: what is free by the documents stays free.
func TestOpenSections(t *testing.T) {
	for kind, paths := range map[string][]string{
		"VirtualMCPServer":                  {"spec.podTemplateSpec.x", "spec.config.metadata.x", "spec.config.compositeTools[0].parameters.x", "spec.config.compositeTools[0].steps[0].arguments.x", "metadata.labels.x"},
		"MCPAuthzConfig":                    {"spec.config.x"},
		"EdgeFilter":                        {"spec.config.x"},
		"VirtualMCPCompositeToolDefinition": {"spec.steps[1].schema.x", "spec.steps[3].defaultResults.x", "spec.output.properties[detail].properties.x"},
	} {
		s := compiled(t, kind)
		for _, path := range paths {
			d := one(t, kind, strings.TrimSuffix(path[:strings.LastIndex(path, ".")], ".labels"))
			v := edit(d.value, split(path), "x")
			if err := s.Validate(instance(t, v)); err != nil {
				t.Errorf("%s: %s: %v", d.name, path, err)
			}
			if _, err := object(kind, v); err != nil {
				t.Errorf("%s: %s: %v", d.name, path, err)
			}
		}
	}
}

func TestSchemaForms(t *testing.T) {
	s := compiled(t, "VirtualMCPServer")
	d := one(t, "VirtualMCPServer", "spec.config.operational")
	for _, c := range []struct {
		path string
		to   any
		ok   bool
	}{
		{"spec.config.operational.timeouts.default", "1m30s", true},
		{"spec.config.operational.timeouts.default", "100µs", true},
		{"spec.config.operational.timeouts.default", obj{"duration": "1m"}, true},
		{"spec.config.operational.timeouts.default", obj{"duration": "1 m"}, false},
		{"spec.config.operational.timeouts.default", obj{"duration": "1m", "x": 1}, false},
		{"spec.config.operational.timeouts.default", 30, false},
		{"spec.incomingAuth.authzConfig", obj{"configMap": obj{"name": "x"}}, true}, // type has a default
		{"apiVersion", "weir.dev/v1", false},
		{"kind", "Other", false},
		{"metadata.name", "Upper", false},
		{"metadata.finalizers", arr{"x"}, true},
		{"spec.config.backends[0].type", "", true},
		{"spec.config.backends[0].type", "other", false},
		{"spec", gone{}, false},
	} {
		err := s.Validate(instance(t, edit(d.value, split(c.path), c.to)))
		if (err == nil) != c.ok {
			t.Errorf("%s = %v: %v, want accepted: %t", c.path, c.to, err, c.ok)
		}
	}
	proxy, quantity := compiled(t, "MCPRemoteProxy"), one(t, "MCPRemoteProxy", "spec.resources")
	for to, ok := range map[any]bool{"500m": true, 2: true, true: false} {
		if err := proxy.Validate(instance(t, edit(quantity.value, split("spec.resources.limits.cpu"), to))); (err == nil) != ok {
			t.Errorf("a quantity of %v: %v, want accepted: %t", to, err, ok)
		}
	}
}

// TestSchemasSpeakToEditors: every schema says which draft it is, has no word
// of Kubernetes, and describes its fields in whole lines.
func TestSchemasSpeakToEditors(t *testing.T) {
	all, err := Schemas()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != len(Kinds()) {
		t.Errorf("%d schemas for %d kinds", len(all), len(Kinds()))
	}
	for kind, text := range all {
		var s struct {
			Schema     string `json:"$schema"`
			Title      string
			Properties map[string]struct{ Const string }
		}
		if err := json.Unmarshal(text, &s); err != nil {
			t.Fatal(err)
		}
		if s.Schema != "https://json-schema.org/draft/2020-12/schema" || s.Title != kind || s.Properties["kind"].Const != kind || s.Properties["apiVersion"].Const != APIVersion {
			t.Errorf("%s says of itself %+v", kind, s)
		}
		if strings.Contains(string(text), "x-kubernetes-") || strings.Contains(string(text), `"nullable"`) {
			t.Errorf("the schema of %s holds words of Kubernetes", kind)
		}
		again, err := Schema(kind)
		if err != nil || string(again) != string(text) {
			t.Errorf("the schema of %s is not the same twice: %v", kind, err)
		}
	}
	if _, err := Schema("MCPRegistry"); err == nil {
		t.Error("a kind that is not ours has a schema")
	}
}
