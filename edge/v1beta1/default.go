package v1beta1

import (
	"cmp"
	"reflect"
)

// Defaults that stand as markers in the types are filled in by complete; what the
// methods Default add is computed. A section that only holds settings with
// defaults is made when it is absent, so that a completed object says what will be
// used: spec.config and its aggregation and operational sections, the lifespans of
// tokens, the limits of a filter. A section whose presence means something (an
// optimizer, a circuit breaker) is completed but never made.

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

// section makes p's section unless it is there, and returns it.
func section[T any](p **T) *T {
	if *p == nil {
		*p = new(T)
	}
	return *p
}

// fill gives the fields of a spec the defaults of their markers.
func fill(spec any) { complete(reflect.ValueOf(spec).Elem()) }

// Default fills in the defaults.
func (o *VirtualMCPServer) Default() {
	s := &o.Spec
	c := section(&s.Config)
	section(&section(&c.Aggregation).ConflictResolutionConfig)
	section(&section(&c.Operational).Timeouts)
	section(&c.Operational.FailureHandling)
	s.AuthServerConfig.sections()
	fill(s)
	if s.IncomingAuth != nil {
		s.IncomingAuth.AuthzConfig.setDefaults()
	}
	if a := c.IncomingAuth; a != nil && a.OIDC != nil {
		set(&a.OIDC.Resource, a.OIDC.Audience)
	}
	if c.Telemetry != nil {
		set(&c.Telemetry.ServiceName, cmp.Or(c.Name, o.Name))
	}
	for i := range c.CompositeTools {
		c.CompositeTools[i].setDefaults()
	}
	set(&o.Status.Phase, ServerPending)
}

func (t *CompositeTool) setDefaults() {
	for i := range t.Steps {
		if s := &t.Steps[i]; s.Type == StepForEach {
			set(&s.ItemVar, "item")
			point(&s.MaxIterations, 100)
			point(&s.MaxParallel, 10)
		}
	}
}

// Default fills in the defaults.
func (o *MCPExternalAuthConfig) Default() {
	o.Spec.EmbeddedAuthServer.sections()
	fill(&o.Spec)
}

// sections makes the sections of an authorization server that only hold settings,
// and what the issuer is the default of.
func (a *EmbeddedAuthServer) sections() {
	if a == nil {
		return
	}
	set(&a.AuthorizationEndpointBaseURL, a.Issuer)
	section(&a.Storage)
	section(&a.TokenLifespans)
	for i := range a.UpstreamProviders {
		p := &a.UpstreamProviders[i]
		if p.OIDCConfig != nil && p.OIDCConfig.UserInfoOverride != nil {
			section(&p.OIDCConfig.UserInfoOverride.FieldMapping)
		}
		if p.OAuth2Config != nil && p.OAuth2Config.UserInfo != nil {
			section(&p.OAuth2Config.UserInfo.FieldMapping)
		}
	}
}

// setDefaults names the entity type of an inline set. With a config map the field
// stays empty: it would override the entry of the map.
func (a *AuthzConfig) setDefaults() {
	if a != nil && a.Inline != nil && a.Type == AuthzInline {
		set(&a.GroupEntityType, GroupEntityTypeDefault)
	}
}

// DefaultAudit is an audit log that is on, with the defaults.
func DefaultAudit() Audit {
	a := Audit{Enabled: true}
	fill(&a)
	return a
}

// Default fills in the defaults.
func (o *MCPGroup) Default() { set(&o.Status.Phase, GroupPending) }

// Default fills in the defaults.
func (o *MCPServerEntry) Default() {
	fill(&o.Spec)
	set(&o.Status.Phase, EntryPending)
}

// Default fills in the defaults.
func (o *MCPRemoteProxy) Default() {
	fill(&o.Spec)
	o.Spec.AuthzConfig.setDefaults()
}

// Default fills in the defaults.
func (o *MCPServer) Default() {
	fill(&o.Spec)
	o.Spec.AuthzConfig.setDefaults()
}

// Default fills in the defaults.
func (o *MCPOIDCConfig) Default() { fill(&o.Spec) }

// Default fills in the defaults: there are none.
func (o *MCPAuthzConfig) Default() {}

// Default fills in the defaults: there are none.
func (o *MCPToolConfig) Default() {}

// Default fills in the defaults.
func (o *MCPTelemetryConfig) Default() { fill(&o.Spec) }

// Default fills in the defaults.
func (o *MCPWebhookConfig) Default() { fill(&o.Spec) }

// Default fills in the defaults.
func (o *EmbeddingServer) Default() { fill(&o.Spec) }

// Default fills in the defaults.
func (o *VirtualMCPCompositeToolDefinition) Default() {
	fill(&o.Spec)
	o.Spec.CompositeTool.setDefaults()
}

// Default fills in the defaults.
func (o *EdgeFilter) Default() {
	l := section(&o.Spec.Limits)
	fill(&o.Spec)
	if o.Spec.Type == FilterWasm {
		set(&l.Isolation, IsolationShared)
	}
}
