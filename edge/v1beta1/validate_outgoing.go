package v1beta1

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Validate returns everything that is wrong with the object alone. What the
// documents leave to reconcile (what an obo exchange needs, an http issuer) is
// not rejected here.
func (o *MCPExternalAuthConfig) Validate() field.ErrorList {
	f := &faults{}
	f.metadata(o)
	s, p := &o.Spec, field.NewPath("spec")
	if oneOf(f, p.Child("type"), s.Type, AuthTokenExchange, AuthHeaderInjection, AuthBearerToken, AuthUnauthenticated,
		AuthEmbeddedAuthServer, AuthCloudSTS, AuthUpstreamInject, AuthOBO, AuthXAA) {
		f.exactly(p, string(s.Type),
			variant{"tokenExchange", "tokenExchange", s.TokenExchange != nil},
			variant{"headerInjection", "headerInjection", s.HeaderInjection != nil},
			variant{"bearerToken", "bearerToken", s.BearerToken != nil},
			variant{"embeddedAuthServer", "embeddedAuthServer", s.EmbeddedAuthServer != nil},
			variant{"cloudSts", "cloudSts", s.CloudSTS != nil},
			variant{"upstreamInject", "upstreamInject", s.UpstreamInject != nil},
			variant{"obo", "obo", s.OBO != nil},
			variant{"xaa", "xaa", s.XAA != nil})
	}
	if t := s.TokenExchange; t != nil {
		p := p.Child("tokenExchange")
		if f.given(p.Child("tokenUrl"), t.TokenURL) {
			f.web(p.Child("tokenUrl"), t.TokenURL, "https", "http")
		}
		f.given(p.Child("audience"), t.Audience)
		f.secret(p.Child("clientSecretRef"), t.ClientSecretRef)
		f.scopes(p.Child("scopes"), t.Scopes)
		if t.ExternalTokenHeaderName != "" {
			f.header(p.Child("externalTokenHeaderName"), t.ExternalTokenHeaderName)
		}
		f.subjectTokenType(p.Child("subjectTokenType"), t.SubjectTokenType)
	}
	if h := s.HeaderInjection; h != nil {
		p := p.Child("headerInjection")
		f.header(p.Child("headerName"), h.HeaderName)
		f.secret(p.Child("valueSecretRef"), &h.ValueSecretRef)
	}
	if b := s.BearerToken; b != nil {
		f.secret(p.Child("bearerToken", "tokenSecretRef"), &b.TokenSecretRef)
	}
	f.authServer(p.Child("embeddedAuthServer"), s.EmbeddedAuthServer)
	if c := s.CloudSTS; c != nil {
		mappings := make([]roleMapping, len(c.RoleMappings))
		for i, m := range c.RoleMappings {
			mappings[i] = roleMapping{m.RoleARN, m.Claim, m.Matcher, whole(m.Priority)}
		}
		f.cloudSTS(p.Child("cloudSts"), c.Region, c.FallbackRoleARN, c.SessionDuration, mappings)
	}
	if u := s.UpstreamInject; u != nil {
		f.given(p.Child("upstreamInject", "providerName"), u.ProviderName)
	}
	if b := s.OBO; b != nil {
		f.obo(p.Child("obo"), b)
	}
	if x := s.XAA; x != nil {
		p := p.Child("xaa")
		f.secret(p.Child("idpClientSecretRef"), x.IDPClientSecretRef)
		f.secret(p.Child("targetClientSecretRef"), x.TargetClientSecretRef)
		f.xaa(p, x.IDPTokenURL, x.TargetAudience, x.TargetTokenURL, x.TargetResource, x.SubjectTokenType, x.Scopes, x.InsecureTargetTokenURL)
	}
	return f.list
}

func (f *faults) subjectTokenType(p *field.Path, t string) {
	switch t {
	case "", "access_token", "id_token", "jwt", TokenTypeAccess, TokenTypeID, "urn:ietf:params:oauth:token-type:jwt":
	default:
		f.invalid(p, t, "must be access_token, id_token or jwt, or the URN of one (RFC 8693 §3)")
	}
}

func (f *faults) obo(p *field.Path, b *OBO) {
	f.scopes(p.Child("scopes"), b.Scopes)
	f.tooMany(p.Child("scopes"), len(b.Scopes), 20)
	f.matches(p.Child("tenantId"), b.TenantID, tenantPattern,
		"must be the GUID or a verified domain name of one directory; common, organizations and consumers are none")
	f.atMost(p.Child("tenantId"), b.TenantID, 253)
	f.secret(p.Child("clientSecretRef"), b.ClientSecretRef)
	if f.web(p.Child("authority"), b.Authority, "https") {
		f.matches(p.Child("authority"), showURL(b.Authority), authorityPattern, "must have no user info, query, fragment or trailing slash")
	}
	if _, err := b.CacheSkew.Parse(); err != nil {
		f.invalid(p.Child("cacheSkew"), string(b.CacheSkew), err.Error())
	}
	f.provider(p.Child("subjectTokenProviderName"), b.SubjectTokenProviderName)
}

// roleMapping is what a role mapping of either kind of cloudSts says.
type roleMapping struct {
	roleARN, claim, matcher string
	priority                *int64
}

func whole[T int | int32](v *T) *int64 {
	if v == nil {
		return nil
	}
	return new(int64(*v))
}

