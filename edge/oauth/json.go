package oauth

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/weir-edge/weir/edge/mcp"
)

// CheckJSON reports whether text is one JSON value that all parsers read alike
// and whose arrays and objects are nested at most depth deep: duplicate names,
// invalid UTF-8, lone surrogates and anything after the value are errors.
func CheckJSON(text []byte, depth int) error {
	level, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if level++; level > depth {
				return errors.New("nested too deep")
			}
		case c == '}' || c == ']':
			level--
		}
	}
	return mcp.Valid(text)
}

// Object is a JSON object by its exact names: no other case of a name is it.
type Object map[string]json.RawMessage

// ParseObject reads a JSON object by the rules of CheckJSON.
func ParseObject(text []byte, depth int) (Object, error) {
	if err := CheckJSON(text, depth); err != nil {
		return nil, err
	}
	if text = bytes.TrimLeft(text, " \t\r\n"); len(text) == 0 || text[0] != '{' {
		return nil, errors.New("not an object")
	}
	members := mcp.Members(text)
	o := make(Object, len(members))
	for _, m := range members {
		o[string(mcp.Unquote(m.Name))] = m.Value
	}
	return o, nil
}

// Has reports whether there is a member of that name, be it null.
func (o Object) Has(name string) bool { _, ok := o[name]; return ok }

// Text returns the string called name; ok is false when it is absent or
// anything but a string.
func (o Object) Text(name string) (text string, ok bool) {
	raw := o[name]
	if len(raw) == 0 || raw[0] != '"' {
		return "", false
	}
	return mcp.String(raw), true
}

// Texts returns the array of strings called name; ok is false when it is
// absent or anything but that.
func (o Object) Texts(name string) (texts []string, ok bool) {
	raw := o[name]
	if len(raw) == 0 || raw[0] != '[' {
		return nil, false
	}
	var list []*string
	if json.Unmarshal(raw, &list) != nil {
		return nil, false
	}
	for _, t := range list {
		if t == nil {
			return nil, false
		}
		texts = append(texts, *t)
	}
	return texts, true
}

// True reports whether the member called name is the boolean true.
func (o Object) True(name string) bool { return string(o[name]) == "true" }
