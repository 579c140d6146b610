package compile

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/filters/authz"
)

// authorization plans what a server's clients may do; nil for everything.
func (c *compiler) authorization(o *object, s *v1beta1.VirtualMCPServer, config *v1beta1.ServerConfig) *authz.Spec {
	if o.Config {
		a := config.IncomingAuth
		if a == nil || a.Authz == nil || a.Authz.Type != v1beta1.AuthzPolicy {
			return nil
		}
		spec := authz.FromConfig(a.Authz)
		return c.policies(o, spec, field.NewPath("spec", "config", "incomingAuth", "authz"))
	}
	in := s.Spec.IncomingAuth
	switch {
	case in == nil:
		return nil
	case in.AuthzConfig != nil && in.AuthzConfig.Type == v1beta1.AuthzInline:
		spec := authz.FromInline(in.AuthzConfig)
		return c.policies(o, spec, field.NewPath("spec", "incomingAuth", "authzConfig", "inline"))
	case in.AuthzConfig != nil && in.AuthzConfig.ConfigMap != nil:
		at := field.NewPath("spec", "incomingAuth", "authzConfig", "configMap", "key")
		for _, l := range o.links {
			m, ok := l.to.Value.(*ConfigMap)
			if !ok || l.to.Partial || l.to.ref.Name != in.AuthzConfig.ConfigMap.Name {
				continue
			}
			text, ok := m.entry(in.AuthzConfig.ConfigMap.Key)
			if !ok {
				return nil // said where the key is referred to
			}
			document, wrong := authz.FromDocument([]byte(text), at)
			return c.document(o, document.Override(in.AuthzConfig), wrong, at)
		}
	case in.AuthzConfigRef != nil:
		at := field.NewPath("spec", "incomingAuth", "authzConfigRef", "name")
		for _, l := range o.links {
			if p, ok := l.to.value.(*v1beta1.MCPAuthzConfig); ok {
				document, wrong := authz.FromObject(&p.Spec, at)
				return c.document(o, document, wrong, at)
			}
		}
	}
	return nil
}

// document judges a document of policies for a virtual server.
func (c *compiler) document(o *object, d authz.Document, wrong field.ErrorList, at *field.Path) *authz.Spec {
	if wrong = append(wrong, d.ForVirtualServer(at)...); len(wrong) > 0 || d.Set == nil {
		c.faults(o, wrong)
		return nil
	}
	return c.policies(o, *d.Set, at)
}

// policies judges a set of policies.
func (c *compiler) policies(o *object, spec authz.Spec, at *field.Path) *authz.Spec {
	_, wrong := authz.Parse(spec, at)
	c.faults(o, wrong)
	return &spec
}

// faults reports what a part finds wrong with its fields.
func (c *compiler) faults(o *object, wrong field.ErrorList) {
	for _, e := range wrong {
		if !o.wrong[e.Field] {
			c.fail(o, e.Field, ReasonInvalid, "%s", describe(e))
		}
	}
}
