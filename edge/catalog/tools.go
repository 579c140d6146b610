package catalog

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// tool is a tool while the rules are applied to it.
type tool struct {
	target  *edge.Target
	raw     []byte
	rewrite rewrite
	local   string // what workflows call it: its name after its backend's own object
	name    string // after the overrides, before conflicts
	down    bool
	hidden  bool
	out     bool // withheld: a finding says why
}

// tools makes the table of tools.
func (t *table) tools(r *Rules) {
	// 1. Overrides and visibility.
	all := t.gather(r)
	// 2. Names, with conflicts resolved among what is visible.
	seen := make([]*tool, 0, len(all))
	for _, c := range all {
		if !c.hidden {
			seen = append(seen, c)
		}
	}
	t.name(r, seen)
	// 3. One name, one tool.
	t.unique(r, seen)
	for _, c := range seen {
		if c.out {
			c.target.Name = ""
			continue
		}
		t.advertise(c.target, c.rewrite.apply(c.raw), c.down)
		t.app(c)
	}
	// 4. The names of all for workflows.
	t.wholes(all)
}

// AppScheme begins the URIs of pages that tools show (SEP-1865).
const AppScheme = "ui://"

// app gives the page of a tool that shows an app a target, which a backend need not list
// (_meta.ui.resourceUri, before that _meta["ui/resourceUri"]). Of several backends
// with one URI, the first by name has it where Located knows of no better one.
func (t *table) app(c *tool) {
	meta := mcp.Lookup(c.raw, "_meta")
	for _, value := range [][]byte{mcp.Lookup(meta, "ui", "resourceUri"), mcp.Lookup(meta, "ui/resourceUri")} {
		uri := mcp.String(value)
		if c.target.Backend == "" || !strings.HasPrefix(uri, AppScheme) {
			continue
		}
		if t.apps == nil {
			t.apps = make(map[origin]*edge.Target)
		}
		for _, of := range [...]origin{{"", uri}, {c.target.Backend, uri}} {
			if t.apps[of] == nil {
				t.apps[of] = &edge.Target{Backend: c.target.Backend, Thing: edge.Resource, Name: uri, Original: uri}
			}
		}
	}
}

// gather reads the tools of all backends and applies what the rules say of each.
func (t *table) gather(r *Rules) []*tool {
	yes, no := true, false
	var all []*tool
	for _, s := range t.from {
		w := r.Workloads[s.backend]
		known := make(map[string]bool, len(s.list.Items))
		locals, names := map[string]bool{}, map[string]bool{}
		for i, raw := range s.list.Items {
			original := t.read(s.backend, raw, "name", known)
			if original == "" {
				continue
			}
			if why := badHeaders(mcp.Lookup(raw, "inputSchema")); why != "" {
				t.found(Finding{Reason: Headers, Backend: s.backend, Original: original, Why: why})
				continue
			}
			c := &tool{raw: raw, local: original, down: s.list.Down}
			c.rewrite.add(w.Own.Overrides[original])
			put(&c.local, w.Own.Overrides[original].Name)
			if !w.Own.shows(c.local) {
				continue
			}
			locals[c.local] = true
			c.name = c.local
			program := s.list.override(i)
			put(&c.name, program.Name)
			c.rewrite.add(w.Overrides[c.local])
			put(&c.name, w.Overrides[c.local].Name)
			names[c.name] = true
			c.hidden = s.backend != "" && (r.HideAll || w.Hide || program.Hide || !w.shows(c.name))
			c.target = &edge.Target{Backend: s.backend, Thing: edge.Tool, Original: original, Fixed: program.Fixed}
			c.rewrite.hints(c.target, raw, &yes, &no)
			if !c.hidden {
				var ok bool
				c.raw, ok = t.checked(r, s.backend, original, c.raw) // workflows call it all the same
				c.hidden = !ok
			}
			all = append(all, c)
		}
		t.unused(s.backend, "aggregation", w.Selection, locals, names)
		t.unused(s.backend, "its own toolConfigRef", w.Own, known, locals)
	}
	return all
}

