package wire

import (
	"bytes"
	"strings"

	"github.com/weir-edge/weir/edge/mcp"
)

// maxScopes is how many scopes of a challenge are looked at.
const maxScopes = 50

// Scopes returns the scopes that WWW-Authenticate says are missing: those of its first
// Bearer challenge with the error insufficient_scope (RFC 6750 §3.1), of which it may
// name none. It is nil where there is no such challenge.
func Scopes(challenges []byte) []string {
	var scope string
	bearer, insufficient := false, false
	for rest := challenges; ; {
		rest = bytes.TrimLeft(rest, " \t,")
		name, after := token(rest)
		if len(name) == 0 {
			break
		}
		value, next, ok := parameter(after)
		switch {
		case !ok: // a scheme begins
			if bearer && insufficient {
				return fields(scope)
			}
			bearer, insufficient, scope = mcp.SameName(name, "bearer"), false, ""
			next = after
		case !bearer:
		case mcp.SameName(name, "error"):
			insufficient = value == "insufficient_scope"
		case mcp.SameName(name, "scope"):
			scope = value
		}
		rest = next
	}
	if bearer && insufficient {
		return fields(scope)
	}
	return nil
}

// fields returns scopes, of which one that cannot be one is left out (RFC 6749 §3.3).
func fields(scope string) []string {
	all := []string{}
	for one := range strings.FieldsSeq(scope) {
		if len(all) == maxScopes {
			break
		}
		if !strings.ContainsFunc(one, func(c rune) bool { return c <= ' ' || c == '"' || c == '\\' || c > '~' }) {
			all = append(all, one)
		}
	}
	return all
}

// token cuts a token off the front of text (RFC 9110 §5.6.2).
func token(text []byte) (name, rest []byte) {
	n := 0
	for n < len(text) && mcp.NameBytes[text[n]] {
		n++
	}
	return text[:n], text[n:]
}

// parameter reads what makes a name one of a parameter: an equals sign and a value
// (RFC 9110 §11.2). A value without an end reaches to that of the text.
func parameter(text []byte) (value string, rest []byte, ok bool) {
	text = bytes.TrimLeft(text, " \t")
	if len(text) == 0 || text[0] != '=' {
		return "", nil, false
	}
	text = bytes.TrimLeft(text[1:], " \t")
	if len(text) == 0 || text[0] != '"' {
		plain, rest := token(text)
		if len(plain) == 0 { // no parameter, such as the padding of a token68
			plain, rest = nil, bytes.TrimLeft(text, "=")
			if i := bytes.IndexByte(rest, ','); i >= 0 {
				rest = rest[i:]
			} else {
				rest = nil
			}
		}
		return string(plain), rest, true
	}
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return b.String(), text[i+1:], true
		case c == '\\' && i+1 < len(text):
			i++
			b.WriteByte(text[i])
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), nil, true
}
