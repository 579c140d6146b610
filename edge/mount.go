package edge

import (
	"cmp"
	"context"
	"net/http"
)

// Mount is an HTTP handler that an edge serves beside MCP. What comes to it has passed
// the door: it has one reading, an allowed Host, an allowed Origin unless AnyOrigin holds, and
// an X-Request-Id, and its body is there. Its context ends when the client leaves and when the edge ends.
type Mount struct {
	// Prefix is a path: one alone, such as /metrics, or with a slash at its end, such as
	// /console/, all that begins with it. The longest prefix of a path has it.
	Prefix string

	// Handler answers. What it writes is sent when it returns, when it flushes, and when
	// 64 KiB wait; then a write waits for the client. A panic in it costs its own answer.
	Handler http.Handler

	// MaxBody is how many bytes the body of a request may have; 0 for none.
	MaxBody int

	// AnyOrigin lets requests of all pages in: the handler judges itself whose they are.
	AnyOrigin bool
}

type sourceKey struct{}

// WithSource returns a context of a request to a Mount whose RemoteAddr is "unknown": records
// have the address that its proxy may have said.
func WithSource(ctx context.Context, said string) context.Context {
	return context.WithValue(ctx, sourceKey{}, said)
}

// SourceOf is the address of the client of a request to a Mount as records have it. It may be the
// client's own word: nothing else may rest on it.
func SourceOf(r *http.Request) string {
	said, _ := r.Context().Value(sourceKey{}).(string)
	return cmp.Or(said, r.RemoteAddr)
}
