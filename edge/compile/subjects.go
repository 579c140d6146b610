package compile

import (
	"github.com/weir-edge/weir/edge/outgoing"
	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/filters/guest"
	"github.com/weir-edge/weir/filters/incoming"
)

// subjects demands that calls to a server have what the credentials of its backends are made
// of: a user with a token, and the upstream that issued another.
func (c *compiler) subjects(o *object, s *v1beta1.VirtualMCPServer, who *incoming.Spec, backends []Backend, programs []guest.Spec, ways map[string]way) {
	for _, b := range backends {
		w, at := ways[b.Name], ""
		if w.path != nil {
			at = w.path.Child("type").String()
		}
		c.subject(o, s, who, b.Outgoing, at)
	}
	for _, p := range programs {
		for _, spec := range p.Credentials {
			c.subject(o, s, who, spec, "")
		}
	}
}

// subject judges one credential. at is the field that configures it; "" for an object of its
// own, whose servers may be several.
func (c *compiler) subject(o *object, s *v1beta1.VirtualMCPServer, who *incoming.Spec, spec *outgoing.Spec, at string) {
	user, upstreams := spec.Needs()
	if !user {
		return
	}
	incomingAt := "spec.incomingAuth"
	if o.Config {
		incomingAt = "spec.config.incomingAuth"
	}
	name := spec.Type()
	if spec.Name() != "" {
		name += " of MCPExternalAuthConfig/" + spec.Name()
	}
	if len(upstreams) > 0 && s.Spec.AuthServerConfig == nil {
		path := at
		if path == "" {
			path = "spec.authServerConfig"
		}
		if !o.wrong[path] {
			c.fail(o, path, ReasonConflict, "%s takes a token of an upstream provider: there is none without spec.authServerConfig", name)
		}
		return
	}
	path := at
	if path == "" {
		path = incomingAt
	}
	if (who == nil || who.Type != incoming.OIDC) && !o.wrong[path] && !o.wrong[incomingAt] && !o.wrong["spec.incomingAuth.oidcConfigRef.name"] {
		c.fail(o, path, ReasonConflict, "%s takes the client's own token: clients have none unless the type of %s is oidc", name, incomingAt)
	}
}
