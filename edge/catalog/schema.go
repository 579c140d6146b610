package catalog

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/weir-edge/weir/edge/mcp"
)

const headerAnnotation = "x-mcp-header"

// badHeaders returns why the x-mcp-header annotations of a tool forbid clients to
// list it (2026-07-28, basic/transports/streamable-http,
// custom headers from tool parameters); "" when it may be listed. An annotation
// is a non-empty token (RFC 9110 §5.6.2), unlike every other of the tool
// whatever their case, and stands on a string, an integer or a boolean that is
// reached from the top through properties alone.
func badHeaders(schema []byte) string {
	// A name may be written with escapes; in a text without a backslash it can be
	// searched for as it is.
	if !bytes.Contains(schema, []byte(headerAnnotation)) && bytes.IndexByte(schema, '\\') < 0 {
		return ""
	}
	h := headers{walker: walker{text: schema}, seen: map[string]bool{}}
	h.schema(reachable{inside: true})
	return h.wrong
}

// Listable returns those of a modern backend's tools, JSON text of an array, that a client of HTTP may
// list, as an array, and why the others may not, by their names. The array is nil where all may.
func Listable(tools []byte) (may []byte, why map[string]string) {
	if !bytes.Contains(tools, []byte(headerAnnotation)) && bytes.IndexByte(tools, '\\') < 0 {
		return nil, nil
	}
	may = []byte{'['}
	for _, tool := range mcp.Elements(tools) {
		if bad := badHeaders(mcp.Lookup(tool, "inputSchema")); bad != "" {
			if why == nil {
				why = make(map[string]string)
			}
			why[clip(mcp.String(mcp.Lookup(tool, "name")))] = bad
			continue
		}
		if len(may) > 1 {
			may = append(may, ',')
		}
		may = append(may, tool...)
	}
	if why == nil {
		return nil, nil
	}
	return append(may, ']'), why
}

// headers goes through a schema and judges the annotations in it.
type headers struct {
	walker
	seen  map[string]bool // in lower case
	wrong string
}

// reachable says how the walk has reached a schema.
type reachable struct {
	inside bool // through properties alone
	below  bool // and not the top
}

func (h *headers) schema(how reachable) {
	var annotation, typed []byte
	h.members(func(name []byte) {
		switch string(name) {
		case headerAnnotation:
			annotation = h.value().Of(h.text)
		case "type":
			typed = h.value().Of(h.text)
		case "properties":
			h.members(func([]byte) { h.schema(reachable{inside: how.inside, below: true}) })
		case "patternProperties", "dependentSchemas", "$defs", "definitions":
			h.members(func([]byte) { h.schema(reachable{}) })
		case "oneOf", "anyOf", "allOf", "prefixItems":
			h.elements(func() { h.schema(reachable{}) })
		case "items", "contains", "additionalItems", "additionalProperties", "unevaluatedItems", "unevaluatedProperties",
			"propertyNames", "contentSchema", "not", "if", "then", "else":
			h.space()
			if h.text[h.at] == '[' { // items, before JSON Schema 2020-12
				h.elements(func() { h.schema(reachable{}) })
			} else {
				h.schema(reachable{})
			}
		default:
			h.value()
		}
	})
	if annotation != nil && h.wrong == "" {
		h.wrong = h.judge(mcp.String(annotation), mcp.String(typed), how)
	}
}

func (h *headers) judge(header, typed string, how reachable) string {
	switch {
	case !how.inside || !how.below:
		return fmt.Sprintf("x-mcp-header %q is not reached through properties alone", clip(header))
	case !token(header):
		return fmt.Sprintf("x-mcp-header %q is no token", clip(header))
	case typed != "string" && typed != "integer" && typed != "boolean":
		return fmt.Sprintf("x-mcp-header %q is not on a string, an integer or a boolean", clip(header))
	case h.seen[strings.ToLower(header)]:
		return fmt.Sprintf("x-mcp-header %q is there twice", clip(header))
	}
	h.seen[strings.ToLower(header)] = true
	return ""
}

// token reports whether s is a token by RFC 9110 §5.6.2.
func token(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !alphanumeric(c) && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}

func alphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
