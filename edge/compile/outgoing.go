package compile

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge/outgoing"
	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/filters/incoming"
)

// way is how the edge authenticates to a backend: where that is written.
type way struct {
	server *object                   // whose backend it is
	member *object                   // the backend's own object; nil for none
	own    *object                   // member, where it says how; else nil
	kind   *object                   // the MCPExternalAuthConfig that says how; nil for none
	config *v1beta1.OutgoingStrategy // in place of kind
	path   *field.Path               // of config
	signIn *signIn                   // the authorization server of server; nil for none
}

// externalRef is the field of a backend's own object.
const externalRef = "spec.externalAuthConfigRef.name"

// own reports whether a link is that of a backend to its MCPExternalAuthConfig.
// Whether it counts depends on the server.
func own(o *object, l link) bool {
	return l.from != nil && l.from.pattern == externalRef && o.ref.Kind != "VirtualMCPServer"
}

// ways finds out how the edge authenticates to each backend of a server, by
// name. What is written there is served from now on.
func (c *compiler) ways(o *object, s *v1beta1.VirtualMCPServer, config *v1beta1.ServerConfig, members []*object) map[string]way {
	byName := map[string]*object{}
	for _, m := range members {
		byName[m.ref.Name] = m
	}
	var names []string
	for _, b := range config.Backends {
		names = append(names, b.Name)
	}
	for _, m := range members {
		if len(config.Backends) == 0 {
			names = append(names, m.ref.Name)
		}
	}
	out, signIn := make(map[string]way, len(names)), c.signIn(o)
	for _, name := range names {
		w := way{server: o, member: byName[name], signIn: signIn}
		if s.Spec.OutgoingAuth != nil && !o.Config {
			c.bySpec(&w, s.Spec.OutgoingAuth, name)
		} else {
			c.byConfig(&w, config.OutgoingAuth, name)
		}
		if w.kind != nil {
			c.reach(w.kind, true)
		}
		if m := w.member; m != nil && w.own == nil && len(config.Backends) == 0 && m.text(externalRef) != "" {
			c.find(Warning, m, "spec.externalAuthConfigRef", ReasonUnused, "not used: outgoingAuth of %s says how to authenticate to this backend", o.ref)
		}
		out[name] = w
	}
	return out
}

// bySpec is what spec.outgoingAuth says of a backend: its entry, else what the
// backend's own object refers to, where that is to be discovered, else the
// default (virtual server document, spec.outgoingAuth).
func (c *compiler) bySpec(w *way, a *v1beta1.OutgoingAuth, name string) {
	entry, given := a.Backends[name]
	discover := a.Source == v1beta1.AuthDiscovered
	if given && entry.Type == v1beta1.BackendAuthByRef {
		c.byName(w, entry.ExternalAuthConfigRef)
		return
	}
	at := "spec.outgoingAuth.default.type"
	if given {
		at = "spec.outgoingAuth.backends[" + name + "].type"
	}
	asked := given || a.Default != nil && a.Default.Type == v1beta1.BackendAuthDiscovered
	if asked && w.member == nil && c.whole() && !w.server.wrong[at] {
		c.fail(w.server, at, ReasonConflict, "discovered reads the object of the backend %q in the group, and there is none: set externalAuthConfigRef", brief(name))
	}
	if (discover || asked) && c.discover(w) {
		return
	}
	if a.Default != nil && a.Default.Type == v1beta1.BackendAuthByRef {
		c.byName(w, a.Default.ExternalAuthConfigRef)
	}
}

// byConfig is the same for spec.config.outgoingAuth, whose entries say
// themselves how to authenticate. Without one the backends' own objects do.
func (c *compiler) byConfig(w *way, a *v1beta1.ConfigOutgoingAuth, name string) {
	if a == nil {
		c.discover(w)
		return
	}
	path := field.NewPath("spec", "config", "outgoingAuth")
	if entry, ok := a.Backends[name]; ok {
		w.config, w.path = &entry, path.Child("backends").Key(name)
		return
	}
	if a.Source == v1beta1.AuthDiscovered && c.discover(w) {
		return
	}
	if a.Default != nil {
		w.config, w.path = a.Default, path.Child("default")
	}
}

