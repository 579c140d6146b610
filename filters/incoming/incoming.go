// Package incoming is the gate that finds out who sends a request: by an access
// token of an OpenID Connect provider, or as the user who runs the edge, or as
// nobody in particular. The door asks it before the message is read, so that a
// stranger learns nothing else.
package incoming

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weir-edge/weir/edge/oauth"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// Type is how clients authenticate.
type Type string

// The ways in which clients authenticate (virtual server document,
// spec.config.incomingAuth.type).
const (
	OIDC      Type = "oidc"
	Local     Type = "local"
	Anonymous Type = "anonymous"
)

// Unverified is of spec.run.exchangeUnverified: clients show a token that is exchanged, and
// that nobody here looks at. Each token is somebody of its own, who may do what anybody may.
const Unverified Type = "unverified"

// Spec is the authentication of one server's clients, with every reference
// resolved. FromConfig and FromKind make it; fields that its type does not use
// are empty.
type Spec struct {
	Type     Type
	Issuer   string // as tokens name it, to the byte; "" where IntrospectionURL is asked about every token
	Audience string // one of those that a token must be for, to the byte

	JWKSURL          string // discovered when empty
	IntrospectionURL string // for tokens that are no JWT, and without Issuer for all; "" refuses the former
	ClientID         string // of the introspection
	ClientSecret     *v1beta1.SecretRef
	ClientSecretEnv  string // name of an environment variable; ClientSecret comes first

	CABundle     string // PEM text, in place of the system's certificates
	CABundlePath string // a file of it, read by Open
	TokenFile    string // with a bearer token for discovery and keys

	AllowPrivate         bool // discovery and keys may be at private addresses
	AllowHTTP            bool // http to the provider
	ResourceAllowPrivate bool // the resource may be named by a private address

	Resource string   // what tokens are asked for (RFC 8707); used when it is a URL
	Scopes   []string // advertised; nil for openid
	Required []string // scopes that every token must carry; nil for none

	// Namespace and Account name the service account whose tokens are accepted;
	// empty for any.
	Namespace, Account string
}

// Where Kubernetes puts what a pod needs to talk to its cluster.
const (
	clusterKeys  = "https://kubernetes.default.svc/openid/v1/jwks"
	clusterCA    = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
	clusterToken = "/var/run/secrets/kubernetes.io/serviceaccount/token"
)

// FromConfig is the Spec of spec.config.incomingAuth.
func FromConfig(a *v1beta1.ConfigIncomingAuth) Spec {
	s := Spec{Type: Type(a.Type)}
	if o := a.OIDC; o != nil {
		s.Issuer, s.Audience, s.Resource, s.Scopes, s.Required = o.Issuer, o.Audience, o.Resource, o.Scopes, o.RequiredScopes
		s.JWKSURL, s.IntrospectionURL = o.JWKSURL, o.IntrospectionURL
		s.ClientID, s.ClientSecretEnv, s.CABundlePath = o.ClientID, o.ClientSecretEnv, o.CABundlePath
		s.AllowPrivate, s.AllowHTTP, s.ResourceAllowPrivate = o.JWKSAllowPrivateIP, o.InsecureAllowHTTP, o.ProtectedResourceAllowPrivateIP
	}
	return s
}

// FromKind is the Spec of spec.incomingAuth with the MCPOIDCConfig that it
// names, nil for none. caBundle is the text that caBundleRef leads to.
func FromKind(a *v1beta1.IncomingAuth, provider *v1beta1.MCPOIDCConfigSpec, caBundle string) Spec {
	s := Spec{Type: Type(a.Type)}
	if r := a.OIDCConfigRef; r != nil {
		s.Audience, s.Resource, s.Scopes, s.Required = r.Audience, r.ResourceURL, r.Scopes, r.RequiredScopes
	}
	if provider == nil {
		return s
	}
	if p := provider.Inline; p != nil {
		s.Issuer, s.JWKSURL, s.IntrospectionURL = p.Issuer, p.JWKSURL, p.IntrospectionURL
		s.ClientID, s.ClientSecret = p.ClientID, p.ClientSecretRef
		s.CABundle, s.TokenFile = caBundle, p.JWKSAuthTokenPath
		s.AllowPrivate, s.AllowHTTP, s.ResourceAllowPrivate = p.JWKSAllowPrivateIP, p.InsecureAllowHTTP, p.ProtectedResourceAllowPrivateIP
	}
	if p := provider.KubernetesServiceAccount; p != nil {
		s.Issuer, s.JWKSURL, s.IntrospectionURL = p.Issuer, p.JWKSURL, p.IntrospectionURL
		s.Namespace, s.Account = p.Namespace, p.ServiceAccount
		s.AllowPrivate = true // the cluster is
		if s.JWKSURL == "" {
			s.JWKSURL = clusterKeys // the API server has them, whatever its issuer is called
		}
		if p.UseClusterAuth == nil || *p.UseClusterAuth {
			s.CABundlePath, s.TokenFile = clusterCA, clusterToken
		}
	}
	return s
}

// Fault is one thing that is wrong with a Spec.
type Fault struct {
	Field string // as Spec calls it, its first letter small: issuer, jwksURL
	What  string
}

// Faults are all that is wrong with a Spec.
type Faults []Fault

func (f Faults) Error() string {
	var all []string
	for _, one := range f {
		all = append(all, one.Field+": "+one.What)
	}
	return "incoming: " + strings.Join(all, "; ")
}

