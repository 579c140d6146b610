package workflow

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge/v1beta1"
)

// stepRules holds the steps to the rules that the model does not know, and finds what each
// of them depends on.
func (p *parser) stepRules() {
	w := p.w
	for i := range w.tool.Steps {
		s, path := &w.tool.Steps[i], fmt.Sprintf("steps[%d]", i)
		if strings.HasPrefix(s.ID, "__") {
			p.wrong(path+".id", "must not begin with __")
		}
		p.timeout(path+".timeout", s.Timeout, w.timeout, "the workflow")
		if s.DefaultResults != "" && s.Type != v1beta1.StepTool && !strings.HasPrefix(strings.TrimSpace(string(s.DefaultResults)), "{") {
			p.wrong(path+".defaultResults", "must be an object, as the output of a step of type %s is", s.Type)
		}
		p.json(path+".arguments", string(s.Arguments))
		p.json(path+".defaultResults", string(s.DefaultResults))
		p.template(path+".condition", s.Condition, s.ID, "")
		switch s.Type {
		case v1beta1.StepTool:
			p.arguments(path+".arguments", s.Arguments, s.ID, "")
		case v1beta1.StepElicitation:
			p.template(path+".message", s.Message, s.ID, "")
			if _, err := questionSchema([]byte(s.Schema)); err != nil {
				p.wrong(path+".schema", "%s", err)
			}
		case v1beta1.StepForEach:
			p.template(path+".collection", s.Collection, s.ID, "")
			if s.Step == nil {
				continue
			}
			p.json(path+".step.arguments", string(s.Step.Arguments))
			p.json(path+".step.defaultResults", string(s.Step.DefaultResults))
			within := s.Timeout.Std()
			if within == 0 {
				within = min(defaultStepTimeout, w.timeout)
			}
			p.timeout(path+".step.timeout", s.Step.Timeout, within, "its step")
			p.arguments(path+".step.arguments", s.Step.Arguments, s.ID, s.ItemVar)
			p.template(path+".step.condition", s.Step.Condition, s.ID, s.ItemVar)
		}
	}
	p.dependencies()
}

// timeout judges how long something may wait.
func (p *parser) timeout(path string, d v1beta1.Duration, most time.Duration, whose string) {
	if d.Std() > most {
		p.wrong(path, "must not be longer than that of %s, %s", whose, most)
	}
}

// json judges a JSON text that becomes part of the program: a number may be too large.
func (p *parser) json(path, text string) {
	if text == "" {
		return
	}
	if _, err := normal([]byte(text)); err != nil {
		p.wrong(path, "%s", err)
	}
}

// arguments parses the templates among the arguments of a call.
func (p *parser) arguments(path string, a v1beta1.JSONObject, by, inside string) {
	m, err := a.Map()
	if err != nil {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if s, ok := m[name].(string); ok {
			path := fmt.Sprintf("%s[%s]", path, name)
			p.template(path, s, by, inside)
		}
	}
}

// dependencies makes the table of what each step waits for: what it says, and what it reads
// without saying so.
func (p *parser) dependencies() {
	w := p.w
	for _, s := range w.tool.Steps {
		if w.after[s.ID] == nil {
			w.after[s.ID] = slices.Clone(s.DependsOn)
		}
	}
	if p.cyclic() {
		return // the model's rules say so
	}
	for i := range w.reads {
		r := &w.reads[i]
		if r.by == "" || p.depends(r.by, r.step) {
			continue
		}
		if p.depends(r.step, r.by) {
			p.wrong(r.path, "step %s reads step %s, which waits for step %s: the steps wait for each other", r.by, r.step, r.by)
			continue
		}
		r.added = true
		w.after[r.by] = append(w.after[r.by], r.step)
	}
}

// depends reports whether a step waits for another, directly or through others.
func (p *parser) depends(step, on string) bool {
	seen := map[string]bool{}
	var walk func(string) bool
	walk = func(id string) bool {
		seen[id] = true
		for _, next := range p.w.after[id] {
			if next == on || !seen[next] && walk(next) {
				return true
			}
		}
		return false
	}
	return walk(step)
}

func (p *parser) cyclic() bool {
	return slices.ContainsFunc(p.w.tool.Steps, func(s v1beta1.WorkflowStep) bool { return p.depends(s.ID, s.ID) })
}

// order is the order of the program: each step after those it waits for, and otherwise that
// of the list.
func (p *parser) order() []*v1beta1.WorkflowStep {
	var out []*v1beta1.WorkflowStep
	done := map[string]bool{}
	for len(out) < len(p.w.tool.Steps) {
		for i := range p.w.tool.Steps {
			s := &p.w.tool.Steps[i]
			if !done[s.ID] && !slices.ContainsFunc(p.w.after[s.ID], func(id string) bool { return !done[id] }) {
				done[s.ID] = true
				out = append(out, s)
				break
			}
		}
	}
	return out
}

// output judges the output, and compiles it.
func (p *parser) output() *outputSpec {
	if p.w.tool.Output == nil {
		return nil
	}
	return &outputSpec{properties: p.properties("output.properties", p.w.tool.Output.Properties, 0), required: p.w.tool.Output.Required}
}

func (p *parser) properties(path string, properties map[string]v1beta1.OutputProperty, depth int) []*property {
	var out []*property
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		o, path := properties[name], fmt.Sprintf("%s[%s]", path, name)
		one := &property{name: name, kind: o.Type, template: o.Value, templated: o.Value != ""}
		p.template(path+".value", o.Value, "", "")
		if o.Default != "" {
			var err error
			if one.def, err = fits(o.Type, []byte(o.Default)); err != nil {
				p.wrong(path+".default", "%s", err)
			}
		}
		if o.Properties != "" && depth < 10 {
			inner, err := nested(o.Properties)
			if err == nil { // else the model's rules say so
				one.properties = p.properties(path+".properties", inner, depth+1)
			}
		}
		out = append(out, one)
	}
	return out
}