// read returns the name or URI of an item, and withholds the item if it has none
// or shares it with an earlier one.
func (t *table) read(backend string, raw []byte, member string, known map[string]bool) string {
	if len(raw) > maxItem {
		t.found(Finding{Reason: Malformed, Backend: backend, Why: fmt.Sprintf("an item of %d bytes is above the limit of %d", len(raw), maxItem)})
		return ""
	}
	if err := mcp.Valid(raw); err != nil {
		t.found(Finding{Reason: Malformed, Backend: backend, Why: err.Error()})
		return ""
	}
	name := mcp.String(mcp.Lookup(raw, member))
	switch {
	case name == "":
		t.found(Finding{Reason: Malformed, Backend: backend, Why: member + " is missing, empty or no string"})
		return ""
	case known[name]:
		t.found(Finding{Reason: Twice, Backend: backend, Original: name, Why: "the backend lists it a second time"})
		return ""
	}
	known[name] = true
	return name
}

// checked is mcp.CheckItem of what a backend lists that is one of several; the list of one that is
// shown as it is stays its own matter. It reports whether the item can be shown.
func (t *table) checked(r *Rules, backend, original string, item []byte) (clean []byte, ok bool) {
	if backend == "" || r.Conflicts == "" {
		return item, true
	}
	list, _ := method(t.thing)
	clean, changed, why := mcp.CheckItem(list, item)
	f := Finding{Reason: Repaired, Backend: backend, Original: original, Why: changed}
	if why != "" {
		f.Reason, f.Why = Malformed, why
	}
	if f.Why != "" {
		f.Why += ": clients refuse the whole list for it"
		t.found(f)
	}
	return clean, why == ""
}

// unused reports rules for tools that the backend does not have.
func (t *table) unused(backend, where string, s Selection, before, after map[string]bool) {
	for _, name := range sorted(s.Overrides) {
		if !before[name] {
			t.found(Finding{Reason: Unused, Backend: backend, Original: name, Why: "overrides of " + where + " name a tool that is not there"})
		}
	}
	for _, name := range s.Filter {
		if !after[name] {
			t.found(Finding{Reason: Unused, Backend: backend, Original: name, Why: "filter of " + where + " names a tool that is not there after overrides"})
		}
	}
}

// name gives each tool its name by the rules.
func (t *table) name(r *Rules, seen []*tool) {
	if r.Conflicts == "" {
		for _, c := range seen {
			c.target.Name = c.name
		}
		return
	}
	groups := make(map[string][]*tool)
	for _, c := range seen {
		switch {
		case c.target.Backend == "":
			c.target.Name = c.name
		case r.Conflicts == v1beta1.ConflictPrefix:
			c.target.Name = fit(r.prefixed(c.target.Backend, c.name))
		default:
			c.target.Name = fit(c.name)
			groups[c.target.Name] = append(groups[c.target.Name], c)
		}
	}
	for _, name := range sorted(groups) {
		group := groups[name]
		if !slices.ContainsFunc(group, func(c *tool) bool { return c.target.Backend != group[0].target.Backend }) {
			continue // of one backend: step 3 sees whether it is one tool
		}
		if r.Conflicts == v1beta1.ConflictPriority {
			t.priority(r, group)
			continue
		}
		for _, c := range group {
			t.withhold(c, Conflict, "several backends have the name; give them overrides", group)
		}
	}
}

// priority resolves a conflict by the order of backends. Where none of them is
// in the order nobody wins, and each is shown with the prefix.
func (t *table) priority(r *Rules, group []*tool) {
	first := -1
	for _, c := range group {
		if at := r.rank(c.target.Backend); at >= 0 && (first < 0 || at < first) {
			first = at
		}
	}
	for _, c := range group {
		switch {
		case first < 0:
			c.target.Name = fit(r.prefixed(c.target.Backend, c.name))
		case r.Order[first] != c.target.Backend:
			t.withhold(c, Lost, "the name is that of "+r.Order[first]+", which comes first", nil)
		}
	}
}

