package compile

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"net/url"
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
		if o.ref.Kind != "VirtualMCPServer" {
			continue
		}
		found = true
		if s, ok := o.value.(*v1beta1.VirtualMCPServer); ok {
			plan.Servers = append(plan.Servers, c.server(o, s))
		}
	}
	switch {
	case found || c.set.Incomplete:
	case c.set.Part:
		c.find(Warning, nil, "", ReasonOutside, "there is no VirtualMCPServer in this part of the set: the rest has to have one, it is what clients connect to")
	default:
		c.fail(nil, "", ReasonNotFound, "there is no VirtualMCPServer: add one, it is what clients connect to")
	}
	c.audiences(plan)
	c.services(plan)
	c.secrets(plan)
	slices.SortFunc(plan.Servers, func(a, b Server) int { return strings.Compare(a.Name, b.Name) })
	return plan
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
	for _, f := range plan.Filters {
		for _, one := range f.Credentials {
			c.suits(one, c.byRef[Ref{"MCPExternalAuthConfig", one.Ref}], "spec.type", who)
		}
	}
	plan.Store = c.store(o, s, config)
	plan.Limits = c.limits(o, s, config)
	plan.CodeMode = codeMode(config)
	if plan.CodeMode != nil && plan.Authz != nil && !authz.Permits(*plan.Authz, s.Name, catalog.Script) {
		c.find(Note, o, "spec.config.codeMode", ReasonUnused, "nobody can use it: no policy permits a call of Tool::%q", catalog.Script)
	}
	plan.Workflows, plan.Composed = c.workflows(o, config, func(tool string) bool { return plan.Authz == nil || authz.Permits(*plan.Authz, s.Name, tool) })
	passed := field.NewPath("spec", "passthroughHeaders")
	if plan.Forward = s.Spec.PassthroughHeaders; plan.Forward == nil {
		plan.Forward, passed = config.PassthroughHeaders, field.NewPath("spec", "config", "passthroughHeaders")
	}
	_, wrong := headers.Parse(passed, plan.Forward, nil)
	c.faults(o, wrong)
	if plan.Title == "" {
		plan.Title = s.Name
	}
	plan.Audit, plan.Telemetry = c.audit(o, config), c.telemetry(o, s, config)
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
		b.Outgoing = c.outgoing(ways[b.Name], who)
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
		c.reach(l.to, served && !l.refused && !own(o, l))
	}
}

// refuse notes every field of o that the edge cannot serve.
func (c *compiler) refuse(o *object) {
	type refusal struct {
		at   *given
		rule unsupported
	}
	var refusals []refusal
	add := func(at *given, rule unsupported) {
		if len(refusals) > maxErrors {
			return
		}
		for _, r := range refusals {
			if r.at.path == at.path {
				return
			}
		}
		refusals = append(refusals, refusal{at, rule})
	}
	for _, g := range o.given {
		e := c.tables.find(o.ref.Kind, g.pattern)
		switch {
		case e.class != classUnsupported:
		case e.rule.enabled != "":
			if on := g.above(e.path); o.text(on.path+"."+e.rule.enabled) == "true" {
				add(on, *e.rule)
			}
		case g.pattern != e.path || !slices.Contains(e.rule.allow, g.value):
			add(g.above(e.path), *e.rule)
		}
	}
	for _, e := range c.tables.entries[o.ref.Kind] {
		if !o.unread(e.path) && e.rule != nil && e.rule.absent != "" && o.text(e.path) == "" {
			add(&given{path: e.path, pattern: e.path, value: e.rule.absent}, *e.rule)
		}
	}
	for _, r := range refusals {
		if r.rule.with != "" && slices.ContainsFunc(refusals, func(other refusal) bool {
			return other.at.pattern == r.rule.with && under(r.at.path, other.at.path[:strings.LastIndexByte(other.at.path, '.')])
		}) {
			continue
		}
		if o.wrong[r.at.path] {
			continue // What is wrong with the field is said already.
		}
		c.fail(o, r.at.path, ReasonUnsupported, "not supported yet%s", r.rule.words(r.at))
	}
}

