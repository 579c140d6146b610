package compile

import (
	"cmp"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge/catalog"
	"github.com/weir-edge/weir/edge/outgoing"
	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/filters/audit"
	"github.com/weir-edge/weir/filters/incoming"
	"github.com/weir-edge/weir/filters/webhook"
)

// An MCPServer and an MCPRemoteProxy are served as a server of one backend. Both have the
// same fields for their clients.

// one is what an MCPServer and an MCPRemoteProxy say of their clients.
type one struct {
	oidc      *v1beta1.OIDCConfigRef
	authz     *v1beta1.AuthzConfig
	authzRef  *v1beta1.NameRef
	telemetry *v1beta1.TelemetryConfigRef
	audit     *v1beta1.AuditSwitch
	limits    *v1beta1.RateLimiting
	storage   *v1beta1.SessionStorage
	external  bool // there is an externalAuthConfigRef
	prefix    string
	believes  bool
	port      *int32
	run       *v1beta1.ProxyRun // nil for none
}

// oneOf reads an object; false for one of another kind.
func oneOf(value v1beta1.Object) (f one, ok bool) {
	switch k := value.(type) {
	case *v1beta1.MCPServer:
		s := &k.Spec
		f = one{s.OIDCConfigRef, s.AuthzConfig, s.AuthzConfigRef, s.TelemetryConfigRef, s.Audit, s.RateLimiting, s.SessionStorage, s.ExternalAuthConfigRef != nil, s.EndpointPrefix, s.TrustProxyHeaders, s.ProxyPort, nil}
		if s.Run != nil {
			f.run = &s.Run.ProxyRun
		}
		return f, true
	case *v1beta1.MCPRemoteProxy:
		s := &k.Spec
		return one{s.OIDCConfigRef, s.AuthzConfig, s.AuthzConfigRef, s.TelemetryConfigRef, s.Audit, nil, s.SessionStorage, s.ExternalAuthConfigRef != nil, s.EndpointPrefix, s.TrustProxyHeaders, s.ProxyPort, s.Run}, true
	}
	return one{}, false
}

// single plans the server of an MCPServer or an MCPRemoteProxy, and its door. What it
// returns counts only when no error was found.
func (c *compiler) single(o *object) (Server, Door) {
	f, ok := oneOf(o.value)
	if !ok {
		return Server{}, Door{}
	}
	run := f.run
	if run == nil || c.set.Cluster {
		run = &v1beta1.ProxyRun{}
	}

	// 1. What it reaches, and what of that does not exist yet.
	c.reach(o, true)
	w := way{server: o, member: o, signIn: c.signIn(o)}
	if c.discover(&w); w.kind != nil {
		c.reach(w.kind, true)
	}
	c.refuse(o)
	for _, l := range o.links {
		if l.to.served && l.to.value != nil {
			c.refuse(l.to)
		}
	}

	// 2. Who may come in, and do what.
	door := c.doorOf(o, f, run)
	plan := Server{
		Name: o.ref.Name, Title: o.ref.Name, Failure: failure(&v1beta1.ServerConfig{}), Incoming: c.clients(o, f, door),
		Metadata: maps.Clone(run.Labels), Stateless: run.Stateless, SessionTTL: run.SessionTTL.Std(), Debug: run.Debug, Roots: run.CABundle,
		Prefix: f.prefix, Forwarded: f.believes,
	}
	plan.Authz, plan.Point = c.allowed(o, field.NewPath("spec"), f.authz, f.authzRef)
	plan.Store = c.stored(o, f.storage)
	plan.Limits = c.limited(o, field.NewPath("spec", "rateLimiting"), f.limits, plan.Incoming != nil || f.oidc != nil)
	if f.run != nil && f.run.WebhookConfigRef != nil {
		const at = "spec.run.webhookConfigRef"
		switch {
		case o.ref.Kind == "MCPServer":
			c.fail(o, at, ReasonConflict, "an MCPServer names it in spec.webhookConfigRef: write it there")
		case c.set.Cluster: // whom nothing is shown must not seem to be shown it
			c.fail(o, at, ReasonConflict, "in a cluster no webhooks are asked about a server at a URL: take this out")
		}
	}
	plan.Webhooks = c.hooks(o)
	plan.Audit, plan.Telemetry = c.switched(o, f.audit, run), c.measured(o, f.telemetry)
	if plan.Telemetry != nil {
		plan.Telemetry.Environment = run.TelemetryEnvironment
	}

	// 3. The backend.
	b := Backend{Name: o.ref.Name, Timeout: defaultTimeout, Outgoing: c.outgoing(w, plan.Incoming)}
	switch k := o.value.(type) {
	case *v1beta1.MCPRemoteProxy:
		b.URL, b.Transport, b.Private = k.Spec.RemoteURL, Transport(k.Spec.Transport), k.Spec.AllowPrivateEndpoint
		b.Login = c.login(o, run.RemoteAuth)
	case *v1beta1.MCPServer:
		if run.RemoteAuth != nil {
			c.fail(o, "spec.run.remoteAuth", ReasonConflict, "a login is to a server at a URL: describe it with an MCPRemoteProxy, or take this out")
		}
		b.Transport, b.Workload = Transport(k.Spec.Transport), c.workload(o, k)
		b.URL, b.Private = b.Workload.URL(), b.Workload.URL() != ""
		b.Patient = b.Workload != nil // whether it lives is seen without its calls
		if p := b.Workload; p != nil {
			door.Hosts = append(door.Hosts, p.Profile.Network.Inbound.AllowHost...)
		}
		if plan.Older = k.Spec.ProxyMode == v1beta1.TransportSSE && !plan.Stateless; k.Spec.ProxyMode == v1beta1.TransportSSE && plan.Stateless {
			c.find(Warning, o, "spec.proxyMode", ReasonUnused, "a stateless server has no streams, and answers at /mcp alone: leave it out")
		} else if plan.Older {
			c.find(Warning, o, "spec.proxyMode", ReasonUnused, "sse is the older transport, which clients give up: leave it out, /mcp and /sse both answer")
		}
	}
	plan.Backends = []Backend{b}
	if plan.Names, plan.Bare = catalog.Bare(), true; o.toolConfig() != nil {
		plan.Bare = false
		var wrong field.ErrorList
		plan.Names, wrong = catalog.Parse(field.NewPath("spec"), &v1beta1.Aggregation{
			ConflictResolution:       v1beta1.ConflictPriority,
			ConflictResolutionConfig: &v1beta1.ConflictResolutionConfig{PrefixFormat: "{workload}_", PriorityOrder: []string{o.ref.Name}},
		}, []catalog.Backend{{Name: o.ref.Name, Tools: o.toolConfig()}}, nil)
		c.faults(o, wrong)
	}
	return plan, door
}

