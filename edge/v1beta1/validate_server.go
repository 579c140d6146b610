package v1beta1

import (
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// OriginRateLimitStore is the Origin of the error that says that rate limits
// need a session storage of provider kvstore. An edge that was told to limit in
// its own process leaves that error out.
const OriginRateLimitStore = "rateLimitStore"

// Validate returns everything that is wrong with the object alone.
func (o *VirtualMCPServer) Validate() field.ErrorList {
	f := judged(o)
	s, p := &o.Spec, field.NewPath("spec")
	f.incomingAuth(p.Child("incomingAuth"), s.IncomingAuth, s.AuthServerConfig)
	f.outgoingAuth(p.Child("outgoingAuth"), s.OutgoingAuth)
	f.authServer(p.Child("authServerConfig"), s.AuthServerConfig)
	f.passthrough(p.Child("passthroughHeaders"), s.PassthroughHeaders)
	f.sessionStorage(p.Child("sessionStorage"), s.SessionStorage)
	if s.Config == nil {
		return f.list
	}

	c, p := s.Config, p.Child("config")
	f.config(p, c)
	f.upstreams(p.Child("outgoingAuth"), c.OutgoingAuth, s.AuthServerConfig)
	if s.EmbeddingServerRef != nil && c.Optimizer != nil && c.Optimizer.EmbeddingProvider == EmbeddingCompat {
		f.forbidden(field.NewPath("spec", "embeddingServerRef"), "cannot be combined with the embeddingProvider compat, which reads embeddingService")
	}
	provider := SessionProvider("")
	switch {
	case s.SessionStorage != nil:
		provider = s.SessionStorage.Provider
	case c.SessionStorage != nil:
		provider = c.SessionStorage.Provider
	}
	f.rateLimiting(p.Child("rateLimiting"), c.RateLimiting, provider == SessionsInKVStore, authenticates(s), "incomingAuth of type oidc")
	return f.list
}

// authenticates reports whether clients of a server have an identity.
func authenticates(s *VirtualMCPServerSpec) bool {
	if s.IncomingAuth != nil {
		return s.IncomingAuth.Type != IncomingAnonymous
	}
	return s.Config.IncomingAuth != nil && s.Config.IncomingAuth.Type != ConfigIncomingAnonymous
}

func (f *faults) incomingAuth(p *field.Path, a *IncomingAuth, server *EmbeddedAuthServer) {
	if a == nil {
		f.required(p, "use type anonymous for none")
		return
	}
	f.exactly(p, string(a.Type), variant{"oidc", "oidcConfigRef", a.OIDCConfigRef != nil})
	f.authz(p, a.AuthzConfig, a.AuthzConfigRef)
	if c := a.AuthzConfig; c != nil && c.Inline != nil && server != nil {
		f.names(p.Child("authzConfig", "inline", "primaryUpstreamProvider"), c.Inline.PrimaryUpstreamProvider, server)
	}
}

func (f *faults) outgoingAuth(p *field.Path, a *OutgoingAuth) {
	if a == nil {
		return
	}
	entry := func(p *field.Path, b BackendAuth) {
		f.exactly(p, string(b.Type), variant{"externalAuthConfigRef", "externalAuthConfigRef", b.ExternalAuthConfigRef != nil})
	}
	if a.Default != nil {
		entry(p.Child("default"), *a.Default)
	}
	for _, name := range sorted(a.Backends) {
		entry(p.Child("backends").Key(name), a.Backends[name])
	}
}

// upstreams demands that the upstream providers that strategies name exist,
// and that no strategy needs a token that the authorization server withholds.
func (f *faults) upstreams(p *field.Path, a *ConfigOutgoingAuth, server *EmbeddedAuthServer) {
	if a == nil {
		return
	}
	named := func(p *field.Path, name string) {
		switch {
		case name == "":
		case server == nil:
			f.invalid(p, name, "there are no upstream providers without spec.authServerConfig")
		default:
			f.names(p, name, server)
		}
	}
	entry := func(p *field.Path, s OutgoingStrategy) {
		if c := s.CloudSTS; c != nil {
			named(p.Child("cloudSts", "subjectProviderName"), c.SubjectProviderName)
		}
		if c := s.TokenExchange; c != nil {
			named(p.Child("tokenExchange", "subjectProviderName"), c.SubjectProviderName)
		}
		if c := s.UpstreamInject; c != nil {
			named(p.Child("upstreamInject", "providerName"), c.ProviderName)
		}
		if c := s.OBO; c != nil {
			named(p.Child("obo", "subjectTokenProviderName"), c.SubjectTokenProviderName)
		}
		if c := s.XAA; c != nil {
			named(p.Child("xaa", "subjectProviderName"), c.SubjectProviderName)
		}
		if server != nil && server.DisableUpstreamTokenInjection && (s.Type == StrategyTokenExchange || s.Type == StrategyCloudSTS) {
			f.forbidden(p.Child("type"), string(s.Type)+" cannot be combined with authServerConfig.disableUpstreamTokenInjection")
		}
	}
	if a.Default != nil {
		entry(p.Child("default"), *a.Default)
	}
	for _, name := range sorted(a.Backends) {
		entry(p.Child("backends").Key(name), a.Backends[name])
	}
}

// config judges spec.config, but for what depends on the rest of the spec.
func (f *faults) config(p *field.Path, c *ServerConfig) {
	f.passthrough(p.Child("passthroughHeaders"), c.PassthroughHeaders)
	f.backends(p.Child("backends"), c.Backends)
	f.aggregation(p.Child("aggregation"), c.Aggregation)
	f.compositeTools(p.Child("compositeTools"), c.CompositeTools)
	f.configIncomingAuth(p.Child("incomingAuth"), c.IncomingAuth)
	if a := c.OutgoingAuth; a != nil {
		p := p.Child("outgoingAuth")
		if a.Default != nil {
			f.strategy(p.Child("default"), a.Default)
		}
		for _, name := range sorted(a.Backends) {
			s := a.Backends[name]
			f.strategy(p.Child("backends").Key(name), &s)
		}
	}
	f.optimizer(p.Child("optimizer"), c.Optimizer)
	if s := c.SessionStorage; s != nil {
		f.storage(p.Child("sessionStorage"), s.Provider, s.Address, s.DB)
	}
}

func (f *faults) backends(p *field.Path, backends []StaticBackend) {
	f.distinct(p, "name", len(backends), func(i int) string { return backends[i].Name })
	for i, b := range backends {
		if b.CABundlePath != "" && b.Type != BackendEntry {
			f.forbidden(p.Index(i).Child("caBundlePath"), "used only when type is entry")
		}
	}
}

func (f *faults) aggregation(p *field.Path, a *Aggregation) {
	if a == nil {
		return
	}
	if c := a.ConflictResolutionConfig; c != nil {
		p := p.Child("conflictResolutionConfig")
		for _, placeholder := range placeholderPattern.FindAllString(c.PrefixFormat, -1) {
			if placeholder != "{workload}" {
				f.invalid(p.Child("prefixFormat"), c.PrefixFormat, placeholder+" stands for nothing; use {workload}")
			}
		}
		if a.ConflictResolution == ConflictPrefix && !strings.Contains(c.PrefixFormat, "{workload}") {
			f.invalid(p.Child("prefixFormat"), c.PrefixFormat, "must hold {workload}")
		}
	}
	f.distinct(p.Child("tools"), "workload", len(a.Tools), func(i int) string { return a.Tools[i].Workload })
	for i, t := range a.Tools {
		f.overrides(p.Child("tools").Index(i).Child("overrides"), t.Overrides)
	}
}

// overrides judges changes of tools: each changes something.
func (f *faults) overrides(p *field.Path, overrides map[string]ToolOverride) {
	for _, name := range sorted(overrides) {
		o := overrides[name]
		if name == "" {
			f.required(p.Key(name), "the key is the name of a tool")
		}
		if o.Name == "" && o.Description == "" && o.Annotations == nil {
			f.required(p.Key(name), "one of name, description and annotations must be set")
		}
	}
}

func (f *faults) configIncomingAuth(p *field.Path, a *ConfigIncomingAuth) {
	if a == nil {
		return
	}
	f.exactly(p, string(a.Type), variant{"oidc", "oidc", a.OIDC != nil})
	if z := a.Authz; z != nil {
		p := p.Child("authz")
		switch {
		case z.Type == AuthzPolicy && len(z.Policies) == 0:
			f.required(p.Child("policies"), "type is policy")
		case z.Type == AuthzNone && len(z.Policies) > 0:
			f.forbidden(p.Child("policies"), "used only when type is policy")
		}
	}
}

func (f *faults) optimizer(p *field.Path, o *Optimizer) {
	if o == nil {
		return
	}
	if o.EmbeddingProvider == EmbeddingCompat {
		if o.EmbeddingService == "" {
			f.required(p.Child("embeddingService"), "embeddingProvider is compat")
		}
		if o.EmbeddingModel == "" {
			f.required(p.Child("embeddingModel"), "embeddingProvider is compat")
		}
	} else if len(o.EmbeddingHeaders) > 0 {
		f.forbidden(p.Child("embeddingHeaders"), "used only when embeddingProvider is compat")
	}
	headers := p.Child("embeddingHeaders")
	for _, name := range sorted(o.EmbeddingHeaders) {
		switch strings.ToLower(name) {
		case "authorization":
			f.forbidden(headers.Key(name), "the edge sets this header itself")
		case "api-key", "x-api-key", "cookie":
			f.forbidden(headers.Key(name), "no credential may stand here: the key of the service is the variable WEIR_EMBEDDING_API_KEY")
		default:
			f.header(headers.Key(name), name)
		}
		f.headerValue(headers.Key(name), o.EmbeddingHeaders[name])
	}
}

// ratio demands a decimal number from 0 to high, unless empty.
func (f *faults) ratio(p *field.Path, s string, high int) {
	if s == "" {
		return
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || !decimalPattern.MatchString(s) || v > float64(high) {
		f.invalid(p, s, "must be a decimal number from 0 to "+strconv.Itoa(high))
	}
}

// rateLimiting judges rate limits. stored says that the session storage is a
// kvstore, known that clients have an identity, and want what would give one.
func (f *faults) rateLimiting(p *field.Path, r *RateLimiting, stored, known bool, want string) {
	if r == nil {
		return
	}
	if !stored {
		f.add(field.Invalid(p, field.OmitValueType{}, "needs a sessionStorage with provider kvstore").WithOrigin(OriginRateLimitStore))
	}
	if r.Shared == nil && r.PerUser == nil && len(r.Tools) == 0 {
		f.required(p, "one of shared, perUser and tools must be set")
	}
	perUser := func(p *field.Path, b *RateBucket) {
		if b != nil && !known {
			f.forbidden(p.Child("perUser"), "needs authentication: "+want)
		}
	}
	perUser(p, r.PerUser)
	f.distinct(p.Child("tools"), "name", len(r.Tools), func(i int) string { return r.Tools[i].Name })
	for i, t := range r.Tools {
		p := p.Child("tools").Index(i)
		if t.Shared == nil && t.PerUser == nil {
			f.required(p, "one of shared and perUser must be set")
		}
		perUser(p, t.PerUser)
	}
}
