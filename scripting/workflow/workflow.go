// Package workflow makes one tool of many calls: a composite tool, as steps or as a script.
//
// Parse holds a composite tool to its rules and compiles it. Steps become a program in the
// language of package scripting (Show), so that a workflow of steps and one that was written
// by hand run by the same builtins. Run runs it for one call, over a Host that makes calls
// and asks questions. Everything is bounded: the operator wrote the program, but strangers
// give it values.
package workflow

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/scripting"
)

// The times that a workflow has, and that one step has, unless it says otherwise.
const (
	defaultTimeout     = 30 * time.Minute
	defaultStepTimeout = 5 * time.Minute
	maxAsk             = 10 * time.Minute
)

// ParseFault is something that is wrong with a composite tool, or that Lint notes.
type ParseFault struct {
	Path    string // of the field, such as steps[2].condition; "" for the whole
	Message string
}

// Error returns both.
func (f ParseFault) Error() string {
	if f.Path == "" {
		return f.Message
	}
	return f.Path + ": " + f.Message
}

// Faults is everything that is wrong with a composite tool, in the order of its fields.
type Faults []ParseFault

// Error returns all of them, one a line.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, one := range f {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// Workflow is a composite tool that was compiled. It is immutable, and may run many times at
// once.
type Workflow struct {
	tool       v1beta1.CompositeTool
	text       string // of the program
	program    *scripting.Program
	templates  map[string]*text // by their text
	parameters *schema          // nil for none
	timeout    time.Duration
	output     *outputSpec // of a script with output; a workflow of steps has it in its program
	tools      []StepTool
	whole      bool         // the output reads .steps as a whole
	unnamed    bool         // a script may call tools that its text does not name in call_step()
	steps      int          // that the text names
	reads      []stepRead   // of steps, for Lint
	undeclared []ParseFault // parameters that are read, which a call need not and is not told to give
	after      map[string][]string
}

// StepTool is a tool that a step calls, as far as the text of the workflow says.
type StepTool struct{ Step, Tool string }

// stepRead is a step that a template reads.
type stepRead struct {
	path     string
	by, step string
	added    bool // the step did not say that it depends on it
	content  bool // .output.content of it is read
}

// Name is that of the tool.
func (w *Workflow) Name() string { return w.tool.Name }

// Show returns the text of the program. It means the same when it is given as script.
func (w *Workflow) Show() string { return w.text }

// MarshalJSON writes the composite tool that it was compiled from, which is all that it is made
// of: by that an edge tells the workflow of a plan from that of the plan before.
func (w *Workflow) MarshalJSON() ([]byte, error) { return json.Marshal(w.tool) }

// Tools returns the tools that steps call, in the order of the text.
func (w *Workflow) Tools() []StepTool { return slices.Clone(w.tools) }

// Timeout is the time that a run may take.
func (w *Workflow) Timeout() time.Duration { return w.timeout }

// names are the builtins of workflows.
func names() []string {
	return []string{"ask", "call_step", "condition", "each", "items", "output", "prop", "retry", "step", "template"}
}

// taken reports whether a variable of a program cannot have a name.
func taken(name string) bool {
	return scripting.Taken(name) || name == "params" || slices.Contains(names(), name)
}

// parser holds a composite tool to the rules.
type parser struct {
	w      *Workflow
	faults Faults
	ids    map[string]int
	all    map[string]bool // steps that read .steps as a whole
}

// wrong notes a fault, once: a template may read one thing at several places.
func (p *parser) wrong(path, format string, args ...any) {
	if f := (ParseFault{path, fmt.Sprintf(format, args...)}); !slices.Contains(p.faults, f) {
		p.faults = append(p.faults, f)
	}
}

