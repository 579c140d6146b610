package oauth

import (
	"slices"
	"strings"
)

// Lacks reports whether scopes lack one of those needed.
func Lacks(scopes, needed []string) bool {
	return slices.ContainsFunc(needed, func(n string) bool { return !slices.Contains(scopes, n) })
}

// IsScope reports whether text is one scope (RFC 6749 §3.3).
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

// Scopes splits the scope of a token or of a challenge.
func Scopes(text string) []string { return strings.Fields(text) }