// words ends the message of a refusal.
func (u unsupported) words(g *given) string {
	what := ""
	switch {
	case u.absent != "" && g.up == nil:
		what = fmt.Sprintf(": %q, which is the default", u.absent)
	case u.path == "spec":
		what = ": an object of this kind behind a server"
	case g.value != "" && g.pattern == u.path && len(u.allow) > 0:
		what = fmt.Sprintf(": %q", brief(g.value))
	}
	if u.instead == "" {
		return what + "; take it out for now"
	}
	return what + "; " + u.instead
}

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

// static plans the backends that the server lists itself, whatever its group
// holds.
func (c *compiler) static(o *object, s *v1beta1.VirtualMCPServer, members []*object, ways map[string]way) []Backend {
	source := o.text("spec.config.outgoingAuth.source")
	at := "spec.config.outgoingAuth.source"
	if written := o.text("spec.outgoingAuth.source"); written != "" {
		source, at = written, "spec.outgoingAuth.source"
	}
	if source == string(v1beta1.AuthDiscovered) {
		c.fail(o, at, ReasonConflict, "discovered finds the backends in the group, but spec.config.backends lists them: set inline, or take the list out")
	}
	var out []Backend
	names := map[string]int{}
	for i, b := range s.Spec.Config.Backends {
		path := fmt.Sprintf("spec.config.backends[%d]", i)
		if first, ok := names[b.Name]; ok && !o.wrong[path+".name"] {
			c.fail(o, path+".name", ReasonDuplicate, "%q is already the name of spec.config.backends[%d]: rename one", brief(b.Name), first)
		}
		names[b.Name] = i
		c.address(o, path+".url", b.URL)
		out = append(out, Backend{
			Name:         b.Name,
			URL:          b.URL,
			Transport:    Transport(b.Transport),
			CABundlePath: b.CABundlePath,
			Private:      true,
			Metadata:     maps.Clone(b.Metadata),
		})
		if b.CABundlePath != "" && strings.HasPrefix(b.URL, "http://") {
			c.find(Warning, o, path+".caBundlePath", ReasonUnused, "not used: the URL is http, which knows no certificates")
		}
	}
	for _, m := range members {
		if w, ok := ways[m.ref.Name]; ok && w.own == m {
			continue // its credential is
		}
		c.find(Warning, m, "", ReasonUnused, "not used: %s lists its backends itself", o.ref)
	}
	return out
}

// discovered plans the backends that are the members of the group.
func (c *compiler) discovered(o *object, group *object, members []*object) []Backend {
	if group == nil {
		return nil // A missing group was said where it is referred to.
	}
	var out []Backend
	for _, m := range members {
		switch e := m.value.(type) {
		case *v1beta1.MCPServerEntry:
			c.address(m, "spec.remoteUrl", e.Spec.RemoteURL)
			out = append(out, Backend{
				Name:      e.Name,
				URL:       e.Spec.RemoteURL,
				Transport: Transport(e.Spec.Transport),
				CABundle:  c.bundle(m, e),
				Private:   e.Spec.AllowPrivateEndpoint,
			})
		case *v1beta1.MCPRemoteProxy:
			c.address(m, "spec.remoteUrl", e.Spec.RemoteURL)
			out = append(out, Backend{
				Name:      e.Name,
				URL:       e.Spec.RemoteURL,
				Transport: Transport(e.Spec.Transport),
				Private:   e.Spec.AllowPrivateEndpoint,
			})
		} // refuse has refused the other kinds.
	}
	path := "spec.groupRef.name"
	if o.Config {
		path = "spec.config.groupRef"
	}
	if len(members) == 0 && c.whole() && !c.partial() {
		c.fail(o, path, ReasonNotFound, "%s has no members: add an MCPServerEntry with spec.groupRef.name %s, or list the backend under spec.config.backends", group.ref, group.ref.Name)
	}
	names := map[string]*object{}
	for _, m := range members {
		if first := names[m.ref.Name]; first != nil && m.ref != first.ref {
			c.fail(m, "metadata.name", ReasonDuplicate, "%q is already the name of the backend %s: rename one", brief(m.ref.Name), first.ref)
		}
		names[m.ref.Name] = m
	}
	return out
}

