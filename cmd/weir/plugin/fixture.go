// Package plugin is what authors of guests work with: it scaffolds them, builds
// them, looks into modules, runs fixtures against them, measures them and packs
// them for an edge. Everything that runs a module does so in package wasm, as
// the edge does, and what a module answers is judged by package guest, as the
// edge judges it.
package plugin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weir-edge/weir/edge/near"
	"github.com/weir-edge/weir/edge/source"
	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/sdk/abi"
)

// Fixtures are a file of cases: what a guest is asked, and what it must answer.
type Fixtures struct {
	// Config, Grants and Keys are those of every case that has none of its own.
	Config json.RawMessage   `json:"config,omitempty"`
	Grants []string          `json:"grants,omitempty"`
	Keys   map[string]string `json:"keys,omitempty"` // secrets by name

	// Isolation is limits.isolation of the filter: shared when it is empty.
	Isolation string `json:"isolation,omitempty"`

	Others

	Cases []Case `json:"cases"`

	optional []string // grants that the guest does without
}

// Without says which grants the guest does without: what it says of itself in its
// manifest, which a module has once it is packed.
func (f *Fixtures) Without(m *Manifest) *Fixtures {
	out := *f
	if m != nil {
		out.optional = m.OptionalGrants
	}
	return &out
}

// Case asks one hook once, of a guest of its own: nothing is left in it, in its
// store and in its metrics of other cases but those that are named in After.
type Case struct {
	Name      string            `json:"name"`
	Config    json.RawMessage   `json:"config,omitempty"`
	Grants    []string          `json:"grants,omitempty"`
	Keys      map[string]string `json:"keys,omitempty"`
	Isolation string            `json:"isolation,omitempty"`

	Others

	// After are the names of cases that the guest is asked before, in their
	// order, each after its own. They stand above this one, and are given the
	// same.
	After []string `json:"after,omitempty"`

	// Hook that is asked. Without one, the guest is only started.
	Hook  string `json:"hook,omitempty"`
	Input Input  `json:"input,omitempty"`

	// Ops that must come back, in their order; none when it is absent or empty.
	// Each is an object with the name of an operation and what it holds.
	Ops []json.RawMessage `json:"ops,omitempty"`

	// Asked is false when no subscription may match.
	Asked *bool `json:"asked,omitempty"`

	// Error is a part of the text with which the guest must fail, or refuse its
	// configuration.
	Error string `json:"error,omitempty"`

	// Log are the lines that must be written, each LEVEL: TEXT. Not compared
	// when absent.
	Log []string `json:"log,omitempty"`

	// Sent are what others were asked, in their order: METHOD URL, header lines,
	// and BODY of HTTP requests, and the name and arguments of tools. Not compared when absent.
	Sent []string `json:"sent,omitempty"`

	// Events are what was told of, each NAME: DATA. Not compared when absent.
	Events []string `json:"events,omitempty"`

	// Metrics are counters and gauges after the case. Not compared when absent.
	Metrics map[string]int64 `json:"metrics,omitempty"`

	// Subscriptions that the guest must have. Not compared when absent.
	Subscriptions []Subscription `json:"subscriptions,omitempty"`

	ops   []map[string]map[string]any // Ops, with what they leave out
	after []*Case                     // all that the guest is asked before
}

// Subscription is what a guest asks for, as fixtures and inspect write it.
type Subscription struct {
	Hook        string   `json:"hook"`
	Methods     []string `json:"methods,omitempty"`
	Tools       []string `json:"tools,omitempty"`
	Backends    []string `json:"backends,omitempty"`
	Fields      []int    `json:"fields,omitempty"` // none for all
	Headers     []string `json:"headers,omitempty"`
	Pointers    []string `json:"pointers,omitempty"`
	VariesBy    string   `json:"variesBy,omitempty"`
	InlineLimit uint64   `json:"inlineLimit,omitempty"`
	CacheMillis int64    `json:"cacheMillis,omitempty"`
	Blocking    bool     `json:"blocking,omitempty"`
	Hold        bool     `json:"hold,omitempty"`
	Claims      []string `json:"claims,omitempty"`
}

// Only returns the fixtures with the cases that have a text in their names.
func (f *Fixtures) Only(text string) *Fixtures {
	out := *f
	out.Cases = nil
	for _, c := range f.Cases {
		if strings.Contains(c.Name, text) {
			out.Cases = append(out.Cases, c)
		}
	}
	return &out
}

// ParseFixtures reads a file of fixtures: YAML or JSON. The error says with the
// file, line and field everything that is wrong.
func ParseFixtures(file string, text []byte) (*Fixtures, error) {
	var f Fixtures
	d := source.Decode(file, text, &f)
	if len(f.Cases) == 0 && d.Err() == nil {
		d.Fault("cases", "there are none: give at least one, with a name")
	}
	checkNames("", f.Grants, f.Isolation, d)
	byName := map[string]*Case{}
	for i := range f.Cases {
		c := &f.Cases[i]
		c.check(fmt.Sprintf("cases[%d]", i), &f, byName, d)
	}
	return &f, d.Err()
}