// Incoming is the authentication of one server's clients, checked and ready to
// be opened. It is immutable.
type Incoming struct {
	spec       Spec
	resource   string // "" when nobody knows a URL of this server
	document   []byte // RFC 9728; nil without resource
	challenges challenges
	own        *Own // the issuer, where it is in this process; else nil
}

// Parse checks a Spec, without touching the world. The error is of type Faults.
func Parse(s Spec) (*Incoming, error) {
	var faults Faults
	fault := func(field, format string, args ...any) {
		faults = append(faults, Fault{field, fmt.Sprintf(format, args...)})
	}
	web := func(field, text string) {
		if text == "" {
			return
		}
		_, err := oauth.ParseURL(text, s.AllowHTTP)
		switch {
		case errors.Is(err, oauth.ErrPlainHTTP):
			fault(field, "%s: write https, or set insecureAllowHTTP where nobody listens in", err)
		case err != nil:
			fault(field, "%s", err)
		}
	}
	switch s.Type {
	case Local, Anonymous, Unverified:
		s = Spec{Type: s.Type}
	case OIDC:
		if s.Issuer == "" {
			switch {
			case s.IntrospectionURL == "":
				fault("issuer", "required")
			case s.JWKSURL != "":
				fault("jwksURL", "whose keys these are nobody says: give issuer, too")
			case s.TokenFile != "":
				fault("jwksAuthTokenPath", "without an issuer no keys are asked for: give issuer, too")
			}
		} else if _, err := oauth.WellKnown(s.Issuer); err != nil {
			fault("issuer", "%s", strings.TrimPrefix(err.Error(), "issuer: "))
		} else {
			web("issuer", s.Issuer)
		}
		if s.Audience == "" {
			fault("audience", "required")
		}
		web("jwksURL", s.JWKSURL)
		web("introspectionURL", s.IntrospectionURL)
		if s.CABundle != "" {
			if _, err := oauth.New(oauth.Options{CABundle: []byte(s.CABundle)}); err != nil {
				fault("caBundle", "it holds no PEM certificate")
			}
		}
		if s.Account != "" && s.Namespace == "" {
			fault("namespace", "required with a service account")
		}
		if u, err := oauth.ParseURL(s.Resource, true); err == nil && (u.RawQuery != "" || u.ForceQuery) {
			fault("resource", "it has a query, by which no metadata are found: leave that out")
		}
		if private(s.Resource) && !s.ResourceAllowPrivate {
			fault("resource", "it names a private address, which needs protectedResourceAllowPrivateIP")
		}
		for _, list := range []struct {
			field  string
			scopes []string
		}{{"scopes", s.Scopes}, {"requiredScopes", s.Required}} {
			for i, scope := range list.scopes {
				if !oauth.IsScope(scope) {
					fault(fmt.Sprintf("%s[%d]", list.field, i), "not a scope: no blanks, quotes, backslashes, and ASCII only")
				}
			}
		}
		if s.Scopes == nil {
			s.Scopes = []string{"openid"}
		}
		// A client asks for it on its own account (MCP basic/authorization).
		s.Scopes = slices.DeleteFunc(slices.Clone(s.Scopes), func(v string) bool { return v == "offline_access" })
		for _, scope := range s.Required { // what is demanded is offered
			if !slices.Contains(s.Scopes, scope) {
				s.Scopes = append(s.Scopes, scope)
			}
		}
	default:
		fault("type", "%q is none of oidc, local, anonymous", s.Type)
	}
	if len(faults) > 0 {
		return nil, faults
	}
	return (&Incoming{spec: s}).At(""), nil
}

// private reports whether a URL names a host by an address that is not public,
// other than a loopback one.
func private(text string) bool {
	u, err := oauth.ParseURL(text, true)
	if err != nil {
		return false
	}
	addr, err := netip.ParseAddr(u.Hostname())
	return err == nil && (addr.IsPrivate() || addr.IsLinkLocalUnicast() || addr.IsUnspecified())
}

// ResourceAt is what clients ask tokens for (RFC 8707) of a server that they reach at endpoint,
// which stands in where the Spec names no URL; "" for unknown.
func (s *Spec) ResourceAt(endpoint string) string {
	for _, candidate := range []string{s.Resource, s.Audience, endpoint} {
		if u, err := oauth.ParseURL(candidate, true); err == nil && u.RawQuery == "" {
			return candidate
		}
	}
	return ""
}

// At is the same authentication for a server that clients reach at endpoint, an
// absolute URL such as https://edge.example.com/mcp, which stands in where the
// Spec names no URL as its resource. Empty for unknown.
func (t *Incoming) At(endpoint string) *Incoming {
	at := &Incoming{spec: t.spec, own: t.own, resource: t.spec.ResourceAt(endpoint)}
	if t.spec.Type != OIDC {
		at.resource = ""
	}
	location := ""
	if at.resource != "" {
		var issuers []string
		if t.spec.Issuer != "" {
			issuers = []string{t.spec.Issuer}
		}
		at.document = Metadata(at.resource, issuers, t.spec.Scopes)
		location = Location(at.resource)
	}
	at.challenges = newChallenges(location, t.spec)
	return at
}

// Authenticates reports whether clients have identities that differ.
func (t *Incoming) Authenticates() bool { return t.spec.Type == OIDC }

// Document is the protected resource metadata (RFC 9728 §2), which the door
// serves to everyone; nil when there is none to serve.
func (t *Incoming) Document() []byte { return t.document }
