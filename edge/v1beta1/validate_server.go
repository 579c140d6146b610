package v1beta1

import (
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// OriginRateLimitStore is the Origin of the error that says that rate limits
// need a session storage of provider kvstore. An edge that was told to limit in
// its own process leaves that error out.
const OriginRateLimitStore = "rateLimitStore"

// Validate returns everything that is wrong with the object alone.
func (o *VirtualMCPServer) Validate() field.ErrorList {
	f := &faults{}
	f.metadata(o)
	s, p := &o.Spec, field.NewPath("spec")
	f.ref(p.Child("groupRef"), &s.GroupRef)
	f.incomingAuth(p.Child("incomingAuth"), s.IncomingAuth, s.AuthServerConfig)
	f.outgoingAuth(p.Child("outgoingAuth"), s.OutgoingAuth)
	f.authServer(p.Child("authServerConfig"), s.AuthServerConfig)
	f.ref(p.Child("embeddingServerRef"), s.EmbeddingServerRef)
	f.refs(p.Child("filterRefs"), s.FilterRefs)
	f.pullSecrets(p.Child("imagePullSecrets"), s.ImagePullSecrets)
	f.passthrough(p.Child("passthroughHeaders"), s.PassthroughHeaders)
	f.object(p.Child("podTemplateSpec"), s.PodTemplateSpec)
	atLeastPtr(f, p.Child("replicas"), s.Replicas, 0)
	f.serviceAccount(p.Child("serviceAccount"), s.ServiceAccount)
	oneOf(f, p.Child("serviceType"), s.ServiceType, "ClusterIP", "NodePort", "LoadBalancer")
	f.affinity(p.Child("sessionAffinity"), s.SessionAffinity)
	f.sessionStorage(p.Child("sessionStorage"), s.SessionStorage)
	f.telemetryRef(p.Child("telemetryConfigRef"), s.TelemetryConfigRef)
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
	if oneOf(f, p.Child("type"), a.Type, IncomingAnonymous, IncomingOIDC) {
		f.exactly(p, string(a.Type), variant{"oidc", "oidcConfigRef", a.OIDCConfigRef != nil})
	}
	f.oidcRef(p.Child("oidcConfigRef"), a.OIDCConfigRef)
	f.authz(p, a.AuthzConfig, a.AuthzConfigRef)
	if c := a.AuthzConfig; c != nil && c.Inline != nil && server != nil {
		f.names(p.Child("authzConfig", "inline", "primaryUpstreamProvider"), c.Inline.PrimaryUpstreamProvider, server)
	}
}

func (f *faults) outgoingAuth(p *field.Path, a *OutgoingAuth) {
	if a == nil {
		return
	}
	oneOf(f, p.Child("source"), a.Source, AuthDiscovered, AuthInline)
	entry := func(p *field.Path, b BackendAuth) {
		if oneOf(f, p.Child("type"), b.Type, BackendAuthDiscovered, BackendAuthByRef) {
			f.exactly(p, string(b.Type), variant{"externalAuthConfigRef", "externalAuthConfigRef", b.ExternalAuthConfigRef != nil})
		}
		f.ref(p.Child("externalAuthConfigRef"), b.ExternalAuthConfigRef)
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
	f.refs(p.Child("filterRefs"), c.FilterRefs)
	f.backends(p.Child("backends"), c.Backends)
	f.aggregation(p.Child("aggregation"), c.Aggregation)
	f.compositeTools(p.Child("compositeTools"), c.CompositeTools)
	f.refs(p.Child("compositeToolRefs"), c.CompositeToolRefs)
	f.configIncomingAuth(p.Child("incomingAuth"), c.IncomingAuth)
	if a := c.OutgoingAuth; a != nil {
		p := p.Child("outgoingAuth")
		oneOf(f, p.Child("source"), a.Source, AuthInline, AuthDiscovered)
		if a.Default != nil {
			f.strategy(p.Child("default"), a.Default)
		}
		for _, name := range sorted(a.Backends) {
			s := a.Backends[name]
			f.strategy(p.Child("backends").Key(name), &s)
		}
	}
	if a := c.Audit; a != nil {
		p := p.Child("audit")
		atLeastPtr(f, p.Child("maxDataSize"), a.MaxDataSize, 0)
		f.strings(p.Child("eventTypes"), a.EventTypes)
		f.strings(p.Child("excludeEventTypes"), a.ExcludeEventTypes)
	}
	f.operational(p.Child("operational"), c.Operational)
	f.optimizer(p.Child("optimizer"), c.Optimizer)
	if m := c.CodeMode; m != nil {
		p := p.Child("codeMode")
		atLeastPtr(f, p.Child("parallelMaxConcurrency"), m.ParallelMaxConcurrency, 1)
		atLeastPtr(f, p.Child("stepLimit"), m.StepLimit, 1)
		f.duration(p.Child("toolCallTimeout"), m.ToolCallTimeout, positive)
	}
	if s := c.SessionStorage; s != nil {
		f.storage(p.Child("sessionStorage"), s.Provider, s.Address, s.DB)
	}
	if t := c.Telemetry; t != nil {
		p := p.Child("telemetry")
		f.headers(p.Child("headers"), t.Headers)
		f.ratio(p.Child("samplingRate"), t.SamplingRate, 1)
		for i, name := range t.EnvironmentVariables {
			f.envName(p.Child("environmentVariables").Index(i), name, map[string]bool{})
		}
	}
}

func (f *faults) backends(p *field.Path, backends []StaticBackend) {
	seen := map[string]bool{}
	for i, b := range backends {
		p := p.Index(i)
		f.given(p.Child("name"), b.Name)
		if seen[b.Name] {
			f.add(field.Duplicate(p.Child("name"), b.Name))
		}
		seen[b.Name] = b.Name != ""
		if f.given(p.Child("url"), b.URL) {
			f.web(p.Child("url"), b.URL, "https", "http")
		}
		f.transport(p.Child("transport"), b.Transport)
		if b.Type != "" {
			oneOf(f, p.Child("type"), b.Type, BackendEntry)
		}
		if b.CABundlePath != "" && b.Type != BackendEntry {
			f.forbidden(p.Child("caBundlePath"), "used only when type is entry")
		}
	}
}

func (f *faults) transport(p *field.Path, t BackendTransport) {
	oneOf(f, p, t, TransportSSE, TransportStreamableHTTP)
}

func (f *faults) aggregation(p *field.Path, a *Aggregation) {
	if a == nil {
		return
	}
	oneOf(f, p.Child("conflictResolution"), a.ConflictResolution, ConflictPrefix, ConflictPriority, ConflictManual)
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
		f.strings(p.Child("priorityOrder"), c.PriorityOrder)
	}
	seen := map[string]bool{}
	for i, t := range a.Tools {
		p := p.Child("tools").Index(i)
		f.given(p.Child("workload"), t.Workload)
		if seen[t.Workload] {
			f.add(field.Duplicate(p.Child("workload"), t.Workload))
		}
		seen[t.Workload] = t.Workload != ""
		f.strings(p.Child("filter"), t.Filter)
		f.overrides(p.Child("overrides"), t.Overrides)
		f.ref(p.Child("toolConfigRef"), t.ToolConfigRef)
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
	if oneOf(f, p.Child("type"), a.Type, ConfigIncomingOIDC, ConfigIncomingLocal, ConfigIncomingAnonymous) {
		f.exactly(p, string(a.Type), variant{"oidc", "oidc", a.OIDC != nil})
	}
	if o := a.OIDC; o != nil {
		p := p.Child("oidc")
		if f.given(p.Child("issuer"), o.Issuer) {
			f.web(p.Child("issuer"), o.Issuer, "https", "http")
		}
		f.given(p.Child("audience"), o.Audience)
		f.given(p.Child("clientId"), o.ClientID)
		f.secretEnv(p.Child("clientSecretEnv"), o.ClientSecretEnv)
		f.web(p.Child("introspectionUrl"), o.IntrospectionURL, "https", "http")
		f.web(p.Child("jwksUrl"), o.JWKSURL, "https", "http")
		f.scopes(p.Child("scopes"), o.Scopes)
		f.scopes(p.Child("requiredScopes"), o.RequiredScopes)
	}
	if z := a.Authz; z != nil {
		p := p.Child("authz")
		oneOf(f, p.Child("type"), z.Type, AuthzPolicy, AuthzNone)
		switch {
		case z.Type == AuthzPolicy && len(z.Policies) == 0:
			f.required(p.Child("policies"), "type is policy")
		case z.Type == AuthzNone && len(z.Policies) > 0:
			f.forbidden(p.Child("policies"), "used only when type is policy")
		}
		f.entities(p.Child("entitiesJson"), z.EntitiesJSON)
		f.atMost(p.Child("groupClaimName"), z.GroupClaimName, 253)
		f.atMost(p.Child("roleClaimName"), z.RoleClaimName, 253)
		f.groupEntityType(p.Child("groupEntityType"), z.GroupEntityType)
	}
}

func (f *faults) operational(p *field.Path, o *Operational) {
	if o == nil {
		return
	}
	if o.LogLevel != "" {
		oneOf(f, p.Child("logLevel"), o.LogLevel, "debug")
	}
	if t := o.Timeouts; t != nil {
		p := p.Child("timeouts")
		f.duration(p.Child("default"), t.Default, positive)
		for _, name := range sorted(t.PerWorkload) {
			if f.given(p.Child("perWorkload").Key(name), string(t.PerWorkload[name])) {
				f.duration(p.Child("perWorkload").Key(name), t.PerWorkload[name], positive)
			}
		}
	}
	if h := o.FailureHandling; h != nil {
		p := p.Child("failureHandling")
		f.duration(p.Child("healthCheckInterval"), h.HealthCheckInterval, positive)
		f.duration(p.Child("healthCheckTimeout"), h.HealthCheckTimeout, positive)
		atLeastPtr(f, p.Child("unhealthyThreshold"), h.UnhealthyThreshold, 1)
		oneOf(f, p.Child("partialFailureMode"), h.PartialFailureMode, PartialFail, PartialBestEffort)
		f.duration(p.Child("statusReportingInterval"), h.StatusReportingInterval, positive)
		if b := h.CircuitBreaker; b != nil {
			atLeastPtr(f, p.Child("circuitBreaker", "failureThreshold"), b.FailureThreshold, 1)
			f.duration(p.Child("circuitBreaker", "timeout"), b.Timeout, time.Second)
		}
	}
}

func (f *faults) optimizer(p *field.Path, o *Optimizer) {
	if o == nil {
		return
	}
	oneOf(f, p.Child("embeddingProvider"), o.EmbeddingProvider, EmbeddingTEI, EmbeddingCompat)
	f.web(p.Child("embeddingService"), o.EmbeddingService, "https", "http")
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
	f.tooMany(headers, len(o.EmbeddingHeaders), 32)
	for _, name := range sorted(o.EmbeddingHeaders) {
		if strings.EqualFold(name, "authorization") {
			f.forbidden(headers.Key(name), "the edge sets this header itself")
		} else {
			f.header(headers.Key(name), name)
		}
		f.headerValue(headers.Key(name), o.EmbeddingHeaders[name])
	}
	f.duration(p.Child("embeddingServiceTimeout"), o.EmbeddingServiceTimeout, positive)
	f.ratio(p.Child("hybridSearchSemanticRatio"), o.HybridSearchSemanticRatio, 1)
	withinPtr(f, p.Child("maxToolsToReturn"), o.MaxToolsToReturn, 1, 50)
	f.ratio(p.Child("semanticDistanceThreshold"), o.SemanticDistanceThreshold, 2)
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
	buckets := func(p *field.Path, shared, perUser *RateBucket) {
		f.bucket(p.Child("shared"), shared)
		f.bucket(p.Child("perUser"), perUser)
		if perUser != nil && !known {
			f.forbidden(p.Child("perUser"), "needs authentication: "+want)
		}
	}
	buckets(p, r.Shared, r.PerUser)
	seen := map[string]bool{}
	for i, t := range r.Tools {
		p := p.Child("tools").Index(i)
		f.given(p.Child("name"), t.Name)
		if seen[t.Name] {
			f.add(field.Duplicate(p.Child("name"), t.Name))
		}
		seen[t.Name] = t.Name != ""
		if t.Shared == nil && t.PerUser == nil {
			f.required(p, "one of shared and perUser must be set")
		}
		buckets(p, t.Shared, t.PerUser)
	}
}

func (f *faults) bucket(p *field.Path, b *RateBucket) {
	if b == nil {
		return
	}
	atLeastPtr(f, p.Child("maxTokens"), &b.MaxTokens, 1)
	if f.given(p.Child("refillPeriod"), string(b.RefillPeriod)) {
		f.duration(p.Child("refillPeriod"), b.RefillPeriod, positive)
	}
}