// Parse compiles a composite tool. The error is Faults: the rules of the model, and those
// that only who compiles can know.
func Parse(tool *v1beta1.CompositeTool) (*Workflow, error) {
	// 1. The rules of the model, over a copy with its defaults.
	d := v1beta1.VirtualMCPCompositeToolDefinition{}
	d.Name = "tool"
	d.Spec.CompositeTool = *tool.DeepCopy()
	d.Default()
	w := &Workflow{tool: d.Spec.CompositeTool, templates: map[string]*text{}, after: map[string][]string{}}
	p := &parser{w: w, ids: map[string]int{}, all: map[string]bool{}}
	for _, e := range d.Validate() {
		p.wrong(strings.TrimPrefix(e.Field, "spec."), "%s", strings.TrimPrefix(e.Error(), e.Field+": "))
	}
	if len(p.faults) > 0 && w.tool.Script == "" && len(w.tool.Steps) > 100 {
		return nil, p.faults
	}

	// 2. Ours, of what both forms have.
	w.timeout = w.tool.Timeout.Std()
	if w.timeout == 0 {
		w.timeout = defaultTimeout
	}
	if w.tool.Parameters != "" {
		var err error
		if w.parameters, err = compileSchema([]byte(w.tool.Parameters), false); err != nil {
			p.wrong("parameters", "%s", err)
		}
	}
	if w.parameters != nil {
		if c := circular(w.parameters.compiled); c != nil {
			_, at, _ := strings.Cut(c.Location, "#")
			p.wrong("parameters", "%s: its $ref leads back to itself, so that no argument could fit: say there what it is", scripting.Clean(cmp.Or(at, "/")))
		}
	}
	for i, s := range w.tool.Steps {
		if _, twice := p.ids[s.ID]; !twice {
			p.ids[s.ID] = i
		}
	}
	output := p.output()

	// 3. Steps, or a script.
	if w.tool.Script == "" {
		p.stepRules()
		if len(p.faults) > 0 {
			return nil, p.faults
		}
		w.text = p.show()
	} else {
		w.text, w.output = w.tool.Script, output
	}

	// 4. The program.
	p.compile()
	if len(p.faults) > 0 {
		return nil, p.faults
	}
	return w, nil
}

// compile compiles the program and the templates in it.
func (p *parser) compile() {
	w, where := p.w, "script"
	if w.tool.Script == "" {
		where = "steps"
		if len(w.text) > scripting.MaxText {
			p.wrong(where, "the program of the workflow has %d bytes, and may have %d", len(w.text), scripting.MaxText)
			return
		}
	}
	program, err := scripting.Compile(w.tool.Name+".star", w.text, scripting.Scope{Extra: names(), Data: []string{"params"}})
	if err != nil {
		p.wrong(where, "%s", err)
		return
	}
	w.program = program
	p.literals(where)
}

// template parses a template of a field, judges what it reads, and notes which steps. by is the step that it
// stands in; "" for the output. inside is the loop variable of a forEach; "" outside.
func (p *parser) template(path, s, by, inside string) {
	t, err := parseTemplate(s)
	if err != nil {
		return // the model's rules say so
	}
	t.declared = p.w.parameters.declared()
	p.w.templates[s] = t
	p.all[by] = p.all[by] || t.all
	p.w.whole = p.w.whole || by == "" && t.all
	for _, r := range t.reads {
		if step := p.read(path, r, by, inside); step != "" {
			p.w.reads = append(p.w.reads, stepRead{path: path, by: by, step: step, content: r.at(2) == "output" && r.at(3) == "content"})
		}
	}
}

// read judges one chain of names that a template reads, and returns the step it reads.
func (p *parser) read(path string, r readOf, by, inside string) (step string) {
	switch r.at(0) {
	case "params":
		p.readParameter(path, r.at(1))
	case "vars":
	case "workflow":
		if f := r.at(1); f != "" && !slices.Contains([]string{"id", "duration_ms", "step_count", "status", "start_time"}, f) {
			p.wrong(path, "a workflow has no %s", f)
		}
	case "forEach":
		switch {
		case inside == "":
			p.wrong(path, ".forEach is there only within a forEach")
		case r.at(1) != "" && r.at(1) != inside && r.at(1) != "index":
			p.wrong(path, ".forEach has %s and index, and no %s", inside, r.at(1))
		}
	case "steps":
		id := r.at(1)
		if id == "" {
			return ""
		}
		if _, ok := p.ids[id]; !ok && p.w.tool.Script == "" {
			p.wrong(path, "there is no step %s", id)
			return ""
		}
		if f := r.at(2); f != "" && !slices.Contains([]string{"status", "output", "content", "error"}, f) {
			p.wrong(path, "a step has status, output, content and error, and no %s", f)
		}
		if id == by {
			p.wrong(path, "step %s reads itself", id)
			return ""
		}
		return id
	default:
		p.wrong(path, "there is no .%s: a template reads .params, .steps, .vars, .workflow and .forEach", r.at(0))
	}
	return ""
}

// readParameter judges whether a parameter may be read.
func (p *parser) readParameter(path, name string) {
	s := p.w.parameters
	if name == "" || s == nil && p.w.tool.Parameters != "" {
		return
	}
	_, declared := s.declared()[name]
	switch {
	case declared:
	case s.allows(name):
		if !s.requires(name) {
			p.w.undeclared = append(p.w.undeclared, ParseFault{path, fmt.Sprintf("reads parameter %s, which is not declared: a call without it fails", short(name))})
		}
	default:
		p.wrong(path, "there is no parameter %s", name)
	}
}
