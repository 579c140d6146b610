package compile

import (
	"slices"
	"strings"

	"github.com/weir-edge/weir/edge/v1beta1"
)

// superseded warns of what is written twice, the second time differently: of a
// field of spec and its twin in spec.config the one in spec counts.
func (c *compiler) superseded(o *object, s *v1beta1.VirtualMCPServer) {
	config := s.Spec.Config
	if o.Config || config == nil {
		return
	}
	warn := func(path, winner string) {
		c.find(Warning, o, path, ReasonUnused, "not used: %s says something else, and it takes precedence", winner)
	}
	if config.GroupRef != "" && config.GroupRef != s.Spec.GroupRef.Name {
		warn("spec.config.groupRef", "spec.groupRef")
	}
	if a := config.IncomingAuth; a != nil && s.Spec.IncomingAuth != nil && string(a.Type) != string(s.Spec.IncomingAuth.Type) {
		warn("spec.config.incomingAuth.type", "spec.incomingAuth")
	}
	if a, b := config.IncomingAuth, s.Spec.IncomingAuth; a != nil && a.OIDC != nil && b != nil && b.OIDCConfigRef != nil {
		if a.OIDC.Audience != b.OIDCConfigRef.Audience {
			warn("spec.config.incomingAuth.oidc.audience", "spec.incomingAuth.oidcConfigRef")
		}
		const at = "spec.config.incomingAuth.oidc."
		ref := b.OIDCConfigRef
		lost := slices.DeleteFunc(slices.Clone(a.OIDC.RequiredScopes), func(s string) bool { return slices.Contains(ref.RequiredScopes, s) })
		if len(lost) > 0 { // nobody would ask for them
			c.fail(o, at+"requiredScopes", ReasonConflict, "spec.incomingAuth takes precedence, and does not ask for %s: move it to spec.incomingAuth.oidcConfigRef.requiredScopes", brief(strings.Join(lost, " ")))
		}
		if len(a.OIDC.Scopes) > 0 && !slices.Equal(a.OIDC.Scopes, ref.Scopes) {
			warn(at+"scopes", "spec.incomingAuth.oidcConfigRef")
		}
		if a.OIDC.Resource != "" && a.OIDC.Resource != a.OIDC.Audience && a.OIDC.Resource != ref.ResourceURL {
			warn(at+"resource", "spec.incomingAuth.oidcConfigRef")
		}
		for _, l := range o.links {
			if p, ok := l.to.value.(*v1beta1.MCPOIDCConfig); ok && p.Spec.Inline != nil && p.Spec.Inline.Issuer != a.OIDC.Issuer {
				warn("spec.config.incomingAuth.oidc.issuer", l.to.ref.String())
			}
		}
	}
	switch a, b := config.IncomingAuth, s.Spec.IncomingAuth; {
	case a == nil || b == nil || a.Authz == nil || a.Authz.Type != v1beta1.AuthzPolicy:
	case b.AuthzConfig == nil && b.AuthzConfigRef == nil: // nobody would ask the policies, and everything be allowed
		c.fail(o, "spec.config.incomingAuth.authz", ReasonConflict, "spec.incomingAuth takes precedence, and has no policies: move them to spec.incomingAuth.authzConfig")
	default:
		warn("spec.config.incomingAuth.authz", "spec.incomingAuth")
	}
	if a, b := config.SessionStorage, s.Spec.SessionStorage; a != nil && b != nil && (a.Provider != b.Provider || a.Address != b.Address || a.DB != b.DB || a.KeyPrefix != b.KeyPrefix) {
		warn("spec.config.sessionStorage", "spec.sessionStorage")
	}
	a := config.OutgoingAuth
	if a == nil || s.Spec.OutgoingAuth == nil {
		return
	}
	if b := o.text("spec.outgoingAuth.source"); b != "" && string(a.Source) != b {
		warn("spec.config.outgoingAuth.source", "spec.outgoingAuth")
	}
	twice := func(path string) {
		c.find(Warning, o, path, ReasonUnused, "not used: spec.outgoingAuth is there, and takes precedence over all of spec.config.outgoingAuth")
	}
	if a.Default != nil {
		twice("spec.config.outgoingAuth.default")
	}
	if len(a.Backends) > 0 {
		twice("spec.config.outgoingAuth.backends")
	}
}
