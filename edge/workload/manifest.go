package workload

import (
	"cmp"
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/source"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// Note is something that is good to know about a manifest that was made, for people.
type Note struct {
	Text string
	// Refused says that what was made is no use before somebody changes it.
	Refused bool
}

func note(format string, args ...any) Note { return Note{Text: fmt.Sprintf(format, args...)} }

// Secret is a value that a flag gave. It belongs into the store of secrets, under this name
// and key: the manifest refers to it there.
type Secret struct {
	Name, Key string
	Value     edge.Secret
}

// Made is what a command line stands for.
type Made struct {
	Name     string // of the workload
	Derived  bool   // the name, of the server's own
	Manifest []byte
	Plan     *compile.Plan // that the manifest compiles to
	Secrets  []Secret
	Notes    []Note
}

// defaultSession is how long a session of a workload may go unused.
const defaultSession = 2 * time.Hour

// Manifest makes the manifest of a command line. It reads the files that the flags name, and
// starts nothing. Errors are *Error, and name the flag.
func Manifest(o Options) (*Made, error) {
	// 1. What is not there yet, and what cannot be.
	o.entryOptions()
	if err := o.check(); err != nil {
		return nil, err
	}
	server, err := o.server()
	if err != nil {
		return nil, err
	}
	if err := o.suits(server); err != nil {
		return nil, err
	}

	// 2. The name. The port of the door is chosen by whoever opens it, if it is not given.
	m := &Made{Name: o.Name, Derived: o.Name == ""}
	if err := m.named(&o, server); err != nil {
		return nil, err
	}

	// 3. The files, and the objects.
	d := &draft{Options: o, name: m.Name, server: server}
	if err := d.read(); err != nil {
		return nil, err
	}
	s := d.build()
	if m.Manifest, err = s.write(); err != nil {
		return nil, err
	}

	// 4. Whether that can be served.
	plan, said, err := judge(m.Manifest)
	if err != nil {
		return nil, err
	}
	m.Plan, m.Secrets, m.Notes = plan, d.secrets, append(d.notes, said...)
	return m, nil
}

// named finds the name of the workload.
func (m *Made) named(o *Options, server Server) error {
	taken := func(name string) bool { return !o.ReplaceExisting && o.Named != nil && o.Named(name) }
	if !m.Derived {
		if taken(m.Name) {
			return &Error{Code: CodeTaken, Field: "--name", Message: "--name: there is a workload " + m.Name + " already", Next: "choose another name, or replace it with --replace"}
		}
		return nil
	}
	for n := 1; n < 10_000; n++ {
		if m.Name = numbered(server.Name, n); !taken(m.Name) {
			return nil
		}
	}
	return &Error{Code: CodeTaken, Field: "--name", Message: "every name like " + server.Name + " is taken", Next: "choose one with --name"}
}

// draft is a workload that is being described: options, and what files of theirs say.
type draft struct {
	Options
	name   string
	server Server

	env       []v1beta1.EnvVar
	envFiles  []string
	variables []v1beta1.ServerSecret
	volumes   []v1beta1.HostVolume
	profile   *v1beta1.PermissionProfileRef
	document  string // the profile's own
	overrides map[string]v1beta1.ToolOverride
	authz     *v1beta1.MCPAuthzConfigSpec
	audit     *v1beta1.Audit
	hooks     *v1beta1.MCPWebhookConfigSpec

	headers    map[string]string // of telemetry
	sealed     []v1beta1.SensitiveHeader
	attributes map[string]string // of telemetry, where they are no flag's
	unsampled  bool              // nothing says which share of traces
	forward    *v1beta1.HeaderForward

	oidcSecret, exchangeSecret, bearer, loginSecret *v1beta1.SecretRef

	secrets []Secret
	notes   []Note
}

// build makes the objects.
func (d *draft) build() *set {
	s := &set{}
	meta := metav1.ObjectMeta{Name: d.name}
	if d.server.URL != "" {
		s.proxy = &v1beta1.MCPRemoteProxy{ObjectMeta: meta}
		d.remote(&s.proxy.Spec)
	} else {
		s.server = &v1beta1.MCPServer{ObjectMeta: meta}
		d.local(&s.server.Spec)
	}

	// 1. The door.
	f := s.fields()
	if d.ProxyPort != 0 {
		*f.port = new(int32(d.ProxyPort))
	}
	f.run.ExchangeUnverified = d.TokenExchangeURL != "" && !d.asksWho()
	*f.prefix, *f.believes = d.EndpointPrefix, d.TrustProxyHeaders
	if d.Host != "127.0.0.1" {
		f.run.ProxyHost = d.Host
	}
	f.run.AllowedOrigins, f.run.Stateless, f.run.CABundle, f.run.Debug = d.AllowedOrigins, d.Stateless, d.CABundle, d.Debug
	f.run.SessionTTL = v1beta1.Duration(written(cmp.Or(d.SessionTTL, defaultSession)))
	f.run.Labels = pairs(d.Labels)
	if d.Group != "" && d.Group != DefaultGroup {
		*f.group = &v1beta1.NameRef{Name: d.Group}
	}

	// 2. Clients.
	if d.asksWho() {
		s.oidc = &v1beta1.MCPOIDCConfig{ObjectMeta: d.called("oidc"), Spec: v1beta1.MCPOIDCConfigSpec{Type: v1beta1.OIDCInline, Inline: &v1beta1.InlineOIDC{
			Issuer: d.OIDCIssuer, JWKSURL: d.OIDCJWKSURL, IntrospectionURL: d.OIDCIntrospectionURL, ClientID: d.OIDCClientID, ClientSecretRef: d.oidcSecret,
			JWKSAuthTokenPath: d.JWKSAuthTokenFile, JWKSAllowPrivateIP: d.JWKSAllowPrivateIP, InsecureAllowHTTP: d.OIDCInsecureHTTP,
		}}}
		*f.oidc = &v1beta1.OIDCConfigRef{Name: s.oidc.Name, Audience: d.OIDCAudience, ResourceURL: d.ResourceURL, Scopes: d.OIDCScopes}
	}
	if d.authz != nil {
		s.authz = &v1beta1.MCPAuthzConfig{ObjectMeta: d.called("authz"), Spec: *d.authz}
		*f.authz = &v1beta1.NameRef{Name: s.authz.Name}
	}
	if len(d.Tools) > 0 || len(d.overrides) > 0 {
		s.tools = &v1beta1.MCPToolConfig{ObjectMeta: d.called("tools"), Spec: v1beta1.MCPToolConfigSpec{ToolsFilter: d.Tools, ToolsOverride: d.overrides}}
		*f.tools = &v1beta1.NameRef{Name: s.tools.Name}
	}
	if d.hooks != nil {
		s.webhooks = &v1beta1.MCPWebhookConfig{ObjectMeta: d.called("webhooks"), Spec: *d.hooks}
		*f.webhooks = &v1beta1.NameRef{Name: s.webhooks.Name}
	}
	if d.EnableAudit || d.audit != nil {
		*f.audit, f.run.AuditConfig = &v1beta1.AuditSwitch{Enabled: true}, d.audit
	}
	d.observed(s, f)

	// 3. The profile, and the credential.
	if d.document != "" {
		s.profile = &compile.ConfigMap{ObjectMeta: d.called("profile"), Data: map[string]string{profileKey: d.document}}
		d.profile.Name = s.profile.Name
	}
	if spec := d.credential(); spec != nil {
		s.auth = &v1beta1.MCPExternalAuthConfig{ObjectMeta: d.called("auth"), Spec: *spec}
		*f.auth = &v1beta1.NameRef{Name: s.auth.Name}
	}
	s.settle()
	return s
}

// DefaultGroup is the group that every workload without another belongs to. It is always
// there, and no manifest names it.
const DefaultGroup = "default"

// profileKey is the key of a ConfigMap that a permission profile stands under.
const profileKey = "profile.json"

// called is the name of an object that the workload's own refers to.
func (d *draft) called(what string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: d.name + "-" + what}
}

