package codemode

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/scripting"
)

// Bounds of the arguments.
const (
	maxScript = 64 << 10 // bytes
	maxData   = 1 << 20  // bytes
	maxKeys   = 1000     // of the data
)

// request is what a client asks for.
type request struct {
	script string
	data   []byte   // JSON text of an object; nil for none
	keys   []string // of the data
}

// read reads the arguments of the tool. It returns what is wrong with them, by a JSON
// pointer (RFC 6901), "" for nothing.
func read(arguments []byte) (q *request, why string) {
	q = &request{}
	given := false
	mcp.Each(arguments, func(name, value []byte) bool {
		switch name := string(mcp.Unquote(name)); name {
		case "script":
			if q.script, given = text(value); !given {
				why = "/script: not a string"
			} else if len(q.script) > maxScript {
				why = fmt.Sprintf("/script: longer than %d bytes", maxScript)
			}
		case "data":
			why = q.take(value)
		default:
			why = at(name) + ": there is no such argument: there are script and data"
		}
		return why == ""
	})
	if why == "" && !given {
		why = "/script: missing"
	}
	return q, why
}

// take takes the data.
func (q *request) take(value []byte) (why string) {
	switch {
	case string(value) == "null":
		return ""
	case value[0] != '{':
		return "/data: not an object"
	case len(value) > maxData:
		return fmt.Sprintf("/data: longer than %d bytes", maxData)
	}
	q.data = value
	mcp.Each(value, func(name, _ []byte) bool {
		key := string(mcp.Unquote(name))
		switch {
		case !scripting.Identifier(key):
			why = at("data", key) + ": not a name that a script can have: ASCII letters, digits and _"
		case scripting.Taken(key):
			why = at("data", key) + ": the name is taken by the language"
		case len(q.keys) == maxKeys:
			why = fmt.Sprintf("/data: more than %d keys", maxKeys)
		}
		q.keys = append(q.keys, key)
		return why == ""
	})
	if why == "" {
		why = unfit(value)
	}
	return why
}

// unfit says which value of the data a script cannot have, and why; "" for none.
func unfit(data []byte) (why string) {
	_, err := scripting.FromJSON(data)
	if err == nil {
		return ""
	}
	why = "/data: " + err.Error() // unless it is about one of them
	mcp.Each(data, func(name, value []byte) bool {
		_, err := scripting.FromJSON(slices.Concat([]byte(`{"":`), value, []byte("}"))) // as deep as it stands
		if err != nil {
			why = at("data", string(mcp.Unquote(name))) + ": " + err.Error()
		}
		return err == nil
	})
	return why
}

// taken says which key of the data is the name of a tool; "" for none.
func (q *request) taken(seen *sight) (why string) {
	for _, k := range q.keys {
		if tool, ok := seen.function(k); ok {
			return fmt.Sprintf("%s: the name is taken by the tool %q", at("data", k), tool)
		}
	}
	return ""
}

// at is a JSON pointer.
func at(path ...string) string {
	var b strings.Builder
	for _, p := range path {
		b.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(edge.Brief(p)))
	}
	return b.String()
}