// unique withholds all of the tools that have one name, composite tools of the edge's own
// among them, and those that have one of the names which are reserved for the edge.
func (t *table) unique(r *Rules, seen []*tool) {
	byName := make(map[string][]*tool, len(seen))
	for _, c := range seen {
		if !c.out {
			byName[c.target.Name] = append(byName[c.target.Name], c)
		}
	}
	for _, c := range seen {
		if c.out {
			continue
		}
		group, reserved := byName[c.target.Name], Reserved(c.target.Name)
		own := group[0].target.Backend == ""
		switch {
		case c.target.Backend == "" && (reserved || len(group) == 1): // its names are the edge's own choice
		case reserved && (own || r.Conflicts != ""):
			t.withhold(c, Taken, "the name is that of one of the edge's own tools", nil)
		case len(group) > 1:
			t.withhold(c, SameName, "different tools end up with one name", group)
		default:
			t.remark(r, c)
		}
	}
}

// remark reports changes to a name that is shown.
func (t *table) remark(r *Rules, c *tool) {
	shown := c.target.Name
	c.rewrite.name = ""
	if shown != c.target.Original {
		c.rewrite.name = shown
	}
	wanted := c.name
	if r.Conflicts == v1beta1.ConflictPrefix || r.Conflicts != "" && shown != fit(c.name) {
		wanted = r.prefixed(c.target.Backend, c.name)
	}
	f := Finding{Backend: c.target.Backend, Original: c.target.Original, Name: shown}
	switch {
	case r.Conflicts == "" || shown == wanted:
	case utf8.RuneCountInString(wanted) > maxName:
		f.Reason, f.Why = Shortened, fmt.Sprintf("a name has %d characters at most", maxName)
		t.found(f)
	default:
		f.Reason, f.Why = Renamed, "a name has letters, digits, '_', '.' and '-' alone"
		t.found(f)
	}
	if utf8.RuneCountInString(shown) > longName {
		f.Reason, f.Why = Long, fmt.Sprintf("some models take names of %d characters at most", longName)
		t.found(f)
	}
}

// ofComposite leads the name of a composite tool in findings.
const ofComposite = "composite "

func (t *table) withhold(c *tool, why Reason, text string, group []*tool) {
	c.out = true
	f := Finding{Reason: why, Backend: c.target.Backend, Original: c.target.Original, Name: c.target.Name, Why: text}
	for _, o := range group {
		if o == c || len(f.With) == maxWith {
			continue
		}
		name := Whole(o.target.Backend, o.target.Original)
		if o.target.Backend == "" {
			name = ofComposite + o.target.Original
		}
		f.With = append(f.With, clip(name))
	}
	t.found(f)
}

// wholes names every tool by its workload. A tool that clients do not see has
// that name for policies and records, too, and must not share it.
func (t *table) wholes(all []*tool) {
	t.whole = make(map[string]*edge.Target, len(all))
	t.definitions = make(map[*edge.Target][]byte, len(all))
	twice := make(map[string]bool)
	for _, c := range all {
		if c.target.Backend == "" {
			continue // a workflow calls no workflow
		}
		name := Whole(c.target.Backend, c.local)
		if t.whole[name] != nil {
			twice[name] = true
		}
		t.definitions[c.target] = c.raw
		t.whole[name] = c.target
	}
	for _, c := range all {
		if c.target.Backend == "" {
			continue
		}
		name := Whole(c.target.Backend, c.local)
		if c.target.Name == "" {
			c.target.Name = name
		}
		shown := t.byName[name]
		switch {
		case twice[name]:
			delete(t.whole, name)
			t.found(Finding{Reason: Unroutable, Backend: c.target.Backend, Original: c.target.Original, Name: name,
				Why: "workflows cannot call it: several tools have the name"})
		case shown != nil && shown != c.target:
			delete(t.whole, name)
			t.found(Finding{Reason: Unroutable, Backend: c.target.Backend, Original: c.target.Original, Name: name,
				Why: "workflows cannot call it: clients see another tool of the name"})
		}
	}
}
