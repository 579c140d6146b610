package apps

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tailscale/hujson"
)

// maxDepth is how deep values may lie in each other.
const maxDepth = 500

// jsonText is a text of JSON with comments and trailing commas, as it was parsed.
type jsonText struct {
	data []byte // offsets of values are offsets in it
	root hujson.Value
	none bool // it has comments and spaces alone, or nothing at all
}

func parseJSON(data []byte) (*jsonText, error) {
	text := readable(data)
	if !utf8.Valid(text) {
		return nil, &mistake{lineOf(text, firstInvalid(text)), "it is not UTF-8"}
	}
	if at := tooDeep(text); at >= 0 {
		return nil, &mistake{lineOf(text, at), fmt.Sprintf("its values lie more than %d deep in each other", maxDepth)}
	}
	root, err := hujson.Parse(text)
	if err == nil {
		if root.Value.Kind() != '{' {
			return nil, &mistake{lineOf(text, root.StartOffset), "it is no JSON object"}
		}
		return &jsonText{data: data, root: root}, nil
	}
	// What has no value at all is as good as an empty object.
	if root, failed := hujson.Parse(append(bytes.Clone(text), "{}"...)); failed == nil && root.StartOffset == len(text) {
		return &jsonText{data: data, none: true}, nil
	}
	m := &mistake{text: "it is no JSON"}
	var column int
	if n, _ := fmt.Sscanf(err.Error(), "hujson: line %d, column %d:", &m.line, &column); n == 2 {
		m.line = min(m.line, lastLine(data))
		// A literal that is none may be a secret; of what else is wrong one character is said.
		if why := errors.Unwrap(err); why != nil && !strings.Contains(why.Error(), "literal") {
			m.text += ": " + why.Error()
		}
	}
	return nil, m
}

// firstInvalid is the offset of the first byte that is not UTF-8.
func firstInvalid(text []byte) int {
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return len(text)
}

// tooDeep is the offset at which values lie too deep for a parser that calls itself; -1 for
// nowhere.
func tooDeep(text []byte) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case c == '/' && bytes.HasPrefix(text[i:], []byte("//")):
			i = lineEnd(text, i) - 1
		case c == '/' && bytes.HasPrefix(text[i:], []byte("/*")):
			end := bytes.Index(text[i+2:], []byte("*/"))
			if end < 0 {
				return -1
			}
			i += 2 + end + 1
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return i
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return -1
}

func readJSON(data []byte) (text, error) {
	t, err := parseJSON(data)
	if err != nil {
		return text{}, err
	}
	read := text{find: t.find}
	if t.none {
		return read, nil
	}
	value, err := decoded(t.root)
	if err != nil {
		return text{}, &mistake{text: "it is no JSON"}
	}
	read.all = value.(map[string]any) // parseJSON takes objects alone
	return read, nil
}

// decoded is a value as programs read it; numbers keep their digits.
func decoded(v hujson.Value) (value any, err error) {
	v = v.Clone()
	v.Minimize()
	d := json.NewDecoder(bytes.NewReader(v.Pack()))
	d.UseNumber()
	err = d.Decode(&value)
	return value, err
}

// member finds a member of an object; -1 for none. One that is there twice is a mistake, since
// clients differ in which of them counts.
func (t *jsonText) member(in hujson.Value, name string) (int, error) {
	at := -1
	for i, m := range in.Value.(*hujson.Object).Members {
		if m.Name.Value.(hujson.Literal).String() != name {
			continue
		}
		if at >= 0 {
			return -1, &mistake{lineOf(t.data, m.Name.StartOffset), fmt.Sprintf("%q is there twice", name)}
		}
		at = i
	}
	return at, nil
}

// servers finds the object that has the servers; ok is false where there is none.
func (t *jsonText) servers(key string) (in hujson.Value, ok bool, err error) {
	if t.none {
		return in, false, nil
	}
	i, err := t.member(t.root, key)
	if err != nil || i < 0 {
		return in, false, err
	}
	in = t.root.Value.(*hujson.Object).Members[i].Value
	if in.Value.Kind() != '{' {
		return in, false, &mistake{lineOf(t.data, in.StartOffset), fmt.Sprintf("%q is no object", key)}
	}
	return in, true, nil
}

