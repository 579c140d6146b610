package authserver

import (
	"context"
	"net/url"

	"github.com/weir-edge/weir/edge/oauth"
)

// What the tests from outside see of the inside.

// MatchRedirect reports whether an address is one of those that are registered.
func MatchRedirect(registered []string, asked string) bool {
	_, ok := matches(registered, asked)
	return ok
}

// MayRegister reports whether a redirect URI may be registered.
func MayRegister(text string) bool {
	_, ok := parseRedirect(text)
	return ok
}

// WithQuery is a redirect URI with one parameter more.
func WithQuery(redirect, name, value string) string {
	r, _ := parseRedirect(redirect)
	return r.with(url.Values{name: {value}})
}

// Visible is a name as it is shown.
func Visible(name string) string { return visible(name) }

// Subject is who a user is in our tokens.
func Subject(provider, of string) string { return subject(provider, of) }

// Prefix begins the keys of records.
func (s *Server) Prefix() string { return s.records.prefix }

// Corrupt is how many records did not open.
func (s *Server) Corrupt() uint64 { return s.records.bad.Load() }

// ParseDocument judges a metadata document.
func ParseDocument(id string, text []byte) error {
	_, err := parseDocument(id, text)
	return err
}

// IsDocumentURL reports whether a URL may be a client id.
func IsDocumentURL(id string) bool {
	_, ok := parseDocumentURL(id)
	return ok
}

// OpenClient opens a client id with a secret, and returns what it holds.
func OpenClient(issuer string, secret []byte, id string) (redirects []string, ok bool) {
	r, err := newRing(issuer, [][]byte{secret})
	if err != nil {
		return nil, false
	}
	c, err := r.client(id)
	if err != nil {
		return nil, false
	}
	return c.Redirects, true
}

// NewKey is a signing key as PEM.
func NewKey() (string, error) {
	key, err := oauth.NewSigningKey()
	return string(key), err
}

// FaultyFetches has each fetch of a metadata document panic.
func (s *Server) FaultyFetches() { s.documents.client = nil }

// Known is how many grants it is known of whether they live.
func (s *Server) Known() int {
	s.alive.mu.Lock()
	defer s.alive.mu.Unlock()
	return len(s.alive.all)
}

// Compare looks at the other replicas.
func (s *Server) Compare(ctx context.Context) (Agreement, error) { return s.compare(ctx) }

// Flush writes down how secrets are used.
func (s *Server) Flush(ctx context.Context) error {
	return s.lasting.usage.flush(ctx, s.records, s.now())
}
