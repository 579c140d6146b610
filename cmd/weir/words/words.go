// Package words makes the arguments of a tool or a prompt from words of the
// command line, KEY=VALUE, which the schema of the arguments types.
package words

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/near"
)

// Bounds of a schema that words are typed by: strangers write it.
const (
	maxSchema  = 256 << 10 // bytes
	maxRead    = 32 << 20  // bytes that are read in it for one call, again and again
	partCost   = 4 << 10   // bytes that each part counts for more than it has
	maxPointer = 1 << 10   // bytes of a reference
	maxNamed   = 50        // arguments that an error names
	maxNested  = 32        // references, choices and arrays in each other
)

// Help says what words mean.
const Help = `KEY=VALUE is typed by the schema: count=3 is a number where the schema wants one,
and text everywhere else, also where it says nothing. Where it allows several
types, the first that fits is taken. A KEY that is repeated makes an array,
PARENT.KEY=VALUE reaches into an object, and KEY:=JSON is sent as it is written.`

// Word is one KEY=VALUE, or KEY:=VALUE when it is raw.
type Word struct {
	Key, Value string
	Raw        bool // Value is JSON
}

// wordOf reads a word of the command line.
func wordOf(given string) (Word, error) {
	key, value, ok := strings.Cut(given, "=")
	key, raw := strings.CutSuffix(key, ":")
	switch {
	case !ok || key == "":
		return Word{}, fmt.Errorf("%q is not KEY=VALUE, such as text=hello: a URL begins with http:// and stands before the name", edge.Brief(given))
	case !utf8.ValidString(given):
		return Word{}, fmt.Errorf("%s: not UTF-8", edge.Brief(key))
	case raw && mcp.Valid([]byte(value)) != nil:
		return Word{}, fmt.Errorf("%s: not JSON: after := comes JSON, such as %[1]s:=3 or %[1]s:='[\"a\"]'; write %[1]s=VALUE for text", edge.Brief(key))
	}
	return Word{key, value, raw}, nil
}

// Read reads words of the command line.
func Read(given []string) ([]Word, error) {
	words := make([]Word, len(given))
	for i, one := range given {
		var err error
		if words[i], err = wordOf(one); err != nil {
			return nil, err
		}
	}
	return words, nil
}

// Arguments makes JSON text of an object from words, by a JSON Schema of it; nil
// for none. what is whose arguments they are, such as: tool "echo". Warnings are
// about words that the schema does not know and allows. The error is a mistake in
// the words, or ErrInvolved.
func Arguments(what string, schema []byte, given []Word) (object []byte, warnings []string, err error) {
	f := form{what: what, schema: schema}
	return f.arguments(given)
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return strings.TrimSpace(line)
}

// form types the words of one call by the schema of its arguments.
type form struct {
	what   string // whose arguments they are, such as: tool "echo"
	schema []byte // JSON Schema of an object; nil for none
	read   int    // bytes of the schema so far
	warned []string
	wrong  []error
}

// argument is one of a call, or a member of one that is an object.
type argument struct {
	key     string // the whole of it, as on the command line
	name    string // in its object
	schema  []byte // nil when the schema does not know it
	words   []Word
	members []*argument
}

// ErrInvolved is what is wrong with a schema beyond the bounds.
var ErrInvolved = errors.New("its schema is too large or too involved for KEY=VALUE: give the arguments as JSON")

// arguments makes JSON text of an object from words. Warnings are about words
// that the schema does not know and allows.
func (f *form) arguments(words []Word) (object []byte, warnings []string, err error) {
	if len(f.schema) > maxSchema {
		return nil, nil, fmt.Errorf("%s: %w", f.what, ErrInvolved)
	}
	root := &argument{schema: f.schema}
	for _, w := range words {
		e := f.find(root, w.Key)
		e.words = append(e.words, w)
	}
	object = f.object(root)
	switch {
	case f.read > maxRead:
		return nil, nil, fmt.Errorf("%s: %w", f.what, ErrInvolved)
	case f.wrong != nil:
		return nil, nil, errors.Join(f.wrong...)
	}
	if missing := f.missing(root); missing != nil {
		n := len(missing)
		if n > maxNamed {
			missing = append(missing[:maxNamed], "  …")
		}
		return nil, f.warned, fmt.Errorf("%s needs %s more:\n%s", f.what, edge.Count(n, "argument"), strings.Join(missing, "\n"))
	}
	if err := mcp.Valid(object); err != nil {
		return nil, nil, fmt.Errorf("%s: the arguments make no JSON: %s", f.what, err)
	}
	return object, f.warned, nil
}