// local describes a server that is started.
func (d *draft) local(s *v1beta1.MCPServerSpec) {
	s.Image, s.Args = d.server.Image, d.server.Args
	s.Transport = v1beta1.ServerTransport(cmp.Or(d.Transport, string(v1beta1.ServerStdio)))
	if d.ProxyMode != string(v1beta1.TransportStreamableHTTP) {
		s.ProxyMode = v1beta1.BackendTransport(d.ProxyMode)
	}
	if d.TargetPort != 0 {
		s.MCPPort = new(int32(d.TargetPort))
	}
	s.Env, s.Secrets, s.Volumes, s.PermissionProfile = d.env, d.variables, d.volumes, d.profile
	s.Run = &v1beta1.ServerRun{
		Network: d.Network, EnvFiles: d.envFiles, Writable: d.Writable, AllowUnsafeMounts: d.AllowUnsafeMount,
		Registry: d.origin(), Publish: d.Publish, AllowContainerGateway: d.AllowGateway, RuntimeImage: d.RuntimeImage, RuntimeAddPackages: d.RuntimeAddPackages, BuildCA: d.CACert, RunAs: d.RunAs, AllowPrivileged: d.AllowPrivileged,
	}
	r := s.Run
	for _, port := range d.EgressPort {
		r.EgressPorts = append(r.EgressPorts, int32(port))
	}
	if d.TargetHost != "127.0.0.1" {
		r.TargetHost = d.TargetHost
	}
	if d.given("isolate-network") {
		r.IsolateNetwork = &d.IsolateNetwork
	}
	if !d.IgnoreGlobally {
		r.IgnoreGlobally = &d.IgnoreGlobally
	}
	if d.MaxProcesses != 16 {
		r.MaxProcesses = new(int32(d.MaxProcesses))
	}
	r.Processes = v1beta1.ProcessMode(other(d.Processes, string(v1beta1.ProcessPerSession)))
	r.Restart = v1beta1.RestartPolicy(other(d.Restart, string(v1beta1.RestartOnFailure)))
	if d.given("sandbox") || isLocal(s.Image) { // a default is that of processes alone
		r.Sandbox = v1beta1.SandboxGrade(other(d.Sandbox, string(v1beta1.SandboxAuto)))
	}
	r.ImageVerification = v1beta1.ImageVerification(other(d.ImageVerification, string(v1beta1.VerifyWarn)))
	r.Memory, r.CPUs = v1beta1.Quantity(other(quantity(d.Memory), "1Gi")), v1beta1.Quantity(quantity(d.CPUs))
	if isModule(s.Image) && d.given("memory") { // whose default is another one
		r.Memory = v1beta1.Quantity(quantity(d.Memory))
	}
}

