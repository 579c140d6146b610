package secret

import (
	"cmp"
	"errors"
	"strings"
)

// Own is the name of the secret whose keys are the secrets that are called by one word, as
// users call theirs: GITHUB_TOKEN is the key of that name.
const Own = "weir-secrets"

// Ref names a value: a secret and one of its keys.
type Ref struct{ Name, Key string }

// String is how users write it: NAME/KEY, or the key alone where the name is Own.
func (r Ref) String() string {
	if r.Name == Own {
		return r.Key
	}
	return r.Name + "/" + r.Key
}

// compare orders refs by what users see.
func (r Ref) compare(o Ref) int { return cmp.Compare(r.String(), o.String()) }

// ErrName says that a text is no name of a secret.
var ErrName = errors.New("no name of a secret: write NAME or NAME/KEY, each of letters, digits, -, _ and ., at most 253 of them, which a dot does not begin")

// ParseRef reads the name of a value as users write it: NAME/KEY, or KEY alone for that of
// Own. The error is ErrName, and shows nothing of the text: it may be a secret in the wrong
// place.
func ParseRef(text string) (Ref, error) {
	name, key, both := strings.Cut(text, "/")
	if !both {
		name, key = Own, text
	}
	if !valid(name) || !valid(key) {
		return Ref{}, ErrName
	}
	return Ref{name, key}, nil
}

// valid reports whether text is the name of a secret or of a key of one, as
// Kubernetes has them (DNS-1123 subdomains; letters, digits, -, _ and .). It is
// one element of a path and stays below the directory.
func valid(text string) bool {
	if text == "" || len(text) > maxName || text[0] == '.' {
		return false
	}
	for i := range len(text) {
		c := text[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.') {
			return false
		}
	}
	return true
}

// brief returns a name, or a placeholder for a text that is not one, for an error. It may be a secret in the
// wrong place, so none of it is shown.
func brief(text string) string {
	if valid(text) {
		return text
	}
	return "(malformed)"
}

// Variable is the name of the variable that holds a key of a secret:
// WEIR_SECRET_<NAME>_<KEY>, where letters are capitals and every character that
// is neither a letter nor a digit is an underscore. That of a secret of Own is
// WEIR_SECRET_<KEY>. Secrets whose names differ in nothing else share a variable:
// github-app/token and github/app-token are both WEIR_SECRET_GITHUB_APP_TOKEN.
func Variable(name, key string) string {
	text := name + "_" + key
	if name == Own {
		text = key
	}
	return "WEIR_SECRET_" + strings.Map(func(c rune) rune {
		switch {
		case 'a' <= c && c <= 'z':
			return c - 'a' + 'A'
		case 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
			return c
		}
		return '_'
	}, text)
}
