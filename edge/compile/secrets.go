package compile

import (
	"strconv"
	"strings"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// Secrets returns the values of the Secret documents, by name and key; nil where
// there are none. Of two documents of one name the first counts.
func (s *Set) Secrets() map[string]map[string]edge.Secret {
	var all map[string]map[string]edge.Secret
	for _, o := range s.Objects {
		one, ok := o.Value.(*Secret)
		if !ok || all[one.Name] != nil {
			continue
		}
		if all == nil {
			all = map[string]map[string]edge.Secret{}
		}
		all[one.Name] = one.values()
	}
	return all
}

// secrets gives a plan the values of the set's Secret documents, and lists what
// the servers need, wherever that turns out to be.
func (c *compiler) secrets(plan *Plan) {
	plan.Secrets = c.set.Secrets()
	for _, o := range c.objects {
		if o.served {
			plan.Needs = append(plan.Needs, c.needs(o)...)
		}
	}
	if w := c.set.Webhooks; w != nil {
		for _, n := range w.Needs() {
			plan.Needs = append(plan.Needs, Need{
				Index: -1, Object: Ref{"webhook", n.Webhook}, Origin: "--webhook-config", Path: n.Field,
				Name: n.Secret.Name, Key: n.Secret.Key,
			})
		}
	}
}

// needs lists the references of an object to secrets, as far as the edge serves
// the fields.
func (c *compiler) needs(o *object) []Need {
	var out []Need
	for _, g := range o.given {
		if g.up == nil || !g.up.secret || !strings.HasSuffix(g.pattern, ".name") || c.tables.find(o.ref.Kind, g.pattern).class != classServed {
			continue
		}
		if under(g.pattern, "spec.sessionStorage") && o.text("spec.sessionStorage.provider") == string(v1beta1.SessionsInMemory) {
			continue // nobody reads it
		}
		out = append(out, Need{
			Index: o.index, Object: o.ref, Origin: o.Origin, Path: g.up.path,
			Name: g.value, Key: o.text(g.up.path + ".key"),
		})
	}
	if s, ok := o.value.(*v1beta1.MCPServer); ok {
		for i, r := range s.Spec.Secrets {
			out = append(out, Need{Index: o.index, Object: o.ref, Origin: o.Origin, Path: "spec.secrets[" + strconv.Itoa(i) + "]", Name: r.Name, Key: r.Key})
		}
	}
	return out
}

// values are all that a Secret holds; stringData wins over data.
func (s *Secret) values() map[string]edge.Secret {
	out := make(map[string]edge.Secret, len(s.Data)+len(s.StringData))
	for key, value := range s.Data {
		out[key] = edge.Secret(value)
	}
	for key, value := range s.StringData {
		out[key] = edge.Secret(value)
	}
	return out
}
