package wire

import "github.com/weir-edge/weir/edge/mcp"

// Scopes returns the scopes that WWW-Authenticate says are missing: those of its first
// Bearer challenge with the error insufficient_scope (RFC 6750 §3.1), of which it may
// name none. It is nil where there is no such challenge.
func Scopes(challenges []byte) []string {
	for c := range mcp.Challenges(string(challenges)) {
		if c.Error == "insufficient_scope" {
			return append([]string{}, c.Scopes...)
		}
	}
	return nil
}
