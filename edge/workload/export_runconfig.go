package workload

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/secret"
	"github.com/weir-edge/weir/edge/source"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// runConfig writes the workload as the reference does. What its RunConfig has no key for is
// noted.
func (e *exporter) runConfig() ([]byte, error) {
	f := e.fields()
	c := &RunConfig{
		SchemaVersion: runConfigVersion, Name: f.meta.Name, Host: cmp.Or(f.run.ProxyHost, "127.0.0.1"), AllowedOrigins: f.run.AllowedOrigins,
		Debug: f.run.Debug, Labels: f.run.Labels, TrustHeaders: *f.believes, Stateless: f.run.Stateless, SessionTTL: f.run.SessionTTL.Std(),
		CABundle: f.run.CABundle, EndpointPrefix: *f.prefix, Group: DefaultGroup,
	}
	if *f.port != nil {
		c.Port = int(**f.port)
	}
	if *f.group != nil {
		c.Group = (*f.group).Name
	}
	if e.proxy != nil {
		c.RemoteURL, c.Transport = e.proxy.Spec.RemoteURL, cmp.Or(string(e.proxy.Spec.Transport), string(v1beta1.TransportStreamableHTTP))
		c.ProxyMode = c.Transport
		e.forwarded(c)
		if e.proxy.Spec.AllowPrivateEndpoint && !source.Private(edge.HostOf(c.RemoteURL)) { // which an import has of the address alone
			e.lost("spec.allowPrivateEndpoint")
		}
	} else {
		e.started(c)
	}
	for _, part := range []func(*RunConfig) error{e.clients, e.credential, e.observed, e.hooked} {
		if err := part(c); err != nil {
			return nil, err
		}
	}
	if len(e.more) > 0 {
		e.lost("the objects beside the workload's own")
	}
	return c.write()
}

// lost notes what a RunConfig has no key for.
func (e *exporter) lost(what string) {
	e.notes = append(e.notes, note("a RunConfig has no key for %s: left out", what))
}

// named is a reference to a secret as the reference writes it.
func named(r v1beta1.SecretRef, target string) string {
	return secret.Ref{Name: r.Name, Key: r.Key}.String() + ",target=" + target
}

// started writes how the server is started.
func (e *exporter) started(c *RunConfig) {
	s := &e.server.Spec
	r := s.Run
	c.Image, c.CmdArgs, c.Transport = s.Image, s.Args, cmp.Or(string(s.Transport), string(v1beta1.ServerStdio))
	if c.ProxyMode = cmp.Or(string(s.ProxyMode), string(v1beta1.TransportStreamableHTTP)); c.Transport != string(v1beta1.ServerStdio) {
		c.ProxyMode = c.Transport
	}
	if isLocal(s.Image) {
		e.notes = append(e.notes, note("image: %s is a program of this machine: the reference starts images alone", s.Image))
	} else if isModule(s.Image) {
		e.notes = append(e.notes, note("image: %s is a module of WebAssembly: the reference starts images alone", s.Image))
	}
	if s.MCPPort != nil {
		c.TargetPort = int(*s.MCPPort)
	}
	c.TargetHost = cmp.Or(r.TargetHost, "127.0.0.1")
	c.Publish, c.Gateway = r.Publish, r.AllowContainerGateway
	if len(r.EgressPorts) > 0 {
		e.lost("spec.run.egressPorts")
	}
	c.Isolate = r.IsolateNetwork == nil || *r.IsolateNetwork
	if r.IsolateNetwork != nil && *r.IsolateNetwork {
		e.lost("spec.run.isolateNetwork as something that was asked for: it is its default")
	}
	if len(s.Env) > 0 {
		c.EnvVars = map[string]string{}
		for _, v := range s.Env {
			c.EnvVars[v.Name] = v.Value
		}
	}
	switch files := r.EnvFiles; len(files) {
	case 0:
	case 1:
		c.EnvFileDir = files[0]
	default:
		e.lost("several of spec.run.envFiles")
		c.EnvFileDir = files[len(files)-1]
	}
	for _, v := range s.Secrets {
		c.Secrets = append(c.Secrets, named(v1beta1.SecretRef{Name: v.Name, Key: v.Key}, cmp.Or(v.TargetEnvName, v.Key)))
	}
	for _, v := range s.Volumes {
		text := v.HostPath + ":" + v.MountPath
		if v.ReadOnly {
			text += ":ro"
		}
		c.Volumes = append(c.Volumes, text)
	}
	e.permitted(c, s.PermissionProfile)
	if r.RuntimeImage != "" || len(r.RuntimeAddPackages) > 0 {
		c.Runtime = &runRuntime{r.RuntimeImage, r.RuntimeAddPackages}
	}
	c.Ignore = &runIgnore{LoadGlobal: r.IgnoreGlobally == nil || *r.IgnoreGlobally}
	for _, f := range []struct {
		name  string
		given bool
	}{
		{"network", r.Network != ""}, {"buildCA", r.BuildCA != ""}, {"imageVerification", r.ImageVerification != ""}, {"writable", len(r.Writable) > 0}, {"processes", r.Processes != ""},
		{"maxProcesses", r.MaxProcesses != nil}, {"restart", r.Restart != ""}, {"memory", r.Memory != ""}, {"cpus", r.CPUs != ""}, {"sandbox", r.Sandbox != ""},
		{"runAs", r.RunAs != ""}, {"registry", r.Registry != nil}, {"allowUnsafeMounts", len(r.AllowUnsafeMounts) > 0}, {"allowPrivileged", r.AllowPrivileged},
	} {
		if f.given {
			e.lost("spec.run." + f.name)
		}
	}
}