func (t *jsonText) find(key, name string) (f found, err error) {
	in, ok, err := t.servers(key)
	if err != nil || !ok {
		return f, err
	}
	i, err := t.member(in, name)
	if err != nil || i < 0 {
		return f, err
	}
	m := in.Value.(*hujson.Object).Members[i]
	f = found{there: true, line: lineOf(t.data, m.Name.StartOffset), plain: !commented(m.Name.AfterExtra) && !commented(m.Value.AfterExtra) && !commented(m.Value.BeforeExtra) && !anyComment(m.Value.Value)}
	if f.value, err = decoded(m.Value); err != nil {
		return f, &mistake{f.line, "it is no JSON"}
	}
	return f, nil
}

func commented(extra hujson.Extra) bool { return bytes.IndexByte(extra, '/') >= 0 }

// anyComment reports whether there is a comment in a value.
func anyComment(v hujson.ValueTrimmed) bool {
	inside := func(v hujson.Value) bool {
		return commented(v.BeforeExtra) || commented(v.AfterExtra) || anyComment(v.Value)
	}
	switch v := v.(type) {
	case *hujson.Object:
		return commented(v.AfterExtra) || slices.ContainsFunc(v.Members, func(m hujson.ObjectMember) bool { return inside(m.Name) || inside(m.Value) })
	case *hujson.Array:
		return commented(v.AfterExtra) || slices.ContainsFunc(v.Elements, inside)
	}
	return false
}

func putJSON(data []byte, key, name string, e entry) ([]byte, error) {
	t, err := parseJSON(data)
	if err != nil {
		return nil, err
	}
	if t.none {
		nl := newline(data)
		if rest := bytes.TrimPrefix(data, bom); len(bytes.TrimSpace(rest)) == 0 {
			data = data[:len(data)-len(rest)] // spaces alone are not worth keeping
		} else if !bytes.HasSuffix(data, []byte("\n")) {
			data = cut(data, len(data), len(data), nl)
		}
		return putJSON(cut(data, len(data), len(data), "{}"+nl), key, name, e)
	}
	l := t.layout()
	in, ok, err := t.servers(key)
	if err != nil {
		return nil, err
	}
	if !ok {
		return t.insert(t.root, l, func(indent string, lines bool) string {
			return quoted(key) + ": {" + l.begin(indent+l.unit, lines) + quoted(name) + ": " + l.object(e, indent+l.unit, lines) + l.begin(indent, lines) + "}"
		}), nil
	}
	i, err := t.member(in, name)
	if err != nil {
		return nil, err
	}
	if i < 0 {
		return t.insert(in, l, func(indent string, lines bool) string { return quoted(name) + ": " + l.object(e, indent, lines) }), nil
	}
	m := in.Value.(*hujson.Object).Members[i]
	text := l.object(e, indentAt(data, m.Name.StartOffset), bytes.IndexByte(m.Name.BeforeExtra, '\n') >= 0)
	return cut(data, m.Value.StartOffset, m.Value.EndOffset, text), nil
}

func dropJSON(data []byte, key, name string) ([]byte, error) {
	t, err := parseJSON(data)
	if err != nil {
		return nil, err
	}
	in, ok, err := t.servers(key)
	if err != nil || !ok {
		return data, err
	}
	i, err := t.member(in, name)
	if err != nil || i < 0 {
		return data, err
	}
	return t.remove(in, i), nil
}

// layout is how a text is laid out.
type layout struct {
	nl   string // the end of a line
	unit string // what a level is indented by
}

// layout looks at the first member of the top.
func (t *jsonText) layout() layout {
	l := layout{nl: newline(t.data), unit: "  "}
	if members := t.root.Value.(*hujson.Object).Members; len(members) > 0 && bytes.IndexByte(members[0].Name.BeforeExtra, '\n') >= 0 {
		if unit := indentAt(t.data, members[0].Name.StartOffset); unit != "" {
			l.unit = unit
		}
	}
	return l
}

// begin is the end of a line and the indent of the next one, where there are lines.
func (l layout) begin(indent string, lines bool) string {
	if !lines {
		return ""
	}
	return l.nl + indent
}

// object writes an entry, in lines or in one.
func (l layout) object(e entry, indent string, lines bool) string {
	var out strings.Builder
	out.WriteByte('{')
	for i, f := range e {
		switch {
		case i > 0 && lines:
			out.WriteByte(',')
		case i > 0:
			out.WriteString(", ")
		}
		out.WriteString(l.begin(indent+l.unit, lines) + quoted(f.name) + ": " + inline(f.value, ": "))
	}
	out.WriteString(l.begin(indent, lines) + "}")
	return out.String()
}

