package compile

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/weir-edge/weir/edge/near"
	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/filters/guest"
)

// Compile turns a set of objects into the plan that serves them and a report
// that says of every object what is right and wrong with it. The plan is nil
// when the report has an error, when a part of the set could not be read, and
// when the objects are a part of a set.
// The objects are not changed.
func Compile(set Set) (*Plan, *Report) {
	c := &compiler{
		set:    set,
		byRef:  map[Ref]*object{},
		tables: newTables(unsupportedFields()),
		report: &Report{},

		programs: map[*object]guest.Spec{},
		owners:   map[string]*object{},
		said:     map[*object]bool{},
	}

	// 1. Every object on its own: its name, what it gives, its defaults, its rules.
	for i, o := range set.Objects {
		c.objects = append(c.objects, c.admit(i, o))
	}

	// 2. The objects together: one namespace, one object per name, no reference
	// to nothing.
	c.namespaces()
	c.duplicates()
	c.resolve()

	// 3. The servers, and with them all that they reach: what the edge cannot do
	// is refused, the rest becomes the plan.
	plan := c.servers()
	c.unreached()

	// 4. What is good to know.
	c.unused()
	c.elsewhereOnly()

	slices.SortStableFunc(c.report.Findings, func(a, b Finding) int { return a.Index - b.Index })
	c.statuses()
	c.told(plan)
	if c.report.Needs = plan.Needs; c.report.Failed() || !c.whole() || c.partial() {
		return nil, c.report
	}
	return plan, c.report
}

// maxErrors is how many errors of one object are reported. More say nothing new,
// and a set is compiled in bounded time whatever it holds.
const maxErrors = 100

type compiler struct {
	set     Set
	objects []*object
	byRef   map[Ref]*object // the first of each name
	tables  tables
	report  *Report
	errors  int

	programs map[*object]guest.Spec // the filters that were judged
	owners   map[string]*object     // of the servers, by their names
	said     map[*object]bool       // backends whose fields for clients were looked at
	fronts   map[*object]*object    // the VirtualMCPServers that are over groups, by these
}

// object is one object of the set and what is known of it so far.
type object struct {
	Object
	index  int
	ref    Ref
	value  v1beta1.Object // completed by its defaults; nil for a ConfigMap and a Secret
	given  []*given       // before defaults
	byPath map[string]*given
	wrong  map[string]bool // paths with an error
	errors int
	links  []link
	served bool // a server's plan depends on it
	judged bool // its policies
	used   bool // a server refers to it, be it through a field that is refused

	advice []Condition // that say no error, for an object that has none
}

// link is a reference that was resolved.
type link struct {
	from    *given
	to      *object
	refused bool // it stands in a field that the edge cannot serve
}

func (c *compiler) find(severity Severity, o *object, path, reason, format string, args ...any) {
	f := Finding{Severity: severity, Index: -1, Path: path, Reason: reason, Message: fmt.Sprintf(format, args...)}
	if o != nil {
		f.Index, f.Object = o.index, o.ref
	}
	if severity == Error {
		c.errors++
	}
	if severity == Error && o != nil {
		o.wrong[path] = true
		if o.errors++; o.errors > maxErrors {
			return
		}
		if o.errors == maxErrors {
			f.Path, f.Message = "", "more errors than are shown: put the others right first"
		}
	}
	c.report.Findings = append(c.report.Findings, f)
}

func (c *compiler) fail(o *object, path, reason, format string, args ...any) {
	c.find(Error, o, path, reason, format, args...)
}

// whole reports whether what the set does not have is nowhere.
func (c *compiler) whole() bool { return !c.set.Incomplete && !c.set.Part }

// partial reports whether an object was read in part.
func (c *compiler) partial() bool {
	return slices.ContainsFunc(c.objects, func(o *object) bool { return o.Partial })
}

// admit judges an object alone.
func (c *compiler) admit(index int, in Object) *object {
	o := &object{Object: in, index: index, ref: in.Ref(), wrong: map[string]bool{}}
	c.name(o)
	typed, ok := in.Value.(v1beta1.Object)
	if !ok {
		return o
	}
	o.given, o.byPath = givenIn(typed), map[string]*given{}
	for _, g := range o.given {
		o.byPath[g.path] = g
	}
	o.value = typed.DeepCopyObject().(v1beta1.Object)
	if s, ok := o.value.(*v1beta1.VirtualMCPServer); ok && in.Config {
		standIn(s)
	}
	o.value.Default()
	for _, e := range o.value.Validate() {
		if e.Origin == v1beta1.OriginRateLimitStore && c.set.LocalRateLimits {
			continue
		}
		path := e.Field
		switch {
		case in.Config && under(path, "spec.incomingAuth"):
			path = "spec.config.incomingAuth"
		case in.Config && under(path, "spec.groupRef"):
			path = "spec.config.groupRef"
		}
		if o.unread(path) && !o.gives(path) || path == "metadata.name" && o.wrong[path] {
			if e.Origin == v1beta1.OriginSecretRef {
				c.secretRef(o, path)
			}
			continue
		}
		what, reason := describe(e), ReasonInvalid
		if e.Origin == v1beta1.OriginRateLimitStore {
			reason = ReasonSetting
			what += ", or an edge that is started with --local-rate-limits"
		}
		c.fail(o, path, reason, "%s", what)
	}
	return o
}

