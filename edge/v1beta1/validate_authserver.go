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
	if a.AuthorizationEndpointBaseURL != a.Issuer {
		f.issuer(p.Child("authorizationEndpointBaseUrl"), a.AuthorizationEndpointBaseURL)
	}
	if s := a.Storage; s != nil {
		f.exactly(p.Child("storage"), string(s.Type), variant{"kvstore", "kvstore", s.KVStore != nil})
		f.kvstore(p.Child("storage", "kvstore"), s.KVStore)
	}
	providers := p.Child("upstreamProviders")
	if len(a.UpstreamProviders) == 0 {
		f.required(providers, "at least one identity provider")
	}
	f.distinct(providers, "name", len(a.UpstreamProviders), func(i int) string { return a.UpstreamProviders[i].Name })
	for i := range a.UpstreamProviders {
		f.upstream(providers.Index(i), &a.UpstreamProviders[i])
	}
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
	if k.ACLUserConfig == nil {
		f.required(p.Child("aclUserConfig"), "")
	}
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
		switch {
		case len(s.SentinelAddrs) == 0 && s.SentinelService == nil:
			f.required(p.Child("sentinelAddrs"), "one of sentinelAddrs and sentinelService must be set")
		case len(s.SentinelAddrs) > 0 && s.SentinelService != nil:
			f.forbidden(p.Child("sentinelService"), "exclusive with sentinelAddrs")
		}
	}
	if k.SentinelTLS != nil && k.SentinelConfig == nil {
		f.forbidden(p.Child("sentinelTls"), "used only with sentinelConfig")
	}
}

func (f *faults) upstream(p *field.Path, u *UpstreamProvider) {
	f.exactly(p, string(u.Type),
		variant{"oidc", "oidcConfig", u.OIDCConfig != nil},
		variant{"oauth2", "oauth2Config", u.OAuth2Config != nil})
	if c := u.OIDCConfig; c != nil {
		p := p.Child("oidcConfig")
		f.authorizationParams(p.Child("additionalAuthorizationParams"), c.AdditionalAuthorizationParams)
		f.userInfo(p.Child("userInfoOverride"), c.UserInfoOverride)
	}
	if c := u.OAuth2Config; c != nil {
		f.oauth2(p.Child("oauth2Config"), c)
	}
}

func (f *faults) oauth2(p *field.Path, c *OAuth2Upstream) {
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
	f.authorizationParams(p.Child("additionalAuthorizationParams"), c.AdditionalAuthorizationParams)
	f.userInfo(p.Child("userInfo"), c.UserInfo)
}

func (f *faults) dcr(p *field.Path, d *DCR) {
	switch {
	case d.DiscoveryURL == "" && d.RegistrationEndpoint == "":
		f.required(p.Child("discoveryUrl"), "one of discoveryUrl and registrationEndpoint must be set")
	case d.DiscoveryURL != "" && d.RegistrationEndpoint != "":
		f.forbidden(p.Child("registrationEndpoint"), "exclusive with discoveryUrl")
	}
}

// authorizationParams judges the parameters that an upstream adds to an
// authorization request.
func (f *faults) authorizationParams(p *field.Path, params map[string]string) {
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
	if u != nil {
		f.userInfoHeaders(p.Child("additionalHeaders"), u.AdditionalHeaders)
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