// find returns the argument of a key under an object. A name with a dot in it that
// the schema has wins over a path.
func (f *form) find(in *argument, key string) *argument {
	if i := slices.IndexFunc(in.members, func(m *argument) bool { return m.name == key && m.words != nil }); i >= 0 {
		return in.members[i]
	}
	whole := strings.TrimPrefix(in.key+"."+key, ".")
	schema := f.property(in.schema, key)
	for i := 0; schema == nil && i < len(key); i++ {
		if key[i] != '.' {
			continue
		}
		if p := f.property(in.schema, key[:i]); p != nil && slices.ContainsFunc(f.views(p, true), func(view []byte) bool {
			return slices.Contains(typesOf(view), "object")
		}) {
			return f.find(in.member(key[:i], strings.TrimPrefix(in.key+"."+key[:i], "."), p), key[i+1:])
		}
	}
	if schema == nil {
		schema = f.unknown(in, key, whole)
	}
	return in.member(key, whole, schema)
}

func (e *argument) member(name, key string, schema []byte) *argument {
	if i := slices.IndexFunc(e.members, func(m *argument) bool { return m.name == name }); i >= 0 {
		return e.members[i]
	}
	m := &argument{key: key, name: name, schema: schema}
	e.members = append(e.members, m)
	return m
}

// property returns the schema of a property; nil when there is none.
func (f *form) property(schema []byte, name string) []byte {
	for _, view := range f.views(schema, true) {
		if p := mcp.Lookup(view, "properties", name); p != nil {
			return p
		}
	}
	return nil
}

// unknown judges a key that is no property of an object, and returns the schema
// of such keys, or nil.
func (f *form) unknown(in *argument, name, key string) []byte {
	var known []string
	open := false
	for _, view := range f.views(in.schema, true) {
		for _, p := range mcp.Members(mcp.Lookup(view, "properties")) {
			known = append(known, strings.TrimPrefix(in.key+"."+string(mcp.Unquote(p.Name)), "."))
		}
		others := mcp.Lookup(view, "additionalProperties")
		if len(others) > 0 && others[0] == '{' {
			return others
		}
		open = open || mcp.Lookup(view, "patternProperties") != nil
	}
	// Of several objects to choose from one may take what another forbids.
	closed := slices.ContainsFunc(f.views(in.schema, false), func(view []byte) bool {
		return string(mcp.Lookup(view, "additionalProperties")) == "false"
	})
	hint := ""
	if found, ok := near.Word(key, known); ok {
		hint = ": did you mean " + edge.Brief(found) + "?"
	}
	switch {
	case closed && !open:
		if hint == "" && known != nil {
			hint = ": it has " + edge.Brief(strings.Join(known, ", "))
		}
		f.fault("%s has no argument %q%s", f.what, edge.Brief(key), hint)
	case !open:
		f.warned = append(f.warned, fmt.Sprintf("%s names no argument %q, which is sent all the same%s", f.what, edge.Brief(key), hint))
	}
	return nil
}

func (f *form) fault(format string, args ...any) {
	f.wrong = append(f.wrong, fmt.Errorf(format, args...))
}

// object writes what the words of an object and its members say.
func (f *form) object(e *argument) []byte {
	out := []byte{'{'}
	for _, m := range e.members {
		value := f.value(m)
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(mcp.AppendString(out, m.name), ':'), value...)
	}
	return append(out, '}')
}

// value writes an argument.
func (f *form) value(e *argument) []byte {
	switch {
	case e.members != nil && e.words != nil:
		f.fault("argument %s is given as a whole and in parts: leave one out", edge.Brief(e.key))
		return nil
	case e.members != nil:
		return f.object(e)
	}
	value := f.typed(e.schema, e.words, 0)
	if value == nil {
		f.fault("argument %s%s", edge.Brief(e.key), f.mismatch(e))
	}
	return value
}