// secretRef says what is missing from a reference to a secret of which a part was
// not read.
func (c *compiler) secretRef(o *object, path string) {
	if o.Unread == nil || slices.ContainsFunc(o.Unread, func(at string) bool { return under(path, at) }) {
		return
	}
	for _, part := range []string{path + ".name", path + ".key"} {
		if !o.unread(part) {
			c.fail(o, part, ReasonInvalid, "required: give it a value")
		}
	}
}

// unread reports whether what was not read of an object may have been the field
// or section at path, or a part of it.
func (o *object) unread(path string) bool {
	return o.Partial && (o.Unread == nil || slices.ContainsFunc(o.Unread, func(at string) bool { return under(path, at) || under(at, path) }))
}

// gives reports whether an object gives a value to the field or section at path.
func (o *object) gives(path string) bool {
	return slices.ContainsFunc(o.given, func(g *given) bool { return under(g.path, path) })
}

// standIn gives a server that was written as its configuration alone the fields
// that a whole one must have. It says nothing about whether the edge can serve
// them: that is judged by what is written.
func standIn(s *v1beta1.VirtualMCPServer) {
	if s.Spec.Config == nil {
		s.Spec.Config = &v1beta1.ServerConfig{}
	}
	config := s.Spec.Config
	s.Spec.GroupRef.Name = config.GroupRef
	if config.GroupRef == "" && len(config.Backends) > 0 {
		s.Spec.GroupRef.Name = s.Name
	}
	switch {
	case config.IncomingAuth == nil:
	case config.IncomingAuth.Type == v1beta1.ConfigIncomingOIDC, config.IncomingAuth.Type == v1beta1.ConfigIncomingLocal:
		s.Spec.IncomingAuth = &v1beta1.IncomingAuth{
			Type:          v1beta1.IncomingOIDC,
			OIDCConfigRef: &v1beta1.OIDCConfigRef{Name: s.Name, Audience: s.Name},
		}
	default:
		s.Spec.IncomingAuth = &v1beta1.IncomingAuth{Type: v1beta1.IncomingAnonymous}
	}
}

// name judges metadata.name (RFC 1123, as Kubernetes reads it).
func (c *compiler) name(o *object) {
	name := o.Value.GetName()
	switch {
	case name == "" && o.unread("metadata.name"):
	case name == "":
		c.fail(o, "metadata.name", ReasonInvalid, "required: give the object a name, such as demo")
	case len(validation.IsDNS1123Subdomain(name)) > 0:
		c.fail(o, "metadata.name", ReasonInvalid, "%q is no name of an object: use lower-case letters, digits, - and ., at most 253, a letter or digit at both ends", brief(name))
	}
}

// namespaces demands that all objects are of one namespace, since references
// do not cross it. An object that names none belongs to it.
func (c *compiler) namespaces() {
	var first *object
	for _, o := range c.objects {
		switch ns := o.Value.GetNamespace(); {
		case ns == "":
		case first == nil:
			first = o
		case ns != first.Value.GetNamespace():
			c.fail(o, "metadata.namespace", ReasonConflict, "%q, while %s is in %q: a set is of one namespace", brief(ns), first.place(), brief(first.Value.GetNamespace()))
		}
	}
}

// place names an object in a message, with its origin where that is known.
func (o *object) place() string {
	if o.Origin == "" {
		return o.ref.String()
	}
	return o.ref.String() + " at " + o.Origin
}

// duplicates names every second object of a kind and name.
func (c *compiler) duplicates() {
	for _, o := range c.objects {
		first, ok := c.byRef[o.ref]
		if !ok {
			c.byRef[o.ref] = o
			continue
		}
		if o.ref.Name == "" {
			continue
		}
		at := first.Origin
		if at == "" {
			at = "before"
		} else {
			at = "at " + at
		}
		c.fail(o, "metadata.name", ReasonDuplicate, "%s is already given %s: rename one or take it out", o.ref, at)
	}
}

// resolve follows every reference of every object.
func (c *compiler) resolve() {
	byKind := map[string][]reference{}
	for _, r := range references() {
		byKind[r.kind] = append(byKind[r.kind], r)
	}
	for _, o := range c.objects {
		for _, g := range o.given {
			for _, r := range byKind[o.ref.Kind] {
				if g.pattern == r.path && (r.when == "" || o.text(g.up.path+"."+r.when) == r.is) {
					c.follow(o, g, r)
				}
			}
		}
		if s, ok := o.value.(*v1beta1.VirtualMCPServer); ok && o.Config && s.Spec.Config.GroupRef != "" {
			g := o.byPath["spec.config.groupRef"]
			if len(s.Spec.Config.Backends) == 0 || c.byRef[Ref{"MCPGroup", g.value}] != nil {
				c.follow(o, g, reference{to: "MCPGroup"})
			}
		}
	}
}

