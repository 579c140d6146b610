package client

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/weir-edge/weir/edge/mcp"
)

// Usable reports why a modern client may not use a tool: an x-mcp-header in
// its input schema that breaks a rule of 2026-07-28, streamable HTTP. nil for
// a tool that is fine.
func Usable(tool []byte) error {
	_, err := mirrored(mcp.Lookup(tool, "inputSchema"))
	return err
}

// mirror is an argument that is repeated in a header.
type mirror struct {
	name string   // of the header, after Mcp-Param-
	path []string // of the argument
}

// paramHeaders returns the headers that repeat arguments. An argument that is
// null or not there has none.
func paramHeaders(schema, arguments []byte) (http.Header, error) {
	mirrors, err := mirrored(schema)
	if err != nil {
		return nil, err
	}
	return repeated(mirrors, arguments), nil
}

// repeated are the headers that repeat arguments of a call.
func repeated(mirrors []mirror, arguments []byte) http.Header {
	h := http.Header{}
	for _, m := range mirrors {
		value := at(arguments, m.path)
		switch {
		case value == nil || string(value) == "null":
		case value[0] == '"':
			h.Set(mcp.HeaderParam+m.name, mcp.EncodeHeader(mcp.String(value)))
		case value[0] == '{' || value[0] == '[':
			// Not what the schema says; the server will say so.
		default:
			h.Set(mcp.HeaderParam+m.name, string(value))
		}
	}
	return h
}

// at returns the value at a path of names; nil when it is not there.
func at(value []byte, path []string) []byte {
next:
	for _, name := range path {
		for _, m := range mcp.Members(value) {
			if string(mcp.Unquote(m.Name)) == name {
				value = m.Value
				continue next
			}
		}
		return nil
	}
	return value
}

// mirrored returns the arguments that a schema wants in headers, or what is
// wrong with the way it says so.
func mirrored(schema []byte) ([]mirror, error) {
	s := search{names: map[string]bool{}}
	s.walk(schema, nil, true)
	return s.found, errors.Join(s.wrong...)
}

type search struct {
	found []mirror
	names map[string]bool // in lower case
	wrong []error
}

const annotation = "x-mcp-header"

// walk looks for annotations in a schema. plain says that only properties lead
// to it, so that the argument is always at path.
func (s *search) walk(schema []byte, path []string, plain bool) {
	for _, m := range mcp.Members(schema) {
		name := string(mcp.Unquote(m.Name))
		switch {
		case name == annotation:
			s.judge(schema, m.Value, path, plain)
		case name == "properties":
			for _, p := range mcp.Members(m.Value) {
				s.walk(p.Value, append(path[:len(path):len(path)], string(mcp.Unquote(p.Name))), plain)
			}
		case data(name):
		default:
			s.under(m.Value, path)
		}
	}
}

// under looks for annotations where none is allowed.
func (s *search) under(value []byte, path []string) {
	for _, element := range mcp.Elements(value) {
		s.under(element, path)
	}
	if len(value) > 0 && value[0] == '{' {
		s.walk(value, path, false)
	}
}

// data reports whether a keyword holds values instead of schemas.
func data(keyword string) bool {
	switch keyword {
	case "default", "const", "enum", "examples", "required":
		return true
	}
	return false
}

func (s *search) judge(schema, value []byte, path []string, plain bool) {
	bad := func(what string) {
		s.wrong = append(s.wrong, fmt.Errorf("%s of %q %s", annotation, strings.Join(path, "."), what))
	}
	name := mcp.String(value)
	switch kind := mcp.String(mcp.Lookup(schema, "type")); {
	case !token(name):
		bad("is not a header name")
	case !plain || path == nil:
		bad("is where an argument need not be")
	case kind != "string" && kind != "integer" && kind != "boolean":
		bad("is not on a string, an integer or a boolean")
	case s.names[strings.ToLower(name)]:
		bad("names a header that another argument has")
	default:
		s.names[strings.ToLower(name)] = true
		s.found = append(s.found, mirror{name: name, path: path})
	}
}

// token reports whether s is a token (RFC 9110 §5.6.2).
func token(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0) {
			return false
		}
	}
	return s != ""
}
