package v1beta1

import (
	"encoding/json"
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Validate returns everything that is wrong with the object alone.
func (o *MCPGroup) Validate() field.ErrorList { return judged(o).list }

// Validate returns everything that is wrong with the object alone.
func (o *MCPServerEntry) Validate() field.ErrorList {
	f := judged(o)
	f.headerForward(field.NewPath("spec", "headerForward"), o.Spec.HeaderForward)
	return f.list
}

// Validate returns everything that is wrong with the object alone.
func (o *MCPRemoteProxy) Validate() field.ErrorList {
	f := judged(o)
	s, p := &o.Spec, field.NewPath("spec")
	f.authz(p, s.AuthzConfig, s.AuthzConfigRef)
	f.headerForward(p.Child("headerForward"), s.HeaderForward)
	f.sessionStorage(p.Child("sessionStorage"), s.SessionStorage)
	f.prefix(p.Child("endpointPrefix"), s.EndpointPrefix)
	f.proxyRun(p.Child("run"), s.Run)
	return f.list
}

// Validate returns everything that is wrong with the object alone.
func (o *MCPServer) Validate() field.ErrorList {
	f := judged(o)
	s, p := &o.Spec, field.NewPath("spec")
	targets := map[string]bool{}
	for i, r := range s.Secrets {
		p := p.Child("secrets").Index(i)
		f.secret(p, &SecretRef{r.Name, r.Key})
		if r.TargetEnvName != "" {
			f.envName(p.Child("targetEnvName"), r.TargetEnvName, targets)
		} else if targets[r.Key] { // which is the name of the variable then
			f.add(field.Required(p.Child("targetEnvName"), "the variable that has the name of its key is another secret's"))
		} else {
			targets[r.Key] = true
		}
	}
	f.volumes(p.Child("volumes"), s.Volumes)
	if r := s.PermissionProfile; r != nil && r.Type == ProfileConfigMap {
		p := p.Child("permissionProfile")
		if r.Name != "" {
			f.dns(p.Child("name"), r.Name)
		}
		if f.given(p.Child("key"), r.Key) {
			f.dataKey(p.Child("key"), r.Key)
		}
	}
	f.authz(p, s.AuthzConfig, s.AuthzConfigRef)
	f.sessionStorage(p.Child("sessionStorage"), s.SessionStorage)
	f.rateLimiting(p.Child("rateLimiting"), s.RateLimiting,
		s.SessionStorage != nil && s.SessionStorage.Provider == SessionsInKVStore,
		s.OIDCConfigRef != nil || s.ExternalAuthConfigRef != nil, "oidcConfigRef or externalAuthConfigRef")
	f.prefix(p.Child("endpointPrefix"), s.EndpointPrefix)
	f.serverRun(p.Child("run"), s.Run)
	return f.list
}

func (f *faults) volumes(p *field.Path, volumes []HostVolume) {
	f.distinct(p, "name", len(volumes), func(i int) string { return volumes[i].Name })
	f.distinct(p, "mountPath", len(volumes), func(i int) string { return volumes[i].MountPath })
	for i, v := range volumes {
		if v.MountPath != "" && !strings.HasPrefix(v.MountPath, "/") {
			f.invalid(p.Index(i).Child("mountPath"), v.MountPath, "must be an absolute path")
		}
	}
}

// Validate returns everything that is wrong with the object alone.
func (o *MCPOIDCConfig) Validate() field.ErrorList {
	f := judged(o)
	s := &o.Spec
	f.exactly(field.NewPath("spec"), string(s.Type),
		variant{"kubernetesServiceAccount", "kubernetesServiceAccount", s.KubernetesServiceAccount != nil},
		variant{"inline", "inline", s.Inline != nil})
	if in := s.Inline; in != nil && in.IntrospectionURL == "" {
		f.given(field.NewPath("spec", "inline", "issuer"), in.Issuer)
	}
	return f.list
}

// Validate returns everything that is wrong with the object alone. What config
// must hold is judged by the authorizer of its type.
func (o *MCPAuthzConfig) Validate() field.ErrorList { return judged(o).list }

// Validate returns everything that is wrong with the object alone.
func (o *MCPToolConfig) Validate() field.ErrorList {
	f := judged(o)
	f.overrides(field.NewPath("spec", "toolsOverride"), o.Spec.ToolsOverride)
	return f.list
}

// Validate returns everything that is wrong with the object alone.
func (o *MCPTelemetryConfig) Validate() field.ErrorList {
	f := judged(o)
	t := o.Spec.OpenTelemetry
	if t == nil {
		return f.list
	}
	plain := map[string]bool{}
	for name := range t.Headers {
		plain[strings.ToLower(name)] = true
	}
	seen := map[string]bool{}
	for i, h := range t.SensitiveHeaders {
		p := field.NewPath("spec", "openTelemetry", "sensitiveHeaders").Index(i).Child("name")
		lower := strings.ToLower(h.Name)
		if plain[lower] {
			f.forbidden(p, h.Name+" is also in headers")
		}
		if seen[lower] {
			f.add(field.Duplicate(p, h.Name))
		}
		seen[lower] = h.Name != ""
	}
	return f.list
}

// Validate returns everything that is wrong with the object alone.
func (o *MCPWebhookConfig) Validate() field.ErrorList {
	f := judged(o)
	p := field.NewPath("spec")
	if len(o.Spec.Validating)+len(o.Spec.Mutating) == 0 {
		f.required(p, "one of validating and mutating must hold a webhook")
	}
	f.webhooks(p.Child("validating"), o.Spec.Validating)
	f.webhooks(p.Child("mutating"), o.Spec.Mutating)
	return f.list
}

func (f *faults) webhooks(p *field.Path, hooks []Webhook) {
	f.distinct(p, "name", len(hooks), func(i int) string { return hooks[i].Name })
	for i, h := range hooks {
		p := p.Index(i)
		if u, err := url.Parse(h.URL); err == nil && u.Scheme == "http" && !f.has(p.Child("url")) && (h.TLSConfig == nil || !h.TLSConfig.InsecureSkipVerify) {
			f.invalid(p.Child("url"), showURL(h.URL), "must be https, unless tlsConfig.insecureSkipVerify is true")
		}
		if h.Timeout.Std() > 30*time.Second {
			f.invalid(p.Child("timeout"), string(h.Timeout), "must be at most 30s")
		}
		if t := h.TLSConfig; t != nil {
			p := p.Child("tlsConfig")
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
func (o *EmbeddingServer) Validate() field.ErrorList { return judged(o).list }

// The sections that several kinds share.

// authz judges authzConfig and authzConfigRef, which exclude each other.
func (f *faults) authz(p *field.Path, c *AuthzConfig, ref *NameRef) {
	if c == nil {
		return
	}
	if ref != nil {
		f.forbidden(p.Child("authzConfigRef"), "exclusive with authzConfig")
	}
	p = p.Child("authzConfig")
	f.exactly(p, string(c.Type),
		variant{"configMap", "configMap", c.ConfigMap != nil},
		variant{"inline", "inline", c.Inline != nil})
	if c.Inline != nil && len(c.Inline.Policies) == 0 {
		f.required(p.Child("inline", "policies"), "at least one policy")
	}
}

// entities demands the text of a JSON array.
func (f *faults) entities(p *field.Path, s string) {
	var list []json.RawMessage
	if s != "" && (json.Unmarshal([]byte(s), &list) != nil || list == nil) {
		f.hidden(p, "must be a JSON array")
	}
}

func (f *faults) headerForward(p *field.Path, h *HeaderForward) {
	if h == nil {
		return
	}
	seen := map[string]bool{}
	for name := range h.AddPlaintextHeaders {
		seen[strings.ToLower(name)] = true
	}
	for i, s := range h.AddHeadersFromSecret {
		p := p.Child("addHeadersFromSecret").Index(i)
		if lower := strings.ToLower(s.HeaderName); s.HeaderName != "" {
			if seen[lower] {
				f.add(field.Duplicate(p.Child("headerName"), s.HeaderName))
			}
			seen[lower] = true
		}
	}
}

func (f *faults) sessionStorage(p *field.Path, s *SessionStorage) {
	if s != nil {
		f.storage(p, s.Provider, s.Address, s.DB)
	}
}

func (f *faults) storage(p *field.Path, provider SessionProvider, address string, db int32) {
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
}