// failure is spec.config.operational.failureHandling with its defaults.
func failure(config *v1beta1.ServerConfig) Failure {
	f := Failure{Interval: 30 * time.Second, Timeout: 10 * time.Second, Threshold: 3, Report: 30 * time.Second}
	if config.Operational == nil || config.Operational.FailureHandling == nil {
		return f
	}
	given := config.Operational.FailureHandling
	set := func(to *time.Duration, d v1beta1.Duration) {
		if d.Std() > 0 {
			*to = d.Std()
		}
	}
	set(&f.Interval, given.HealthCheckInterval)
	set(&f.Timeout, given.HealthCheckTimeout)
	set(&f.Report, given.StatusReportingInterval)
	if given.UnhealthyThreshold != nil && *given.UnhealthyThreshold > 0 {
		f.Threshold = *given.UnhealthyThreshold
	}
	f.BestEffort = given.PartialFailureMode == v1beta1.PartialBestEffort
	if b := given.CircuitBreaker; b != nil && b.Enabled {
		f.Breaker = &Breaker{Threshold: 5, Timeout: time.Minute}
		if b.FailureThreshold != nil {
			f.Breaker.Threshold = *b.FailureThreshold
		}
		set(&f.Breaker.Timeout, b.Timeout)
	}
	return f
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

// rules makes the rules by which what the backends offer becomes one offer. A
// server of one backend that asks for nothing but priority, which has nobody to
// win over, serves it as it is.
func (c *compiler) rules(o *object, config *v1beta1.ServerConfig, backends []Backend, members []*object) (*catalog.Rules, bool) {
	configs := map[string]*v1beta1.MCPToolConfig{}
	for _, l := range o.links {
		if t, ok := l.to.value.(*v1beta1.MCPToolConfig); ok {
			configs[t.Name] = t
		}
	}
	var names []catalog.Backend
	own := false
	for _, b := range backends {
		one := catalog.Backend{Name: b.Name}
		for _, m := range members {
			if _, ok := m.value.(*v1beta1.MCPRemoteProxy); !ok || m.ref.Name != b.Name || len(config.Backends) > 0 {
				continue
			}
			for _, l := range m.links {
				if t, ok := l.to.value.(*v1beta1.MCPToolConfig); ok {
					one.Tools, own = &t.Spec, true
				}
			}
		}
		names = append(names, one)
	}
	path := field.NewPath("spec", "config", "aggregation")
	rules, wrong := catalog.Parse(path, config.Aggregation, names, configs)
	c.workloads(o, wrong)
	a := config.Aggregation
	if len(backends) == 1 && a != nil && a.ConflictResolution == v1beta1.ConflictPriority && !a.ExcludeAllTools && len(a.Tools) == 0 && !own {
		return catalog.Bare(), true
	}
	return rules, false
}

// workloads reports what is wrong with the rules of aggregation. Of a workload
// that is none, names has said the nearest where the backends are known; here it
// is said why they are not.
func (c *compiler) workloads(o *object, wrong field.ErrorList) {
	var rest field.ErrorList
	for _, e := range wrong {
		switch {
		case e.Type != field.ErrorTypeNotFound:
			rest = append(rest, e)
		case c.whole() && !o.wrong[e.Field]:
			c.fail(o, e.Field, ReasonNotFound, "%s cannot be looked up, since no backend of %s is known: %s", brief(fmt.Sprintf("%q", e.BadValue)), o.ref, c.unknown(o))
		}
	}
	c.faults(o, rest)
}

// unknown says why no backend of a server is known.
func (c *compiler) unknown(o *object) string {
	if group, _ := c.members(o); group != nil {
		return group.ref.String() + " has no members"
	}
	path := "spec.groupRef.name"
	if o.Config {
		path = "spec.config.groupRef"
	}
	if name := o.text(path); name != "" {
		return fmt.Sprintf("there is no MCPGroup %q", brief(name))
	}
	return strings.TrimSuffix(path, ".name") + " names no group"
}

// address judges the URL of a backend.
func (c *compiler) address(o *object, path, text string) {
	if text == "" || o.wrong[path] {
		return
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		c.fail(o, path, ReasonInvalid, "not a URL: write one such as https://example.com/mcp")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		c.fail(o, path, ReasonInvalid, "%q is no http or https URL with a host: write one such as https://example.com/mcp", brief(withoutUserinfo(text)))
	case u.User != nil:
		c.fail(o, path, ReasonInvalid, "a URL may not hold a user name or password: take what stands before @ out")
	case u.Fragment != "":
		c.fail(o, path, ReasonInvalid, "a URL may not hold a fragment: take # and what follows out")
	}
}

// bundle returns the certificates that an entry trusts, "" for those of the
// system.
func (c *compiler) bundle(m *object, e *v1beta1.MCPServerEntry) string {
	if e.Spec.CABundleRef == nil || e.Spec.CABundleRef.ConfigMapRef == nil {
		return ""
	}
	if strings.HasPrefix(e.Spec.RemoteURL, "http://") {
		c.find(Warning, m, "spec.caBundleRef", ReasonUnused, "not used: the URL is http, which knows no certificates")
	}
	return c.bundled(m, e.Spec.CABundleRef.ConfigMapRef.Key, "spec.caBundleRef.configMapRef.key")
}

// bundled returns the certificates under a key of the ConfigMap that m refers
// to; path is that of the key.
func (c *compiler) bundled(m *object, key, path string) string {
	for _, l := range m.links {
		config, ok := l.to.Value.(*ConfigMap)
		if !ok || l.to.Partial {
			continue
		}
		text, ok := config.entry(key)
		if ok && !certificates(text) {
			c.fail(m, path, ReasonInvalid, "what %s holds under %q is no list of PEM certificates", l.to.ref, brief(key))
		}
		return text
	}
	return ""
}

// certificates reports whether text holds PEM certificates, at least one and
// nothing that only looks like one.
func certificates(text string) bool {
	rest, found := []byte(text), false
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return found
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return false
		}
		found = true
	}
}

