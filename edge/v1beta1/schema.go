package v1beta1

import (
	"embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/yaml"
)

// The custom resource definitions, one file per kind, made by go generate.
//
//go:embed crds/*.yaml
var crds embed.FS

// CRD returns the custom resource definition of a kind as YAML. The error is
// that there is no such kind.
func CRD(kind string) ([]byte, error) {
	k, ok := KindNamed(kind)
	if !ok {
		return nil, fmt.Errorf("definition of %s: no such kind", kind)
	}
	return crds.ReadFile("crds/" + Group + "_" + k.Plural + ".yaml")
}

// Schema returns the JSON Schema (draft 2020-12) of a kind, for editors. It is
// made from the kind's definition and says what a manifest may hold: a field
// that the kind does not have is refused, and a field with a default may be
// left out. The error is that there is no such kind.
func Schema(kind string) (json.RawMessage, error) {
	text, err := CRD(kind)
	if err != nil {
		return nil, err
	}
	var definition struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema map[string]any `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(text, &definition); err != nil {
		return nil, fmt.Errorf("definition of %s: %w", kind, err)
	}
	if len(definition.Spec.Versions) != 1 {
		return nil, fmt.Errorf("definition of %s: %d versions, want 1", kind, len(definition.Spec.Versions))
	}
	s := editorSchema(definition.Spec.Versions[0].Schema.OpenAPIV3Schema)
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = kind
	s["required"] = []string{"apiVersion", "kind", "metadata", "spec"}
	properties := s["properties"].(map[string]any)
	properties["apiVersion"] = map[string]any{"const": APIVersion, "description": "The API group and its version."}
	properties["kind"] = map[string]any{"const": kind, "description": "The kind of the resource."}
	properties["metadata"] = metadataSchema()
	return json.Marshal(s)
}

// Schemas returns the JSON Schema of every kind, by kind.
func Schemas() (map[string]json.RawMessage, error) {
	out := map[string]json.RawMessage{}
	for _, k := range Kinds() {
		s, err := Schema(k.Name)
		if err != nil {
			return nil, err
		}
		out[k.Name] = s
	}
	return out, nil
}

// editorSchema turns a structural schema of Kubernetes into one that any JSON
// Schema validator understands.
func editorSchema(in map[string]any) map[string]any {
	out := map[string]any{}
	for _, keyword := range slices.Sorted(maps.Keys(in)) {
		v := in[keyword]
		switch keyword {
		case "description":
			out[keyword] = unwrap(v.(string))
		case "properties":
			properties := map[string]any{}
			for name, p := range v.(map[string]any) {
				properties[name] = editorSchema(p.(map[string]any))
			}
			out[keyword] = properties
		case "items", "additionalProperties":
			if s, ok := v.(map[string]any); ok {
				v = editorSchema(s)
			}
			out[keyword] = v
		case "format":
			if v != "int32" && v != "int64" {
				out[keyword] = v
			}
		case "required", "anyOf":
			// Both are made below.
		default:
			if !strings.HasPrefix(keyword, "x-kubernetes-") {
				out[keyword] = v
			}
		}
	}
	properties, closed := out["properties"].(map[string]any)
	switch {
	case in["x-kubernetes-preserve-unknown-fields"] == true:
		if in["type"] == "object" {
			out["additionalProperties"] = true
		}
	case in["x-kubernetes-int-or-string"] == true:
		out["type"] = []string{"integer", "string"}
	case closed || in["type"] == "object" && out["additionalProperties"] == nil:
		out["additionalProperties"] = false
	}
	if in["x-kubernetes-list-type"] == "set" {
		out["uniqueItems"] = true
	}
	var required []string
	if names, ok := in["required"].([]any); ok {
		for _, name := range names {
			name := name.(string)
			if p, ok := properties[name].(map[string]any); !ok || p["default"] == nil {
				required = append(required, name)
			}
		}
	}
	if len(required) > 0 {
		out["required"] = required
	}
	if out["pattern"] == durationPattern.String() {
		durationSchema(out)
	}
	return out
}

// durationSchema makes the schema of a Duration take its object form as well.
func durationSchema(s map[string]any) {
	text := map[string]any{"type": "string", "pattern": s["pattern"]}
	delete(s, "type")
	delete(s, "pattern")
	s["anyOf"] = []any{text, map[string]any{
		"type":                 "object",
		"properties":           map[string]any{"duration": text},
		"required":             []string{"duration"},
		"additionalProperties": false,
	}}
}

// unwrap joins the lines of a description; an empty line stays.
func unwrap(s string) string {
	paragraphs := strings.Split(s, "\n\n")
	for i, p := range paragraphs {
		paragraphs[i] = strings.ReplaceAll(p, "\n", " ")
	}
	return strings.Join(paragraphs, "\n\n")
}

// metadataSchema is the schema of metadata. What a cluster writes there is
// accepted and not described.
func metadataSchema() map[string]any {
	text := func(description string) map[string]any {
		return map[string]any{"type": "string", "description": description}
	}
	texts := func(description string) map[string]any {
		return map[string]any{"type": "object", "additionalProperties": map[string]any{"type": "string"}, "description": description}
	}
	properties := map[string]any{
		"name": map[string]any{
			"type": "string", "description": "The name of the resource: lower-case letters, digits, - and .",
			"minLength": 1, "maxLength": 253, "pattern": `^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`,
		},
		"namespace":   text("The namespace of the resource."),
		"labels":      texts("Labels, by which resources are selected."),
		"annotations": texts("Annotations, free text."),
	}
	for _, name := range []string{
		"generateName", "selfLink", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp",
		"deletionGracePeriodSeconds", "ownerReferences", "finalizers", "managedFields",
	} {
		properties[name] = map[string]any{}
	}
	return map[string]any{
		"type":                 "object",
		"description":          "What identifies the resource.",
		"properties":           properties,
		"required":             []string{"name"},
		"additionalProperties": false,
	}
}
