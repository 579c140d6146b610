package login

import (
	"strings"

	"github.com/weir-edge/weir/edge/oauth"
)

// Bounds of the challenges of one answer. What is beyond them is not read.
const (
	maxChallenge  = 16 << 10 // bytes of all lines
	maxParameters = 64       // of one challenge
	maxScopes     = 100      // of a challenge, of metadata, of an answer
)

// Challenge is what a Bearer challenge says (RFC 6750 §3, RFC 9728 §5.1). A parameter
// that is absent, or given twice, is empty.
type Challenge struct {
	Metadata string   // resource_metadata: a stranger's word, and so a learned URL
	Scopes   []string // scope
	Error    string   // error, such as insufficient_scope
}

// ParseChallenge returns the first Bearer challenge among the values of WWW-Authenticate
// (RFC 9110 §11.6.1: one value may hold several challenges, and their parameters are
// separated by the same commas). found is false when there is none.
func ParseChallenge(values []string) (c Challenge, found bool) {
	room := maxChallenge
	for _, text := range values {
		if room -= len(text); room < 0 {
			break
		}
		s := scanner{text: text}
		for s.next() {
			if !strings.EqualFold(s.scheme, "Bearer") {
				continue
			}
			c.Metadata, c.Error = s.parameters["resource_metadata"], s.parameters["error"]
			for _, scope := range oauth.Scopes(s.parameters["scope"]) {
				if oauth.IsScope(scope) && len(c.Scopes) < maxScopes {
					c.Scopes = append(c.Scopes, scope)
				}
			}
			return c, true
		}
	}
	return Challenge{}, false
}

// scanner reads challenges one by one.
type scanner struct {
	text       string
	scheme     string
	parameters map[string]string // by their names in lower case; "" for one that was given twice
}

// next reads a challenge; false at the end, or where the text is none.
func (s *scanner) next() bool {
	s.commas()
	if s.scheme = s.token(); s.scheme == "" {
		return false
	}
	s.parameters = map[string]string{}
	s.spaces()
	for len(s.parameters) < maxParameters {
		before := s.text
		name := strings.ToLower(s.token())
		s.spaces()
		value, ok := s.value()
		if name == "" || !ok {
			// Another challenge begins here, or a token68, of which nobody has to know
			// more (a Bearer challenge has none).
			s.text = before
			s.token68()
			return true
		}
		if _, twice := s.parameters[name]; twice {
			value = ""
		}
		s.parameters[name] = value
		s.spaces()
		if !strings.HasPrefix(s.text, ",") {
			break
		}
		s.commas()
	}
	return true
}

// token68 passes over one, with the comma after it; what may be a scheme stays.
func (s *scanner) token68() {
	end := strings.IndexAny(s.text, ", \t")
	if end < 0 {
		end = len(s.text)
	}
	if rest := strings.TrimLeft(s.text[end:], " \t"); rest == "" || rest[0] == ',' {
		if strings.Contains(s.text[:end], "=") || rest == "" {
			s.text = rest
		}
	}
}

func (s *scanner) spaces() { s.text = strings.TrimLeft(s.text, " \t") }
func (s *scanner) commas() { s.text = strings.TrimLeft(s.text, ", \t") }

// token reads a token (RFC 9110 §5.6.2); "" where there is none.
func (s *scanner) token() string {
	n := 0
	for n < len(s.text) && isTokenByte(s.text[n]) {
		n++
	}
	token := s.text[:n]
	s.text = s.text[n:]
	return token
}

func isTokenByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

// value reads "=" and a token or a quoted string.
func (s *scanner) value() (string, bool) {
	rest, ok := strings.CutPrefix(s.text, "=")
	if !ok {
		return "", false
	}
	s.text = strings.TrimLeft(rest, " \t")
	if !strings.HasPrefix(s.text, `"`) {
		value := s.token()
		return value, value != ""
	}
	var out strings.Builder
	for i := 1; i < len(s.text); i++ {
		switch c := s.text[i]; {
		case c == '"':
			s.text = s.text[i+1:]
			return out.String(), true
		case c == '\\' && i+1 < len(s.text):
			i++
			out.WriteByte(s.text[i])
		default:
			out.WriteByte(c)
		}
	}
	return "", false // a string without an end
}
