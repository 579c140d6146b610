package v1beta1

import (
	"encoding/json"
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Validate returns everything that is wrong with the object alone.
func (o *MCPGroup) Validate() field.ErrorList {
	f := &faults{}
	f.metadata(o)
	return f.list
}

// Validate returns everything that is wrong with the object alone.
func (o *MCPServerEntry) Validate() field.ErrorList {
	f := &faults{}
	f.metadata(o)
	s, p := &o.Spec, field.NewPath("spec")
	f.ref(p.Child("groupRef"), &s.GroupRef)
	if f.given(p.Child("remoteUrl"), s.RemoteURL) {
		f.web(p.Child("remoteUrl"), s.RemoteURL, "https", "http")
	}
	f.transport(p.Child("transport"), s.Transport)
	f.ref(p.Child("externalAuthConfigRef"), s.ExternalAuthConfigRef)
	f.headerForward(p.Child("headerForward"), s.HeaderForward)
	f.caBundle(p.Child("caBundleRef"), s.CABundleRef)
	return f.list
}

// Validate returns everything that is wrong with the object alone.
func (o *MCPRemoteProxy) Validate() field.ErrorList {
	f := &faults{}
	f.metadata(o)
	s, p := &o.Spec, field.NewPath("spec")
	if f.given(p.Child("remoteUrl"), s.RemoteURL) {
		f.web(p.Child("remoteUrl"), s.RemoteURL, "https", "http")
	}
	f.transport(p.Child("transport"), s.Transport)
	withinPtr(f, p.Child("proxyPort"), s.ProxyPort, 1, 65535)
	f.ref(p.Child("groupRef"), s.GroupRef)
	f.oidcRef(p.Child("oidcConfigRef"), s.OIDCConfigRef)
	f.authz(p, s.AuthzConfig, s.AuthzConfigRef)
	f.ref(p.Child("externalAuthConfigRef"), s.ExternalAuthConfigRef)
	f.authServerRef(p.Child("authServerRef"), s.AuthServerRef)
	f.headerForward(p.Child("headerForward"), s.HeaderForward)
	f.ref(p.Child("toolConfigRef"), s.ToolConfigRef)
	f.telemetryRef(p.Child("telemetryConfigRef"), s.TelemetryConfigRef)
	f.sessionStorage(p.Child("sessionStorage"), s.SessionStorage)
	f.affinity(p.Child("sessionAffinity"), s.SessionAffinity)
	atLeastPtr(f, p.Child("replicas"), s.Replicas, 0)
	f.serviceAccount(p.Child("serviceAccount"), s.ServiceAccount)
	f.resources(p.Child("resources"), s.Resources)
	f.resourceOverrides(p.Child("resourceOverrides"), s.ResourceOverrides)
	f.object(p.Child("podTemplateSpec"), s.PodTemplateSpec)
	return f.list
}

// Validate returns everything that is wrong with the object alone.
func (o *MCPServer) Validate() field.ErrorList {
	f := &faults{}
	f.metadata(o)
	s, p := &o.Spec, field.NewPath("spec")
	f.given(p.Child("image"), s.Image)
	oneOf(f, p.Child("transport"), s.Transport, ServerStdio, ServerStreamableHTTP, ServerSSE)
	f.transport(p.Child("proxyMode"), s.ProxyMode)
	withinPtr(f, p.Child("proxyPort"), s.ProxyPort, 1, 65535)
	withinPtr(f, p.Child("mcpPort"), s.MCPPort, 1, 65535)
	f.env(p.Child("env"), s.Env)
	targets := map[string]bool{}
	for i, r := range s.Secrets {
		p := p.Child("secrets").Index(i)
		f.secret(p, &SecretRef{r.Name, r.Key})
		if r.TargetEnvName != "" {
			f.envName(p.Child("targetEnvName"), r.TargetEnvName, targets)
		}
	}
	f.volumes(p.Child("volumes"), s.Volumes)
	if r := s.PermissionProfile; r != nil {
		p := p.Child("permissionProfile")
		oneOf(f, p.Child("type"), r.Type, ProfileBuiltin, ProfileConfigMap)
		f.given(p.Child("name"), r.Name)
		if r.Type == ProfileConfigMap {
			f.configMap(p, r.Name, r.Key)
		}
	}
	f.ref(p.Child("groupRef"), s.GroupRef)
	f.oidcRef(p.Child("oidcConfigRef"), s.OIDCConfigRef)
	f.authz(p, s.AuthzConfig, s.AuthzConfigRef)
	f.ref(p.Child("externalAuthConfigRef"), s.ExternalAuthConfigRef)
	f.authServerRef(p.Child("authServerRef"), s.AuthServerRef)
	f.ref(p.Child("toolConfigRef"), s.ToolConfigRef)
	f.telemetryRef(p.Child("telemetryConfigRef"), s.TelemetryConfigRef)
	f.ref(p.Child("webhookConfigRef"), s.WebhookConfigRef)
	f.sessionStorage(p.Child("sessionStorage"), s.SessionStorage)
	f.rateLimiting(p.Child("rateLimiting"), s.RateLimiting,
		s.SessionStorage != nil && s.SessionStorage.Provider == SessionsInKVStore,
		s.OIDCConfigRef != nil || s.ExternalAuthConfigRef != nil, "oidcConfigRef or externalAuthConfigRef")
	f.affinity(p.Child("sessionAffinity"), s.SessionAffinity)
	atLeastPtr(f, p.Child("replicas"), s.Replicas, 0)
	atLeastPtr(f, p.Child("backendReplicas"), s.BackendReplicas, 0)
	f.serviceAccount(p.Child("serviceAccount"), s.ServiceAccount)
	f.resources(p.Child("resources"), s.Resources)
	f.resourceOverrides(p.Child("resourceOverrides"), s.ResourceOverrides)
	f.object(p.Child("podTemplateSpec"), s.PodTemplateSpec)
	return f.list
}

func (f *faults) volumes(p *field.Path, volumes []HostVolume) {
	names, mounts := map[string]bool{}, map[string]bool{}
	for i, v := range volumes {
		p := p.Index(i)
		f.given(p.Child("name"), v.Name)
		if names[v.Name] {
			f.add(field.Duplicate(p.Child("name"), v.Name))
		}
		names[v.Name] = v.Name != ""
		f.given(p.Child("hostPath"), v.HostPath)
		if f.given(p.Child("mountPath"), v.MountPath) && !strings.HasPrefix(v.MountPath, "/") {
			f.invalid(p.Child("mountPath"), v.MountPath, "must be an absolute path")
		}
		if mounts[v.MountPath] {
			f.add(field.Duplicate(p.Child("mountPath"), v.MountPath))
		}
		mounts[v.MountPath] = v.MountPath != ""
	}
}

// Validate returns everything that is wrong with the object alone.
func (o *MCPOIDCConfig) Validate() field.ErrorList {
	f := &faults{}
	f.metadata(o)
	s, p := &o.Spec, field.NewPath("spec")
	if oneOf(f, p.Child("type"), s.Type, OIDCServiceAccount, OIDCInline) {
		f.exactly(p, string(s.Type),
			variant{"kubernetesServiceAccount", "kubernetesServiceAccount", s.KubernetesServiceAccount != nil},
			variant{"inline", "inline", s.Inline != nil})
	}
	if c := s.Inline; c != nil {
		p := p.Child("inline")
		if f.given(p.Child("issuer"), c.Issuer) {
			f.web(p.Child("issuer"), c.Issuer, "https", "http")
		}
		f.web(p.Child("jwksUrl"), c.JWKSURL, "https", "http")
		f.web(p.Child("introspectionUrl"), c.IntrospectionURL, "https", "http")
		f.secret(p.Child("clientSecretRef"), c.ClientSecretRef)
		f.caBundle(p.Child("caBundleRef"), c.CABundleRef)
	}
	if c := s.KubernetesServiceAccount; c != nil {
		p := p.Child("kubernetesServiceAccount")
		f.web(p.Child("issuer"), c.Issuer, "https", "http")
		f.web(p.Child("jwksUrl"), c.JWKSURL, "https", "http")
		f.web(p.Child("introspectionUrl"), c.IntrospectionURL, "https", "http")
	}
	return f.list
}

// Validate returns everything that is wrong with the object alone. What config
// must hold is judged by the authorizer of its type.
func (o *MCPAuthzConfig) Validate() field.ErrorList {
	f := &faults{}
	f.metadata(o)
	f.given(field.NewPath("spec", "type"), o.Spec.Type)
	p := field.NewPath("spec", "config")
	if f.given(p, string(o.Spec.Config)) {
		f.object(p, o.Spec.Config)
	}
	return f.list
}

// Validate returns everything that is wrong with the object alone.
func (o *MCPToolConfig) Validate() field.ErrorList {
	f := &faults{}
	f.metadata(o)
	p := field.NewPath("spec")
	f.strings(p.Child("toolsFilter"), o.Spec.ToolsFilter)
	f.overrides(p.Child("toolsOverride"), o.Spec.ToolsOverride)
	return f.list
}

// Validate returns everything that is wrong with the object alone.
func (o *MCPTelemetryConfig) Validate() field.ErrorList {
	f := &faults{}
	f.metadata(o)
	t := o.Spec.OpenTelemetry
	if t == nil {
		return f.list
	}
	p := field.NewPath("spec", "openTelemetry")
	f.headers(p.Child("headers"), t.Headers)
	plain := map[string]bool{}
	for name := range t.Headers {
		plain[strings.ToLower(name)] = true
	}
	seen := map[string]bool{}
	for i, h := range t.SensitiveHeaders {
		p := p.Child("sensitiveHeaders").Index(i)
		lower := strings.ToLower(h.Name)
		f.header(p.Child("name"), h.Name)
		if plain[lower] {
			f.forbidden(p.Child("name"), h.Name+" is also in headers")
		}
		if seen[lower] {
			f.add(field.Duplicate(p.Child("name"), h.Name))
		}
		seen[lower] = h.Name != ""
		f.secret(p.Child("secretKeyRef"), &h.SecretKeyRef)
	}
	f.caBundle(p.Child("caBundleRef"), t.CABundleRef)
	if t.Tracing != nil {
		f.matches(p.Child("tracing", "samplingRate"), t.Tracing.SamplingRate, samplingPattern, "must be a decimal number from 0 to 1")
	}
	return f.list
}

// Validate returns everything that is wrong with the object alone.
func (o *MCPWebhookConfig) Validate() field.ErrorList {
	f := &faults{}
	f.metadata(o)
	p := field.NewPath("spec")
	if len(o.Spec.Validating)+len(o.Spec.Mutating) == 0 {
		f.required(p, "one of validating and mutating must hold a webhook")
	}
	f.webhooks(p.Child("validating"), o.Spec.Validating)
	f.webhooks(p.Child("mutating"), o.Spec.Mutating)
	return f.list
}

func (f *faults) webhooks(p *field.Path, hooks []Webhook) {
	seen := map[string]bool{}
	for i, h := range hooks {
		p := p.Index(i)
		f.given(p.Child("name"), h.Name)
		f.atMost(p.Child("name"), h.Name, 63)
		if seen[h.Name] {
			f.add(field.Duplicate(p.Child("name"), h.Name))
		}
		seen[h.Name] = h.Name != ""
		if f.given(p.Child("url"), h.URL) && f.web(p.Child("url"), h.URL, "https", "http") {
			if u, err := url.Parse(h.URL); err == nil && u.Scheme == "http" && (h.TLSConfig == nil || !h.TLSConfig.InsecureSkipVerify) {
				f.invalid(p.Child("url"), showURL(h.URL), "must be https, unless tlsConfig.insecureSkipVerify is true")
			}
		}
		f.duration(p.Child("timeout"), h.Timeout, time.Second)
		if h.Timeout.Std() > 30*time.Second {
			f.invalid(p.Child("timeout"), string(h.Timeout), "must be at most 30s")
		}
		oneOf(f, p.Child("failurePolicy"), h.FailurePolicy, FailClosed, FailIgnore)
		f.secret(p.Child("hmacSecretRef"), h.HMACSecretRef)
		if t := h.TLSConfig; t != nil {
			p := p.Child("tlsConfig")
			f.secret(p.Child("caSecretRef"), t.CASecretRef)
			f.secret(p.Child("clientCertSecretRef"), t.ClientCertSecretRef)
			f.secret(p.Child("clientKeySecretRef"), t.ClientKeySecretRef)
			switch {
			case t.ClientCertSecretRef != nil && t.ClientKeySecretRef == nil:
				f.required(p.Child("clientKeySecretRef"), "goes with clientCertSecretRef")
			case t.ClientCertSecretRef == nil && t.ClientKeySecretRef != nil:
				f.required(p.Child("clientCertSecretRef"), "goes with clientKeySecretRef")
			}
		}
	}
}

// Validate returns everything that is wrong with the object alone.
func (o *EmbeddingServer) Validate() field.ErrorList {
	f := &faults{}
	f.metadata(o)
	s, p := &o.Spec, field.NewPath("spec")
	oneOf(f, p.Child("imagePullPolicy"), s.ImagePullPolicy, "Always", "Never", "IfNotPresent")
	withinPtr(f, p.Child("port"), s.Port, 1, 65535)
	atLeastPtr(f, p.Child("replicas"), s.Replicas, 1)
	f.env(p.Child("env"), s.Env)
	f.secret(p.Child("hfTokenSecretRef"), s.HFTokenSecretRef)
	if c := s.ModelCache; c != nil {
		p := p.Child("modelCache")
		f.quantity(p.Child("size"), Quantity(c.Size), 1, 1<<62)
		oneOf(f, p.Child("accessMode"), c.AccessMode, "ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany")
	}
	f.resources(p.Child("resources"), s.Resources)
	f.object(p.Child("podTemplateSpec"), s.PodTemplateSpec)
	return f.list
}

// The sections that several kinds share.

func (f *faults) oidcRef(p *field.Path, r *OIDCConfigRef) {
	if r == nil {
		return
	}
	if f.given(p.Child("name"), r.Name) {
		f.dns(p.Child("name"), r.Name)
	}
	f.given(p.Child("audience"), r.Audience)
	f.web(p.Child("resourceUrl"), r.ResourceURL, "https", "http")
	f.scopes(p.Child("scopes"), r.Scopes)
	f.scopes(p.Child("requiredScopes"), r.RequiredScopes)
}

// authz judges authzConfig and authzConfigRef, which exclude each other.
func (f *faults) authz(p *field.Path, c *AuthzConfig, ref *NameRef) {
	f.ref(p.Child("authzConfigRef"), ref)
	if c == nil {
		return
	}
	if ref != nil {
		f.forbidden(p.Child("authzConfigRef"), "exclusive with authzConfig")
	}
	p = p.Child("authzConfig")
	if oneOf(f, p.Child("type"), c.Type, AuthzFromConfigMap, AuthzInline) {
		f.exactly(p, string(c.Type),
			variant{"configMap", "configMap", c.ConfigMap != nil},
			variant{"inline", "inline", c.Inline != nil})
	}
	if m := c.ConfigMap; m != nil {
		f.configMap(p.Child("configMap"), m.Name, m.Key)
	}
	if i := c.Inline; i != nil {
		p := p.Child("inline")
		if len(i.Policies) == 0 {
			f.required(p.Child("policies"), "at least one policy")
		}
		f.entities(p.Child("entitiesJson"), i.EntitiesJSON)
		f.provider(p.Child("primaryUpstreamProvider"), i.PrimaryUpstreamProvider)
	}
	f.atMost(p.Child("groupClaimName"), c.GroupClaimName, 253)
	f.atMost(p.Child("roleClaimName"), c.RoleClaimName, 253)
	f.groupEntityType(p.Child("groupEntityType"), c.GroupEntityType)
}

func (f *faults) groupEntityType(p *field.Path, s string) {
	f.matches(p, s, identifierPattern, "must be a letter or _, then letters, digits and _")
	f.atMost(p, s, 63)
}

// entities demands the text of a JSON array.
func (f *faults) entities(p *field.Path, s string) {
	var list []json.RawMessage
	if s != "" && (json.Unmarshal([]byte(s), &list) != nil || list == nil) {
		f.hidden(p, "must be a JSON array")
	}
}

func (f *faults) authServerRef(p *field.Path, r *AuthServerRef) {
	if r == nil {
		return
	}
	oneOf(f, p.Child("kind"), r.Kind, "MCPExternalAuthConfig")
	f.ref(p, &NameRef{Name: r.Name})
}

func (f *faults) telemetryRef(p *field.Path, r *TelemetryConfigRef) {
	if r != nil {
		f.ref(p, &NameRef{Name: r.Name})
	}
}

func (f *faults) headerForward(p *field.Path, h *HeaderForward) {
	if h == nil {
		return
	}
	f.headers(p.Child("addPlaintextHeaders"), h.AddPlaintextHeaders)
	seen := map[string]bool{}
	for name := range h.AddPlaintextHeaders {
		seen[strings.ToLower(name)] = true
	}
	for i, s := range h.AddHeadersFromSecret {
		p := p.Child("addHeadersFromSecret").Index(i)
		f.header(p.Child("headerName"), s.HeaderName)
		f.atMost(p.Child("headerName"), s.HeaderName, 255)
		if lower := strings.ToLower(s.HeaderName); s.HeaderName != "" {
			if seen[lower] {
				f.add(field.Duplicate(p.Child("headerName"), s.HeaderName))
			}
			seen[lower] = true
		}
		f.secret(p.Child("valueSecretRef"), &s.ValueSecretRef)
	}
}

func (f *faults) sessionStorage(p *field.Path, s *SessionStorage) {
	if s != nil {
		f.storage(p, s.Provider, s.Address, s.DB)
		f.secret(p.Child("passwordRef"), s.PasswordRef)
	}
}

func (f *faults) storage(p *field.Path, provider SessionProvider, address string, db int32) {
	oneOf(f, p.Child("provider"), provider, SessionsInMemory, SessionsInKVStore)
	if provider == SessionsInKVStore && address == "" {
		f.required(p.Child("address"), "provider is kvstore")
	}
	if address != "" {
		a, err := ParseStoreAddress(address)
		switch {
		case err != nil:
			f.invalid(p.Child("address"), showURL(address), err.Error())
		case a.Layout == StoreCluster && db > 0:
			f.invalid(p.Child("db"), db, "must be 0: a cluster has no other database")
		}
	}
	atLeastPtr(f, p.Child("db"), &db, 0)
}

func (f *faults) affinity(p *field.Path, a SessionAffinity) {
	oneOf(f, p, a, "ClientIP", "None")
}

func (f *faults) serviceAccount(p *field.Path, name string) {
	if name != "" {
		f.dns(p, name)
	}
}

func (f *faults) pullSecrets(p *field.Path, secrets []ImagePullSecret) {
	for i, s := range secrets {
		if s.Name != "" && len(validation.IsDNS1123Subdomain(s.Name)) > 0 {
			f.hidden(p.Index(i).Child("name"), dnsForm)
		}
	}
}

func (f *faults) resources(p *field.Path, r *ResourceRequirements) {
	if r == nil {
		return
	}
	for _, list := range []struct {
		name   string
		values map[string]Quantity
	}{{"limits", r.Limits}, {"requests", r.Requests}} {
		for _, name := range sorted(list.values) {
			p := p.Child(list.name).Key(name)
			if f.given(p, string(list.values[name])) {
				f.quantity(p, list.values[name], 0, 1<<62)
			}
		}
	}
}

func (f *faults) resourceOverrides(p *field.Path, r *ResourceOverrides) {
	if r == nil || r.ProxyDeployment == nil {
		return
	}
	p = p.Child("proxyDeployment")
	f.env(p.Child("env"), r.ProxyDeployment.Env)
	f.pullSecrets(p.Child("imagePullSecrets"), r.ProxyDeployment.ImagePullSecrets)
}
