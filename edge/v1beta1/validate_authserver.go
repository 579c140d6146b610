package v1beta1

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// authServer judges an embedded authorization server (external authentication
// document, spec.embeddedAuthServer). An http issuer on another host than
// localhost is not rejected here: the documents leave it to reconcile.
func (f *faults) authServer(p *field.Path, a *EmbeddedAuthServer) {
	if a == nil {
		return
	}
	if f.given(p.Child("issuer"), a.Issuer) {
		f.issuer(p.Child("issuer"), a.Issuer)
	}
	if a.AuthorizationEndpointBaseURL != a.Issuer {
		f.issuer(p.Child("authorizationEndpointBaseUrl"), a.AuthorizationEndpointBaseURL)
	}
	f.scopes(p.Child("baselineClientScopes"), a.BaselineClientScopes)
	f.tooMany(p.Child("baselineClientScopes"), len(a.BaselineClientScopes), 10)
	if c := a.CIMD; c != nil {
		f.duration(p.Child("cimd", "cacheFallbackTtl"), c.CacheFallbackTTL, positive)
		atLeastPtr(f, p.Child("cimd", "cacheMaxSize"), c.CacheMaxSize, 1)
	}
	f.secrets(p.Child("hmacSecretRefs"), a.HMACSecretRefs)
	f.secrets(p.Child("signingKeySecretRefs"), a.SigningKeySecretRefs)
	f.tooMany(p.Child("signingKeySecretRefs"), len(a.SigningKeySecretRefs), 5)
	if l := a.TokenLifespans; l != nil {
		p := p.Child("tokenLifespans")
		f.duration(p.Child("accessTokenLifespan"), l.AccessTokenLifespan, positive)
		f.duration(p.Child("authCodeLifespan"), l.AuthCodeLifespan, positive)
		f.duration(p.Child("refreshTokenLifespan"), l.RefreshTokenLifespan, positive)
	}
	if s := a.Storage; s != nil {
		p := p.Child("storage")
		if oneOf(f, p.Child("type"), s.Type, StorageMemory, StorageKVStore) {
			f.exactly(p, string(s.Type), variant{"kvstore", "kvstore", s.KVStore != nil})
		}
		f.kvstore(p.Child("kvstore"), s.KVStore)
	}

	providers := p.Child("upstreamProviders")
	if len(a.UpstreamProviders) == 0 {
		f.required(providers, "at least one identity provider")
	}
	seen := map[string]bool{}
	for i := range a.UpstreamProviders {
		u := &a.UpstreamProviders[i]
		if seen[u.Name] {
			f.add(field.Duplicate(providers.Index(i).Child("name"), u.Name))
		}
		seen[u.Name] = u.Name != ""
		f.upstream(providers.Index(i), u)
	}
	f.provider(p.Child("primaryUpstreamProvider"), a.PrimaryUpstreamProvider)
	f.names(p.Child("primaryUpstreamProvider"), a.PrimaryUpstreamProvider, a)
}

// names demands that a provider's name, unless empty, is one of the upstreams.
func (f *faults) names(p *field.Path, name string, a *EmbeddedAuthServer) {
	if name == "" {
		return
	}
	var upstreams []string
	for _, u := range a.UpstreamProviders {
		upstreams = append(upstreams, u.Name)
	}
	if !slices.Contains(upstreams, name) {
		f.invalid(p, name, "must be one of the upstreamProviders: "+strings.Join(upstreams, ", "))
	}
}