// inline writes a value of an entry in one line, as JSON with ": " after names, or as TOML
// with " = ".
func inline(value any, is string) string {
	switch v := value.(type) {
	case []string:
		words := make([]string, len(v))
		for i, word := range v {
			words[i] = quoted(word)
		}
		return "[" + strings.Join(words, ", ") + "]"
	case map[string]string:
		var pairs []string
		for _, name := range slices.Sorted(maps.Keys(v)) {
			pairs = append(pairs, quoted(name)+is+quoted(v[name]))
		}
		return "{" + strings.Join(pairs, ", ") + "}"
	}
	return quoted(value.(string))
}

// quoted is a text as a string of JSON, and of TOML.
func quoted(text string) string {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // a string can be encoded
	return strings.ReplaceAll(strings.TrimSuffix(out.String(), "\n"), "\x7f", `\u007f`)
}

// indentAt is the space at the beginning of the line of an offset.
func indentAt(data []byte, at int) string {
	line := data[lineStart(data, at):at]
	line = bytes.TrimPrefix(line, bom)
	return string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
}

// afterComments is the offset in what stands between values after the last comment, without
// the end of its line, and whether that one ends with the line.
func afterComments(extra []byte) (at int, line bool) {
	for i := 0; i < len(extra); i++ {
		switch {
		case bytes.HasPrefix(extra[i:], []byte("//")):
			i = lineEnd(extra, i)
			at, line = len(bytes.TrimSuffix(bytes.TrimSuffix(extra[:i], []byte("\n")), []byte("\r"))), true
			i--
		case bytes.HasPrefix(extra[i:], []byte("/*")):
			i += 2 + bytes.Index(extra[i+2:], []byte("*/")) + 1
			at, line = i+1, false
		}
	}
	return at, line
}

// endsLine reports whether nothing but spaces stands before the end of the line.
func endsLine(rest []byte) bool {
	rest = bytes.TrimLeft(rest, " \t\r")
	return len(rest) > 0 && rest[0] == '\n'
}

// insert adds a member at the end of an object. member writes it, at an indent, in lines or in
// one.
func (t *jsonText) insert(in hujson.Value, l layout, member func(indent string, lines bool) string) []byte {
	object := in.Value.(*hujson.Object)
	end := in.EndOffset - 1 // of the brace
	from := end - len(object.AfterExtra)
	at, line := afterComments(t.data[from:end])
	at += from
	if len(object.Members) == 0 {
		outer := indentAt(t.data, in.StartOffset)
		text := l.nl + outer + l.unit + member(outer+l.unit, true)
		if endsLine(t.data[at : end+1]) {
			return cut(t.data, at, at, text)
		}
		return cut(t.data, at, end, text+l.nl+outer)
	}
	last := object.Members[len(object.Members)-1]
	trailing := last.Value.AfterExtra != nil // a comma after the last one
	lines := bytes.IndexByte(last.Name.BeforeExtra, '\n') >= 0
	indent := indentAt(t.data, last.Name.StartOffset)
	text := " "
	if lines || line {
		text = l.nl + indent
	}
	text += member(indent, lines)
	if trailing {
		return cut(t.data, at, at, text+",")
	}
	return cut(cut(t.data, at, at, text), last.Value.EndOffset, last.Value.EndOffset, ",")
}

// remove takes a member out of an object. Comments around it stay.
func (t *jsonText) remove(in hujson.Value, i int) []byte {
	members := in.Value.(*hujson.Object).Members
	m, last := members[i], i == len(members)-1
	trailing := m.Value.AfterExtra != nil
	at, line := afterComments(m.Name.BeforeExtra)
	from, to := m.Name.StartOffset-len(m.Name.BeforeExtra)+at, m.Value.EndOffset
	if !last || trailing {
		to += len(m.Value.AfterExtra) + 1
	}
	switch rest := t.data[to:]; {
	case endsLine(rest), last && !line: // what is before it takes its place at the end of the line
	default:
		from = m.Name.StartOffset
		to += len(rest) - len(bytes.TrimLeft(rest, " \t"))
	}
	if len(members) == 1 && len(bytes.TrimSpace(cut(t.data[:in.EndOffset-1], from, to, "")[in.StartOffset+1:])) == 0 {
		return cut(t.data, in.StartOffset+1, in.EndOffset-1, "")
	}
	out := cut(t.data, from, to, "")
	if last && !trailing && i > 0 {
		comma := members[i-1].Value.EndOffset + len(members[i-1].Value.AfterExtra)
		out = cut(out, comma, comma+1, "")
	}
	return out
}
