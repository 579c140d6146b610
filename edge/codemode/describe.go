package codemode

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/catalog"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/scripting"
)

// Bounds of what the description of the tool tells of others.
const (
	maxListed      = 50      // tools
	maxListing     = 8 << 10 // bytes
	maxSignature   = 200     // bytes of one
	maxDescription = 80      // characters of one
	maxAside       = 20      // tools named that are no functions
)

// how is the beginning of the description: how scripts are written.
//
//go:embed description.txt
var how string

// schema describes the arguments of the tool.
const schema = `{"type":"object","properties":{` +
	`"script":{"type":"string","maxLength":65536,"description":"Starlark; return gives the result"},` +
	`"data":{"type":"object","description":"values that the script has as variables, by their keys"}` +
	`},"required":["script"],"additionalProperties":false}`

// List returns the tool as the edge lists it: for each client with the tools that it sees.
func List() *catalog.List {
	return &catalog.List{Items: [][]byte{definition(how)}, Describe: describe}
}

// definition returns the tool's definition, JSON text.
func definition(description string) []byte {
	out := append(mcp.AppendString([]byte(`{"name":`), Name), `,"title":"Run a script","description":`...)
	out = append(mcp.AppendString(out, description), `,"inputSchema":`+schema...)
	return append(out, `,"annotations":{"title":"Run a script","readOnlyHint":false,"destructiveHint":true,"idempotentHint":false,"openWorldHint":true}}`...)
}

// describe describes the tool to a client that sees these tools.
func describe(_ []byte, seen catalog.Things, _ *catalog.Catalog) []byte {
	s := look(seen)
	var b strings.Builder
	b.WriteString(how)
	if len(s.names) == 0 {
		b.WriteString("\nThere are no tools to call.\n")
		return definition(b.String())
	}
	b.WriteString("\nTools:\n")
	listed, size := 0, 0
	for _, advertised := range s.names {
		line := s.line(advertised)
		if listed == maxListed || size+len(line) > maxListing {
			break
		}
		b.WriteString(line)
		listed, size = listed+1, size+len(line)
	}
	if more := len(s.names) - listed; more > 0 {
		fmt.Fprintf(&b, "and %d more: list_tools(), describe_tool(name)\n", more)
	}
	if len(s.aside) > 0 {
		var names []string
		for _, name := range s.aside[:min(len(s.aside), maxAside)] {
			names = append(names, fmt.Sprintf("call_tool(%q, …)", name))
		}
		if len(s.aside) > maxAside {
			names = append(names, fmt.Sprintf("and %d more", len(s.aside)-maxAside))
		}
		b.WriteString("Not functions, because something else has the name: " + strings.Join(names, ", ") + "\n")
	}
	return definition(b.String())
}

// line tells of one tool.
func (s *sight) line(advertised string) string {
	var b strings.Builder
	if s.isFunction(advertised) {
		b.WriteString("- " + scripting.Sanitize(advertised) + "(")
	} else {
		fmt.Fprintf(&b, "- call_tool(%q", advertised)
	}
	first := s.isFunction(advertised)
	for _, p := range parametersOf(s.tools[advertised]) {
		word := edge.Brief(p.name)
		if !p.required {
			word += "=…"
		}
		if b.Len()+len(word) > maxSignature {
			word = "…"
		}
		if !first {
			b.WriteString(", ")
		}
		b.WriteString(word)
		if first = false; word == "…" {
			break
		}
	}
	b.WriteString(")")
	if said := brief(mcp.String(mcp.Lookup(s.tools[advertised], "description"))); said != "" {
		b.WriteString(": " + said)
	}
	b.WriteString("\n")
	return b.String()
}

// brief is the beginning of a description, on one line.
func brief(s string) string {
	if len(s) > 8*maxDescription {
		s = strings.ToValidUTF8(s[:8*maxDescription], "")
	}
	s = strings.Join(strings.Fields(edge.Clean(s)), " ")
	n := 0
	for i := range s {
		if n == maxDescription {
			return s[:i] + "…"
		}
		n++
	}
	return s
}
