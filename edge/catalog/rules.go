package catalog

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge/v1beta1"
)

// Rules turn the offers of backends into the lists that clients see. They are made
// by Parse or Bare and are not changed afterwards.
type Rules struct {
	// Conflicts is the strategy for names that several backends have; "" for the
	// unchanged names of one backend.
	Conflicts v1beta1.ConflictResolution

	// Prefix of names; {workload} stands for the backend's name.
	Prefix string

	// Order lists backends, the winner of a conflict first.
	Order []string

	// HideAll hides the tools of all backends from clients.
	HideAll bool

	// Workloads are the rules for single backends, by their names.
	Workloads map[string]Workload
}

// Workload are the rules for one backend.
type Workload struct {
	// Own is the selection of the backend's own object, applied first: a tool that
	// it filters out does not exist for the server.
	Own Selection

	// Hide hides the backend's tools from clients.
	Hide bool

	// Selection is that of the server: a tool that it filters out is hidden.
	Selection
}

// Selection chooses and changes tools.
type Selection struct {
	Filter    []string                        // names after Overrides; empty for all
	Overrides map[string]v1beta1.ToolOverride // by the name before them
}

// Backend describes a backend of the server to Parse.
type Backend struct {
	Name string

	// Tools is the MCPToolConfig that the backend's own object names, as that of
	// an MCPRemoteProxy does; nil for none.
	Tools *v1beta1.MCPToolConfigSpec
}

const (
	defaultPrefix = "{workload}_"
	placeholder   = "{workload}"
)

// Bare returns the rules of a server of one backend without an aggregation: names
// and order of the backend are kept.
func Bare() *Rules { return &Rules{Prefix: defaultPrefix} }

// Parse makes rules of spec.config.aggregation, which may be nil, for a server
// of these backends. configs resolves toolConfigRef by name; the tools of a
// workload whose config is missing are hidden, and compile reports the missing
// reference. Parse is pure. It returns the faults that neither v1beta1 finds in the
// object alone nor compile in references and priorityOrder; path is that of the
// aggregation.
func Parse(path *field.Path, a *v1beta1.Aggregation, backends []Backend, configs map[string]*v1beta1.MCPToolConfig) (*Rules, field.ErrorList) {
	if a == nil {
		a = &v1beta1.Aggregation{}
	}
	r := &Rules{
		Conflicts: v1beta1.ConflictPrefix,
		Prefix:    defaultPrefix,
		HideAll:   a.ExcludeAllTools,
		Workloads: make(map[string]Workload, len(backends)),
	}
	put(&r.Conflicts, a.ConflictResolution)
	var wrong field.ErrorList
	if c := a.ConflictResolutionConfig; c != nil {
		put(&r.Prefix, c.PrefixFormat)
		r.Order = slices.Clone(c.PriorityOrder)
		// v1beta1 asks the same of conflictResolution prefix. The other two put
		// the prefix before prompts, and priority before what nobody wins.
		if a.ConflictResolution != v1beta1.ConflictPrefix && !strings.Contains(r.Prefix, placeholder) {
			wrong = append(wrong, field.Invalid(path.Child("conflictResolutionConfig", "prefixFormat"), c.PrefixFormat, "must hold "+placeholder))
		}
	}
	for _, b := range backends {
		w := Workload{}
		if b.Tools != nil {
			w.Own = selection(b.Tools.ToolsFilter, b.Tools.ToolsOverride)
		}
		r.Workloads[b.Name] = w
	}
	for i, t := range a.Tools {
		p := path.Child("tools").Index(i)
		w, ok := r.Workloads[t.Workload]
		if !ok {
			if t.Workload != "" { // v1beta1 says that it must be given
				wrong = append(wrong, field.NotFound(p.Child("workload"), t.Workload))
			}
			continue
		}
		w.Hide = t.ExcludeAll
		w.Selection = selection(t.Filter, t.Overrides)
		at := p.Child("overrides")
		if t.ToolConfigRef != nil {
			config := configs[t.ToolConfigRef.Name]
			if config == nil {
				config, w.Hide = &v1beta1.MCPToolConfig{}, true
			}
			w.Selection = selection(config.Spec.ToolsFilter, config.Spec.ToolsOverride)
			at = p.Child("toolConfigRef")
		}
		wrong = append(wrong, r.reserved(at, w.Overrides, t.ToolConfigRef == nil)...)
		r.Workloads[t.Workload] = w
	}
	return r, wrong
}

func selection(filter []string, overrides map[string]v1beta1.ToolOverride) Selection {
	s := Selection{Filter: slices.Clone(filter)}
	if len(overrides) > 0 {
		s.Overrides = make(map[string]v1beta1.ToolOverride, len(overrides))
		for name, o := range overrides {
			s.Overrides[name] = o
		}
	}
	return s
}

// reserved returns an error for each override that gives a tool one of the names of
// the edge's own tools. With a prefix the name is another one.
func (r *Rules) reserved(p *field.Path, overrides map[string]v1beta1.ToolOverride, keyed bool) field.ErrorList {
	if r.Conflicts == v1beta1.ConflictPrefix {
		return nil
	}
	var wrong field.ErrorList
	for _, name := range sorted(overrides) {
		if given := overrides[name].Name; Reserved(given) {
			at := p
			if keyed {
				at = p.Key(name).Child("name")
			}
			wrong = append(wrong, field.Invalid(at, given, "is a name of the edge's own tools"))
		}
	}
	return wrong
}

func (r *Rules) prefixed(backend, name string) string {
	return strings.ReplaceAll(r.Prefix, placeholder, backend) + name
}

// Sole reports whether no other backend can have a tool or prompt of that
// advertised name: names have prefixes, and the name begins with that of none
// but this backend.
func (r *Rules) Sole(backend, name string) bool {
	if r.Conflicts != v1beta1.ConflictPrefix || !strings.HasSuffix(r.Prefix, "_") || !strings.HasPrefix(r.Prefix, placeholder) {
		return false
	}
	for other := range r.Workloads {
		if other != backend && strings.HasPrefix(name, fit(r.prefixed(other, ""))) {
			return false
		}
	}
	return true
}

// Leads reports whether an advertised name has the prefix of a backend, and so can
// belong to it.
func (r *Rules) Leads(backend, name string) bool {
	return r.leading() && strings.HasPrefix(name, fit(r.prefixed(backend, "")))
}

// leading reports whether every advertised name begins with that of its backend.
func (r *Rules) leading() bool {
	return r.Conflicts == v1beta1.ConflictPrefix && strings.HasPrefix(r.Prefix, placeholder)
}

// May reports whether an advertised name can belong to a backend: where none says by its prefix
// whose it is, each can.
func (r *Rules) May(backend, name string) bool { return !r.leading() || r.Leads(backend, name) }

// rank returns the index of a backend in the order; -1 if it is not in it.
func (r *Rules) rank(backend string) int { return slices.Index(r.Order, backend) }

// shows reports whether the filter lets a name pass.
func (s *Selection) shows(name string) bool {
	return len(s.Filter) == 0 || slices.Contains(s.Filter, name)
}