// remote describes a server that runs elsewhere.
func (d *draft) remote(s *v1beta1.MCPRemoteProxySpec) {
	s.RemoteURL, s.HeaderForward = d.server.URL, d.forward
	s.Transport = v1beta1.BackendTransport(cmp.Or(d.Transport, transportOf(d.server.URL)))
	s.AllowPrivateEndpoint = source.Private(edge.HostOf(d.server.URL))
	if d.Entry != nil { // a stranger named it
		s.AllowPrivateEndpoint = d.Entry.Private
	}
	if d.logsIn() || d.RemoteAuthBearerTokenFile != "" {
		s.Run = &v1beta1.ProxyRun{RemoteAuth: d.login()}
	}
}

// login describes the login that the server is sent, or the file of a token in its place. What
// the flags have as their default is written out.
func (d *draft) login() *v1beta1.RemoteAuth {
	if d.RemoteAuthBearerTokenFile != "" {
		return &v1beta1.RemoteAuth{BearerTokenPath: d.RemoteAuthBearerTokenFile}
	}
	l := &v1beta1.RemoteAuth{
		Issuer: d.RemoteAuthIssuer, AuthorizeURL: d.RemoteAuthAuthorizeURL, TokenURL: d.RemoteAuthTokenURL, ClientID: d.RemoteAuthClientID, ClientSecretRef: d.loginSecret,
		ClientSecretPath: d.RemoteAuthClientSecretFile, ScopeParamName: d.RemoteAuthScopeParam, Resource: d.RemoteAuthResource, SkipBrowser: d.RemoteAuthSkipBrowser,
		CallbackPort: new(int32(d.RemoteAuthCallbackPort)), Timeout: v1beta1.Duration(written(d.RemoteAuthTimeout)),
	}
	if d.given("remote-auth-scopes") || d.RemoteAuthIssuer != "" {
		l.Scopes = d.RemoteAuthScopes
	}
	return l
}