// mismatch says why words do not fit an argument.
func (f *form) mismatch(e *argument) string {
	types, choices := f.describe(e.schema)
	switch {
	case len(e.words) > 1 && !strings.Contains(strings.Join(types, " "), "array"):
		return " is given twice and is not an array"
	case choices != nil:
		return ": give one of " + edge.Brief(strings.Join(choices, ", "))
	case slices.Equal(types, []string{"boolean"}):
		return ": give true or false"
	case slices.Equal(types, []string{"object"}):
		return ": give a JSON object, or its members as " + edge.Brief(e.key) + ".KEY=VALUE"
	}
	return " must be of type " + edge.Brief(strings.Join(types, " or "))
}

// typed writes words by the first type of a schema that they fit; nil for none.
func (f *form) typed(schema []byte, words []Word, depth int) []byte {
	if len(words) == 1 && words[0].Raw {
		return []byte(words[0].Value)
	}
	views := f.views(schema, true)
	if views == nil {
		views = [][]byte{[]byte(`{"type":"string"}`)}
	}
	for _, view := range views {
		for _, kind := range typesOf(view) {
			var value []byte
			switch {
			case kind == "array" && depth < maxNested:
				value = f.elements(view, words, depth)
			case len(words) == 1:
				value = scalar(kind, words[0].Value)
			}
			if value != nil && allowed(view, value) {
				return value
			}
		}
	}
	return nil
}

// elements writes words as an array: one that is JSON of an array, or an element
// for each.
func (f *form) elements(view []byte, words []Word, depth int) []byte {
	if len(words) == 1 {
		if value := scalar("array", words[0].Value); value != nil {
			return value
		}
	}
	var all [][]byte
	for i := range words {
		element := f.typed(mcp.Lookup(view, "items"), words[i:i+1], depth+1)
		if element == nil {
			return nil
		}
		all = append(all, element)
	}
	return array(all)
}

// array writes elements, which are JSON text, as an array.
func array(elements [][]byte) []byte {
	return slices.Concat([]byte{'['}, bytes.Join(elements, []byte{','}), []byte{']'})
}

// scalar writes text as a value of a type, in which numbers keep their digits;
// nil when it is none. An array or object is one in JSON.
func scalar(kind, text string) []byte {
	if kind == "string" {
		return mcp.Quote(text)
	}
	text = strings.TrimSpace(text)
	if mcp.Valid([]byte(text)) != nil {
		return nil
	}
	fits := false
	switch first := text[0]; kind {
	case "object":
		fits = first == '{'
	case "array":
		fits = first == '['
	case "boolean":
		fits = text == "true" || text == "false"
	case "null":
		fits = text == "null"
	case "number":
		fits = first == '-' || '0' <= first && first <= '9'
	case "integer":
		fits = (first == '-' || '0' <= first && first <= '9') && whole(text)
	}
	if !fits {
		return nil
	}
	return []byte(text)
}

// whole reports whether a JSON number has no fraction, as it is written.
func whole(number string) bool {
	mantissa, exponent := number, 0
	if i := strings.IndexAny(number, "eE"); i >= 0 {
		var err error
		if exponent, err = strconv.Atoi(number[i+1:]); err != nil {
			return false
		}
		mantissa = number[:i]
	}
	_, fraction, _ := strings.Cut(mantissa, ".")
	return len(strings.TrimRight(fraction, "0")) <= exponent
}

// allowed reports whether a value is among those that a schema lists, if it
// lists any.
func allowed(view, value []byte) bool {
	only := mcp.Lookup(view, "const")
	if only != nil {
		return mcp.Same(only, value)
	}
	list := mcp.Elements(mcp.Lookup(view, "enum"))
	return list == nil || slices.ContainsFunc(list, func(one []byte) bool { return mcp.Same(one, value) })
}

// typesOf returns the types that a schema allows by itself, without references and
// choices.
func typesOf(view []byte) []string {
	kind := mcp.Lookup(view, "type")
	if one := mcp.String(kind); one != "" {
		return []string{one}
	}
	var all []string
	for _, one := range mcp.Elements(kind) {
		all = append(all, mcp.String(one))
	}
	switch {
	case all != nil:
		return all
	case mcp.Lookup(view, "enum") != nil, mcp.Lookup(view, "const") != nil:
		return []string{"string", "number", "boolean", "null"}
	case mcp.Lookup(view, "items") != nil:
		return []string{"array"}
	}
	return []string{"object"}
}