func (f *faults) kvstore(p *field.Path, k *KVStore) {
	if k == nil {
		return
	}
	if c := k.ACLUserConfig; c == nil {
		f.required(p.Child("aclUserConfig"), "")
	} else {
		p := p.Child("aclUserConfig")
		f.secret(p.Child("passwordSecretRef"), &c.PasswordSecretRef)
		f.secret(p.Child("usernameSecretRef"), c.UsernameSecretRef)
	}
	f.hostPort(p.Child("addr"), k.Addr)
	switch {
	case k.Addr == "" && k.SentinelConfig == nil:
		f.required(p.Child("addr"), "one of addr and sentinelConfig must be set")
	case k.Addr != "" && k.SentinelConfig != nil:
		f.forbidden(p.Child("sentinelConfig"), "exclusive with addr")
	}
	if k.ClusterMode && k.Addr == "" {
		f.invalid(p.Child("clusterMode"), true, "needs addr")
	}
	if s := k.SentinelConfig; s != nil {
		p := p.Child("sentinelConfig")
		f.given(p.Child("masterName"), s.MasterName)
		if s.DB < 0 {
			f.invalid(p.Child("db"), s.DB, "must be at least 0")
		}
		for i, a := range s.SentinelAddrs {
			if f.given(p.Child("sentinelAddrs").Index(i), a) {
				f.hostPort(p.Child("sentinelAddrs").Index(i), a)
			}
		}
		switch {
		case len(s.SentinelAddrs) == 0 && s.SentinelService == nil:
			f.required(p.Child("sentinelAddrs"), "one of sentinelAddrs and sentinelService must be set")
		case len(s.SentinelAddrs) > 0 && s.SentinelService != nil:
			f.forbidden(p.Child("sentinelService"), "exclusive with sentinelAddrs")
		}
		if s.SentinelService != nil {
			p := p.Child("sentinelService")
			if f.given(p.Child("name"), s.SentinelService.Name) {
				f.dns(p.Child("name"), s.SentinelService.Name)
			}
			withinPtr(f, p.Child("port"), s.SentinelService.Port, 1, 65535)
		}
	}
	f.duration(p.Child("dialTimeout"), k.DialTimeout, positive)
	f.duration(p.Child("readTimeout"), k.ReadTimeout, positive)
	f.duration(p.Child("writeTimeout"), k.WriteTimeout, positive)
	if k.TLS != nil {
		f.secret(p.Child("tls", "caCertSecretRef"), k.TLS.CACertSecretRef)
	}
	if k.SentinelTLS != nil {
		f.secret(p.Child("sentinelTls", "caCertSecretRef"), k.SentinelTLS.CACertSecretRef)
		if k.SentinelConfig == nil {
			f.forbidden(p.Child("sentinelTls"), "used only with sentinelConfig")
		}
	}
}

func (f *faults) upstream(p *field.Path, u *UpstreamProvider) {
	if f.given(p.Child("name"), u.Name) {
		f.provider(p.Child("name"), u.Name)
	}
	if oneOf(f, p.Child("type"), u.Type, UpstreamOIDC, UpstreamOAuth2) {
		f.exactly(p, string(u.Type),
			variant{"oidc", "oidcConfig", u.OIDCConfig != nil},
			variant{"oauth2", "oauth2Config", u.OAuth2Config != nil})
	}
	if c := u.OIDCConfig; c != nil {
		p := p.Child("oidcConfig")
		if f.given(p.Child("issuerUrl"), c.IssuerURL) {
			f.web(p.Child("issuerUrl"), c.IssuerURL, "https")
		}
		f.given(p.Child("clientId"), c.ClientID)
		f.secret(p.Child("clientSecretRef"), c.ClientSecretRef)
		f.web(p.Child("redirectUri"), c.RedirectURI, "https", "http")
		f.scopes(p.Child("scopes"), c.Scopes)
		f.authorizationParams(p.Child("additionalAuthorizationParams"), c.AdditionalAuthorizationParams)
		f.matches(p.Child("subjectClaim"), c.SubjectClaim, identifierPattern, "must be a letter or _, then letters, digits and _")
		f.atMost(p.Child("subjectClaim"), c.SubjectClaim, 128)
		f.userInfo(p.Child("userInfoOverride"), c.UserInfoOverride)
	}
	if c := u.OAuth2Config; c != nil {
		f.oauth2(p.Child("oauth2Config"), c)
	}
}

