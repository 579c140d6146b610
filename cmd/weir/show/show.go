// Package show writes what servers answer for people to read: results, lists, and the
// status of an edge, once or again and again on a terminal.
package show

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/weir-edge/weir/edge/mcp"
)

// Result writes a result as text.
func Result(result []byte) string {
	var b strings.Builder
	structured := mcp.Lookup(result, "structuredContent")
	for _, content := range mcp.Elements(mcp.Lookup(result, "content")) {
		// Servers repeat structured content as text for older clients.
		if said := mcp.String(mcp.Lookup(content, "text")); structured == nil || !sameJSON([]byte(said), structured) {
			b.WriteString(Line(Content(content)))
		}
	}
	if structured != nil {
		b.WriteString(Line(Indented(structured)))
	}
	return b.String()
}

// Line is a text with a line end.
func Line(s string) string {
	if strings.HasSuffix(s, "\n") {
		return s
	}
	return s + "\n"
}

// Content writes one content of a result or a message.
func Content(content []byte) string {
	text := func(path ...string) string { return mcp.String(mcp.Lookup(content, path...)) }
	switch kind := text("type"); kind {
	case "text":
		return text("text")
	case "image", "audio":
		return fmt.Sprintf("[%s, %s, %d bytes]", kind, text("mimeType"), decodedSize(text("data")))
	case "resource_link":
		return strings.TrimSpace(fmt.Sprintf("[resource %s] %s", text("uri"), text("name")))
	case "resource":
		if inner := text("resource", "text"); inner != "" {
			return inner
		}
		return fmt.Sprintf("[resource %s, %s]", text("resource", "uri"), text("resource", "mimeType"))
	}
	return Indented(content)
}

// decodedSize is how many bytes a text in base64 stands for.
func decodedSize(data string) int { return len(data)/4*3 - strings.Count(data, "=") }

// Indented writes JSON text with two spaces for each level; numbers and the
// order of names stay.
func Indented(text []byte) string {
	var b bytes.Buffer
	if err := json.Indent(&b, text, "", "  "); err != nil {
		return string(text)
	}
	return b.String()
}

func sameJSON(a, b []byte) bool {
	var x, y bytes.Buffer
	return json.Compact(&x, a) == nil && json.Compact(&y, b) == nil && bytes.Equal(x.Bytes(), y.Bytes())
}
