package workflow

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/scripting"
)

// schema is a JSON Schema that was compiled. It refers to nothing outside of itself.
type schema struct {
	text     []byte
	document map[string]any
	compiled *jsonschema.Schema
	form     *form // nil for one that says more than a form does
}

// closed loads nothing.
type closed struct{}

func (closed) Load(url string) (any, error) { return nil, errOutside }

var errOutside = errors.New("a $ref leads out of the document")

// compileSchema compiles the JSON text of a schema.
func compileSchema(text []byte) (*schema, error) {
	plain, err := normal(text)
	if err != nil {
		return nil, err
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(plain))
	if err != nil {
		return nil, errors.New("must be a JSON object")
	}
	s := &schema{text: plain}
	var ok bool
	if s.document, ok = doc.(map[string]any); !ok {
		return nil, errors.New("must be an object")
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(closed{})
	const name = "urn:weir:schema"
	if err := c.AddResource(name, doc); err != nil {
		return nil, errors.New(oneLine(err))
	}
	if s.compiled, err = c.Compile(name); err != nil {
		if errors.Is(err, errOutside) || strings.Contains(err.Error(), errOutside.Error()) {
			return nil, errOutside
		}
		return nil, errors.New(schemaCause(err, name))
	}
	s.form = formOf(doc)
	return s, nil
}

// schemaCause says why a schema does not compile.
func schemaCause(err error, name string) string {
	var wrong *jsonschema.SchemaValidationError
	if errors.As(err, &wrong) {
		var v *jsonschema.ValidationError
		if errors.As(wrong.Err, &v) {
			at, why := firstCause(v)
			return fmt.Sprintf("is no JSON Schema: %s: %s", at, why)
		}
	}
	return "is no JSON Schema: " + strings.ReplaceAll(oneLine(err), name, "")
}

func oneLine(err error) string {
	return scripting.Clean(strings.Join(strings.Fields(err.Error()), " "))
}

// judgeValue judges a value as the library reads it. The error begins with the JSON pointer
// of what is wrong.
func (s *schema) judgeValue(v any) error {
	if s.form != nil && s.form.fits(v) {
		return nil
	}
	err := s.compiled.Validate(v)
	if err == nil {
		return nil
	}
	var wrong *jsonschema.ValidationError
	if !errors.As(err, &wrong) {
		return errors.New("/: " + oneLine(err))
	}
	at, why := firstCause(wrong)
	return fmt.Errorf("%s: %s", at, why)
}

// pointed writes a name as a part of a JSON pointer.
var pointed = strings.NewReplacer("~", "~0", "/", "~1")

// firstCause is where and why a value does not fit, of the first cause that has no further.
func firstCause(e *jsonschema.ValidationError) (at, why string) {
	for len(e.Causes) > 0 {
		e = e.Causes[0]
	}
	var pointer strings.Builder
	for _, step := range e.InstanceLocation {
		pointer.WriteByte('/')
		pointer.WriteString(pointed.Replace(step))
	}
	if pointer.Len() == 0 {
		pointer.WriteByte('/')
	}
	out := e.BasicOutput()
	if out.Error != nil {
		why = out.Error.String()
	} else if len(out.Errors) > 0 && out.Errors[0].Error != nil {
		why = out.Errors[0].Error.String()
	}
	return scripting.Clean(pointer.String()), scripting.Clean(strings.Join(strings.Fields(why), " "))
}

// properties are those that the schema declares, by name.
func (s *schema) properties() map[string]any {
	if s == nil {
		return nil
	}
	p, _ := s.document["properties"].(map[string]any)
	return p
}

// open reports whether a value may have properties that are not declared.
func (s *schema) open() bool {
	return s == nil || s.document["additionalProperties"] != false
}

// requires reports whether a value must have a property.
func (s *schema) requires(name string) bool {
	if s == nil {
		return false
	}
	required, _ := s.document["required"].([]any)
	return slices.Contains(required, any(name))
}

// contradiction is how the schema of arguments refuses what it says itself, so that calls fail
// through no fault of their own; nil for not at all.
func (s *schema) contradiction() error {
	if s == nil {
		return nil
	}
	if _, patterns := s.document["patternProperties"]; !s.open() && !patterns {
		required, _ := s.document["required"].([]any)
		for i, name := range required {
			name, _ := name.(string)
			if _, declared := s.properties()[name]; !declared {
				return fmt.Errorf("required[%d]: there is no property %s, so that no arguments could fit", i, short(name))
			}
		}
	}
	return misfit(s.compiled, s.document, "")
}

// misfit says which default does not fit the property that it stands in, of those that fill
// puts in.
func misfit(of *jsonschema.Schema, document map[string]any, path string) error {
	properties, _ := document["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		p, ok := properties[name].(map[string]any)
		compiled := of.Properties[name]
		if !ok || compiled == nil {
			continue
		}
		path := fmt.Sprintf("%sproperties[%s].", path, short(name))
		if d, has := p["default"]; has {
			d = cloned(d)
			if object, ok := d.(map[string]any); ok {
				fill(p, object, 0)
			}
			if err := (&schema{compiled: compiled}).judgeValue(d); err != nil {
				return fmt.Errorf("%sdefault: %s", path, strings.TrimPrefix(err.Error(), "/: "))
			}
		}
		if err := misfit(compiled, p, path); err != nil {
			return err
		}
	}
	return nil
}

// fill puts the defaults of a schema's properties into an object, also of objects within it.
func fill(document, object map[string]any, depth int) {
	properties, _ := document["properties"].(map[string]any)
	for name, p := range properties {
		p, ok := p.(map[string]any)
		if !ok {
			continue
		}
		given, there := object[name]
		if !there {
			if d, has := p["default"]; has {
				given = cloned(d)
				object[name] = given
			}
		}
		if inner, ok := given.(map[string]any); ok && depth < scripting.MaxDepth {
			fill(p, inner, depth+1)
		}
	}
}

// cloned copies a value that is made of JSON.
func cloned(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m := make(map[string]any, len(v))
		for name, x := range v {
			m[name] = cloned(x)
		}
		return m
	case []any:
		list := make([]any, len(v))
		for i, x := range v {
			list[i] = cloned(x)
		}
		return list
	}
	return v
}

