// Package authserver is an OAuth 2.0 and OpenID Connect authorization server in the edge: it
// knows MCP clients, and leaves logins to identity providers.
package authserver

import (
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge/authserver/upstream"
	"github.com/weir-edge/weir/edge/oauth"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// Spec is an authorization server with every default filled in. Parse makes it.
type Spec struct {
	Issuer    string // iss of its tokens, to the byte
	Base      string // what authorize and consent are below; Issuer where nothing else is said
	Upstreams []*upstream.Config
	Primary   string // the upstream whose claims policies read; "" where there are none
	Resources []Resource
	Scopes    []string // that clients may ask for, sorted
	Baseline  []string // in every registration; nil for none
	CIMD      *CIMD    // nil for registered clients alone
	Withheld  bool     // no upstream token goes to a backend

	Secrets []v1beta1.SecretRef // the first signs, the others only verify; nil for one that is made at start
	Keys    []v1beta1.SecretRef // likewise
	Access  time.Duration       // life of an access token
	Code    time.Duration       // of a code
	Refresh time.Duration       // of a refresh token, after its last use
	Store   *v1beta1.KVStore    // nil for the memory of the process
}

// CIMD is how clients are taken that are the URL of a document.
type CIMD struct {
	Life time.Duration // of a document in the cache
	Size int           // documents in it
}

// Resource is a server that takes the tokens.
type Resource struct {
	Server   string   // its name
	Audience string   // in its tokens
	URL      string   // its resource; "" where that is its audience, or nobody knows it
	Scopes   []string // that it advertises and demands; empty in what is parsed for the default
	Required []string // of those, the ones that it demands
}

// Around is what of the rest of a set an authorization server is judged with.
type Around struct {
	Issuer    string     // of the clients of its own server; "" where they have none
	Server    string     // the name of its own server
	Namespace string     // of the object that describes it; "" for none
	Resources []Resource // of the servers that trust the issuer, its own first
	Policies  bool       // policies decide about its server's clients
	Primary   string     // what the policies themselves say of the primary upstream; "" for nothing
	Replicas  int        // of the process; 0 for unknown
	One       bool       // it is of a kind that takes one upstream
}

// Doubt is what an operator should know, and may well mean.
type Doubt struct{ Field, Text string }

// Ranges and defaults of lifespans (auth-server document §4).
const (
	minAccess, maxAccess   = time.Minute, 24 * time.Hour
	minCode, maxCode       = 30 * time.Second, 10 * time.Minute
	minRefresh, maxRefresh = time.Hour, 720 * time.Hour

	defaultAccess, defaultCode, defaultRefresh = time.Hour, 10 * time.Minute, 168 * time.Hour
	defaultDocument, defaultDocuments          = 5 * time.Minute, 256
)

// defaultScopes are those of a server that advertises none.
func defaultScopes() []string { return []string{"openid", "profile", "email", "offline_access"} }

// Parse judges an authorization server that stands at a path without touching the world. What
// its schema says is judged elsewhere, and need not hold.
func Parse(at *field.Path, a *v1beta1.EmbeddedAuthServer, around Around) (*Spec, []Doubt, field.ErrorList) {
	p := &parser{at: at, a: a, around: around, spec: &Spec{
		Issuer: a.Issuer, Base: a.AuthorizationEndpointBaseURL, Resources: slices.Clone(around.Resources), Baseline: a.BaselineClientScopes, Withheld: a.DisableUpstreamTokenInjection,
		Secrets: a.HMACSecretRefs, Keys: a.SigningKeySecretRefs,
	}}
	if p.spec.Base == "" {
		p.spec.Base = a.Issuer
	}
	p.issuer()
	p.upstreams()
	p.primary()
	p.scopes()
	p.lives()
	p.kept()
	return p.spec, p.doubts, p.wrong
}

type parser struct {
	at     *field.Path
	a      *v1beta1.EmbeddedAuthServer
	around Around
	spec   *Spec
	doubts []Doubt
	wrong  field.ErrorList
}

func (p *parser) invalid(at *field.Path, value any, format string, args ...any) {
	p.wrong = append(p.wrong, field.Invalid(at, value, fmt.Sprintf(format, args...)))
}

func (p *parser) doubt(at *field.Path, format string, args ...any) {
	p.doubts = append(p.doubts, Doubt{at.String(), fmt.Sprintf(format, args...)})
}

// issuer judges the issuer and the base of authorize: the server trusts the issuer, and
// nobody listens in.
func (p *parser) issuer() {
	at := p.at.Child("issuer")
	switch {
	case p.around.Issuer == "":
		p.invalid(at, p.a.Issuer, "its server asks clients for no token of an issuer: set its incomingAuth.type to oidc, or its oidcConfigRef, with this issuer")
	case p.around.Issuer != p.a.Issuer:
		p.invalid(at, p.a.Issuer, "its server takes tokens of %q: both must be the same", p.around.Issuer)
	}
	p.open(at, p.a.Issuer)
	if p.a.AuthorizationEndpointBaseURL != "" && p.a.AuthorizationEndpointBaseURL != p.a.Issuer {
		p.open(p.at.Child("authorizationEndpointBaseUrl"), p.a.AuthorizationEndpointBaseURL)
	}
}

// open refuses http where others may listen in.
func (p *parser) open(at *field.Path, text string) {
	u, err := oauth.ParseURL(text, true)
	switch {
	case err != nil:
		p.invalid(at, "(hidden)", "%s", err)
	case u.Scheme == "http" && !p.a.InsecureAllowHTTP && !local(u.Hostname()):
		p.invalid(at, text, "it is http on a host that is not localhost: use https, or set insecureAllowHTTP inside a network that you trust")
	case u.Path != "" && path.Clean(u.Path) != u.Path || u.EscapedPath() != u.Path:
		p.invalid(at, text, "its path must be plain: no dot segments, no empty ones, nothing escaped")
	}
}

// local reports whether a host is localhost, as the document has it.
func local(host string) bool { return host == "localhost" || host == "127.0.0.1" || host == "::1" }

// upstreams judges the providers, and where they send a browser back to: the origin of
// authorize, since the cookie of a login is of that host.
func (p *parser) upstreams() {
	list := p.at.Child("upstreamProviders")
	if p.around.One && len(p.a.UpstreamProviders) != 1 {
		p.invalid(list, len(p.a.UpstreamProviders), "a server of one backend takes exactly one identity provider (MultiUpstreamNotSupported)")
	}
	redirect := ""
	if len(p.around.Resources) > 0 {
		if redirect = p.around.Resources[0].URL; redirect == "" {
			redirect = p.around.Resources[0].Audience
		}
	}
	if _, err := oauth.ParseURL(redirect, true); err != nil {
		redirect = ""
	} else {
		redirect = strings.TrimSuffix(redirect, "/") + "/oauth/callback"
	}
	base, _ := oauth.ParseURL(p.spec.Base, true)
	own := map[string]bool{} // the paths that are served for something else
	for _, at := range []string{"/mcp", "/sse", "/messages", "/health", "/readyz", "/status", "/metrics"} {
		own[at] = true
	}
	if base != nil {
		for _, name := range []string{"authorize", "consent"} {
			own[strings.TrimSuffix(base.Path, "/")+"/oauth/"+name] = true
		}
	}
	if u, err := oauth.ParseURL(p.a.Issuer, true); err == nil {
		for _, name := range []string{"token", "register", "revoke"} {
			own[strings.TrimSuffix(u.Path, "/")+"/oauth/"+name] = true
		}
	}
	for i := range p.a.UpstreamProviders {
		u := &p.a.UpstreamProviders[i]
		c, wrong := upstream.Parse(list.Index(i), u, redirect)
		p.wrong = append(p.wrong, wrong...)
		p.spec.Upstreams = append(p.spec.Upstreams, c)
		if o := u.OAuth2Config; o != nil && o.UserInfo != nil && o.IdentityFromToken != nil {
			p.doubt(list.Index(i).Child("oauth2Config", "userInfo"), "not used: identityFromToken says who the user is")
		}
		p.redirect(list.Index(i).Child(string(u.Type)+"Config", "redirectUri"), c.Redirect, base, own)
	}
}

// redirect judges where an upstream sends a browser back to.
func (p *parser) redirect(at *field.Path, text string, base *url.URL, own map[string]bool) {
	set := "set redirectUri to " + p.spec.Base + "/oauth/callback"
	to, err := oauth.ParseURL(text, true)
	switch {
	case base == nil: // that is said
	case text == "":
		p.wrong = append(p.wrong, field.Required(at, "nobody knows the server's own URL: "+set))
	case err != nil:
		p.invalid(at, "(hidden)", "%s", err)
	case to.Scheme != base.Scheme || !strings.EqualFold(to.Host, base.Host):
		p.invalid(at, text, "its origin is not that of %s, where the login starts: %s", p.spec.Base, set)
	case to.RawQuery != "" || to.ForceQuery || to.EscapedPath() != to.Path || path.Clean(to.Path) != to.Path || own[to.Path] || ofServer(to.Path) || to.Path == "/" || strings.Contains(to.Path, "/.well-known/"):
		p.invalid(at, text, "its path must be one of its own, plain and without a query: %s", set)
	}
}

// ofServer reports whether a path is an endpoint of a server: /servers/NAME/mcp and its like.
func ofServer(at string) bool {
	door := path.Base(at)
	named, _ := path.Match("/servers/*/*", at) // the pattern is well formed
	return named && (door == "mcp" || door == "sse" || door == "messages")
}

// primary finds out whose claims policies read.
func (p *parser) primary() {
	names := p.names()
	switch {
	case p.around.One || !p.around.Policies:
		if p.around.One && p.a.PrimaryUpstreamProvider != "" {
			p.doubt(p.at.Child("primaryUpstreamProvider"), "not used: only policies of a VirtualMCPServer read an upstream's claims")
		}
		return
	case p.a.PrimaryUpstreamProvider != "":
		p.spec.Primary = p.a.PrimaryUpstreamProvider
	case p.around.Primary != "":
		p.spec.Primary = p.around.Primary
	case len(names) > 0:
		p.spec.Primary = names[0]
		if len(names) > 1 {
			p.doubt(p.at.Child("primaryUpstreamProvider"), "policies read the claims of %s, the first of several upstreams: name the one that is meant", names[0])
		}
	}
	for _, u := range p.spec.Upstreams {
		u.Claims = u.Name == p.spec.Primary
	}
}

func (p *parser) names() (names []string) {
	for _, u := range p.a.UpstreamProviders {
		names = append(names, u.Name)
	}
	return names
}

// scopes finds out what clients may ask for.
func (p *parser) scopes() {
	var all, of []string
	for i := range p.spec.Resources {
		r := &p.spec.Resources[i]
		if len(r.Scopes) == 0 {
			r.Scopes = defaultScopes()
		}
		for _, scope := range r.Required {
			if !slices.Contains(r.Scopes, scope) {
				r.Scopes = append(slices.Clone(r.Scopes), scope)
			}
		}
		all = append(all, r.Scopes...)
	}
	for _, u := range p.spec.Upstreams {
		of = append(of, u.Scopes...)
	}
	for i, scope := range p.a.BaselineClientScopes {
		if !slices.Contains(of, scope) {
			slices.Sort(of)
			p.invalid(p.at.Child("baselineClientScopes").Index(i), scope, "it is none of the scopes of the upstreams: %s", strings.Join(slices.Compact(of), ", "))
		}
	}
	all = append(all, of...)
	slices.Sort(all)
	p.spec.Scopes = slices.Compact(all)
}

// lives judges how long things live.
func (p *parser) lives() {
	l := p.a.TokenLifespans
	if l == nil {
		l = &v1beta1.TokenLifespans{}
	}
	for _, one := range []struct {
		name        string
		given       v1beta1.Duration
		to          *time.Duration
		least, most time.Duration
		without     time.Duration
	}{
		{"accessTokenLifespan", l.AccessTokenLifespan, &p.spec.Access, minAccess, maxAccess, defaultAccess},
		{"authCodeLifespan", l.AuthCodeLifespan, &p.spec.Code, minCode, maxCode, defaultCode},
		{"refreshTokenLifespan", l.RefreshTokenLifespan, &p.spec.Refresh, minRefresh, maxRefresh, defaultRefresh},
	} {
		if *one.to = one.given.Std(); one.given == "" {
			*one.to = one.without
		} else if *one.to < one.least || *one.to > one.most {
			p.invalid(p.at.Child("tokenLifespans", one.name), string(one.given), "must be from %s to %s", one.least, one.most)
		}
	}
	if c := p.a.CIMD; c != nil && c.Enabled {
		p.spec.CIMD = &CIMD{Life: c.CacheFallbackTTL.Std(), Size: defaultDocuments}
		if c.CacheFallbackTTL == "" {
			p.spec.CIMD.Life = defaultDocument
		} else if p.spec.CIMD.Life <= 0 {
			p.invalid(p.at.Child("cimd", "cacheFallbackTtl"), string(c.CacheFallbackTTL), "must be above 0")
		}
		if c.CacheMaxSize != nil {
			p.spec.CIMD.Size = *c.CacheMaxSize
		}
	}
}

// kept judges what outlives a restart, and what replicas share.
func (p *parser) kept() {
	s := p.a.Storage
	shared := s != nil && s.Type == v1beta1.StorageKVStore
	if shared && s.KVStore != nil { // that it must be there is said by the schema
		p.spec.Store = s.KVStore.DeepCopy()
		if c := p.spec.Store.SentinelConfig; c != nil && c.SentinelService != nil && c.SentinelService.Namespace == "" {
			c.SentinelService.Namespace = p.around.Namespace
		}
	}
	many := p.around.Replicas > 1
	if many && !shared {
		p.invalid(p.at.Child("storage", "type"), "memory", "%d replicas share nothing: set it to kvstore", p.around.Replicas)
	}
	for _, one := range []struct {
		name, what string
		refs       []v1beta1.SecretRef
	}{{"hmacSecretRefs", "codes, refresh tokens and clients", p.spec.Secrets}, {"signingKeySecretRefs", "access tokens", p.spec.Keys}} {
		at := p.at.Child(one.name)
		switch {
		case len(one.refs) > 0:
			for i, ref := range one.refs {
				if slices.Index(one.refs, ref) < i {
					p.wrong = append(p.wrong, field.Duplicate(at.Index(i), ref.Name+"/"+ref.Key))
				}
			}
		case many:
			p.wrong = append(p.wrong, field.Required(at, fmt.Sprintf("%d replicas must share it: weir auth keygen makes one", p.around.Replicas)))
		default:
			p.doubt(at, "one is made at each start, with which all %s of before end: weir auth keygen makes one that stays", one.what)
		}
	}
}

// Endpoints are the paths with their host that an authorization server answers at, apart
// from its metadata: no two may share one.
func (s *Spec) Endpoints() (all []string) {
	for _, at := range []string{s.Base + "/oauth/authorize", s.Base + "/oauth/consent", s.Issuer + "/oauth/token", s.Issuer + "/oauth/register", s.Issuer + "/oauth/revoke"} {
		all = append(all, hostOf(at)+pathOf(at))
	}
	for _, u := range s.Upstreams {
		if u.Redirect != "" {
			all = append(all, hostOf(u.Redirect)+pathOf(u.Redirect))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
