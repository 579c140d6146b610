package upstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/oauth"
)

// Bounds of what a provider answers.
const (
	maxDepth = 16 // of JSON
	maxText  = 8 << 10
	maxPath  = 256 // bytes
)

// decodeJWT is the step that reads the claims of a token, whose signature nobody checks: it
// came over TLS from the provider itself.
const decodeJWT = "@upstreamjwt"

// path leads into JSON: names of members, indexes of arrays, and decodeJWT.
type path []string

// parsePath reads a path whose steps stand apart by . or |; a backslash takes the meaning
// from the character after it. decode says whether a step may decode a token.
func parsePath(text string, decode bool) (path, error) {
	if len(text) > maxPath {
		return nil, fmt.Errorf("must have at most %d bytes", maxPath)
	}
	var steps path
	var step strings.Builder
	quoted := false
	end := func() error {
		s := step.String()
		step.Reset()
		switch {
		case s == "":
			return errors.New("must have no empty step")
		case s == decodeJWT && !decode:
			return errors.New("must not decode a token: what it holds is no credential")
		case !quoted && s != decodeJWT && (s[0] == '@' || s[0] == '!' || strings.ContainsAny(s, "*?#")):
			return fmt.Errorf("must be names, indexes and %s alone, apart by dots", decodeJWT)
		}
		steps, quoted = append(steps, s), false
		return nil
	}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && i+1 < len(text):
			i++
			step.WriteByte(text[i])
			quoted = true
		case c == '.' || c == '|':
			if err := end(); err != nil {
				return nil, err
			}
		default:
			step.WriteByte(c)
		}
	}
	return steps, end()
}

// find returns the value at a path; nil for none.
func (p path) find(value json.RawMessage) json.RawMessage {
	for _, step := range p {
		switch {
		case len(value) == 0:
			return nil
		case step == decodeJWT && value[0] == '"':
			claims, err := oauth.Claims(edge.Secret(text(value)))
			if err != nil {
				return nil
			}
			if value, err = json.Marshal(claims); err != nil {
				return nil
			}
		case value[0] == '{':
			o, err := oauth.ParseObject(value, maxDepth)
			if err != nil {
				return nil
			}
			value = o[step]
		case value[0] == '[':
			var list []json.RawMessage
			n, err := strconv.ParseUint(step, 10, 16)
			if err != nil || json.Unmarshal(value, &list) != nil || n >= uint64(len(list)) {
				return nil
			}
			value = list[n]
		default:
			return nil
		}
	}
	return value
}

// text returns a string in JSON as it is read; "" for anything else.
func text(value json.RawMessage) string {
	s, _ := oauth.Object{"": value}.Text("")
	return s
}

// name returns what identifies something: a string, or a whole number as it is written;
// "" for anything else, and for what is too long to be right.
func name(value json.RawMessage) string {
	if len(value) == 0 || len(value) > maxText {
		return ""
	}
	if digits := strings.TrimPrefix(string(value), "-"); len(digits) < 32 && digits != "" && strings.Trim(digits, "0123456789") == "" {
		return string(value)
	}
	return text(value)
}

// plain returns a name or an address as others are told it: at most 256 bytes without control
// characters, else "".
func plain(s string) string {
	if len(s) > 256 || strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || 0x7f <= c && c < 0xa0 || c == 0x2028 || c == 0x2029 }) {
		return ""
	}
	return s
}
