package idp

import (
	"encoding/json"
	"testing"
)

// Across is what a provider does for access across applications (see across.mjs). What is nil
// is refused to everybody.
type Across struct {
	// Issues is for what it gives an identity assertion (ID-JAG) to whoever brings an ID token
	// of the client SSOClientID: RFC 8693.
	Issues *Issues `json:"issues,omitempty"`

	// Takes is for whose assertions it gives an access token: RFC 7523.
	Takes *Takes `json:"takes,omitempty"`
}

// Issues is for what assertions are.
type Issues struct {
	Audience string   `json:"audience"` // issuer of the authorization server that takes them
	Resource string   `json:"resource"` // of an access token for them
	Client   string   `json:"client"`   // that may bring them there
	Scopes   []string `json:"scopes"`

	// Lies: claims in place of the right ones, of which nil is for none, and a typ.
	Claims map[string]any `json:"claims,omitempty"`
	Type   string         `json:"type,omitempty"`
}

// Takes is whose assertions are taken, and for what.
type Takes struct {
	Issuer   string   `json:"issuer"`
	Keys     string   `json:"keys"` // URL of that one's
	Resource string   `json:"resource"`
	Scopes   []string `json:"scopes"`
}

// Across says what the provider does from now on, in place of what was said before.
func (p *Provider) Across(t testing.TB, do Across) {
	t.Helper()
	text, err := json.Marshal(do)
	if err != nil {
		t.Fatal(err)
	}
	p.send(t, "/-/across", "application/json", string(text))
}