func (f *faults) oauth2(p *field.Path, c *OAuth2Upstream) {
	if f.given(p.Child("authorizationEndpoint"), c.AuthorizationEndpoint) {
		f.web(p.Child("authorizationEndpoint"), c.AuthorizationEndpoint, "https", "http")
	}
	if f.given(p.Child("tokenEndpoint"), c.TokenEndpoint) {
		f.web(p.Child("tokenEndpoint"), c.TokenEndpoint, "https", "http")
	}
	f.secret(p.Child("clientSecretRef"), c.ClientSecretRef)
	switch {
	case c.ClientID == "" && c.DCRConfig == nil:
		f.required(p.Child("clientId"), "one of clientId and dcrConfig must be set")
	case c.ClientID != "" && c.DCRConfig != nil:
		f.forbidden(p.Child("clientId"), "exclusive with dcrConfig")
	}
	if d := c.DCRConfig; d != nil {
		if c.ClientSecretRef != nil {
			f.forbidden(p.Child("clientSecretRef"), "exclusive with dcrConfig: the secret comes from the registration")
		}
		if d.RegistrationEndpoint != "" && len(c.Scopes) == 0 {
			f.required(p.Child("scopes"), "dcrConfig.registrationEndpoint needs explicit scopes")
		}
		f.dcr(p.Child("dcrConfig"), d)
	}
	f.web(p.Child("redirectUri"), c.RedirectURI, "https", "http")
	f.scopes(p.Child("scopes"), c.Scopes)
	f.authorizationParams(p.Child("additionalAuthorizationParams"), c.AdditionalAuthorizationParams)
	if m := c.TokenResponseMapping; m != nil {
		f.given(p.Child("tokenResponseMapping", "accessTokenPath"), m.AccessTokenPath)
	}
	if i := c.IdentityFromToken; i != nil {
		p := p.Child("identityFromToken")
		f.given(p.Child("subjectPath"), i.SubjectPath)
		f.atMost(p.Child("subjectPath"), i.SubjectPath, 256)
		f.atMost(p.Child("namePath"), i.NamePath, 256)
		f.atMost(p.Child("emailPath"), i.EmailPath, 256)
	}
	f.userInfo(p.Child("userInfo"), c.UserInfo)
}

func (f *faults) dcr(p *field.Path, d *DCR) {
	switch {
	case d.DiscoveryURL == "" && d.RegistrationEndpoint == "":
		f.required(p.Child("discoveryUrl"), "one of discoveryUrl and registrationEndpoint must be set")
	case d.DiscoveryURL != "" && d.RegistrationEndpoint != "":
		f.forbidden(p.Child("registrationEndpoint"), "exclusive with discoveryUrl")
	}
	for _, u := range []struct{ name, url string }{{"discoveryUrl", d.DiscoveryURL}, {"registrationEndpoint", d.RegistrationEndpoint}} {
		if f.web(p.Child(u.name), u.url, "https") {
			f.matches(p.Child(u.name), showURL(u.url), issuerPattern, "must have no query, fragment or trailing slash")
		}
		f.atMost(p.Child(u.name), u.url, 2048)
	}
	f.secret(p.Child("initialAccessTokenRef"), d.InitialAccessTokenRef)
	f.atMost(p.Child("softwareId"), d.SoftwareID, 255)
	f.atMost(p.Child("softwareStatement"), d.SoftwareStatement, 16384)
}

// authorizationParams judges the parameters that an upstream adds to an
// authorization request.
func (f *faults) authorizationParams(p *field.Path, params map[string]string) {
	f.tooMany(p, len(params), 16)
	for _, name := range sorted(params) {
		switch name {
		case "":
			f.required(p.Key(name), "a parameter has a name")
		case "response_type", "client_id", "redirect_uri", "scope", "state", "code_challenge", "code_challenge_method", "nonce":
			f.forbidden(p.Key(name), "the edge sets this parameter itself")
		}
	}
}

func (f *faults) userInfo(p *field.Path, u *UserInfo) {
	if u == nil {
		return
	}
	if f.given(p.Child("endpointUrl"), u.EndpointURL) {
		f.web(p.Child("endpointUrl"), u.EndpointURL, "https", "http")
	}
	oneOf(f, p.Child("httpMethod"), u.HTTPMethod, "GET", "POST")
	f.userInfoHeaders(p.Child("additionalHeaders"), u.AdditionalHeaders)
	if m := u.FieldMapping; m != nil {
		p := p.Child("fieldMapping")
		f.strings(p.Child("subjectFields"), m.SubjectFields)
		f.strings(p.Child("nameFields"), m.NameFields)
		f.strings(p.Child("emailFields"), m.EmailFields)
	}
}

// userInfoHeaders judges the headers of a userinfo request. It goes to an
// identity provider, so that Accept may be set; Authorization carries the token.
func (f *faults) userInfoHeaders(p *field.Path, headers map[string]string) {
	for _, name := range sorted(headers) {
		switch strings.ToLower(name) {
		case "accept":
		case "authorization":
			f.forbidden(p.Key(name), "the edge sets this header itself")
		default:
			f.header(p.Key(name), name)
		}
		f.headerValue(p.Key(name), headers[name])
	}
}