// permitted writes the permission profile.
func (e *exporter) permitted(c *RunConfig, p *v1beta1.PermissionProfileRef) {
	switch {
	case p == nil:
		c.ProfileName = v1beta1.ProfileAnywhere
	case p.Type != v1beta1.ProfileConfigMap:
		c.ProfileName = p.Name
	case e.profile != nil && e.profile.Data[p.Key] != "":
		c.Profile = v1beta1.JSONObject(e.profile.Data[p.Key])
	default:
		e.notes = append(e.notes, Note{Text: "spec.permissionProfile: there is no key " + p.Key + " of a ConfigMap " + p.Name + ": left out, so that the server would go out anywhere: add it", Refused: true})
	}
}

// forwarded writes the headers that a server at a URL is sent.
func (e *exporter) forwarded(c *RunConfig) {
	h := e.proxy.Spec.HeaderForward
	if h == nil {
		return
	}
	c.HeaderForward = &runHeaders{Plain: h.AddPlaintextHeaders}
	for _, one := range h.AddHeadersFromSecret {
		if c.HeaderForward.Secrets == nil {
			c.HeaderForward.Secrets = map[string]string{}
		}
		c.HeaderForward.Secrets[one.HeaderName] = secret.Ref{Name: one.ValueSecretRef.Name, Key: one.ValueSecretRef.Key}.String()
	}
}