// login plans the login that a server at a URL is sent.
func (c *compiler) login(o *object, l *v1beta1.RemoteAuth) *v1beta1.RemoteAuth {
	const at = "spec.run.remoteAuth"
	var forwarded *field.Path // what would not be sent
	if p, ok := o.value.(*v1beta1.MCPRemoteProxy); ok {
		forwarded = outgoing.Forwards(field.NewPath("spec", "headerForward"), p.Spec.HeaderForward, "Authorization")
	}
	switch {
	case l == nil:
	case forwarded != nil:
		c.fail(o, forwarded.String(), ReasonConflict, "Authorization, and spec.run.remoteAuth sends one: leave one out")
	case (l.AuthorizeURL == "") != (l.TokenURL == ""):
		c.fail(o, at+".authorizeUrl", ReasonConflict, "it goes together with tokenUrl: give both, or issuer alone")
	case slices.Contains(v1beta1.OAuthParameters, l.ScopeParamName):
		c.fail(o, at+".scopeParamName", ReasonConflict, "%s is a parameter of OAuth that says something else: name the one by which the server takes scopes", brief(l.ScopeParamName))
	case l.Issuer != "" && l.TokenURL != "":
		c.fail(o, at+".issuer", ReasonConflict, "its metadata name the endpoints: leave out authorizeUrl and tokenUrl, or issuer")
	case l.BearerTokenPath != "" && (l.Issuer+l.TokenURL+l.ClientID+l.ClientSecretPath+l.Resource != "" || l.ClientSecretRef != nil || len(l.Scopes) > 0):
		c.fail(o, at+".bearerTokenPath", ReasonConflict, "its token is sent in place of what a login gives: leave out what describes the login, or this")
	case l.ClientSecretRef != nil && l.ClientSecretPath != "":
		c.fail(o, at+".clientSecretPath", ReasonConflict, "it says the same as clientSecretRef: leave one out")
	case l.ClientSecretRef != nil && l.ClientID == "":
		c.fail(o, at+".clientSecretRef", ReasonConflict, "it is of a client: give its clientId, too")
	case l.ClientSecretPath != "" && l.ClientID == "":
		c.fail(o, at+".clientSecretPath", ReasonConflict, "it is of a client: give its clientId, too")
	case c.injects(o):
		c.fail(o, at, ReasonConflict, "the server is sent the token of the upstream of its authorization server: leave this out, or set disableUpstreamTokenInjection there")
	case o.text(externalRef) != "" && !c.unauthenticated(o) && !c.embeds(o):
		c.fail(o, at, ReasonConflict, "spec.externalAuthConfigRef says what the server is sent: leave one out")
	}
	return l
}

// doorOf is the door of its own of a server.
func (c *compiler) doorOf(o *object, f one, run *v1beta1.ProxyRun) Door {
	host, port := cmp.Or(run.ProxyHost, "127.0.0.1"), "8080"
	if f.port != nil {
		port = strconv.Itoa(int(*f.port))
	}
	return Door{Name: o.ref.Name, Listen: net.JoinHostPort(host, port), Origins: run.AllowedOrigins, Servers: []string{o.ref.Name}, Main: o.ref.Name}
}

