package compile

import (
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge/catalog"
	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/filters/authz"
	"github.com/weir-edge/weir/filters/headers"
)

// servers plans every server of the set.
func (c *compiler) servers() *Plan {
	plan := &Plan{}
	found := false
	for _, o := range c.objects {
		if !servedKind(o.ref.Kind) || !c.served(o) {
			continue
		}
		found = true
		if first := c.owners[o.ref.Name]; first != nil && first.ref != o.ref {
			c.fail(o, "metadata.name", ReasonDuplicate, "%q is already the name of the server %s: rename one", brief(o.ref.Name), first.ref)
		} else if first == nil {
			c.owners[o.ref.Name] = o
		}
		switch v := o.value.(type) {
		case *v1beta1.VirtualMCPServer:
			plan.Servers = append(plan.Servers, c.server(o, v))
		case *v1beta1.MCPServer, *v1beta1.MCPRemoteProxy:
			s, d := c.single(o)
			plan.Servers = append(plan.Servers, s)
			if c.set.Doors {
				plan.Doors = append(plan.Doors, d)
			}
		}
	}
	switch {
	case found || c.set.Incomplete:
	case c.set.Serve != Ref{}:
		c.fail(nil, "", ReasonNotFound, "there is no %s%s", c.set.Serve, c.nearest(c.set.Serve.Kind, c.set.Serve.Name))
	case c.set.Part:
		c.find(Warning, nil, "", ReasonOutside, "there is no VirtualMCPServer in this part of the set: the rest has to have one, it is what clients connect to")
	default:
		c.fail(nil, "", ReasonNotFound, "there is no VirtualMCPServer: add one, it is what clients connect to")
	}
	c.audiences(plan)
	c.authServers(plan)
	c.services(plan)
	c.secrets(plan)
	slices.SortFunc(plan.Servers, func(a, b Server) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(plan.Doors, func(a, b Door) int { return strings.Compare(a.Name, b.Name) })
	return plan
}

// servedKind reports whether clients connect to objects of a kind.
func servedKind(kind string) bool {
	return kind == "VirtualMCPServer" || kind == "MCPServer" || kind == "MCPRemoteProxy"
}

// served reports whether clients connect to an object of such a kind. A member of a group
// that a VirtualMCPServer is over is reached through that alone, unless the set says what
// is served, or gives each object a door of its own: nobody is to come past the policies of
// the one in front.
func (c *compiler) served(o *object) bool {
	switch {
	case c.set.Serve != Ref{}:
		return o.ref == c.set.Serve
	case o.ref.Kind == "VirtualMCPServer" || c.set.Doors:
		return true
	}
	return c.front(o) == nil
}

// front returns the VirtualMCPServer whose group an object is a member of; nil for none.
func (c *compiler) front(o *object) *object {
	if c.fronts == nil {
		c.fronts = map[*object]*object{}
		for _, s := range c.objects {
			for _, l := range s.links {
				if s.ref.Kind == "VirtualMCPServer" && l.to.ref.Kind == "MCPGroup" && c.fronts[l.to] == nil {
					c.fronts[l.to] = s
				}
			}
		}
	}
	for _, l := range o.links {
		if s := c.fronts[l.to]; s != nil {
			return s
		}
	}
	return nil
}

// server plans one server. What it returns counts only when no error was found.
func (c *compiler) server(o *object, s *v1beta1.VirtualMCPServer) Server {
	config := s.Spec.Config
	if config == nil {
		config = &v1beta1.ServerConfig{}
	}

	// 1. What it reaches: its group, the members of that, what those refer to.
	group, members := c.members(o)
	c.reach(o, true)
	for _, m := range members {
		c.reach(m, len(config.Backends) == 0)
		c.behind(m)
	}

	// 2. What of all that does not exist yet.
	ways := c.ways(o, s, config, members)
	c.refuse(o)
	for _, other := range c.objects {
		if other.served && other != o && other.value != nil {
			c.refuse(other)
		}
	}

	// 3. What contradicts itself.
	c.superseded(o, s)

	// 4. Who may come in, and do what.
	who := c.incoming(o, s, config)

	// 5. The backends.
	plan := Server{Name: s.Name, Title: config.Name, Group: groupName(o, s), Metadata: maps.Clone(config.Metadata), Incoming: who, Authz: c.authorization(o, s, config), Failure: failure(config)}
	plan.Filters = c.filters(o, s, config)
	signIn := c.signIn(o)
	for i := range plan.Filters {
		f := &plan.Filters[i]
		f.Credentials = slices.Clone(f.Credentials) // a filter may be of several servers
		for j, one := range f.Credentials {
			f.Credentials[j] = one.With(signIn.first())
			c.suits(f.Credentials[j], c.byRef[Ref{"MCPExternalAuthConfig", one.Ref}], "spec.type", who, signIn)
		}
	}
	plan.Store = c.store(o, s, config)
	plan.Limits = c.limits(o, s, config)
	plan.CodeMode = codeMode(config)
	if plan.CodeMode != nil && plan.Authz != nil && !authz.Permits(*plan.Authz, s.Name, catalog.Script) {
		c.find(Note, o, "spec.config.codeMode", ReasonUnused, "nobody can use it: no policy permits a call of Tool::%q", catalog.Script)
	}
	plan.Optimizer = c.optimizer(o, s, config)
	plan.Workflows, plan.Composed = c.workflows(o, config, func(tool string) bool { return plan.Authz == nil || authz.Permits(*plan.Authz, s.Name, tool) })
	passed := field.NewPath("spec", "passthroughHeaders")
	if plan.Forward = s.Spec.PassthroughHeaders; plan.Forward == nil {
		plan.Forward, passed = config.PassthroughHeaders, field.NewPath("spec", "config", "passthroughHeaders")
	} else if config.PassthroughHeaders != nil && !slices.Equal(config.PassthroughHeaders, plan.Forward) {
		c.find(Warning, o, "spec.config.passthroughHeaders", ReasonUnused, "not used: spec.passthroughHeaders says something else, and it takes precedence")
	}
	_, wrong := headers.Parse(passed, plan.Forward, nil)
	c.faults(o, wrong)
	if plan.Title == "" {
		plan.Title = s.Name
	}
	plan.Audit, plan.Telemetry = c.audit(o, config), c.telemetry(o, s, config)
	c.switchedOff(o, config)
	plan.Debug = config.Operational != nil && config.Operational.LogLevel == "debug"
	if len(config.Backends) > 0 {
		plan.Backends = c.static(o, s, members, ways)
	} else {
		plan.Backends = c.discovered(o, group, members)
	}
	plan.Webhooks = c.set.Webhooks
	c.names(o, s, plan.Backends)
	plan.Names, plan.Bare = c.rules(o, config, plan.Backends, members)
	for i := range plan.Backends {
		b := &plan.Backends[i]
		b.Timeout = c.timeout(config, b.Name)
		w := ways[b.Name]
		b.Outgoing = c.outgoing(w, who)
		if b.Login != nil && w.own == nil && (w.kind != nil || w.config != nil) && b.Outgoing.Type() != string(v1beta1.AuthUnauthenticated) { // the login would be sent in place of it
			c.fail(w.member, "spec.run.remoteAuth", ReasonConflict, "outgoingAuth of %s says what this backend is sent: leave one out", o.ref)
		}
		if plan.Group != "" {
			if b.Metadata == nil {
				b.Metadata = map[string]string{}
			}
			b.Metadata["group"] = plan.Group
		}
	}
	return plan
}

func groupName(o *object, s *v1beta1.VirtualMCPServer) string {
	if o.Config {
		return s.Spec.Config.GroupRef
	}
	return s.Spec.GroupRef.Name
}

// members returns the group of a server and its members, in the order of the
// set. The group is nil when there is none.
func (c *compiler) members(o *object) (*object, []*object) {
	var group *object
	for _, l := range o.links {
		if l.to.ref.Kind == "MCPGroup" {
			group = l.to
		}
	}
	if group == nil {
		return nil, nil
	}
	var members []*object
	for _, m := range c.objects {
		for _, l := range m.links {
			if m.ref.Kind != "VirtualMCPServer" && l.to == group {
				members = append(members, m)
			}
		}
	}
	return group, members
}

// reach marks o and what it refers to as used, and as served where the plan
// depends on it.
func (c *compiler) reach(o *object, served bool) {
	if o.used && (o.served || !served) {
		return
	}
	o.used, o.served = true, o.served || served
	for _, l := range o.links {
		c.reach(l.to, served && !l.refused && !own(o, l) && (c.served(o) || !incomingSide(o, l)))
	}
}

// switchedOff says which settings of a server do nothing, or not what they seem to do: those of a
// section that is not switched on, and a check that may take longer than the time between two.
func (c *compiler) switchedOff(o *object, config *v1beta1.ServerConfig) {
	const handling = "spec.config.operational.failureHandling"
	off := func(path string, enabled bool) {
		if !enabled && slices.ContainsFunc(o.given, func(g *given) bool { return strings.HasPrefix(g.path, path+".") }) {
			c.find(Note, o, path, ReasonUnused, "not used: enabled is not true")
		}
	}
	off("spec.config.audit", config.Audit != nil && config.Audit.Enabled)
	off("spec.config.codeMode", config.CodeMode != nil && config.CodeMode.Enabled)
	if config.Operational == nil || config.Operational.FailureHandling == nil {
		return
	}
	breaker := config.Operational.FailureHandling.CircuitBreaker
	off(handling+".circuitBreaker", breaker != nil && breaker.Enabled)
	f := failure(config)
	short := func(name string, d time.Duration) {
		if d < 100*time.Millisecond {
			c.find(Warning, o, handling+name, ReasonInvalid, "%s is very short, and may find a backend away that is well: write s for seconds", d)
		}
	}
	short(".healthCheckInterval", f.Interval)
	short(".healthCheckTimeout", f.Timeout)
	if o.gives(handling+".healthCheckTimeout") && f.Timeout >= f.Interval {
		c.find(Note, o, handling+".healthCheckTimeout", ReasonInvalid, "should be less than healthCheckInterval, %s: a backend that keeps silent is checked less often than that", f.Interval)
	}
}

// codeMode is spec.config.codeMode with its defaults; nil while it is not enabled.
func codeMode(config *v1beta1.ServerConfig) *CodeMode {
	given := config.CodeMode
	if given == nil || !given.Enabled {
		return nil
	}
	m := &CodeMode{Parallel: 10, Steps: 100_000, PerCall: 30 * time.Second}
	if given.ParallelMaxConcurrency != nil {
		m.Parallel = *given.ParallelMaxConcurrency
	}
	if given.StepLimit != nil {
		m.Steps = *given.StepLimit
	}
	if d := given.ToolCallTimeout.Std(); d > 0 {
		m.PerCall = d
	}
	return m
}
