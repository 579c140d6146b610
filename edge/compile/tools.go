package compile

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge/catalog"
	"github.com/weir-edge/weir/edge/v1beta1"
)

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
			if m.ref.Name != b.Name || len(config.Backends) > 0 {
				continue
			}
			if t := m.toolConfig(); t != nil {
				one.Tools, own = t, true
			}
		}
		names = append(names, one)
	}
	path := field.NewPath("spec", "config", "aggregation")
	rules, wrong := catalog.Parse(path, config.Aggregation, names, configs)
	c.workloads(o, wrong)
	a := config.Aggregation
	if a != nil {
		c.idle(o, path.String(), a)
	}
	if len(backends) == 1 && a != nil && a.ConflictResolution == v1beta1.ConflictPriority && !a.ExcludeAllTools && len(a.Tools) == 0 && !own {
		return catalog.Bare(), true
	}
	return rules, false
}

// idle warns of fields of aggregation that others beside them keep from being read.
func (c *compiler) idle(o *object, path string, a *v1beta1.Aggregation) {
	if r := a.ConflictResolutionConfig; r != nil && len(r.PriorityOrder) > 0 && a.ConflictResolution != v1beta1.ConflictPriority {
		c.find(Warning, o, path+".conflictResolutionConfig.priorityOrder", ReasonUnused, "not used: conflictResolution is not priority")
	}
	for i, t := range a.Tools {
		if t.ToolConfigRef != nil && (len(t.Filter) > 0 || len(t.Overrides) > 0) {
			c.find(Warning, o, fmt.Sprintf("%s.tools[%d].toolConfigRef", path, i), ReasonUnused, "filter and overrides beside it are not used: it takes their place")
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(t.Overrides)) {
			if v := t.Overrides[name]; v.Name == "" && v.Description == "" && v.Annotations != nil && *v.Annotations == (v1beta1.ToolAnnotations{}) {
				c.find(Note, o, fmt.Sprintf("%s.tools[%d].overrides[%s]", path, i, name), ReasonUnused, "it changes nothing: set name, description or a member of annotations")
			}
		}
	}
}

// toolConfig is the MCPToolConfig that a backend's own object refers to; nil for none.
func (o *object) toolConfig() *v1beta1.MCPToolConfigSpec {
	for _, l := range o.links {
		if t, ok := l.to.value.(*v1beta1.MCPToolConfig); ok {
			return &t.Spec
		}
	}
	return nil
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

// names checks every field that names a backend.
func (c *compiler) names(o *object, s *v1beta1.VirtualMCPServer, backends []Backend) {
	var names []string
	for _, b := range backends {
		names = append(names, b.Name)
	}
	if len(names) == 0 || c.set.Incomplete {
		return // That there are none was said, or that not all could be read.
	}
	// The rest of a set may have more backends, unless the server lists them itself.
	part := c.set.Part && (s.Spec.Config == nil || len(s.Spec.Config.Backends) == 0)
	// What is wrong at path may be what stands under the name.
	below := func(path, name string) {
		switch {
		case slices.Contains(names, name):
		case part:
			c.outside(o, path, "the backend", name, names)
		default:
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