// arguments are those of a call with defaults in place, judged by the schema, with numbers as
// the decoder reads them. The error begins with the JSON pointer of what is wrong.
func (s *schema) arguments(given []byte) (map[string]any, error) {
	object := map[string]any{}
	if len(given) > 0 {
		if len(given) > scripting.MaxData {
			return nil, fmt.Errorf("/: longer than %d bytes", scripting.MaxData)
		}
		v, err := scripting.Plain(given)
		if err != nil {
			return nil, fmt.Errorf("/: %w", err)
		}
		var ok bool
		if object, ok = v.(map[string]any); !ok {
			return nil, errors.New("/: must be an object")
		}
	}
	if s != nil {
		fill(s.document, object, 0)
		if err := s.judgeValue(any(object)); err != nil {
			return nil, err
		}
	}
	return object, nil
}

// dataText is the data of a program that reads its parameters; nil for another. The error
// begins with a JSON pointer, as those of arguments do: what fits as arguments may be too
// large or too deep with the defaults, and as the value of a name.
func (w *Workflow) dataText(params map[string]any) ([]byte, error) {
	if len(w.program.Names().Data) == 0 {
		return nil, nil
	}
	for _, name := range slices.Sorted(maps.Keys(params)) {
		if depth(params[name]) > scripting.MaxDepth-2 { // it stands within params, and that in the data
			return nil, fmt.Errorf("/%s: deeper than %d", pointed.Replace(name), scripting.MaxDepth-2)
		}
	}
	text := appendData([]byte(`{"params":`), params)
	if text = append(text, '}'); len(text) > scripting.MaxData {
		return nil, fmt.Errorf("/: longer than %d bytes with the defaults", scripting.MaxData-len(`{"params":}`))
	}
	return text, nil
}

