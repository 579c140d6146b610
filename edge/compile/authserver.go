package compile

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge/authserver"
	"github.com/weir-edge/weir/edge/outgoing"
	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/filters/incoming"
)

// signIn is the authorization server of a server, and where that is written.
type signIn struct {
	spec *v1beta1.EmbeddedAuthServer
	at   *object
	path *field.Path
}

// signIn returns the authorization server of a server; nil for none.
func (c *compiler) signIn(o *object) *signIn {
	if s, ok := o.value.(*v1beta1.VirtualMCPServer); ok {
		if s.Spec.AuthServerConfig == nil {
			return nil
		}
		return &signIn{s.Spec.AuthServerConfig, o, field.NewPath("spec", "authServerConfig")}
	}
	for _, ref := range []string{"spec.authServerRef", "spec.externalAuthConfigRef"} {
		for _, l := range o.links {
			k, ok := l.to.value.(*v1beta1.MCPExternalAuthConfig)
			if !ok || l.from == nil || !under(l.from.pattern, ref) {
				continue
			}
			if k.Spec.Type == v1beta1.AuthEmbeddedAuthServer && k.Spec.EmbeddedAuthServer != nil {
				return &signIn{k.Spec.EmbeddedAuthServer, l.to, field.NewPath("spec", "embeddedAuthServer")}
			}
			if ref == "spec.authServerRef" && !o.wrong[ref+".name"] {
				c.fail(o, ref+".name", ReasonInvalid, "%s is of type %s: it must be of type %s", l.to.ref, brief(string(k.Spec.Type)), v1beta1.AuthEmbeddedAuthServer)
			}
		}
	}
	return nil
}

// upstreams are the names of the providers, in their order.
func (l *signIn) upstreams() (names []string) {
	if l != nil {
		for _, u := range l.spec.UpstreamProviders {
			names = append(names, u.Name)
		}
	}
	return names
}

// first is the name of the first provider; "" for none.
func (l *signIn) first() string {
	if names := l.upstreams(); len(names) > 0 {
		return names[0]
	}
	return ""
}

// embedded is what the backend of a server of one backend is sent when the server has an
// authorization server: the token of its one upstream, unless that is withheld.
func (c *compiler) embedded(w way) *v1beta1.MCPExternalAuthConfigSpec {
	if _, virtual := w.server.value.(*v1beta1.VirtualMCPServer); virtual {
		if !w.kind.wrong["spec.type"] {
			c.fail(w.kind, "spec.type", ReasonInvalid, "%s is for servers of one backend: set spec.authServerConfig of %s, and upstreamInject here", v1beta1.AuthEmbeddedAuthServer, w.server.ref)
		}
		return nil
	}
	if w.kind != nil && w.signIn != nil && w.kind != w.signIn.at {
		c.fail(w.server, "spec.externalAuthConfigRef", ReasonConflict, "%s is an authorization server, and spec.authServerRef names another: take one out", w.kind.ref)
		return nil
	}
	if w.signIn == nil || w.signIn.spec.DisableUpstreamTokenInjection {
		return nil
	}
	if s, ok := w.server.value.(*v1beta1.MCPServer); ok && s.Spec.Transport == v1beta1.ServerStdio {
		c.find(Warning, w.signIn.at, w.signIn.path.Child("disableUpstreamTokenInjection").String(), ReasonUnused, "%s speaks stdio and is sent no headers: no token of an upstream reaches it", w.server.ref)
		return nil
	}
	return &v1beta1.MCPExternalAuthConfigSpec{Type: v1beta1.AuthUpstreamInject, UpstreamInject: &v1beta1.UpstreamInject{ProviderName: w.signIn.first()}}
}

// embeds reports whether the externalAuthConfigRef of an object leads to an authorization
// server, which is for clients.
func (c *compiler) embeds(o *object) bool {
	k := c.byRef[Ref{"MCPExternalAuthConfig", o.text(externalRef)}]
	if k == nil {
		return false
	}
	spec, ok := k.value.(*v1beta1.MCPExternalAuthConfig)
	return ok && spec.Spec.Type == v1beta1.AuthEmbeddedAuthServer
}

// injects reports whether the backend of a server of one backend is sent the token of an
// upstream.
func (c *compiler) injects(o *object) bool {
	if o.ref.Kind != "MCPRemoteProxy" && o.ref.Kind != "MCPServer" {
		return false
	}
	l := c.signIn(o)
	return l != nil && !l.spec.DisableUpstreamTokenInjection
}