// clients writes who may come in, what they may do, and which tools they see.
func (e *exporter) clients(c *RunConfig) error {
	f := e.fields()
	if ref := *f.oidc; ref != nil && e.oidc != nil && e.oidc.Spec.Inline != nil {
		in := e.oidc.Spec.Inline
		o := runOIDC{
			Issuer: in.Issuer, Audience: ref.Audience, JWKSURL: in.JWKSURL, ClientID: in.ClientID, AuthTokenFile: in.JWKSAuthTokenPath, AllowPrivateIP: in.JWKSAllowPrivateIP,
			InsecureAllowHTTP: in.InsecureAllowHTTP, IntrospectionURL: in.IntrospectionURL, ResourceURL: ref.ResourceURL, Scopes: append([]string{}, ref.Scopes...),
		}
		if in.ClientSecretRef != nil {
			o.ClientSecret = named(*in.ClientSecretRef, "CLIENT_SECRET")
		}
		text, err := json.Marshal(o)
		if err != nil {
			return err
		}
		if c.OIDC = v1beta1.JSONObject(text); in.CABundleRef != nil {
			e.lost("the caBundleRef of MCPOIDCConfig/" + ref.Name)
		}
	} else if ref != nil {
		e.notes = append(e.notes, Note{Text: "a RunConfig has no key for what MCPOIDCConfig/" + ref.Name + " says but spec.inline: left out, so that nobody would be asked who they are", Refused: true})
	}
	if e.server != nil && e.server.Spec.AuthServerRef != nil || e.proxy != nil && e.proxy.Spec.AuthServerRef != nil {
		e.lost("spec.authServerRef")
	}
	if e.authz != nil {
		c.Authz = &authzFile{Version: "1.0", Type: e.authz.Spec.Type}
		if c.Authz.Type == "httpv1" {
			c.Authz.Point = e.authz.Spec.Config
		} else {
			c.Authz.Type, c.Authz.Cedar = "cedarv1", e.authz.Spec.Config
		}
	}
	if inline := e.inlineAuthz(); inline != nil {
		e.notes = append(e.notes, Note{Text: "a RunConfig has no key for spec.authzConfig: left out, so that nobody would be asked what clients may do: keep its policies in an MCPAuthzConfig, and name that in spec.authzConfigRef", Refused: true})
	}
	if e.server != nil && e.server.Spec.RateLimiting != nil {
		e.lost("spec.rateLimiting")
	}
	if e.server != nil && e.server.Spec.SessionStorage != nil || e.proxy != nil && e.proxy.Spec.SessionStorage != nil {
		e.lost("spec.sessionStorage")
	}
	if e.tools != nil {
		c.ToolsFilter = e.tools.Spec.ToolsFilter
		for _, tool := range slices.Sorted(maps.Keys(e.tools.Spec.ToolsOverride)) {
			o := e.tools.Spec.ToolsOverride[tool]
			if c.ToolsOverride == nil {
				c.ToolsOverride = map[string]runToolOverride{}
			}
			if c.ToolsOverride[tool] = (runToolOverride{o.Name, o.Description}); o.Annotations != nil {
				e.lost("the annotations of the tool " + tool)
			}
		}
	}
	return nil
}

// inlineAuthz are the policies that stand in the workload itself; nil for none.
func (e *exporter) inlineAuthz() *v1beta1.AuthzConfig {
	if e.proxy != nil {
		return e.proxy.Spec.AuthzConfig
	}
	return e.server.Spec.AuthzConfig
}

// credential writes what the server is sent besides its calls.
func (e *exporter) credential(c *RunConfig) error {
	if l := e.fields().run.RemoteAuth; l != nil && e.proxy != nil {
		r := map[string]any{"use_pkce": true}
		if l.Timeout != "" {
			r["timeout"] = int64(l.Timeout.Std())
		}
		for key, value := range map[string]string{
			"issuer": l.Issuer, "authorize_url": l.AuthorizeURL, "token_url": l.TokenURL, "client_id": l.ClientID, "scope_param_name": l.ScopeParamName, "resource": l.Resource,
			"client_secret_file": l.ClientSecretPath, "bearer_token_file": l.BearerTokenPath,
		} {
			if value != "" {
				r[key] = value
			}
		}
		if l.ClientSecretRef != nil {
			r["client_secret"] = named(*l.ClientSecretRef, "CLIENT_SECRET")
		}
		if len(l.Scopes) > 0 {
			r["scopes"] = l.Scopes
		}
		if l.SkipBrowser {
			r["skip_browser"] = true
		}
		if l.CallbackPort != nil {
			r["callback_port"] = *l.CallbackPort
		}
		text, err := json.Marshal(r)
		if err != nil {
			return err
		}
		c.RemoteAuth = v1beta1.JSONObject(text)
	}
	switch {
	case e.auth == nil:
	case e.auth.Spec.TokenExchange != nil:
		t := e.auth.Spec.TokenExchange
		c.TokenExchange = &runTokenExchange{TokenURL: t.TokenURL, Audience: t.Audience, ClientID: t.ClientID, Scopes: t.Scopes, SubjectTokenType: t.SubjectTokenType, HeaderStrategy: "replace", HeaderName: t.ExternalTokenHeaderName}
		if t.ExternalTokenHeaderName != "" {
			c.TokenExchange.HeaderStrategy = "custom"
		}
		if t.ClientSecretRef != nil {
			c.TokenExchange.ClientSecret = named(*t.ClientSecretRef, "CLIENT_SECRET")
		}
	case e.auth.Spec.BearerToken != nil:
		text, err := json.Marshal(map[string]any{"bearer_token": named(e.auth.Spec.BearerToken.TokenSecretRef, "BEARER_TOKEN"), "use_pkce": true})
		if err != nil {
			return err
		}
		c.RemoteAuth = v1beta1.JSONObject(text)
	default:
		e.lost("MCPExternalAuthConfig of type " + string(e.auth.Spec.Type))
	}
	return nil
}

