package compile

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge/authserver"
	"github.com/weir-edge/weir/edge/outgoing"
	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/filters/authz"
)

// unused warns of objects that no server refers to, once no reference is wrong
// that may have been meant for them. Secrets are not among them: who reads one
// is not seen here.
func (c *compiler) unused() {
	if c.report.Failed() || !c.whole() || c.partial() || len(c.owners) == 0 {
		return
	}
	for _, o := range c.objects {
		if !o.used && o.ref.Kind != "Secret" && c.byRef[o.ref] == o {
			c.find(Warning, o, "", ReasonUnused, "not used: no server refers to it")
		}
	}
}

// unreached judges what a part of a set holds for servers in the rest of it.
func (c *compiler) unreached() {
	if !c.set.Part {
		return
	}
	for _, o := range c.objects {
		if o.used {
			continue
		}
		switch k := o.value.(type) {
		case *v1beta1.EdgeFilter:
			c.filter(o, k)
		case *v1beta1.MCPExternalAuthConfig:
			if e := k.Spec.EmbeddedAuthServer; k.Spec.Type == v1beta1.AuthEmbeddedAuthServer && e != nil {
				here := authserver.Resource{URL: cmp.Or(e.AuthorizationEndpointBaseURL, e.Issuer)} // that of its server is in the rest
				_, _, wrong := authserver.Parse(field.NewPath("spec", "embeddedAuthServer"), e, authserver.Around{Issuer: e.Issuer, One: true, Resources: []authserver.Resource{here}})
				c.faults(o, wrong)
				continue
			}
			_, wrong := outgoing.Parse(field.NewPath("spec"), &k.Spec)
			c.faults(o, wrong)
		case *v1beta1.MCPAuthzConfig:
			document, wrong := authz.FromObject(&k.Spec, field.NewPath("spec"))
			c.document(o, document, wrong, field.NewPath("spec", "config"))
		case *v1beta1.VirtualMCPCompositeToolDefinition:
			c.workflow(o, "spec", &k.Spec.CompositeTool)
		}
	}
}

// elsewhereOnly lists for each object the fields that shape nothing here.
func (c *compiler) elsewhereOnly() {
	for _, o := range c.objects {
		var cluster, doors, outside []string
		note := func(to *[]string, path string) {
			if !slices.Contains(*to, path) {
				*to = append(*to, path)
			}
		}
		for _, g := range o.given {
			e := c.tables.find(o.ref.Kind, g.pattern)
			switch {
			case c.set.Cluster && under(g.pattern, "spec.run"):
				note(&outside, firstBelow(g.pattern, "spec.run"))
			case e.class == classClusterOnly:
				note(&cluster, e.path)
			case e.class == classDoor && !c.set.Doors && !c.set.Cluster:
				note(&doors, e.path)
			}
		}
		say := func(reason, what string, paths []string) {
			if len(paths) > 0 {
				slices.Sort(paths)
				c.find(Note, o, "", reason, what, strings.Join(paths, ", "))
			}
		}
		say(ReasonClusterOnly, "only in a cluster: %s", cluster)
		say(ReasonNotHere, "only outside a cluster: %s", outside)
		say(ReasonNotHere, "only at a door of its own: %s; here --listen and --allowed-origins say it", doors)
	}
}

// firstBelow is the part of a pattern that ends with the first name below a section.
func firstBelow(pattern, section string) string {
	if pattern == section {
		return section
	}
	rest := pattern[len(section)+1:]
	if i := strings.IndexAny(rest, ".[{"); i >= 0 {
		rest = rest[:i]
	}
	return section + "." + rest
}

// statuses turns the findings into the conditions of the objects.
func (c *compiler) statuses() {
	errors := map[int][]Finding{}
	for _, f := range c.report.Findings {
		if f.Severity == Error {
			errors[f.Index] = append(errors[f.Index], f)
		}
	}
	for _, o := range c.objects {
		found := errors[o.index]
		s := Status{Object: o.ref}
		if o.Partial {
			s.Conditions = append(s.Conditions, Condition{Type: "Valid", Reason: ReasonUnreadable, Message: "the object could not be read whole"})
			c.report.Statuses = append(c.report.Statuses, s)
			continue
		}
		s.Conditions = append(s.Conditions, condition(found, "Valid", "", "ValidationSucceeded"))
		for _, t := range conditionTypes() {
			if t.kind == o.ref.Kind && slices.ContainsFunc(o.given, func(g *given) bool { return under(g.path, t.path) }) {
				s.Conditions = append(s.Conditions, condition(found, t.condition, t.path, t.reason))
			}
		}
		if len(found) == 0 {
			s.Conditions = append(s.Conditions, o.advice...)
		}
		c.report.Statuses = append(c.report.Statuses, s)
	}
}

// told gives the servers of a plan their conditions, but for Valid, which all have that are served.
func (c *compiler) told(plan *Plan) {
	of := map[*object][]Condition{}
	for i, s := range c.report.Statuses {
		of[c.objects[i]] = s.Conditions[1:]
	}
	for i := range plan.Servers {
		s := &plan.Servers[i]
		o := c.owners[s.Name]
		s.Conditions = slices.Clone(of[o])
		for _, l := range o.links {
			for _, one := range of[l.to] {
				one.Message = strings.TrimSuffix(l.to.ref.String()+": "+one.Message, ": ")
				if !slices.Contains(s.Conditions, one) {
					s.Conditions = append(s.Conditions, one)
				}
			}
		}
	}
}

// condition is true unless an error stands at or below path.
func condition(errors []Finding, name, path, reason string) Condition {
	out := Condition{Type: name, True: true, Reason: reason}
	var messages []string
	for _, f := range errors {
		if !under(f.Path, path) {
			continue
		}
		if out.True {
			out.True, out.Reason = false, f.Reason
		}
		if f.Path != "" {
			f.Message = f.Path + ": " + f.Message
		}
		messages = append(messages, f.Message)
	}
	out.Message = strings.Join(messages, "; ")
	return out
}