// issued judges a credential that is made of an upstream's token, which at describes, by the
// authorization server of its server.
func (c *compiler) issued(spec *outgoing.Spec, at *object, path string, l *signIn) {
	_, named := spec.Needs()
	for _, name := range named {
		if names := l.upstreams(); name != "" && !slices.Contains(names, name) {
			c.fail(at, path, ReasonConflict, "%s needs the token of %q, which is none of the upstreamProviders of its server: %s", spec.Type(), brief(name), strings.Join(names, ", "))
			return
		}
	}
	if !l.spec.DisableUpstreamTokenInjection {
		return
	}
	switch kind := spec.Type(); {
	case len(named) > 0, kind == string(v1beta1.AuthTokenExchange), kind == string(v1beta1.StrategyTokenExchange), kind == string(v1beta1.AuthCloudSTS), kind == string(v1beta1.StrategyCloudSTS):
		c.fail(at, path, ReasonConflict, "%s cannot be combined with disableUpstreamTokenInjection of the authorization server of its server", kind)
	}
}

// authServers plans the authorization servers, once all servers are known: those that trust
// one issuer are its resources.
func (c *compiler) authServers(plan *Plan) {
	issuers, places := map[string]*object{}, map[string]*object{}
	for i := range plan.Servers {
		s := &plan.Servers[i]
		o := c.owners[s.Name]
		l := c.signIn(o)
		c.primary(o, s, l)
		if l == nil {
			continue
		}
		spec, doubts, wrong := authserver.Parse(l.path, l.spec, c.around(plan, s, o, l))
		c.faults(l.at, wrong)
		for _, d := range doubts {
			c.find(Warning, l.at, d.Field, ReasonUnused, "%s", d.Text)
		}
		c.advise(o, l, spec)
		if first := issuers[spec.Issuer]; first != nil {
			c.fail(l.at, l.path.Child("issuer").String(), ReasonConflict, "%q is the issuer of the authorization server of %s, too: one of them is enough, others may trust it", brief(spec.Issuer), first.ref)
			continue
		}
		issuers[spec.Issuer] = o
		for _, at := range spec.Endpoints() {
			if first := places[at]; first != nil {
				c.fail(l.at, l.path.Child("issuer").String(), ReasonConflict, "%s is an endpoint of the authorization server of %s, too: give one another path", at, first.ref)
				break
			}
			places[at] = o
		}
		if s.Authz != nil && spec.Primary != "" {
			set := *s.Authz
			set.PrimaryUpstreamProvider = spec.Primary
			s.Authz = &set
		}
		s.AuthServer = spec
	}
}

// advertises reports whether a server says which scopes it advertises.
func (o *object) advertises() bool {
	return slices.ContainsFunc(o.given, func(g *given) bool {
		return under(g.pattern, "spec.incomingAuth.oidcConfigRef.scopes") || under(g.pattern, "spec.config.incomingAuth.oidc.scopes") || under(g.pattern, "spec.oidcConfigRef.scopes")
	})
}

// primary judges what policies say of the upstream whose claims they read.
func (c *compiler) primary(o *object, s *Server, l *signIn) {
	if s.Authz == nil || s.Authz.PrimaryUpstreamProvider == "" {
		return
	}
	name, inline, path := s.Authz.PrimaryUpstreamProvider, "", "spec.authzConfig"
	switch {
	case o.Config:
		path = "spec.config.incomingAuth.authz.primaryUpstreamProvider"
	case o.ref.Kind == "VirtualMCPServer":
		path, inline = "spec.incomingAuth.authzConfig", "spec.incomingAuth.authzConfig.inline.primaryUpstreamProvider"
	default:
		inline = "spec.authzConfig.inline.primaryUpstreamProvider"
	}
	if o.text(inline) != "" {
		path = inline
	}
	switch {
	case o.wrong[path]:
	case o.ref.Kind != "VirtualMCPServer":
		c.find(Warning, o, path, ReasonUnused, "not used: only policies of a VirtualMCPServer read the claims of an upstream")
		o.advice = append(o.advice, ignored())
		set := *s.Authz
		set.PrimaryUpstreamProvider = ""
		s.Authz = &set
	case l == nil:
		c.fail(o, path, ReasonConflict, "%q: there are no upstream providers without spec.authServerConfig", brief(name))
	case !slices.Contains(l.upstreams(), name):
		c.fail(o, path, ReasonConflict, "%q is none of the upstreamProviders of the server: %s", brief(name), strings.Join(l.upstreams(), ", "))
	case l.spec.PrimaryUpstreamProvider != "":
		c.find(Warning, o, path, ReasonUnused, "deprecated, and not used: spec.authServerConfig.primaryUpstreamProvider says it")
	case path == inline:
		c.find(Warning, o, path, ReasonUnused, "deprecated: write it as spec.authServerConfig.primaryUpstreamProvider")
	}
}

