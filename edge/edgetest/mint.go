package edgetest

import (
	"fmt"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest/issuer"
)

// Mint is an identity provider that a test asks for tokens itself.
type Mint struct {
	*issuer.Issuer
	t testing.TB
}

// NewMint starts a provider whose tokens are for an audience; it ends with the
// test.
func NewMint(t testing.TB, audience string) *Mint {
	t.Helper()
	i, err := issuer.New(issuer.ES256, audience, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(i.Leave)
	return &Mint{i, t}
}

// Token is a token for a subject. more are claims beside its own, or in their
// place.
func (m *Mint) Token(subject string, more map[string]any) string {
	m.t.Helper()
	token, err := m.Issuer.Token(subject, more)
	if err != nil {
		m.t.Fatal(err)
	}
	return token
}

// Bearer is the header line with a token for a subject of some groups.
func (m *Mint) Bearer(subject string, groups ...string) []string {
	m.t.Helper()
	return m.BearerOf(subject, map[string]any{"groups": groups})
}

// BearerOf is Bearer with further claims.
func (m *Mint) BearerOf(subject string, more map[string]any) []string {
	m.t.Helper()
	return []string{"Authorization", "Bearer " + m.Token(subject, more)}
}

// Inline is the spec.inline of an MCPOIDCConfig that takes its tokens, YAML in
// flow style.
func (m *Mint) Inline() string {
	return fmt.Sprintf("{issuer: %q, jwksUrl: %q, jwksAllowPrivateIP: true, insecureAllowHTTP: true}", m.URL, m.URL+"/keys")
}
