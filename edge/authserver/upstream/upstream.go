// Package upstream signs a user in at an identity provider of the operator's choice: it
// sends a browser there, takes what comes back, learns who it is, and renews what was
// issued. It writes nothing that a user left to a store; who calls it does.
package upstream

import (
	"context"
	"net/url"
	"time"

	"github.com/weir-edge/weir/edge"
)

// Leg is what a login remembers of being sent to a provider; the caller seals it.
type Leg struct {
	Provider string // the name of the provider
	Redirect string // the redirect URI that was sent
	Nonce    string // of the ID token; "" for a provider of type oauth2
	Verifier string // of PKCE
	Issuer   string // the issuer that the answer has to name; "" where the provider names none
	Client   string // the generation of the registration at the provider; "" where none was made
	Strict   bool   // the provider says that each answer of its names the issuer
}

// Tokens are what a provider issued to a user.
type Tokens struct {
	Access, Refresh, ID edge.Secret
	Scope               string         // the scopes that the provider granted, apart by spaces; "" where it did not say
	Expires             time.Time      // when the access token ends; zero where the provider did not say
	Issued              time.Time      // when the answer came
	Client              string         // the generation of the registration at the provider that they belong to
	Subject             string         // the subject at this provider, for a refresh to be compared with; "" for none
	Claims              map[string]any // what policies may read of this provider; nil for none
}

// Who is the identity that a provider vouches for.
type Who struct {
	Subject     string // as the provider has it; never empty
	Name, Email string // "" for none; at most 256 bytes, no control characters
	Synthesized bool   // the subject was made of the access token
}

// Refused says that the provider answered a login with an error of its own, or the user
// said no. Code is a word of RFC 6749, or "" where the provider's is not one: what else
// the provider said is never kept.
type Refused struct{ Code string }

// Error implements error.
func (r *Refused) Error() string {
	if r.Code == "" {
		return "the identity provider refused the login"
	}
	return "the identity provider refused the login: " + r.Code
}

// Gone says that the tokens cannot be renewed: the user has to sign in with the provider
// again. Kept, where it is not nil, is what the caller stores in spite of it.
type Gone struct{ Provider, Reason string }

// Error implements error.
func (g *Gone) Error() string {
	return "the sign-in with " + g.Provider + " is over: " + g.Reason
}

// provider is what Provider does, for a reader of the contract.
type provider interface {
	// Name returns the name that the configuration has for the provider.
	Name() string

	// Send returns the address to send a browser to, and what the login has to remember.
	// An error of kind Unavailable says that the provider cannot be asked now.
	Send(ctx context.Context, state, redirect string) (address string, leg Leg, err error)

	// Return takes the query of the callback, whose state the caller has compared. It
	// fetches the tokens, and who it is where wantWho is true. The error is a *Refused
	// when the provider said error; any other is the server's fault or the provider's,
	// and is for the log.
	Return(ctx context.Context, leg Leg, query url.Values, wantWho bool) (*Tokens, *Who, error)

	// Refresh renews tokens. got hears the new ones before anything of them is judged,
	// so that a caller has stored them whatever comes of it; an error of got ends the
	// refresh. The error is a *Gone for invalid_grant, and where the answer is another
	// user's; another error leaves the tokens as they are.
	Refresh(ctx context.Context, t *Tokens, got func(*Tokens) error) (*Tokens, error)
}