// advise says what is no error, and good to know of who users and policies are about.
func (c *compiler) advise(o *object, l *signIn, spec *authserver.Spec) {
	var nameless []string
	for _, u := range spec.Upstreams {
		if u.Synthesizes() {
			nameless = append(nameless, u.Name)
		}
	}
	known := Condition{Type: "IdentitySynthesized", Reason: "AllUpstreamsHaveUserInfo"}
	if len(nameless) > 0 {
		known.True, known.Reason = true, "OAuth2UpstreamWithoutUserInfo"
		known.Message = strings.Join(nameless, ", ") + " without userInfo and identityFromToken: users have no name, and a subject that is made of their access token"
	}
	l.at.advice = append(l.at.advice, known)
	if slices.Contains(nameless, l.first()) {
		c.find(Warning, l.at, l.path.Child("upstreamProviders").String(), ReasonUnused, "%s, the first, says nobody's name: its users are others at each login; set userInfo or identityFromToken", l.first())
	}
	switch {
	case o.ref.Kind != "VirtualMCPServer":
		if name := l.spec.PrimaryUpstreamProvider; name != "" {
			o.advice = append(o.advice, ignored())
		}
	case l.spec.PrimaryUpstreamProvider == "" && spec.Primary == l.first() && len(spec.Upstreams) > 1 && o.text("spec.incomingAuth.authzConfig.inline.primaryUpstreamProvider") == "":
		o.advice = append(o.advice, Condition{Type: "AuthzUpstreamSelectionWarning", True: true, Reason: "AuthzUpstreamAutoSelected", Message: "policies read the claims of " + spec.Primary + ", the first of several upstreams"})
	}
}

// ignored says that a server of one backend names an upstream for its policies.
func ignored() Condition {
	return Condition{Type: "AuthzPrimaryUpstreamProviderIgnored", True: true, Reason: "PrimaryUpstreamProviderIgnored", Message: "only policies of a VirtualMCPServer read the claims of an upstream"}
}

// around is what a set says of an authorization server.
func (c *compiler) around(plan *Plan, s *Server, o *object, l *signIn) authserver.Around {
	a := authserver.Around{Server: s.Name, Namespace: l.at.Value.GetNamespace(), Policies: s.Authz != nil, One: o.ref.Kind != "VirtualMCPServer"}
	if s.Authz != nil {
		a.Primary = s.Authz.PrimaryUpstreamProvider
	}
	if s.Incoming != nil && s.Incoming.Type == incoming.OIDC {
		a.Issuer = s.Incoming.Issuer
	}
	trusting := []*Server{s}
	for i := range plan.Servers {
		if other := &plan.Servers[i]; other != s {
			trusting = append(trusting, other)
		}
	}
	for _, one := range trusting {
		if in := one.Incoming; in != nil && in.Type == incoming.OIDC && in.Issuer == l.spec.Issuer {
			if one.Forwarded && in.ResourceAt("") == "" { // which anybody's header would say otherwise
				c.fail(c.owners[one.Name], "spec.oidcConfigRef.resourceUrl", ReasonInvalid, "required, as audience is no URL: with spec.trustProxyHeaders clients are told of the URL that a header names, and tokens are issued for no such one")
			}
			r := authserver.Resource{Server: one.Name, Audience: in.Audience, URL: in.Resource, Required: in.Required}
			if c.owners[one.Name].advertises() {
				r.Scopes = slices.Clone(in.Scopes)
			}
			a.Resources = append(a.Resources, r)
		}
	}
	var replicas *int32
	switch k := o.value.(type) {
	case *v1beta1.VirtualMCPServer:
		replicas = k.Spec.Replicas
	case *v1beta1.MCPServer:
		replicas = k.Spec.Replicas
	case *v1beta1.MCPRemoteProxy:
		replicas = k.Spec.Replicas
	}
	if replicas != nil {
		a.Replicas = int(*replicas)
	}
	return a
}