// discover takes what a backend's own object refers to, and reports whether it
// refers to anything.
func (c *compiler) discover(w *way) bool {
	if w.member == nil || w.member.text(externalRef) == "" {
		return false
	}
	w.own = w.member
	c.byName(w, &v1beta1.NameRef{Name: w.member.text(externalRef)})
	return true
}

// byName takes an MCPExternalAuthConfig. That there is none was said where it
// is referred to.
func (c *compiler) byName(w *way, ref *v1beta1.NameRef) {
	if ref != nil {
		w.kind = c.byRef[Ref{"MCPExternalAuthConfig", ref.Name}]
	}
}

// outgoing plans what a backend is sent besides its calls; nil for nothing.
func (c *compiler) outgoing(w way, who *incoming.Spec) *outgoing.Spec {
	spec := &outgoing.Spec{Config: w.config}
	var credential, lines outgoing.Strategy
	var wrong field.ErrorList
	if w.kind != nil {
		if k, ok := w.kind.value.(*v1beta1.MCPExternalAuthConfig); ok {
			spec.Ref, spec.Kind = k.Name, &k.Spec
			if k.Spec.Type == v1beta1.AuthEmbeddedAuthServer {
				spec.Ref, spec.Kind = "", c.embedded(w)
			}
		}
	} else if w.config == nil && w.signIn != nil && w.signIn.at != w.server {
		spec.Kind = c.embedded(w)
	}
	spec = spec.With(w.signIn.first())
	if spec.Kind != nil {
		credential, wrong = outgoing.Parse(field.NewPath("spec"), spec.Kind)
		if w.kind != nil {
			c.faults(w.kind, wrong)
		}
	}
	if w.config != nil {
		credential, wrong = outgoing.ParseConfig(w.path, spec.Config)
		c.faults(w.server, wrong)
	}
	if spec.Forward = forward(w.member, w.server); spec.Forward != nil {
		lines, wrong = outgoing.ParseForward(field.NewPath("spec", "headerForward"), spec.Forward)
		c.faults(w.member, wrong)
	}
	if _, err := outgoing.Join(credential, lines); err != nil && !w.member.wrong["spec.headerForward"] {
		c.fail(w.member, "spec.headerForward", ReasonConflict, "%v, here and by the authentication to the backend: take it out of one", err)
	}
	if spec.Kind == nil && spec.Config == nil && spec.Forward == nil {
		return nil
	}
	if w.kind != nil {
		c.suits(spec, w.kind, "spec.type", who, w.signIn)
	} else if w.config != nil {
		c.suits(spec, w.server, w.path.Child("type").String(), who, w.signIn)
	}
	return spec
}

// suits reports whether the clients of a server, with its authorization server, can have the
// credential that at describes.
func (c *compiler) suits(spec *outgoing.Spec, at *object, path string, who *incoming.Spec, l *signIn) {
	user, upstreams := spec.Needs()
	switch {
	case at.wrong[path]:
	case l != nil:
		c.issued(spec, at, path, l)
	case len(upstreams) > 0:
		c.fail(at, path, ReasonConflict, "%s needs a token that an upstream provider issued, and there are none without spec.authServerConfig of the server", spec.Type())
	case who != nil && who.Type == incoming.Unverified && spec.Type() != string(v1beta1.AuthTokenExchange):
		c.fail(at, path, ReasonConflict, "%s is no exchange of a token that nobody has verified: set it to tokenExchange, or take spec.run.exchangeUnverified out", spec.Type())
	case user && (who == nil || who.Type != incoming.OIDC && who.Type != incoming.Unverified):
		c.fail(at, path, ReasonConflict, "%s exchanges the token of the client, and a server that it is for asks for none: set its incomingAuth.type to oidc, or its oidcConfigRef", spec.Type())
	}
}

// forward is the headers that a backend's own object adds, where the server has
// its backends from such objects; nil for none.
func forward(member, server *object) *v1beta1.HeaderForward {
	if s, ok := server.value.(*v1beta1.VirtualMCPServer); member == nil || ok && s.Spec.Config != nil && len(s.Spec.Config.Backends) > 0 {
		return nil
	}
	switch m := member.value.(type) {
	case *v1beta1.MCPServerEntry:
		return m.Spec.HeaderForward
	case *v1beta1.MCPRemoteProxy:
		return m.Spec.HeaderForward
	}
	return nil
}
