package oauth

import (
	"slices"
	"strings"

	"github.com/weir-edge/weir/edge/mcp"
)

// Lacks reports whether scopes lack one of those needed.
func Lacks(scopes, needed []string) bool {
	return slices.ContainsFunc(needed, func(n string) bool { return !slices.Contains(scopes, n) })
}

// IsScope reports whether text is one scope (RFC 6749 §3.3).
func IsScope(text string) bool { return mcp.IsScope(text) }

// Scopes splits the scope of a token or of a challenge.
func Scopes(text string) []string { return strings.Fields(text) }
