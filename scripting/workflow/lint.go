package workflow

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge/v1beta1"
)

// Lint returns what is likely a mistake in a workflow that is valid. find finds the tool of
// a step: false where there is none, a nil tool where nothing is known of it; nil where no
// tools are known. Of a script only tools that are not there are found.
func (w *Workflow) Lint(find func(name string) (*Tool, bool)) (out []ParseFault) {
	note := func(path, format string, args ...any) {
		out = append(out, ParseFault{path, fmt.Sprintf(format, args...)})
	}
	if w.tool.Script != "" && find != nil {
		for _, t := range w.tools {
			if _, ok := find(t.Tool); !ok {
				note("script", "there is no tool %s", short(t.Tool))
			}
		}
	}
	if err := w.parameters.contradiction(); err != nil {
		note("parameters", "%s", err)
	}
	out = append(out, w.undeclared...)
	for i, s := range w.tool.Steps {
		path := fmt.Sprintf("steps[%d]", i)
		last := w.tool.Output == nil && i == len(w.tool.Steps)-1
		used := w.whole || slices.ContainsFunc(w.reads, func(r stepRead) bool { return r.step == s.ID }) ||
			slices.ContainsFunc(w.tool.Steps, func(o v1beta1.WorkflowStep) bool { return slices.Contains(o.DependsOn, s.ID) })
		if !last && !used {
			note(path, "nothing reads step %s, and no step depends on it", s.ID)
		}
		refused := unanswered.FindStringSubmatch(s.Condition)
		for _, r := range w.reads {
			if r.by == s.ID && r.added {
				note(r.path, "reads step %s, which is not among dependsOn: the step waits for it", r.step)
			}
			if r.by == s.ID && r.content && refused != nil && r.step == refused[1] && !w.hasDefaults(r.step) {
				note(r.path, "reads the content of question %s, which has none where its action is %s: give it defaultResults", r.step, refused[2])
			}
		}
		w.lintCondition(note, path+".condition", s.Condition)
		lintTool(note, path, s.OnError, s.Tool, find)
		switch within := cmp.Or(s.Timeout.Std(), defaultStepTimeout); {
		case !retries(s.OnError):
		case s.Type == v1beta1.StepElicitation:
			note(path+".onError", "a question is asked once: retry is abort")
		case s.OnError.RetryDelay.Std() >= within:
			note(path+".onError.retryDelay", "not less than the time that the step has, %s: there is no other attempt", within)
		}
		if s.Step != nil {
			w.lintCondition(note, path+".step.condition", s.Step.Condition)
			lintTool(note, path+".step", s.Step.OnError, s.Step.Tool, find)
			lintRetry(note, path, s.OnError, s.Step.Tool, find) // which has the whole step run again
		}
	}
	return out
}

// unanswered is a condition that a question has got no answer.
var unanswered = regexp.MustCompile(`^\s*\{\{-?\s*eq\s+\.steps\.(\w+)\.output\.action\s+"(decline|cancel)"\s*-?\}\}\s*$`)

// hasDefaults reports whether a step is a question with defaults, or none.
func (w *Workflow) hasDefaults(id string) bool {
	i := slices.IndexFunc(w.tool.Steps, func(s v1beta1.WorkflowStep) bool { return s.ID == id })
	return w.tool.Steps[i].Type != v1beta1.StepElicitation || w.tool.Steps[i].DefaultResults != ""
}

// lintCondition notes a condition that always says the same.
func (w *Workflow) lintCondition(note func(string, string, ...any), path, condition string) {
	if condition == "" {
		return
	}
	t := w.templates[condition]
	if t == nil || len(t.reads) > 0 {
		return
	}
	value, err := t.render(map[string]any{}, nil)
	if err != nil {
		return
	}
	note(path, "always says %s", strings.TrimSpace(short(value)))
}

// lintTool notes that there is no such tool, or how it is called again.
func lintTool(note func(string, string, ...any), path string, e *v1beta1.OnError, tool string, find func(string) (*Tool, bool)) {
	if find == nil || tool == "" {
		return
	}
	if _, ok := find(tool); !ok {
		note(path+".tool", "there is no tool %s", short(tool))
	}
	lintRetry(note, path, e, tool, find)
}

// lintRetry notes that a tool is called again which does not say that this changes nothing.
func lintRetry(note func(string, string, ...any), path string, e *v1beta1.OnError, tool string, find func(string) (*Tool, bool)) {
	if find == nil || !retries(e) {
		return
	}
	if known, _ := find(tool); known != nil && !is(known.Hints.Idempotent, false) && !is(known.Hints.ReadOnly, false) {
		note(path+".onError", "calls %s again, which does not have idempotentHint", tool)
	}
}

func retries(e *v1beta1.OnError) bool { return e != nil && e.Action == v1beta1.ErrorRetry }

// Retried returns the tools that steps call again after a failure, each once.
func (w *Workflow) Retried() (tools []string) {
	add := func(e *v1beta1.OnError, tool string) {
		if retries(e) && tool != "" && !slices.Contains(tools, tool) {
			tools = append(tools, tool)
		}
	}
	for _, s := range w.tool.Steps {
		add(s.OnError, s.Tool)
		if s.Step != nil {
			add(s.OnError, s.Step.Tool)
			add(s.Step.OnError, s.Step.Tool)
		}
	}
	return tools
}

// Asks returns the steps that ask the caller, and how long each waits for an answer.
func (w *Workflow) Asks() (steps []StepAsk) {
	for _, s := range w.tool.Steps {
		if s.Type != v1beta1.StepElicitation {
			continue
		}
		wait := s.Timeout.Std()
		if wait == 0 {
			wait = defaultStepTimeout
		}
		steps = append(steps, StepAsk{s.ID, min(wait, maxAsk, w.timeout)})
	}
	return steps
}

// StepAsk is a step that asks the caller, and waits for an answer.
type StepAsk struct {
	Step string
	Wait time.Duration
}

// Graph returns a Mermaid flowchart of the steps and what they wait for. For a script it has
// the steps that stand in the text.
func (w *Workflow) Graph() string {
	var b strings.Builder
	b.WriteString("flowchart TD\n")
	if w.tool.Script != "" {
		for i, t := range w.tools {
			fmt.Fprintf(&b, "  s%d[\"%s\"]\n", i, label(t.Step, t.Tool))
		}
		return b.String()
	}
	number := map[string]int{}
	for i, s := range w.tool.Steps {
		number[s.ID] = i
	}
	for i, s := range w.tool.Steps {
		switch s.Type {
		case v1beta1.StepElicitation:
			fmt.Fprintf(&b, "  s%d{{\"%s\"}}\n", i, label(s.ID, "asks"))
		case v1beta1.StepForEach:
			fmt.Fprintf(&b, "  s%d[[\"%s\"]]\n", i, label(s.ID, "for each: "+s.Step.Tool))
		default:
			fmt.Fprintf(&b, "  s%d[\"%s\"]\n", i, label(s.ID, s.Tool))
		}
	}
	for i, s := range w.tool.Steps {
		for _, id := range w.after[s.ID] {
			arrow := "-->"
			if s.Condition != "" {
				arrow = "-.->"
			}
			fmt.Fprintf(&b, "  s%d %s s%d\n", number[id], arrow, i)
		}
	}
	return b.String()
}

// label is the text of a node: what would end it is written as an entity.
func label(step, does string) string {
	if step == "" {
		return strings.NewReplacer(`"`, "#quot;", "\n", " ").Replace(does)
	}
	return strings.NewReplacer(`"`, "#quot;", "\n", " ").Replace(step + "<br/>" + does)
}
