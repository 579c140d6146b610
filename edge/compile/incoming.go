package compile

import (
	"cmp"
	"strings"

	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/filters/incoming"
)

// incoming plans how a server's clients are authenticated; nil for not at all.
func (c *compiler) incoming(o *object, s *v1beta1.VirtualMCPServer, config *v1beta1.ServerConfig) *incoming.Spec {
	var spec incoming.Spec
	at := "spec.incomingAuth"
	switch {
	case o.Config:
		at = "spec.config.incomingAuth"
		if config.IncomingAuth == nil {
			return nil
		}
		spec = incoming.FromConfig(config.IncomingAuth)
	case s.Spec.IncomingAuth == nil:
		return nil
	default:
		provider, bundle := c.provider(o)
		if provider == nil && s.Spec.IncomingAuth.Type == v1beta1.IncomingOIDC {
			return nil // that it is not there was said where it is referred to
		}
		spec = incoming.FromKind(s.Spec.IncomingAuth, provider, bundle)
	}
	if spec.Type == incoming.Anonymous {
		return nil
	}
	if o.Config && spec.Type == incoming.OIDC {
		at += ".oidc"
	}
	return c.gate(o, at, spec)
}

// provider returns the MCPOIDCConfig that an object refers to, and the certificates that
// this trusts; nil for none.
func (c *compiler) provider(o *object) (provider *v1beta1.MCPOIDCConfigSpec, bundle string) {
	for _, l := range o.links {
		p, ok := l.to.value.(*v1beta1.MCPOIDCConfig)
		if !ok {
			continue
		}
		provider = &p.Spec
		if in := p.Spec.Inline; in != nil && in.CABundleRef != nil && in.CABundleRef.ConfigMapRef != nil {
			bundle = c.bundled(l.to, in.CABundleRef.ConfigMapRef.Key, "spec.inline.caBundleRef.configMapRef.key")
		}
	}
	return provider, bundle
}

// gate judges how clients are authenticated, which stands at path at of an object.
func (c *compiler) gate(o *object, at string, spec incoming.Spec) *incoming.Spec {
	_, err := incoming.Parse(spec)
	if faults, ok := err.(incoming.Faults); ok {
		for _, f := range faults {
			path := at
			if o.Config { // where that field has another case
				f.What = strings.ReplaceAll(f.What, "insecureAllowHTTP", "insecureAllowHttp")
			}
			if near, found := o.field(path, f.Field); found {
				if o.wrong[near] {
					continue // said already
				}
				c.fail(o, near, ReasonInvalid, "%s", f.What)
			} else {
				c.fail(o, path, ReasonInvalid, "%s: %s", f.Field, f.What)
			}
		}
	}
	return &spec
}

// field finds the field below path whose name a part knows by another case.
func (o *object) field(path, name string) (string, bool) {
	for _, g := range o.given {
		if under(g.path, path) && strings.EqualFold(g.path[strings.LastIndexByte(g.path, '.')+1:], name) {
			return g.path, true
		}
	}
	return "", false
}

// audiences demands that no two servers take tokens for one audience of one
// issuer: a token for one would open the other.
func (c *compiler) audiences(plan *Plan) {
	type accepted struct{ issuer, audience string }
	taken := map[accepted]string{}
	for _, s := range plan.Servers {
		if s.Incoming == nil || s.Incoming.Type != incoming.OIDC || s.Incoming.Audience == "" {
			continue
		}
		key := accepted{cmp.Or(s.Incoming.Issuer, s.Incoming.IntrospectionURL), s.Incoming.Audience}
		if first, ok := taken[key]; ok {
			o := c.owners[s.Name]
			path := "spec.incomingAuth.oidcConfigRef.audience"
			switch {
			case o.Config:
				path = "spec.config.incomingAuth.oidc.audience"
			case o.ref.Kind != "VirtualMCPServer":
				path = "spec.oidcConfigRef.audience"
			}
			c.fail(o, path, ReasonConflict, "%q is the audience of %s, too: a token for one would open the other; give each its own", brief(s.Incoming.Audience), c.owners[first].ref)
			continue
		}
		taken[key] = s.Name
	}
}
