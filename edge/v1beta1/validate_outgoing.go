package v1beta1

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Validate returns everything that is wrong with the object alone. What the
// documents leave to reconcile (what an obo exchange needs, an http issuer) is
// not rejected here.
func (o *MCPExternalAuthConfig) Validate() field.ErrorList {
	f := judged(o)
	s, p := &o.Spec, field.NewPath("spec")
	f.exactly(p, string(s.Type),
		variant{"tokenExchange", "tokenExchange", s.TokenExchange != nil},
		variant{"headerInjection", "headerInjection", s.HeaderInjection != nil},
		variant{"bearerToken", "bearerToken", s.BearerToken != nil},
		variant{"embeddedAuthServer", "embeddedAuthServer", s.EmbeddedAuthServer != nil},
		variant{"cloudSts", "cloudSts", s.CloudSTS != nil},
		variant{"upstreamInject", "upstreamInject", s.UpstreamInject != nil},
		variant{"obo", "obo", s.OBO != nil},
		variant{"xaa", "xaa", s.XAA != nil})
	f.authServer(p.Child("embeddedAuthServer"), s.EmbeddedAuthServer)
	if c := s.CloudSTS; c != nil {
		f.roles(p.Child("cloudSts"), c.FallbackRoleARN, len(c.RoleMappings), func(i int) (claim, matcher string) {
			return c.RoleMappings[i].Claim, c.RoleMappings[i].Matcher
		})
	}
	if x := s.XAA; x != nil {
		f.target(p.Child("xaa"), x.TargetTokenURL, x.InsecureTargetTokenURL)
	}
	return f.list
}

// roles judges the roles of either kind of cloudSts.
func (f *faults) roles(p *field.Path, fallback string, n int, mapping func(int) (claim, matcher string)) {
	if fallback == "" && n == 0 {
		f.required(p.Child("fallbackRoleArn"), "one of fallbackRoleArn and roleMappings must be set")
	}
	for i := range n {
		p := p.Child("roleMappings").Index(i)
		switch claim, matcher := mapping(i); {
		case claim == "" && matcher == "":
			f.required(p.Child("claim"), "one of claim and matcher must be set")
		case claim != "" && matcher != "":
			f.forbidden(p.Child("matcher"), "exclusive with claim")
		}
	}
}

// target judges the token endpoint of either kind of xaa.
func (f *faults) target(p *field.Path, endpoint string, insecure bool) {
	if insecure {
		f.web(p.Child("targetTokenUrl"), endpoint, "https", "http")
	} else {
		f.web(p.Child("targetTokenUrl"), endpoint, "https")
	}
}

// strategy judges how the edge authenticates to a backend, in spec.config. A
// value that may be a secret is never shown.
func (f *faults) strategy(p *field.Path, s *OutgoingStrategy) {
	f.exactly(p, string(s.Type),
		variant{"header_injection", "headerInjection", s.HeaderInjection != nil},
		variant{"token_exchange", "tokenExchange", s.TokenExchange != nil},
		variant{"upstream_inject", "upstreamInject", s.UpstreamInject != nil},
		variant{"cloud_sts", "cloudSts", s.CloudSTS != nil},
		variant{"obo", "obo", s.OBO != nil},
		variant{"xaa", "xaa", s.XAA != nil})
	if h := s.HeaderInjection; h != nil {
		p := p.Child("headerInjection")
		f.headerValue(p.Child("headerValue"), h.HeaderValue)
		if h.HeaderValue == "" && h.HeaderValueEnv == "" {
			f.required(p.Child("headerValue"), "one of headerValue and headerValueEnv must be set")
		}
		f.oneSecret(p, "headerValue", h.HeaderValue, h.HeaderValueEnv)
	}
	if t := s.TokenExchange; t != nil {
		f.oneSecret(p.Child("tokenExchange"), "clientSecret", t.ClientSecret, t.ClientSecretEnv)
	}
	if c := s.CloudSTS; c != nil {
		f.roles(p.Child("cloudSts"), c.FallbackRoleARN, len(c.RoleMappings), func(i int) (claim, matcher string) {
			return c.RoleMappings[i].Claim, c.RoleMappings[i].Matcher
		})
	}
	if b := s.OBO; b != nil {
		f.oneSecret(p.Child("obo"), "clientSecret", b.ClientSecret, b.ClientSecretEnv)
	}
	if x := s.XAA; x != nil {
		p := p.Child("xaa")
		f.oneSecret(p, "idpClientSecret", x.IDPClientSecret, x.IDPClientSecretEnv)
		f.oneSecret(p, "targetClientSecret", x.TargetClientSecret, x.TargetClientSecretEnv)
		f.target(p, x.TargetTokenURL, x.InsecureTargetTokenURL)
	}
}

// oneSecret demands that a secret is not given both in place and by the name of
// an environment variable.
func (f *faults) oneSecret(p *field.Path, name, value, env string) {
	if value != "" && env != "" {
		f.forbidden(p.Child(name+"Env"), "exclusive with "+name)
	}
}

// secretEnv demands the name of an environment variable. A name that is none may
// be the secret itself, so it is not shown.
func (f *faults) secretEnv(p *field.Path, env string) {
	if !identifierPattern.MatchString(env) {
		f.hidden(p, "must be the name of an environment variable: letters, digits and _")
	}
}