// checkNames checks the names of grants and of an isolation, whose fields stand
// under a path.
func checkNames(path string, grants []string, isolation string, d *source.Document) {
	for i, g := range grants {
		if !slices.Contains(grantNames, g) {
			d.Fault(fmt.Sprintf("%sgrants[%d]", path, i), "there is no grant %q%s", g, meant(g, grantNames))
		}
	}
	if isolation != "" && !slices.Contains(isolations, isolation) {
		d.Fault(path+"isolation", "there is no isolation %q%s", isolation, meant(isolation, isolations))
	}
}

var isolations = []string{string(v1beta1.IsolationShared), string(v1beta1.IsolationPerRequest), string(v1beta1.IsolationPerSession)}

// meant ends a message about a name that is none of names.
func meant(name string, names []string) string {
	if _, hint := near.Hint(name, names); hint != "" {
		return ", " + hint
	}
	return ": one of " + strings.Join(names, ", ")
}

// check judges a case that stands at a path, and completes it by what the file
// gives all cases. byName are the cases above it, to which it is added.
func (c *Case) check(path string, f *Fixtures, byName map[string]*Case, d *source.Document) {
	switch {
	case c.Name == "":
		d.Fault(path+".name", "required: say what is asked")
	case byName[c.Name] != nil:
		d.Fault(path+".name", "there is another case called %q: rename one", c.Name)
	default:
		defer func() { byName[c.Name] = c }() // none comes before itself
	}
	if _, ok := abi.HookNamed(c.Hook); c.Hook != "" && !ok {
		d.Fault(path+".hook", "there is no hook %q%s", c.Hook, meant(c.Hook, hookNames()))
	}
	checkNames(path+".", c.Grants, c.Isolation, d)
	if c.Config == nil {
		c.Config = f.Config
	}
	if c.Grants == nil {
		c.Grants = f.Grants
	}
	if c.Keys == nil {
		c.Keys = f.Keys
	}
	if c.Isolation == "" {
		c.Isolation = f.Isolation
	}
	if c.HTTP == nil {
		c.HTTP = f.HTTP
	}
	if c.Tools == nil {
		c.Tools = f.Tools
	}
	if from := c.Input.From; from != "" && senders[from] == 0 {
		names := slices.Sorted(maps.Keys(senders))
		d.Fault(path+".input.from", "there is no sender %q%s", from, meant(from, names))
	}
	c.Input.verbatim(path+".input.verbatim", d)
	c.normal(path+".ops", d)
	for i, name := range c.After {
		at := fmt.Sprintf("%s.after[%d]", path, i)
		before := byName[name]
		switch {
		case before == nil:
			d.Fault(at, "there is no case %q above this one%s", name, meant(name, slices.Sorted(maps.Keys(byName))))
		case before.given() != c.given():
			d.Fault(at, "%q has another config, grants, keys or isolation: only what the same guest was asked can come before", name)
		case len(c.after)+len(before.after) >= maxAfter:
			d.Fault(at, "more than %d cases come before this one", maxAfter)
		default:
			c.after = append(append(c.after, before.after...), before)
		}
	}
}

// maxAfter bounds how many cases come before one.
const maxAfter = 1000

// given is what the guest of a case is given.
func (c *Case) given() string { return line([]any{c.Config, c.Grants, c.Keys, c.Isolation}) }

func hookNames() []string {
	var names []string
	for h := abi.Hook(0); h < abi.Hooks; h++ {
		names = append(names, h.String())
	}
	return names
}

// normal reads expected operations and writes out what they leave out, as
// operations does.
func (c *Case) normal(path string, d *source.Document) {
	for i, raw := range c.Ops {
		at := fmt.Sprintf("%s[%d]", path, i)
		var op map[string]map[string]any
		reader := json.NewDecoder(bytes.NewReader(raw))
		reader.UseNumber()
		if err := reader.Decode(&op); err != nil || len(op) != 1 {
			d.Fault(at, "want one operation with its fields, such as {deny: {text: no}}")
			continue
		}
		for name, fields := range op {
			v := slices.IndexFunc(verbs[:], func(v verb) bool { return v.name == name })
			if v <= 0 {
				d.Fault(at, "there is no operation %q%s", name, meant(name, verbNames()))
				continue
			}
			op[name] = verbs[v].normal(at+"."+name, fields, d)
			c.ops = append(c.ops, op)
		}
	}
}

// normal completes the fields of an expected operation.
func (v verb) normal(path string, fields map[string]any, d *source.Document) map[string]any {
	if fields == nil {
		fields = map[string]any{}
	}
	own := v.names()
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(own, field) {
			d.Fault(path+"."+field, "unknown field%s", meant(field, own))
		}
	}
	if code := fmt.Sprint(fields["code"]); fields["code"] != nil && v.has('c') && !slices.Contains(codes, code) {
		d.Fault(path+".code", "there is no code %q%s", code, meant(code, codes))
	}
	for letter, field := range fieldNames {
		if !v.has(letter) || fields[field] != nil {
			continue
		}
		switch letter {
		case 'c':
			fields[field] = codes[0]
		case 'i', 'x':
			fields[field] = json.Number("0")
		}
	}
	return fields
}
