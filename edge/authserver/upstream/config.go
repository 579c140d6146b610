package upstream

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge/oauth"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// Config is one provider of spec.upstreamProviders, with what absence stands for filled in.
// Parse makes it.
type Config struct {
	v1beta1.UpstreamProvider

	Redirect string   // where the provider sends a browser back to
	Scopes   []string // to ask for; empty for those of the registration's metadata
	Claims   bool     // policies read claims of this provider
}

// Parse judges a provider that stands at a path, whose schema holds, without touching the
// world. redirect is where it sends a browser back to when it does not say so itself.
func Parse(at *field.Path, u *v1beta1.UpstreamProvider, redirect string) (*Config, field.ErrorList) {
	c := &Config{UpstreamProvider: *u.DeepCopy(), Redirect: redirect}
	var wrong field.ErrorList
	add := func(path *field.Path, value, why string) { wrong = append(wrong, field.Invalid(path, value, why)) }
	endpoint := func(path *field.Path, text string, http bool) {
		at, err := oauth.ParseURL(text, true)
		switch {
		case err != nil:
			add(path, "(hidden)", err.Error())
		case at.Scheme == "http" && !http && !oauth.IsLoopback(at.Hostname()):
			add(path, text, "must be https")
		}
	}
	switch {
	case u.OIDCConfig != nil:
		at, o := at.Child("oidcConfig"), u.OIDCConfig
		endpoint(at.Child("issuerUrl"), o.IssuerURL, false)
		if strings.Contains(o.IssuerURL, "?") {
			add(at.Child("issuerUrl"), "(hidden)", "it has a query, and an issuer has none: take it out")
		}
		if o.RedirectURI != "" {
			c.Redirect = o.RedirectURI
		}
		if c.Scopes = o.Scopes; len(c.Scopes) == 0 {
			c.Scopes = []string{"openid", "offline_access"}
		}
		if !slices.Contains(c.Scopes, "openid") {
			add(at.Child("scopes"), "", "must hold openid: without it the provider issues no ID token")
		}
		if o.UserInfoOverride != nil {
			endpoint(at.Child("userInfoOverride", "endpointUrl"), o.UserInfoOverride.EndpointURL, false)
		}
	case u.OAuth2Config != nil:
		at, o := at.Child("oauth2Config"), u.OAuth2Config
		http := o.InsecureAllowHTTP
		endpoint(at.Child("authorizationEndpoint"), o.AuthorizationEndpoint, http)
		endpoint(at.Child("tokenEndpoint"), o.TokenEndpoint, http)
		if o.RedirectURI != "" {
			c.Redirect = o.RedirectURI
		}
		c.Scopes = o.Scopes
		if o.UserInfo != nil {
			endpoint(at.Child("userInfo", "endpointUrl"), o.UserInfo.EndpointURL, http)
		}
		if i := o.IdentityFromToken; i != nil {
			wrong = append(wrong, paths(at.Child("identityFromToken"), true, "subjectPath", i.SubjectPath, "namePath", i.NamePath, "emailPath", i.EmailPath)...)
		}
		if m := o.TokenResponseMapping; m != nil {
			wrong = append(wrong, paths(at.Child("tokenResponseMapping"), false,
				"accessTokenPath", m.AccessTokenPath, "expiresInPath", m.ExpiresInPath, "refreshTokenPath", m.RefreshTokenPath, "scopePath", m.ScopePath)...)
		}
	default:
		add(at, "", "must have the section of its type")
	}
	return c, wrong
}

// paths judges the paths below a field: pairs of the name of one and its text, "" for none.
// decode says that a step may decode a token.
func paths(at *field.Path, decode bool, pairs ...string) (wrong field.ErrorList) {
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			continue
		}
		if _, err := parsePath(pairs[i+1], decode); err != nil {
			wrong = append(wrong, field.Invalid(at.Child(pairs[i]), pairs[i+1], err.Error()))
		}
	}
	return wrong
}

// http reports whether the operator lets endpoints be http.
func (c *Config) http() bool { return c.OAuth2Config != nil && c.OAuth2Config.InsecureAllowHTTP }

// params are the parameters that the operator adds to authorization requests.
func (c *Config) params() map[string]string {
	if c.OIDCConfig != nil {
		return c.OIDCConfig.AdditionalAuthorizationParams
	}
	return c.OAuth2Config.AdditionalAuthorizationParams
}

// dcr is how to register at the provider; nil for a client that is registered.
func (c *Config) dcr() *v1beta1.DCR {
	if c.OAuth2Config == nil {
		return nil
	}
	return c.OAuth2Config.DCRConfig
}

// Synthesizes reports whether users of the provider get a subject that is made of their
// access token (condition IdentitySynthesized).
func (c *Config) Synthesizes() bool {
	o := c.OAuth2Config
	return o != nil && o.UserInfo == nil && o.IdentityFromToken == nil
}
