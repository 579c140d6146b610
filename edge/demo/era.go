package demo

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/url"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	wire "github.com/weir-edge/weir/edge/mcp"
)

// eras gives every request to the half of the server that speaks its era: the
// SDK serves sessions with one handler and the revision without sessions with
// another, over the same tools.
func eras(s *mcp.Server) http.Handler {
	server := func(*http.Request) *mcp.Server { return s }
	legacy := mcp.NewStreamableHTTPHandler(server, &mcp.StreamableHTTPOptions{
		SessionTimeout: idle,
	})
	modern := mcp.NewStreamableHTTPHandler(server, &mcp.StreamableHTTPOptions{
		Stateless: true,
		// The end of the client's stream is how this era cancels a call.
		PropagateRequestCancellation: true,
	})
	mux := http.NewServeMux()
	mux.HandleFunc(Path, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		var large *http.MaxBytesError
		switch {
		case errors.As(err, &large):
			http.Error(w, "the request is larger than 1 MiB", http.StatusRequestEntityTooLarge)
			return
		case err != nil:
			http.Error(w, "the request ended early", http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if isModern(r.Header, body) {
			modern.ServeHTTP(w, r)
			return
		}
		legacy.ServeHTTP(w, r)
	})
	return mux
}

// isModern tells the era of a request: a protocol version in the body's _meta
// is modern, whatever the header says; else a header that names a revision
// without sessions is, unless a session is named too (2026-07-28, versioning).
func isModern(h http.Header, body []byte) bool {
	if m, err := wire.Decode(body); err == nil && m.Meta(wire.MetaVersion).OK() {
		return true
	}
	return h.Get(wire.HeaderVersion) >= wire.V2607 && h.Get(wire.HeaderSession) == ""
}

// sameMachine refuses requests that a page in a browser made: their Origin is
// not a loopback one (2025-11-25, transports: Origin must be checked). The
// Host, which DNS rebinding would change, is checked by the SDK.
func sameMachine(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if origin := r.Header.Get("Origin"); origin != "" {
			if u, err := url.Parse(origin); err != nil || !local(u.Hostname()) {
				http.Error(w, "this Origin is not allowed", http.StatusForbidden)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}
