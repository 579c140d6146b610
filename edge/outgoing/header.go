package outgoing

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weir-edge/weir/edge"
)

// maxValue bounds the bytes of a header's value: servers commonly accept no more for a
// whole header.
const maxValue = 16 << 10

// unfit says why a text cannot be the value of a header, "" when it can (RFC
// 9110 §5.5). What it says shows nothing of the text.
func unfit(text string) string {
	switch {
	case text == "":
		return "it is empty"
	case len(text) > maxValue:
		return fmt.Sprintf("it has more than %d bytes", maxValue)
	case strings.ContainsAny(text, "\r\n"):
		return "it holds a line break"
	case blank(text[0]) || blank(text[len(text)-1]):
		return "it begins or ends with a blank"
	}
	for i := range len(text) {
		if c := text[i]; c < ' ' && c != '\t' || c == 0x7f {
			return "it holds a control character"
		}
	}
	return ""
}

func blank(c byte) bool { return c == ' ' || c == '\t' }

// IsName reports whether text can be the name of a header (RFC 9110 §5.1).
func IsName(text string) bool {
	for i := range len(text) {
		c := text[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return text != ""
}

// Restricted reports whether a header is not for a manifest to set or to pass
// on: it belongs to one connection, frames the message, says who sent it, or is
// how the edge and a backend understand each other (virtual server document,
// passthroughHeaders; RFC 9110 §7.6.1; MCP, transports).
func Restricted(name string) bool {
	name = plain(name)
	switch name {
	case "host", "connection", "keep-alive", "te", "trailer", "upgrade", "http2-settings", "expect", "date", "via",
		"proxy-authorization", "proxy-authenticate", "proxy-connection", "transfer-encoding", "content-length",
		"content-type", "content-encoding", "accept", "accept-encoding", "user-agent", "forwarded", "x-real-ip", "last-event-id":
		return true
	}
	return strings.HasPrefix(name, "x-forwarded-") || strings.HasPrefix(name, "mcp-")
}

// Credential reports whether a header is one in which clients send credentials.
// None of these passes from a client to a backend.
func Credential(name string) bool {
	switch plain(name) {
	case "authorization", "proxy-authorization", "cookie", "cookie2":
		return true
	}
	return false
}

// plain is a name as names are compared: in small letters, and with - for _,
// which programs behind gateway interfaces cannot tell apart (RFC 3875 §4.1.18).
func plain(name string) string { return strings.ReplaceAll(strings.ToLower(name), "_", "-") }

func has(names []string, name string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return edge.SameHeader(n, name) })
}

// Without returns the lines that have none of the names: what a client sent
// under the name of a header that a strategy sets is left out. lines is not
// changed, and is returned when there is nothing to leave out.
func Without(lines []edge.Header, names []string) []edge.Header {
	wrong := func(l edge.Header) bool { return has(names, l.Name) }
	if len(names) == 0 || !slices.ContainsFunc(lines, wrong) {
		return lines
	}
	return slices.DeleteFunc(slices.Clone(lines), wrong)
}

func sortedNames(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