// credential is what the server is sent besides its calls; nil for nothing.
func (d *draft) credential() *v1beta1.MCPExternalAuthConfigSpec {
	switch {
	case d.TokenExchangeURL != "":
		t := &v1beta1.TokenExchange{
			TokenURL: d.TokenExchangeURL, Audience: d.TokenExchangeAudience, ClientID: d.TokenExchangeClientID, ClientSecretRef: d.exchangeSecret,
			Scopes: d.TokenExchangeScopes, ExternalTokenHeaderName: d.TokenExchangeHeaderName,
		}
		t.SubjectTokenType = other(d.TokenExchangeSubjectTokenType, "access_token")
		return &v1beta1.MCPExternalAuthConfigSpec{Type: v1beta1.AuthTokenExchange, TokenExchange: t}
	case d.bearer != nil:
		return &v1beta1.MCPExternalAuthConfigSpec{Type: v1beta1.AuthBearerToken, BearerToken: &v1beta1.BearerToken{TokenSecretRef: *d.bearer}}
	}
	return nil
}

// observed describes the telemetry.
func (d *draft) observed(s *set, f fields) {
	if d.OtelEndpoint == "" && !d.OtelPrometheus {
		return
	}
	spec := v1beta1.MCPTelemetryConfigSpec{OpenTelemetry: &v1beta1.OpenTelemetry{
		Enabled: true, Endpoint: d.OtelEndpoint, Insecure: d.OtelInsecure, Headers: d.headers, SensitiveHeaders: d.sealed,
		ResourceAttributes: d.attributes, UseLegacyAttributes: &d.OtelLegacyAttributes,
	}}
	if d.attributes == nil {
		spec.OpenTelemetry.ResourceAttributes = pairs(splitList(d.OtelCustomAttributes))
	}
	if d.OtelEndpoint != "" {
		spec.OpenTelemetry.Tracing = &v1beta1.Tracing{Enabled: d.OtelTracing, SamplingRate: strconv.FormatFloat(d.OtelSamplingRate, 'f', -1, 64)}
		if d.unsampled {
			spec.OpenTelemetry.Tracing.SamplingRate = ""
		}
		spec.OpenTelemetry.Metrics = &v1beta1.Metrics{Enabled: d.OtelMetrics}
	}
	if d.OtelPrometheus {
		spec.Prometheus = &v1beta1.Prometheus{Enabled: true}
	}
	s.telemetry = &v1beta1.MCPTelemetryConfig{ObjectMeta: d.called("telemetry"), Spec: spec}
	*f.telemetry = &v1beta1.TelemetryConfigRef{Name: s.telemetry.Name, ServiceName: cmp.Or(d.OtelServiceName, "weir-"+d.name)}
	f.run.TelemetryEnvironment = d.OtelEnvVars
}

// other is a text, unless it is the default of its field.
func other(text, usual string) string {
	if text == usual {
		return ""
	}
	return text
}

// written is a length of time as manifests have it: 2h, and not 2h0m0s.
func written(d time.Duration) string {
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = strings.TrimSuffix(text, zero[1:])
		}
	}
	return text
}

// quantity is a size as manifests have it: 1Gi for 1GiB.
func quantity(text string) string {
	if strings.HasSuffix(text, "iB") {
		return strings.TrimSuffix(text, "B")
	}
	return text
}

// pairs makes a map of NAME=VALUE; nil of none. Whoever calls has looked at them.
func pairs(texts []string) map[string]string {
	if len(texts) == 0 {
		return nil
	}
	m := make(map[string]string, len(texts))
	for _, text := range texts {
		name, value, _ := strings.Cut(text, "=")
		m[name] = value
	}
	return m
}

// splitList takes values apart that commas divide.
func splitList(texts ...string) (all []string) {
	for _, text := range texts {
		for one := range strings.SplitSeq(text, ",") {
			if one = strings.TrimSpace(one); one != "" {
				all = append(all, one)
			}
		}
	}
	return all
}

// path is a path as manifests have it: absolute.
func (o *Options) path(text string) string {
	if text == "" || filepath.IsAbs(text) {
		return text
	}
	return filepath.Join(o.Dir, text)
}

// loopback reports whether an address or a name is of this machine alone.
func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
