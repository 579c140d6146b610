package workflow

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/scripting"
)

// schema is a JSON Schema that was compiled. It refers to nothing outside of itself.
type schema struct {
	text     []byte
	document map[string]any
	compiled *jsonschema.Schema
	form     *form // nil for one that says more than a form does
	circles  int   // how many schemas it has where it may be part of itself; else 0
}

// closed loads nothing.
type closed struct{}

func (closed) Load(url string) (any, error) { return nil, errOutside }

var errOutside = errors.New("a $ref or $schema leads out of the document")

// compileSchema compiles the JSON text of a schema. formats says that values are held to their
// format, which is no more than an annotation otherwise (JSON Schema 2020-12, validation, 7.2.1).
func compileSchema(text []byte, formats bool) (*schema, error) {
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
	if formats {
		c.AssertFormat()
	}
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
	if s.form = formOf(doc); bytes.Contains(plain, []byte(`ref"`)) || bytes.Contains(plain, []byte(`Ref"`)) {
		s.circles = bytes.Count(plain, []byte("{"))
	}
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
	if s.circles > 0 && !within(s.compiled, s.circles, v) {
		return errManyForms
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

// maxForms is how many of the forms of a oneOf or anyOf are told that a value does not have.
const maxForms = 10

// firstCause is where and why a value does not fit, of the first cause that has no further; of a
// value that has none of several forms why not, of each.
func firstCause(e *jsonschema.ValidationError) (at, why string) {
	for len(e.Causes) > 0 {
		_, one := e.ErrorKind.(*kind.OneOf)
		if _, any := e.ErrorKind.(*kind.AnyOf); one || any {
			break
		}
		e = e.Causes[0]
	}
	for _, step := range e.InstanceLocation {
		at += "/" + pointed.Replace(step)
	}
	at = scripting.Clean(cmp.Or(at, "/"))
	var told []string
	for _, form := range e.Causes[:min(len(e.Causes), maxForms)] {
		there, one := firstCause(form)
		told = append(told, strings.TrimPrefix(there+": "+one, at+": "))
	}
	if _, never := e.ErrorKind.(*kind.FalseSchema); never {
		told = []string{"is not allowed"}
	} else if told == nil {
		told = []string{e.BasicOutput().Error.String()}
	}
	return at, scripting.Clean(strings.Join(strings.Fields(strings.Join(told, ", or ")), " "))
}

// properties are those that the schema declares, by name.
func (s *schema) properties() map[string]any {
	if s == nil {
		return nil
	}
	p, _ := s.document["properties"].(map[string]any)
	return p
}

// declared are the properties by their names, also those of what the schema refers to.
func (s *schema) declared() map[string]any {
	all := map[string]any{}
	if s == nil {
		return all
	}
	for n, of := 0, s.compiled; of != nil && n <= maxReferences; n, of = n+1, of.Ref {
		for name, p := range of.Properties {
			all[name] = p
		}
	}
	return all
}

// allows reports whether a value may have a property that is not declared by its name.
func (s *schema) allows(name string) bool {
	if s == nil || s.document["additionalProperties"] != false {
		return true
	}
	for pattern := range s.compiled.PatternProperties {
		if pattern.MatchString(name) {
			return true
		}
	}
	return false
}

// requires reports whether a value must have a property.
func (s *schema) requires(name string) bool {
	return s != nil && slices.Contains(s.compiled.Required, name)
}

// contradiction is how the schema of arguments refuses what it says itself, so that calls fail
// through no fault of their own; nil for not at all.
func (s *schema) contradiction() error {
	if s == nil {
		return nil
	}
	for i, name := range s.compiled.Required {
		if _, declared := s.declared()[name]; !declared && !s.allows(name) {
			return fmt.Errorf("required[%d]: there is no property %s, so that no arguments could fit", i, short(name))
		}
	}
	return misfit(s.compiled, "", map[*jsonschema.Schema]bool{})
}

// circular is a schema that is part of itself by $ref and allOf, so that nothing fits it; nil for none.
// What other values are held to, those of properties and items, is looked at for itself.
func circular(root *jsonschema.Schema) *jsonschema.Schema {
	under := map[*jsonschema.Schema]bool{} // false for one that was left: it leads to no circle
	values := []*jsonschema.Schema{root}
	for i := 0; i < len(values); i++ {
		for stack := values[i : i+1 : i+1]; len(stack) > 0; {
			of := stack[len(stack)-1]
			if open, met := under[of]; met || of == nil {
				stack = stack[:len(stack)-1]
				if open {
					under[of] = false
					for _, name := range slices.Sorted(maps.Keys(of.Properties)) {
						values = append(values, of.Properties[name])
					}
					values = append(values, of.Items2020)
				}
				continue
			}
			under[of] = true
			for _, same := range append(slices.Clip(of.AllOf), of.Ref) {
				if under[same] {
					return same
				}
				stack = append(stack, same)
			}
		}
	}
	return nil
}

// misfit says which default does not fit the property that it stands in, of those that fill
// puts in. Each schema is judged where it is met first.
func misfit(of *jsonschema.Schema, path string, met map[*jsonschema.Schema]bool) error {
	for n := 0; of != nil && n <= maxReferences && !met[of]; n, of = n+1, of.Ref {
		met[of] = true
		for _, name := range slices.Sorted(maps.Keys(of.Properties)) {
			p, path := of.Properties[name], fmt.Sprintf("%sproperties[%s].", path, short(name))
			if d := defaultOf(p); d != nil {
				d := cloned(*d)
				if object, ok := d.(map[string]any); ok {
					fill(p, object, 0, new(int), []*jsonschema.Schema{of})
				}
				if err := (&schema{compiled: p, circles: 1}).judgeValue(d); err != nil {
					return fmt.Errorf("%sdefault: %s", path, strings.TrimPrefix(err.Error(), "/: "))
				}
			}
			if err := misfit(p, path, met); err != nil {
				return err
			}
		}
	}
	return nil
}

// defaultOf is the default of a schema, or of what it refers to; nil for none.
func defaultOf(of *jsonschema.Schema) *any {
	for n := 0; of.Default == nil && of.Ref != nil && n < maxReferences; n++ {
		of = of.Ref
	}
	return of.Default
}

// maxFilled is how many objects have defaults put into them: schemas may refer to each other in a circle.
const maxFilled = 100_000

// fill puts the defaults of a schema's properties, and of those of what it refers to, into an object,
// also of objects within it. from are the schemas that the object is a default of, or stands in one of:
// they put nothing more into it.
func fill(of *jsonschema.Schema, object map[string]any, depth int, filled *int, from []*jsonschema.Schema) {
	for n := 0; of != nil && n <= maxReferences && *filled < maxFilled && !slices.Contains(from, of); n, of = n+1, of.Ref {
		*filled++
		for name, p := range of.Properties {
			from := from
			if _, there := object[name]; !there {
				if d := defaultOf(p); d != nil {
					object[name], from = cloned(*d), append(slices.Clip(from), of)
				}
			}
			if inner, ok := object[name].(map[string]any); ok && depth < scripting.MaxDepth {
				fill(p, inner, depth+1, filled, from)
			}
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
			return nil, fmt.Errorf("%s: %w", unfit(given), err)
		}
		var ok bool
		if object, ok = v.(map[string]any); !ok {
			return nil, errors.New("/: must be an object")
		}
	}
	if s != nil {
		fill(s.compiled, object, 0, new(int), nil)
		if err := s.judgeValue(any(object)); err != nil {
			return nil, err
		}
	}
	return object, nil
}

// unfit is the JSON pointer of the first argument that is beyond the bounds of a value; "/" where none
// is by itself.
func unfit(given []byte) (at string) {
	at = "/"
	mcp.Each(given, func(name, value []byte) bool {
		_, err := scripting.FromJSON(slices.Concat([]byte(`{"":`), value, []byte("}"))) // as deep as it stands
		if err != nil {
			at = "/" + scripting.Clean(pointed.Replace(string(mcp.Unquote(name))))
		}
		return err == nil
	})
	return at
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
	s, err := compileSchema(text, true) // as the SDKs of servers judge answers
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
		if choice && (kind != "" && kind != "string" || len(choices) == 0 || slices.ContainsFunc(choices, func(v any) bool { _, text := v.(string); return !text })) {
			return nil, fmt.Errorf("properties[%s].enum: must be one or more strings, with type string or none: clients know no other choices", scripting.Clean(name))
		}
		if c := cmp.Or(s.compiled.Properties[name], &jsonschema.Schema{}); c.MinLength != nil && c.MaxLength != nil && *c.MinLength > *c.MaxLength || c.Minimum != nil && c.Maximum != nil && c.Minimum.Cmp(c.Maximum) > 0 {
			return nil, fmt.Errorf("properties[%s]: its minimum must not be greater than its maximum: no answer could fit", scripting.Clean(name))
		}
		if kind == "" {
			quoted := string(mcp.Quote(name))
			typed = append(typed, mcp.Raw(quoted[1:len(quoted)-1], mcp.Change(mcp.Lookup(s.text, "properties", name), nil, mcp.With("type", `"string"`))))
		}
		if f, given := p["format"]; given && kind == "string" && !slices.Contains([]any{"email", "uri", "date", "date-time"}, f) {
			return nil, fmt.Errorf("properties[%s]: format must be email, uri, date or date-time", scripting.Clean(name))
		}
	}
	if err := misfit(s.compiled, "", map[*jsonschema.Schema]bool{}); err != nil {
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
	for i, name := range s.compiled.Required {
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
