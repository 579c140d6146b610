package mcp

import "strings"

// Accent is what an error says of the era of the server that it comes from.
type Accent uint8

// The accents.
const (
	ModernAccent  Accent = iota // nothing against that era
	Strange                     // no server of that era should say so
	Uninitialized               // the server wants initialize first, and did not run what it was sent
)

// codeServer is the first code that JSON-RPC leaves to servers (JSON-RPC 2.0 §5.1).
const codeServer = -32000

// AccentOf listens for the words of a legacy server that was sent a request
// without a session: the Go SDK answers with code 0 and the status 200, the
// TypeScript SDK with -32000, with the id of the request or without.
func AccentOf(code int, text string) Accent {
	switch code {
	case 0, CodeInvalidRequest, codeServer:
		text = strings.ToLower(text)
		for _, words := range []string{"not initialized", "session initialization", "before initialization"} {
			if strings.Contains(text, words) {
				return Uninitialized
			}
		}
		if code == 0 {
			return Strange
		}
	}
	return ModernAccent
}