// views returns the schemas that make up a schema, with their references
// followed, in the order in which it names them. Those that say nothing about
// types are left out. choices says whether anyOf and oneOf count.
func (f *form) views(schema []byte, choices bool) [][]byte {
	return f.look(nil, schema, choices, 0)
}

func (f *form) look(views [][]byte, schema []byte, choices bool, depth int) [][]byte {
	if f.read += partCost + len(schema); depth > maxNested {
		f.read = maxRead + 1
	}
	if f.read > maxRead {
		return views
	}
	var parts [][]byte
	says := false
	for _, m := range mcp.Members(schema) {
		switch string(m.Name) {
		case "type", "properties", "required", "additionalProperties", "items", "enum", "const":
			says = true
		case "$ref":
			parts = append(parts, f.referred(mcp.String(m.Value)))
		case "allOf":
			parts = append(parts, mcp.Elements(m.Value)...)
		case "anyOf", "oneOf":
			if choices {
				parts = append(parts, mcp.Elements(m.Value)...)
			}
		}
	}
	if says {
		views = append(views, schema)
	}
	for _, part := range parts {
		views = f.look(views, part, choices, depth+1)
	}
	return views
}

// referred returns the schema that a reference leads to (RFC 6901 §6); nil for
// one that leads out of the schema.
func (f *form) referred(ref string) []byte {
	pointer, local := strings.CutPrefix(ref, "#")
	pointer, err := url.PathUnescape(pointer)
	if !local || len(pointer) > maxPointer || err != nil || pointer != "" && pointer[0] != '/' {
		return nil
	}
	f.read += len(f.schema)
	found := f.schema
	for name := range strings.SplitSeq(pointer, "/") {
		if name != "" {
			found = mcp.Lookup(found, strings.NewReplacer("~1", "/", "~0", "~").Replace(name))
		}
	}
	return found
}

// missing describes what an object and the objects in it that are given in
// parts still need.
func (f *form) missing(e *argument) []string {
	var out []string
	for _, view := range f.views(e.schema, false) {
		for _, name := range mcp.Elements(mcp.Lookup(view, "required")) {
			name := mcp.String(name)
			if slices.ContainsFunc(e.members, func(m *argument) bool { return m.name == name }) {
				continue
			}
			schema := f.property(e.schema, name)
			types, choices := f.describe(schema)
			if choices != nil {
				types = []string{"one of " + strings.Join(choices, ", ")}
			}
			line := fmt.Sprintf("  %s (%s)", edge.Brief(strings.TrimPrefix(e.key+"."+name, ".")), edge.Brief(strings.Join(types, " or ")))
			if about := firstLine(mcp.String(mcp.Lookup(schema, "description"))); about != "" {
				line += ": " + edge.Brief(about)
			}
			if !slices.Contains(out, line) {
				out = append(out, line)
			}
		}
	}
	for _, m := range e.members {
		if m.members != nil {
			out = append(out, f.missing(m)...)
		}
	}
	return out
}

// describe returns the types that a schema allows, and the values if it lists
// all of them, except null.
func (f *form) describe(schema []byte) (types, choices []string) {
	open := false
	for _, view := range f.views(schema, true) {
		listed := mcp.Elements(mcp.Lookup(view, "enum"))
		if only := mcp.Lookup(view, "const"); only != nil {
			listed = append(listed, only)
		}
		for _, one := range listed {
			if said := mcp.String(one); said != "" {
				choices = append(choices, said)
				continue
			}
			choices = append(choices, string(one))
		}
		for _, kind := range typesOf(view) {
			open = open || listed == nil && kind != "null"
			if items := f.views(mcp.Lookup(view, "items"), true); kind == "array" && len(items) == 1 {
				kind += " of " + strings.Join(typesOf(items[0]), " or ")
			}
			if !slices.Contains(types, kind) {
				types = append(types, kind)
			}
		}
	}
	if types == nil {
		types = []string{"string"}
	}
	if open {
		choices = nil
	}
	return types, choices
}