// clients plans who may come in. Without a provider that is, at a door of its own that this
// host alone reaches, the user of this host.
func (c *compiler) clients(o *object, f one, door Door) *incoming.Spec {
	run := f.run
	switch {
	case run == nil || c.set.Cluster || !run.ExchangeUnverified:
	case f.oidc != nil:
		c.fail(o, "spec.run.exchangeUnverified", ReasonConflict, "spec.oidcConfigRef has tokens verified: take this out")
	case !f.external:
		c.fail(o, "spec.run.exchangeUnverified", ReasonConflict, "there is no spec.externalAuthConfigRef that exchanges tokens: give one of type tokenExchange, or take this out")
	default:
		return &incoming.Spec{Type: incoming.Unverified}
	}
	if f.oidc == nil {
		if c.set.Doors && !c.set.Cluster && loopback(door.Listen) {
			return &incoming.Spec{Type: incoming.Local}
		}
		return nil
	}
	provider, bundle := c.provider(o)
	if provider == nil {
		return nil // that it is not there was said where it is referred to
	}
	return c.gate(o, "spec.oidcConfigRef", incoming.FromKind(&v1beta1.IncomingAuth{Type: v1beta1.IncomingOIDC, OIDCConfigRef: f.oidc}, provider, bundle))
}

// loopback reports whether HOST:PORT is of this host alone.
func loopback(listen string) bool {
	host, _, _ := net.SplitHostPort(listen)
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// switched plans what is written down: what spec.run says, or the usual.
func (c *compiler) switched(o *object, on *v1beta1.AuditSwitch, run *v1beta1.ProxyRun) *audit.Spec {
	enabled := on != nil && on.Enabled
	switch {
	case run.AuditConfig != nil && (enabled || run.AuditConfig.Enabled):
		config := *run.AuditConfig
		config.Enabled = true
		return c.recorded(o, config, field.NewPath("spec", "run", "auditConfig"))
	case enabled:
		return c.recorded(o, v1beta1.DefaultAudit(), field.NewPath("spec", "audit"))
	}
	return nil
}

// hooks plans whom messages are shown first: the webhooks that the object refers to, and
// then those of the process, which have the last word where both have one of a name.
func (c *compiler) hooks(o *object) *webhook.Spec {
	for _, l := range o.links {
		k, ok := l.to.value.(*v1beta1.MCPWebhookConfig)
		if !ok {
			continue
		}
		spec := webhook.FromKind(o.Value.GetNamespace(), field.NewPath("spec"), k.Spec)
		_, wrong := webhook.Parse(spec)
		c.faults(l.to, wrong)
		if c.set.Webhooks != nil {
			spec = spec.With(*c.set.Webhooks)
			if _, many := webhook.Parse(spec); len(many) > 0 && len(wrong) == 0 {
				c.faults(l.to, many)
			}
		}
		return &spec
	}
	return c.set.Webhooks
}

// sides are the fields for clients of a server of one backend. Where it stands behind
// another server alone they say nothing: those that keep somebody out are errors then, so
// that nobody takes them for served.
var sides = []struct {
	path  string
	guard bool
}{
	{"spec.oidcConfigRef", true}, {"spec.authServerRef", true}, {"spec.authzConfig", true}, {"spec.authzConfigRef", true}, {"spec.rateLimiting", true}, {"spec.webhookConfigRef", true}, {"spec.run.webhookConfigRef", true}, {"spec.run.exchangeUnverified", true},
	{"spec.audit.enabled", false}, {"spec.telemetryConfigRef", false}, {"spec.sessionStorage", false}, {"spec.endpointPrefix", false}, {"spec.trustProxyHeaders", false}, {"spec.proxyMode", false},
	{"spec.run.stateless", false}, {"spec.run.sessionTTL", false}, {"spec.run.auditConfig", false}, {"spec.run.debug", false}, {"spec.run.caBundle", false}, {"spec.run.telemetryEnvironment", false},
}

// incomingSide reports whether a link is one of the fields for clients.
func incomingSide(o *object, l link) bool {
	if l.from == nil || o.ref.Kind != "MCPServer" && o.ref.Kind != "MCPRemoteProxy" {
		return false
	}
	for _, s := range sides {
		if under(l.from.pattern, s.path) {
			return true
		}
	}
	return false
}

// behind says which fields for its clients a backend has for nothing.
func (c *compiler) behind(o *object) {
	if _, ok := oneOf(o.value); !ok || c.said[o] || c.set.Serve != (Ref{}) || c.served(o) {
		return
	}
	c.said[o] = true
	front := c.front(o)
	for _, s := range sides {
		if c.set.Cluster && s.path == "spec.run.exchangeUnverified" {
			continue // it says nothing there, which elsewhereOnly says
		}
		for _, g := range o.given {
			if !under(g.pattern, s.path) {
				continue
			}
			if s.guard {
				c.fail(o, s.path, ReasonConflict, "clients come to this backend by %s alone, which does not ask for it: say it there, or take this out of the group", front.ref)
			} else {
				c.find(Warning, o, s.path, ReasonUnused, "not used: clients come to this backend by %s alone, which has its own", front.ref)
			}
			break
		}
	}
}