// text is the value that an object gives to the field at path, "" for none.
func (o *object) text(path string) string {
	if g := o.byPath[path]; g != nil {
		return g.value
	}
	return ""
}

// follow resolves one reference, or says what is missing.
func (c *compiler) follow(o *object, g *given, r reference) {
	class := c.tables.find(o.ref.Kind, g.pattern).class
	to, ok := c.byRef[Ref{r.to, g.value}]
	optional := g.up != nil && o.text(g.up.path+".optional") == "true"
	if !ok {
		switch {
		case optional || c.set.Incomplete:
		case c.set.Part:
			o.wrong[g.path] = true // nothing more is to be said of what it leads to
			c.outside(o, g.path, r.to, g.value, c.named(r.to))
		default:
			c.fail(o, g.path, ReasonNotFound, "there is no %s %q%s", r.to, brief(g.value), c.nearest(r.to, g.value))
			c.guess(o, g, r)
		}
		return
	}
	o.links = append(o.links, link{from: g, to: to, refused: class != classServed})
	if r.key == "" {
		return
	}
	at := g.up.path + "." + r.key
	key := o.text(at)
	if key == "" && !o.unread(at) {
		key = r.usual // which has to be there as one that is written: nobody asks again
	}
	m, ok := to.Value.(*ConfigMap)
	if !ok || to.Partial || key == "" || optional {
		return
	}
	if _, ok := m.entry(key); !ok {
		var keys []string
		for k := range m.Data {
			keys = append(keys, k)
		}
		for k := range m.BinaryData {
			keys = append(keys, k)
		}
		c.fail(o, at, ReasonNotFound, "%s has no key %q%s", to.ref, brief(key), suggest(key, keys, "it has no keys"))
	}
}

// guess takes the group that is most likely meant for the one that is not there,
// so that what is wrong with the members is said at once.
func (c *compiler) guess(o *object, g *given, r reference) {
	if r.to != "MCPGroup" || c.errors > maxErrors {
		return
	}
	if name, ok := near.Word(g.value, c.named(r.to)); ok {
		o.links = append(o.links, link{from: g, to: c.byRef[Ref{r.to, name}]})
	}
}

// entry returns the bytes under key of data or binaryData.
func (m *ConfigMap) entry(key string) (string, bool) {
	if text, ok := m.Data[key]; ok {
		return text, true
	}
	b, ok := m.BinaryData[key]
	return string(b), ok
}

// outside warns of a name of what that is none of names and may be one of another part of
// the set.
func (c *compiler) outside(o *object, path, what, name string, names []string) {
	unless := ""
	if len(c.report.Findings) <= maxErrors { // so many names would take long to compare
		if word, ok := near.Word(name, names); ok {
			unless = ", unless " + brief(word) + " is meant"
		}
	}
	c.find(Warning, o, path, ReasonOutside, "leads out of this part of the set: %s %q has to be in the rest%s", what, brief(name), unless)
}

// named returns the names of the objects of a kind.
func (c *compiler) named(kind string) []string {
	var names []string
	for _, o := range c.objects {
		if o.ref.Kind == kind && o.ref.Name != "" {
			names = append(names, o.ref.Name)
		}
	}
	return names
}

// nearest ends a message about a name of kind that nothing has.
func (c *compiler) nearest(kind, name string) string {
	if c.errors > maxErrors {
		return "" // So many names would take long to compare.
	}
	names := c.named(kind)
	if near, ok := c.elsewhere(kind, name); len(names) == 0 && ok {
		return fmt.Sprintf(": %s is there, but another kind is wanted here", near)
	}
	return suggest(name, names, "add one to the set")
}

// elsewhere finds an object of that name among the other kinds.
func (c *compiler) elsewhere(kind, name string) (Ref, bool) {
	for _, o := range c.objects {
		if o.ref.Name == name && o.ref.Kind != kind && o.ref.Kind != "VirtualMCPServer" {
			return o.ref, true
		}
	}
	return Ref{}, false
}

// suggest ends a message about a name that is none of names: the nearest, or
// all of them, or what to do when there are none.
func suggest(name string, names []string, none string) string {
	if len(names) == 0 {
		return ": " + none
	}
	if _, hint := near.Hint(name, names); hint != "" {
		return ", " + brief(hint)
	}
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	if len(names) > 8 {
		names = append(names[:8:8], "…")
	}
	return ": there is " + brief(strings.Join(names, ", "))
}

// brief cuts text of a user to what fits into a message.
func brief(s string) string {
	if len(s) > 200 {
		return strings.ToValidUTF8(s[:197], "") + "…"
	}
	return s
}
