package compile

import (
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge/outgoing"
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
	if in := s.Spec.IncomingAuth; in != nil {
		set, _ := c.allowed(o, field.NewPath("spec", "incomingAuth"), in.AuthzConfig, in.AuthzConfigRef)
		return set
	}
	return nil
}

// allowed plans what clients may do by authzConfig and authzConfigRef, which stand below a
// path of an object: a policy set, or a decision point, which a VirtualMCPServer does not
// take; neither for everything.
func (c *compiler) allowed(o *object, path *field.Path, config *v1beta1.AuthzConfig, ref *v1beta1.NameRef) (*authz.Spec, *authz.PointSpec) {
	virtual := o.ref.Kind == "VirtualMCPServer"
	switch {
	case config != nil && config.Type == v1beta1.AuthzInline:
		return c.policies(o, authz.FromInline(config), path.Child("authzConfig", "inline")), nil
	case config != nil && config.ConfigMap != nil:
		at := path.Child("authzConfig", "configMap", "key")
		for _, l := range o.links {
			m, ok := l.to.Value.(*ConfigMap)
			if !ok || l.to.Partial || l.to.ref.Name != config.ConfigMap.Name || l.from == nil || !under(l.from.path, path.Child("authzConfig").String()) {
				continue
			}
			text, ok := m.entry(config.ConfigMap.Key)
			if !ok {
				return nil, nil // said where the key is referred to
			}
			document, wrong := authz.FromDocument([]byte(text), at)
			if virtual {
				wrong = append(wrong, document.ForVirtualServer(at)...)
			}
			return c.document(o, document.Override(config), wrong, at)
		}
	case ref != nil:
		for _, l := range o.links {
			p, ok := l.to.value.(*v1beta1.MCPAuthzConfig)
			if !ok {
				continue
			}
			document, wrong := authz.FromObject(&p.Spec, field.NewPath("spec"))
			if document.Point != nil && virtual {
				c.fail(o, path.Child("authzConfigRef", "name").String(), ReasonInvalid, "%s is of type %s: a VirtualMCPServer takes %s alone", l.to.ref, brief(p.Spec.Type), v1beta1.AuthzTypePolicy)
				return nil, nil
			}
			return c.document(l.to, document, wrong, field.NewPath("spec", "config"))
		}
	}
	return nil, nil
}

// document judges a document of policies, whose body stands at path at of o.
// One that several servers ask is judged once.
func (c *compiler) document(o *object, d authz.Document, wrong field.ErrorList, at *field.Path) (*authz.Spec, *authz.PointSpec) {
	if o.judged {
		return d.Set, d.Point
	}
	o.judged = true
	c.faults(o, wrong)
	if d.Point != nil && len(wrong) == 0 {
		_, wrong = d.Parse(at)
		c.faults(o, wrong)
	}
	if d.Set == nil {
		return nil, d.Point
	}
	doubts, wrong := d.Judge(at)
	c.faults(o, wrong)
	c.doubts(o, doubts)
	return d.Set, nil
}

// policies judges a set of policies.
func (c *compiler) policies(o *object, spec authz.Spec, at *field.Path) *authz.Spec {
	doubts, wrong := authz.Judge(spec, at)
	c.faults(o, wrong)
	c.doubts(o, doubts)
	return &spec
}

// doubts reports what policies can hardly mean: an error where a policy applies
// to nothing because of it.
func (c *compiler) doubts(o *object, doubts []authz.Doubt) {
	for _, d := range doubts {
		severity := Warning
		if d.Never {
			severity = Error
		}
		c.find(severity, o, d.Field, ReasonInvalid, "%s", d.Text)
	}
}

// faults reports what a part finds wrong with its fields, those aside that were
// found wrong before.
func (c *compiler) faults(o *object, wrong field.ErrorList) {
	before := maps.Clone(o.wrong)
	for _, e := range wrong {
		if !before[e.Field] {
			reason := ReasonInvalid
			if strings.HasPrefix(e.Detail, outgoing.EnterpriseRequired) {
				reason = ReasonEnterprise
			}
			c.fail(o, e.Field, reason, "%s", describe(e))
		}
	}
}