// depth is how deep arrays and objects stand within each other in a value.
func depth(v any) (deepest int) {
	switch v := v.(type) {
	case map[string]any:
		for _, x := range v {
			deepest = max(deepest, depth(x))
		}
	case []any:
		for _, x := range v {
			deepest = max(deepest, depth(x))
		}
	default:
		return 0
	}
	return deepest + 1
}

// questionSchema compiles the schema of an answer: a flat object of texts, numbers, booleans
// and choices, and nothing else. Its text is what clients take for one (2025-11-25,
// client/elicitation, requestedSchema): they refuse a question that has no properties, a
// choice without a type, a format that they do not know or a default of another type.
func questionSchema(text []byte) (*schema, error) {
	if len(text) == 0 {
		text = []byte(`{"type":"object","properties":{}}`)
	}
	s, err := compileSchema(text)
	if err != nil {
		return nil, err
	}
	if s.document["type"] != "object" {
		return nil, errors.New("type must be object")
	}
	var typed []mcp.Member // the choices without a type
	// In order, so that of several faults always the same is told.
	for _, name := range slices.Sorted(maps.Keys(s.properties())) {
		p, ok := s.properties()[name].(map[string]any)
		if !ok {
			return nil, fmt.Errorf("properties[%s] must be an object", scripting.Clean(name))
		}
		kind, _ := p["type"].(string)
		choices, choice := p["enum"].([]any)
		if !slices.Contains([]string{"string", "number", "integer", "boolean"}, kind) && !(kind == "" && choice) {
			return nil, fmt.Errorf("properties[%s]: must be a string, number, integer, boolean or enum", scripting.Clean(name))
		}
		if kind == "" {
			if slices.ContainsFunc(choices, func(v any) bool { _, text := v.(string); return !text }) {
				return nil, fmt.Errorf("properties[%s]: an enum without a type is one of strings", scripting.Clean(name))
			}
			quoted := string(mcp.Quote(name))
			typed = append(typed, mcp.Raw(quoted[1:len(quoted)-1], mcp.Change(mcp.Lookup(s.text, "properties", name), nil, mcp.With("type", `"string"`))))
		}
		if f, given := p["format"]; given && kind == "string" && !slices.Contains([]any{"email", "uri", "date", "date-time"}, f) {
			return nil, fmt.Errorf("properties[%s]: format must be email, uri, date or date-time", scripting.Clean(name))
		}
	}
	if err := misfit(s.compiled, s.document, ""); err != nil {
		return nil, err
	}
	if properties := mcp.Lookup(s.text, "properties"); len(typed) > 0 || properties == nil {
		s.text = mcp.Change(s.text, nil, mcp.Raw("properties", mcp.Change(properties, nil, typed...)))
	}
	for _, key := range []string{"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "$ref", "$dynamicRef", "patternProperties"} {
		if _, there := s.document[key]; there {
			return nil, fmt.Errorf("%s is not available: the object must be flat", key)
		}
	}
	required, _ := s.document["required"].([]any)
	for i, name := range required {
		name, _ := name.(string)
		if _, declared := s.properties()[name]; !declared { // which an answer may not have
			return nil, fmt.Errorf("required[%d]: there is no property %s, so that no answer could fit", i, short(name))
		}
	}
	return s, nil
}

// maxReply bounds the content of an answer, in bytes.
const maxReply = 1 << 20

// reply judges the content of an answer: what the schema does not declare does not fit.
func (s *schema) reply(content []byte) error {
	if len(content) > maxReply {
		return fmt.Errorf("longer than %d bytes", maxReply)
	}
	if len(content) == 0 {
		content = []byte("{}")
	}
	v, err := scripting.Plain(content)
	if err != nil {
		return err
	}
	object, ok := v.(map[string]any)
	if !ok {
		return errors.New("must be an object")
	}
	declared := s.properties()
	for name := range object {
		if _, ok := declared[name]; !ok {
			return fmt.Errorf("/%s: the schema has no such property", scripting.Clean(name))
		}
	}
	return s.judgeValue(v)
}
