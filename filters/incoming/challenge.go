package incoming

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/oauth"
)

// Metadata is the protected resource metadata document of a resource (RFC 9728
// §2). Equal arguments give equal bytes.
func Metadata(resource string, issuers, scopes []string) []byte {
	text, err := json.Marshal(struct {
		Resource string   `json:"resource"`
		Servers  []string `json:"authorization_servers,omitempty"`
		Methods  []string `json:"bearer_methods_supported"`
		Scopes   []string `json:"scopes_supported,omitempty"`
	}{resource, issuers, []string{"header"}, scopes})
	if err != nil {
		return nil // strings always encode
	}
	return text
}

// Location is where the metadata of a resource is found: the well-known name
// goes between its host and its path (RFC 9728 §3.1).
func Location(resource string) string {
	u, err := oauth.ParseURL(resource, true)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host + "/.well-known/oauth-protected-resource" + strings.TrimSuffix(u.EscapedPath(), "/")
}

// challenges are the values of WWW-Authenticate (RFC 6750 §3, RFC 9728 §5.1).
type challenges struct {
	missing string // to who sends no token: no error (RFC 6750 §3.1)
	invalid string // to who sends one that does not hold
	again   string // to who sends one that holds, and has to sign in again all the same
	stem    string // what those begin with, and a challenge for more scopes
	base    []string
}

func newChallenges(location string, s Spec) challenges {
	if s.Type != OIDC && s.Type != Unverified {
		return challenges{}
	}
	scopes := s.Required
	if len(scopes) == 0 {
		scopes = s.Scopes
	}
	var c challenges
	var parts []string
	if location != "" {
		parts = append(parts, "resource_metadata="+quote(location))
	}
	c.stem = strings.Join(parts, ", ")
	if len(scopes) > 0 {
		parts = append(parts, "scope="+quote(strings.Join(scopes, " ")))
	}
	c.missing = strings.TrimSuffix("Bearer "+strings.Join(parts, ", "), " ")
	refused := func(why string) string {
		return "Bearer " + strings.Join(append(slices.Clip(parts), `error="invalid_token"`, `error_description="`+why+`"`), ", ")
	}
	c.invalid, c.again = refused(textInvalid), refused(textAgain)
	c.base = s.Required
	return c
}

// insufficient is the challenge to who needs more scopes: it names all that the
// operation needs at once, so that one step up is enough.
func (c *challenges) insufficient(needed []string) string {
	all := slices.Clone(c.base)
	for _, n := range needed {
		if oauth.IsScope(n) && !slices.Contains(all, n) {
			all = append(all, n)
		}
	}
	text := `Bearer error="insufficient_scope", scope=` + quote(strings.Join(all, " "))
	if c.stem != "" {
		text += ", " + c.stem
	}
	return text
}

// quote makes a quoted-string (RFC 9110 §5.6.4). Control characters, which no
// header may hold, are left out.
func quote(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(text) {
		switch c := text[i]; {
		case c < ' ' || c == 0x7f:
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// What clients are told. None of it says why.
const (
	textMissing = "authentication required"
	textInvalid = "the access token is not valid here"
	textAgain   = "sign in again"
	textAway    = "the identity provider cannot be reached"
	textGrants  = "sign-ins cannot be looked up at the moment"
	textBusy    = "too many tokens wait for the identity provider"
	textLocal   = "only clients on this machine are served"
)

// reason is an error whose text clients are not told.
type reason struct {
	told string
	err  error
}

func (r *reason) Error() string { return r.told }
func (r *reason) Unwrap() error { return r.err }

// refuse is the error for a token that does not hold. why stands in Op, for log
// and audit.
func (c *challenges) refuse(why error) error {
	return &edge.Error{Kind: edge.Unauthenticated, Op: "authenticate: " + why.Error(), Challenge: c.invalid, Err: &reason{textInvalid, why}}
}