// names checks every field that names a backend.
func (c *compiler) names(o *object, s *v1beta1.VirtualMCPServer, backends []Backend) {
	var names []string
	for _, b := range backends {
		names = append(names, b.Name)
	}
	if len(names) == 0 {
		return // That there are none was said.
	}
	if !c.whole() && (s.Spec.Config == nil || len(s.Spec.Config.Backends) == 0) {
		return // The rest of the set may have the others.
	}
	// What is wrong at path may be what stands under the name.
	below := func(path, name string) {
		if !slices.Contains(names, name) {
			c.fail(o, path, ReasonNotFound, "%s has no backend %q%s", o.ref, brief(name), suggest(name, names, ""))
		}
	}
	check := func(path, name string) {
		if !o.wrong[path] {
			below(path, name)
		}
	}
	if a := s.Spec.OutgoingAuth; a != nil {
		for _, name := range slices.Sorted(maps.Keys(a.Backends)) {
			below("spec.outgoingAuth.backends["+name+"]", name)
		}
	}
	config := s.Spec.Config
	if config == nil {
		return
	}
	if a := config.OutgoingAuth; a != nil {
		for _, name := range slices.Sorted(maps.Keys(a.Backends)) {
			below("spec.config.outgoingAuth.backends["+name+"]", name)
		}
	}
	if a := config.Aggregation; a != nil && a.ConflictResolutionConfig != nil {
		for i, name := range a.ConflictResolutionConfig.PriorityOrder {
			check(fmt.Sprintf("spec.config.aggregation.conflictResolutionConfig.priorityOrder[%d]", i), name)
		}
	}
	if a := config.Aggregation; a != nil {
		for i, t := range a.Tools {
			if t.Workload != "" {
				check(fmt.Sprintf("spec.config.aggregation.tools[%d].workload", i), t.Workload)
			}
		}
	}
	if p := config.Operational; p != nil && p.Timeouts != nil {
		for _, name := range slices.Sorted(maps.Keys(p.Timeouts.PerWorkload)) {
			below("spec.config.operational.timeouts.perWorkload["+name+"]", name)
		}
	}
}

// defaultTimeout is the documents' default of spec.config.operational.timeouts.default.
const defaultTimeout = 30 * time.Second

func (c *compiler) timeout(config *v1beta1.ServerConfig, backend string) time.Duration {
	if config.Operational == nil || config.Operational.Timeouts == nil {
		return defaultTimeout
	}
	t := config.Operational.Timeouts
	if own := t.PerWorkload[backend].Std(); own > 0 {
		return own
	}
	if all := t.Default.Std(); all > 0 {
		return all
	}
	return defaultTimeout
}