// observed writes what is written down and measured.
func (e *exporter) observed(c *RunConfig) error {
	f := e.fields()
	switch a := *f.audit; {
	case f.run.AuditConfig != nil:
		c.Audit = &auditFile{On: new(a != nil && a.Enabled || f.run.AuditConfig.Enabled), Audit: *f.run.AuditConfig}
	case a != nil && a.Enabled:
		c.Audit = &auditFile{On: new(true), Audit: v1beta1.DefaultAudit()}
	}
	if len(f.run.TelemetryEnvironment) > 0 && e.telemetry == nil {
		e.lost("spec.run.telemetryEnvironment")
	}
	if e.telemetry == nil || *f.telemetry == nil {
		return nil
	}
	spec := e.telemetry.Spec
	t := &v1beta1.Telemetry{ServiceName: (*f.telemetry).ServiceName, EnvironmentVariables: f.run.TelemetryEnvironment, EnablePrometheusMetricsPath: spec.Prometheus != nil && spec.Prometheus.Enabled}
	if o := spec.OpenTelemetry; o != nil && o.Enabled {
		t.Endpoint, t.Insecure, t.Headers, t.CustomAttributes, t.UseLegacyAttributes = o.Endpoint, o.Insecure, maps.Clone(o.Headers), o.ResourceAttributes, o.UseLegacyAttributes
		t.TracingEnabled, t.MetricsEnabled = o.Tracing != nil && o.Tracing.Enabled, o.Metrics != nil && o.Metrics.Enabled
		if o.CABundleRef != nil {
			e.lost("the caBundleRef of MCPTelemetryConfig/" + e.telemetry.Name)
		}
		if o.Tracing != nil {
			t.SamplingRate = o.Tracing.SamplingRate
		}
		for _, h := range o.SensitiveHeaders {
			if t.Headers == nil {
				t.Headers = map[string]string{}
			}
			t.Headers[h.Name] = "secret://" + secret.Ref{Name: h.SecretKeyRef.Name, Key: h.SecretKeyRef.Key}.String()
		}
	}
	c.Telemetry = t
	return nil
}

// hooked writes the webhooks.
func (e *exporter) hooked(c *RunConfig) error {
	if e.webhooks == nil {
		return nil
	}
	list := func(all []v1beta1.Webhook) (out []runWebhook) {
		for _, h := range all {
			w := runWebhook{Name: h.Name, URL: h.URL, Timeout: h.Timeout.Std(), FailurePolicy: cmp.Or(string(h.FailurePolicy), string(v1beta1.FailClosed))}
			if h.HMACSecretRef != nil {
				w.HMAC = secret.Ref{Name: h.HMACSecretRef.Name, Key: h.HMACSecretRef.Key}.String()
			}
			if t := h.TLSConfig; t != nil {
				w.TLS = &runWebhookTLS{Insecure: t.InsecureSkipVerify}
				if t.CASecretRef != nil || t.ClientCertSecretRef != nil {
					e.lost("the certificates of the webhook " + h.Name)
				}
			}
			out = append(out, w)
		}
		return out
	}
	c.Validating, c.Mutating = list(e.webhooks.Spec.Validating), list(e.webhooks.Spec.Mutating)
	return nil
}
