package v1beta1

import "cmp"

// A section that only holds settings with defaults is made when it is absent,
// so that a completed object says what will be used: spec.config and its
// aggregation and operational sections, the lifespans of tokens, the limits of
// a filter. A section whose presence means something (an optimizer, a circuit
// breaker) is completed but never made.

// GroupEntityTypeDefault is the entity type of groups in policies that name no
// other (virtual server document, spec.incomingAuth).
const GroupEntityTypeDefault = "THVGroup"

// The token types of RFC 8693 §3 that are defaults.
const (
	TokenTypeAccess = "urn:ietf:params:oauth:token-type:access_token"
	TokenTypeID     = "urn:ietf:params:oauth:token-type:id_token"
)

// set gives p the value v unless it has one.
func set[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// point gives p a value v of its own unless it has one.
func point[T any](p **T, v T) {
	if *p == nil {
		*p = &v
	}
}

// list gives p the items unless it was given, be it empty.
func list(p *[]string, items ...string) {
	if *p == nil {
		*p = items
	}
}

// section makes p's section unless it is there, and returns it.
func section[T any](p **T) *T {
	if *p == nil {
		*p = new(T)
	}
	return *p
}

// Default fills in the defaults.
func (o *VirtualMCPServer) Default() {
	s := &o.Spec
	config := section(&s.Config)
	if a := s.IncomingAuth; a != nil {
		a.OIDCConfigRef.setDefaults()
		a.AuthzConfig.setDefaults()
	}
	if s.OutgoingAuth != nil {
		set(&s.OutgoingAuth.Source, AuthDiscovered)
	}
	s.AuthServerConfig.setDefaults()
	set(&s.ServiceType, "ClusterIP")
	set(&s.SessionAffinity, "ClientIP")
	config.setDefaults(cmp.Or(config.Name, o.Name))
	set(&o.Status.Phase, ServerPending)
}

func (c *ServerConfig) setDefaults(name string) {
	aggregation := section(&c.Aggregation)
	set(&aggregation.ConflictResolution, ConflictPrefix)
	set(&section(&aggregation.ConflictResolutionConfig).PrefixFormat, "{workload}_")
	for i := range c.CompositeTools {
		c.CompositeTools[i].setDefaults()
	}
	c.IncomingAuth.setDefaults()
	if a := c.OutgoingAuth; a != nil {
		a.Default.setDefaults()
		for backend, s := range a.Backends {
			s.setDefaults()
			a.Backends[backend] = s
		}
	}
	if a := c.Audit; a != nil {
		point(&a.MaxDataSize, 1024)
		point(&a.DetectApplicationErrors, true)
	}
	section(&c.Operational).setDefaults()
	if o := c.Optimizer; o != nil {
		set(&o.EmbeddingProvider, EmbeddingTEI)
		set(&o.EmbeddingServiceTimeout, "30s")
		set(&o.HybridSearchSemanticRatio, "0.5")
		point(&o.MaxToolsToReturn, 8)
		set(&o.SemanticDistanceThreshold, "1.0")
	}
	if m := c.CodeMode; m != nil {
		point(&m.ParallelMaxConcurrency, 10)
		point(&m.StepLimit, 100000)
		set(&m.ToolCallTimeout, "30s")
	}
	if t := c.Telemetry; t != nil {
		set(&t.SamplingRate, "0.05")
		set(&t.ServiceName, name)
		point(&t.UseLegacyAttributes, true)
	}
}

func (o *Operational) setDefaults() {
	set(&section(&o.Timeouts).Default, "30s")
	f := section(&o.FailureHandling)
	set(&f.HealthCheckInterval, "30s")
	set(&f.HealthCheckTimeout, "10s")
	point(&f.UnhealthyThreshold, 3)
	set(&f.PartialFailureMode, PartialFail)
	set(&f.StatusReportingInterval, "30s")
	if b := f.CircuitBreaker; b != nil {
		point(&b.FailureThreshold, 5)
		set(&b.Timeout, "60s")
	}
}

func (a *ConfigIncomingAuth) setDefaults() {
	if a == nil {
		return
	}
	if a.OIDC != nil {
		set(&a.OIDC.Resource, a.OIDC.Audience)
	}
	if a.Authz != nil {
		set(&a.Authz.EntitiesJSON, "[]")
		set(&a.Authz.GroupEntityType, GroupEntityTypeDefault)
	}
}

func (s *OutgoingStrategy) setDefaults() {
	if s == nil {
		return
	}
	if c := s.CloudSTS; c != nil {
		set(&c.RoleClaim, "groups")
		set(&c.Service, "cloud-mcp")
		point(&c.SessionDuration, 3600)
		set(&c.SessionNameClaim, "sub")
	}
	if t := s.TokenExchange; t != nil {
		set(&t.SubjectTokenType, TokenTypeAccess)
	}
	if x := s.XAA; x != nil {
		set(&x.SubjectTokenType, TokenTypeID)
	}
}

func (t *CompositeTool) setDefaults() {
	onError := func(e *OnError) {
		if e != nil {
			set(&e.Action, ErrorAbort)
		}
	}
	for i := range t.Steps {
		s := &t.Steps[i]
		set(&s.Type, StepTool)
		onError(s.OnError)
		for _, r := range []*ElicitationResponse{s.OnDecline, s.OnCancel} {
			if r != nil {
				set(&r.Action, ElicitationAbort)
			}
		}
		if s.Type == StepForEach {
			set(&s.ItemVar, "item")
			point(&s.MaxIterations, 100)
			point(&s.MaxParallel, 10)
		}
		if s.Step != nil {
			set(&s.Step.Type, StepTool)
			onError(s.Step.OnError)
		}
	}
}

// Default fills in the defaults.
func (o *MCPExternalAuthConfig) Default() {
	s := &o.Spec
	if t := s.TokenExchange; t != nil {
		set(&t.SubjectTokenType, "access_token")
	}
	s.EmbeddedAuthServer.setDefaults()
	if c := s.CloudSTS; c != nil {
		set(&c.RoleClaim, "groups")
		set(&c.Service, "cloud-mcp")
		point(&c.SessionDuration, 3600)
		set(&c.SessionNameClaim, "sub")
	}
	if x := s.XAA; x != nil {
		set(&x.SubjectTokenType, TokenTypeID)
	}
}

func (a *EmbeddedAuthServer) setDefaults() {
	if a == nil {
		return
	}
	set(&a.AuthorizationEndpointBaseURL, a.Issuer)
	if c := a.CIMD; c != nil {
		set(&c.CacheFallbackTTL, "5m")
		point(&c.CacheMaxSize, 256)
	}
	storage := section(&a.Storage)
	set(&storage.Type, StorageMemory)
	if k := storage.KVStore; k != nil {
		set(&k.DialTimeout, "5s")
		set(&k.ReadTimeout, "3s")
		set(&k.WriteTimeout, "3s")
		if c := k.SentinelConfig; c != nil && c.SentinelService != nil {
			point(&c.SentinelService.Port, 26379)
		}
	}
	lifespans := section(&a.TokenLifespans)
	set(&lifespans.AccessTokenLifespan, "1h")
	set(&lifespans.AuthCodeLifespan, "10m")
	set(&lifespans.RefreshTokenLifespan, "168h")
	for i := range a.UpstreamProviders {
		p := &a.UpstreamProviders[i]
		if c := p.OIDCConfig; c != nil {
			list(&c.Scopes, "openid", "offline_access")
			set(&c.SubjectClaim, "sub")
			c.UserInfoOverride.setDefaults()
		}
		if c := p.OAuth2Config; c != nil {
			if m := c.TokenResponseMapping; m != nil {
				set(&m.ExpiresInPath, "expires_in")
				set(&m.RefreshTokenPath, "refresh_token")
				set(&m.ScopePath, "scope")
			}
			c.UserInfo.setDefaults()
		}
	}
}

func (u *UserInfo) setDefaults() {
	if u == nil {
		return
	}
	set(&u.HTTPMethod, "GET")
	m := section(&u.FieldMapping)
	list(&m.SubjectFields, "sub")
	list(&m.NameFields, "name")
	list(&m.EmailFields, "email")
}

func (r *OIDCConfigRef) setDefaults() {
	if r != nil {
		list(&r.Scopes, "openid")
	}
}

func (a *AuthzConfig) setDefaults() {
	if a == nil {
		return
	}
	set(&a.Type, AuthzFromConfigMap)
	if a.ConfigMap != nil {
		set(&a.ConfigMap.Key, "authz.json")
	}
	if a.Inline != nil {
		set(&a.Inline.EntitiesJSON, "[]")
		// With a config map the field stays empty: it would override the
		// entry of the map.
		if a.Type == AuthzInline {
			set(&a.GroupEntityType, GroupEntityTypeDefault)
		}
	}
}

func (r *AuthServerRef) setDefaults() {
	if r != nil {
		set(&r.Kind, "MCPExternalAuthConfig")
	}
}

// Default fills in the defaults.
func (o *MCPGroup) Default() { set(&o.Status.Phase, GroupPending) }

// Default fills in the defaults.
func (o *MCPServerEntry) Default() { set(&o.Status.Phase, EntryPending) }

// Default fills in the defaults.
func (o *MCPRemoteProxy) Default() {
	s := &o.Spec
	set(&s.Transport, TransportStreamableHTTP)
	point(&s.ProxyPort, 8080)
	set(&s.SessionAffinity, "ClientIP")
	s.OIDCConfigRef.setDefaults()
	s.AuthzConfig.setDefaults()
	s.AuthServerRef.setDefaults()
}

// Default fills in the defaults.
func (o *MCPServer) Default() {
	s := &o.Spec
	set(&s.Transport, ServerStdio)
	set(&s.ProxyMode, TransportStreamableHTTP)
	point(&s.ProxyPort, 8080)
	set(&s.SessionAffinity, "ClientIP")
	s.OIDCConfigRef.setDefaults()
	s.AuthzConfig.setDefaults()
	s.AuthServerRef.setDefaults()
	if s.PermissionProfile != nil {
		set(&s.PermissionProfile.Type, ProfileBuiltin)
	}
}

// Default fills in the defaults.
func (o *MCPOIDCConfig) Default() {
	if a := o.Spec.KubernetesServiceAccount; a != nil {
		set(&a.Issuer, "https://kubernetes.default.svc")
	}
}

// Default fills in the defaults: there are none.
func (o *MCPAuthzConfig) Default() {}

// Default fills in the defaults: there are none.
func (o *MCPToolConfig) Default() {}

// Default fills in the defaults.
func (o *MCPTelemetryConfig) Default() {
	if t := o.Spec.OpenTelemetry; t != nil {
		point(&t.UseLegacyAttributes, true)
		if t.Tracing != nil {
			set(&t.Tracing.SamplingRate, "0.05")
		}
	}
}

// Default fills in the defaults.
func (o *MCPWebhookConfig) Default() {
	for _, hooks := range [][]Webhook{o.Spec.Validating, o.Spec.Mutating} {
		for i := range hooks {
			set(&hooks[i].Timeout, "10s")
			set(&hooks[i].FailurePolicy, FailClosed)
		}
	}
}

// Default fills in the defaults.
func (o *EmbeddingServer) Default() {
	s := &o.Spec
	set(&s.Model, "BAAI/bge-small-en-v1.5")
	set(&s.Image, "ghcr.io/huggingface/text-embeddings-inference:cpu-latest")
	set(&s.ImagePullPolicy, "IfNotPresent")
	point(&s.Port, 8080)
	point(&s.Replicas, 1)
	if c := s.ModelCache; c != nil {
		point(&c.Enabled, true)
		set(&c.Size, "10Gi")
		set(&c.AccessMode, "ReadWriteOnce")
	}
}

// Default fills in the defaults.
func (o *VirtualMCPCompositeToolDefinition) Default() { o.Spec.CompositeTool.setDefaults() }

// Default fills in the defaults.
func (o *EdgeFilter) Default() {
	s := &o.Spec
	set(&s.Mode, FilterEnforce)
	set(&s.OnError, FilterDeny)
	l := section(&s.Limits)
	set(&l.Timeout, "5ms")
	point(&l.Fuel, 50_000_000)
	set(&l.Output, "1Mi")
	if s.Type == FilterWasm {
		set(&l.Isolation, IsolationShared)
	}
}