func (f *faults) cloudSTS(p *field.Path, region, fallback string, duration *int32, mappings []roleMapping) {
	if f.given(p.Child("region"), region) {
		f.matches(p.Child("region"), region, regionPattern, "must be a region such as eu-west-1")
	}
	const arn = "must be the ARN of a role, such as arn:aws:iam::123456789012:role/name"
	f.matches(p.Child("fallbackRoleArn"), fallback, roleARNPattern, arn)
	if fallback == "" && len(mappings) == 0 {
		f.required(p.Child("fallbackRoleArn"), "one of fallbackRoleArn and roleMappings must be set")
	}
	withinPtr(f, p.Child("sessionDuration"), duration, 900, 43200)
	for i, m := range mappings {
		p := p.Child("roleMappings").Index(i)
		if f.given(p.Child("roleArn"), m.roleARN) {
			f.matches(p.Child("roleArn"), m.roleARN, roleARNPattern, arn)
		}
		switch {
		case m.claim == "" && m.matcher == "":
			f.required(p.Child("claim"), "one of claim and matcher must be set")
		case m.claim != "" && m.matcher != "":
			f.forbidden(p.Child("matcher"), "exclusive with claim")
		}
		atLeastPtr(f, p.Child("priority"), m.priority, 0)
	}
}

func (f *faults) xaa(p *field.Path, idp, audience, target, resource, tokenType string, scopes []string, insecure bool) {
	if f.given(p.Child("idpTokenUrl"), idp) {
		f.web(p.Child("idpTokenUrl"), idp, "https")
	}
	if f.given(p.Child("targetAudience"), audience) {
		f.web(p.Child("targetAudience"), audience, "https", "http")
	}
	if f.given(p.Child("targetTokenUrl"), target) {
		if insecure {
			f.web(p.Child("targetTokenUrl"), target, "https", "http")
		} else {
			f.web(p.Child("targetTokenUrl"), target, "https")
		}
	}
	f.uri(p.Child("targetResource"), resource)
	f.scopes(p.Child("scopes"), scopes)
	if tokenType != "" {
		oneOf(f, p.Child("subjectTokenType"), tokenType, TokenTypeID)
	}
}

// strategy judges how the edge authenticates to a backend, in spec.config. A
// value that may be a secret is never shown.
func (f *faults) strategy(p *field.Path, s *OutgoingStrategy) {
	if oneOf(f, p.Child("type"), s.Type, StrategyUnauthenticated, StrategyHeaderInjection, StrategyTokenExchange,
		StrategyUpstreamInject, StrategyCloudSTS, StrategyOBO, StrategyXAA) {
		f.exactly(p, string(s.Type),
			variant{"header_injection", "headerInjection", s.HeaderInjection != nil},
			variant{"token_exchange", "tokenExchange", s.TokenExchange != nil},
			variant{"upstream_inject", "upstreamInject", s.UpstreamInject != nil},
			variant{"cloud_sts", "cloudSts", s.CloudSTS != nil},
			variant{"obo", "obo", s.OBO != nil},
			variant{"xaa", "xaa", s.XAA != nil})
	}
	if h := s.HeaderInjection; h != nil {
		p := p.Child("headerInjection")
		f.header(p.Child("headerName"), h.HeaderName)
		f.headerValue(p.Child("headerValue"), h.HeaderValue)
		if h.HeaderValue == "" && h.HeaderValueEnv == "" {
			f.required(p.Child("headerValue"), "one of headerValue and headerValueEnv must be set")
		}
		f.oneSecret(p, "headerValue", h.HeaderValue, h.HeaderValueEnv)
	}
	if t := s.TokenExchange; t != nil {
		p := p.Child("tokenExchange")
		if f.given(p.Child("tokenUrl"), t.TokenURL) {
			f.web(p.Child("tokenUrl"), t.TokenURL, "https", "http")
		}
		f.oneSecret(p, "clientSecret", t.ClientSecret, t.ClientSecretEnv)
		f.scopes(p.Child("scopes"), t.Scopes)
		f.subjectTokenType(p.Child("subjectTokenType"), t.SubjectTokenType)
	}
	if u := s.UpstreamInject; u != nil {
		f.given(p.Child("upstreamInject", "providerName"), u.ProviderName)
	}
	if c := s.CloudSTS; c != nil {
		mappings := make([]roleMapping, len(c.RoleMappings))
		for i, m := range c.RoleMappings {
			mappings[i] = roleMapping{m.RoleARN, m.Claim, m.Matcher, whole(m.Priority)}
		}
		f.cloudSTS(p.Child("cloudSts"), c.Region, c.FallbackRoleARN, c.SessionDuration, mappings)
	}
	if b := s.OBO; b != nil {
		p := p.Child("obo")
		if f.given(p.Child("tokenUrl"), b.TokenURL) {
			f.web(p.Child("tokenUrl"), b.TokenURL, "https", "http")
		}
		f.oneSecret(p, "clientSecret", b.ClientSecret, b.ClientSecretEnv)
		f.scopes(p.Child("scopes"), b.Scopes)
	}
	if x := s.XAA; x != nil {
		p := p.Child("xaa")
		f.oneSecret(p, "idpClientSecret", x.IDPClientSecret, x.IDPClientSecretEnv)
		f.oneSecret(p, "targetClientSecret", x.TargetClientSecret, x.TargetClientSecretEnv)
		f.xaa(p, x.IDPTokenURL, x.TargetAudience, x.TargetTokenURL, x.TargetResource, x.SubjectTokenType, x.Scopes, x.InsecureTargetTokenURL)
	}
}

// oneSecret demands that a secret is not given both in place and by the name of
// an environment variable, and that the name is one. A name that is none may be
// the secret itself, so it is not shown.
func (f *faults) oneSecret(p *field.Path, name, value, env string) {
	if value != "" && env != "" {
		f.forbidden(p.Child(name+"Env"), "exclusive with "+name)
	}
	f.secretEnv(p.Child(name+"Env"), env)
}

func (f *faults) secretEnv(p *field.Path, env string) {
	if env != "" && !identifierPattern.MatchString(env) {
		f.hidden(p, "must be the name of an environment variable: letters, digits and _")
	}
}
