package mcp

import (
	"iter"
	"strings"
)

// Bounds of the challenges of one answer. What is beyond them is not read.
const (
	maxChallenges      = 16 << 10 // bytes of all values
	maxChallengeScopes = 100
)

// Challenge is what a Bearer challenge says (RFC 6750 §3, RFC 9728 §5.1). A parameter that is
// absent, given twice, or whose value has no end, is empty.
type Challenge struct {
	Metadata string   // resource_metadata: a stranger's word
	Scopes   []string // scope: at most 100, of which each is one (see IsScope)
	Error    string   // error, such as insufficient_scope
}

// Challenges are the Bearer challenges among the values of WWW-Authenticate, in their order.
// One value may hold several challenges of any scheme, and their parameters are separated by
// the same commas (RFC 9110 §11.6.1). A comma that is missing between parameters is forgiven;
// where a value can no longer be read, the rest of it is left out.
func Challenges(values ...string) iter.Seq[Challenge] {
	return func(yield func(Challenge) bool) {
		room := maxChallenges
		for _, text := range values {
			if room -= len(text); room < 0 {
				return
			}
			r := challengeReader{text: text}
			for {
				scheme := r.scheme()
				if scheme == "" {
					break
				}
				if c := r.parameters(); strings.EqualFold(scheme, "Bearer") && !yield(c) {
					return
				}
			}
		}
	}
}

// IsScope reports whether a text is one scope (RFC 6749 §3.3).
func IsScope(text string) bool {
	if text == "" {
		return false
	}
	for i := range len(text) {
		if c := text[i]; c <= ' ' || c == '"' || c == '\\' || c > '~' {
			return false
		}
	}
	return true
}

// challengeReader reads what is left of a value.
type challengeReader struct{ text string }

// scheme begins a challenge. It is "" at the end, and where none begins.
func (r *challengeReader) scheme() string {
	r.skip(", \t")
	return r.token()
}

// parameters reads the rest of a challenge: one token68, or parameters. What it says counts
// for a Bearer challenge alone, which has no token68.
func (r *challengeReader) parameters() (c Challenge) {
	r.skip(" \t")
	if r.token68() {
		return c
	}
	var scope string
	known := [...]struct {
		name  string
		value *string
		given int
	}{{"resource_metadata", &c.Metadata, 0}, {"scope", &scope, 0}, {"error", &c.Error, 0}}
	for {
		before := r.text
		r.skip(", \t")
		name := r.token()
		value, ok := r.value()
		if name == "" || !ok { // the next challenge begins here, or what is none
			r.text = before
			break
		}
		for i := range known {
			if k := &known[i]; strings.EqualFold(name, k.name) {
				if k.given++; k.given > 1 {
					value = ""
				}
				*k.value = value
			}
		}
	}
	for one := range strings.FieldsSeq(scope) {
		if IsScope(one) && len(c.Scopes) < maxChallengeScopes {
			c.Scopes = append(c.Scopes, one)
		}
	}
	return c
}

func (r *challengeReader) skip(what string) { r.text = strings.TrimLeft(r.text, what) }

// token reads a token (RFC 9110 §5.6.2); "" where there is none.
func (r *challengeReader) token() (token string) {
	n := 0
	for n < len(r.text) && NameBytes[r.text[n]] {
		n++
	}
	token, r.text = r.text[:n], r.text[n:]
	return token
}

// token68 passes over one (RFC 9110 §11.2), which reaches to a comma or to the end.
func (r *challengeReader) token68() bool {
	n := 0
	for n < len(r.text) && (NameBytes[r.text[n]] || r.text[n] == '/') { // which is a little more than it may hold
		n++
	}
	rest := strings.TrimLeft(strings.TrimLeft(r.text[n:], "="), " \t")
	if n == 0 || rest != "" && rest[0] != ',' {
		return false
	}
	r.text = rest
	return true
}

// value reads an equals sign, and a token or a quoted string. It is false where there is
// neither, and where a string has no end.
func (r *challengeReader) value() (string, bool) {
	r.skip(" \t")
	rest, ok := strings.CutPrefix(r.text, "=")
	if !ok {
		return "", false
	}
	r.text = strings.TrimLeft(rest, " \t")
	if !strings.HasPrefix(r.text, `"`) {
		value := r.token()
		return value, value != ""
	}
	var out strings.Builder
	for i := 1; i < len(r.text); i++ {
		switch c := r.text[i]; {
		case c == '"':
			r.text = r.text[i+1:]
			return out.String(), true
		case c == '\\' && i+1 < len(r.text):
			i++
			out.WriteByte(r.text[i])
		default:
			out.WriteByte(c)
		}
	}
	return "", false
}
