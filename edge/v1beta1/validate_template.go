package v1beta1

import (
	"strings"
	"text/template/parse"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// use is one place where a template reads the output of a step.
type use struct {
	step  string // the step that is read
	field string // the first field of its output; empty for the whole
	by    string // the step that reads; empty for the tool's output
	at    string // the text that reads
}

// maxTemplate bounds the text that is parsed, and with it how deep templates
// may be nested.
const maxTemplate = 64 << 10

// template judges a template, unless empty, and remembers what it reads. by is
// the step that it stands in.
func (w *workflow) template(p *field.Path, text, by string) {
	if text == "" {
		return
	}
	if len(text) > maxTemplate {
		w.add(field.TooLong(p, "", maxTemplate))
		return
	}
	trees, err := parse.Parse("template", text, "{{", "}}", templateFunctions())
	if err != nil {
		w.hidden(p, "must be a template: "+templateCause(err))
		return
	}
	at := p.String()
	nobody := map[string]bool{} // each is told once
	TemplateReads(trees, "template", func(ident []string) {
		if len(ident) < 2 || ident[0] != "steps" || w.tool.Script != "" { // whose steps only who runs it knows
			return
		}
		if _, ok := w.ids[ident[1]]; !ok {
			if !nobody[ident[1]] {
				w.hidden(p, "there is no step "+ident[1])
			}
			nobody[ident[1]] = true
			return
		}
		if len(ident) > 2 && ident[2] == "output" {
			u := use{step: ident[1], by: by, at: at}
			if len(ident) > 3 {
				u.field = ident[3]
			}
			w.uses = append(w.uses, u)
		}
	})
}

// arguments judges the arguments of a call. Strings on the first level are
// templates (virtual server document, steps[].arguments).
func (w *workflow) arguments(p *field.Path, j JSONObject, by string) {
	m, err := j.Map()
	if err != nil {
		return
	}
	for _, name := range sorted(m) {
		if s, isString := m[name].(string); isString {
			w.template(p.Key(name), s, by)
		}
	}
}

// defaults demands default results of a step that may not run to its end while
// something reads its output (virtual server document, steps[].defaultResults).
func (w *workflow) defaults(p *field.Path) {
	type fault struct{ step, field string }
	seen := map[fault]bool{}
	asks := map[[2]string]bool{} // of which step's question a text asks how it was answered
	for _, u := range w.uses {
		if u.field == "action" {
			asks[[2]string{u.step, u.at}] = true
		}
	}
	for _, u := range w.uses {
		i := w.ids[u.step]
		s := &w.tool.Steps[i]
		why := "the step may be skipped"
		if s.Condition == "" && (s.OnError == nil || s.OnError.Action != ErrorContinue) {
			if why = "the question may get no answer"; u.field == "" || u.field == "action" || !goesOn(s.OnDecline) && !goesOn(s.OnCancel) || w.guarded(p, u, asks) {
				continue
			}
		}
		if u.by == u.step {
			continue
		}
		p := p.Index(i).Child("defaultResults")
		if s.DefaultResults == "" {
			if !seen[fault{u.step, ""}] {
				w.required(p, why+" and its output is read"+reader(u))
			}
			seen[fault{u.step, ""}] = true
			continue
		}
		v, err := s.DefaultResults.Value()
		if err != nil || u.field == "" || seen[fault{u.step, u.field}] {
			continue
		}
		seen[fault{u.step, u.field}] = true
		m, _ := v.(map[string]any)
		if _, there := m[u.field]; !there {
			w.required(p.Key(u.field), why+" and this field is read"+reader(u))
		}
	}
}

// guarded reports whether a text is read where the question was answered alone, as far as one can tell:
// it, or the condition that it stands under, asks for the action.
func (w *workflow) guarded(steps *field.Path, u use, asks map[[2]string]bool) bool {
	if asks[[2]string{u.step, u.at}] || u.by == "" {
		return asks[[2]string{u.step, u.at}]
	}
	by := steps.Index(w.ids[u.by])
	inner := by.Child("step")
	return asks[[2]string{u.step, by.Child("condition").String()}] ||
		strings.HasPrefix(u.at, inner.String()+".") && asks[[2]string{u.step, inner.Child("condition").String()}]
}

// goesOn reports whether a question without an answer has an action for its output, and no more.
func goesOn(r *ElicitationResponse) bool { return r != nil && r.Action == ElicitationContinue }

func reader(u use) string {
	if u.by == "" {
		return " by output"
	}
	return " by step " + u.by
}

// templateFunctions are the functions that templates may call: those of the
// language and three of the edge. Only their names matter to the parser.
func templateFunctions() map[string]any {
	m := map[string]any{}
	for _, name := range []string{
		"and", "call", "html", "index", "slice", "js", "len", "not", "or", "print", "printf", "println", "urlquery",
		"eq", "ge", "gt", "le", "lt", "ne",
		"json", "quote", "fromJson",
	} {
		m[name] = strings.ToLower // Any function does.
	}
	return m
}

// templateCause takes the position out of an error of the parser, which writes
// template: NAME:LINE: CAUSE.
func templateCause(err error) string {
	parts := strings.SplitN(err.Error(), ": ", 3)
	return parts[len(parts)-1]
}
