package workflow

import (
	"fmt"

	"go.starlark.net/syntax"
)

// literals finds the templates and the tools in the text of a program. A template stands in
// the text, so that it is parsed once, and no value can become one.
func (p *parser) literals(where string) {
	w := p.w
	f, err := (&syntax.FileOptions{Set: true, While: true, TopLevelControl: true}).Parse(w.tool.Name, []byte(w.text), 0)
	if err != nil {
		p.wrong(where, "%s", err)
		return
	}
	step, calls := "", 0 // calls that may be made, less those whose tool is known
	syntax.Walk(f, func(n syntax.Node) bool {
		if id, ok := n.(*syntax.Ident); ok && (id.Name == "call_step" || id.Name == "call_tool" || id.Name == "call_tool_result") {
			calls++
		}
		call, ok := n.(*syntax.CallExpr)
		if !ok {
			return true
		}
		fn, ok := call.Fn.(*syntax.Ident)
		if !ok {
			return true
		}
		switch fn.Name {
		case "step":
			w.steps++
			if id, ok := textAt(call, 0); ok {
				step = id
			}
		case "call_step":
			if tool, ok := textAt(call, 0); ok {
				calls--
				w.tools = append(w.tools, StepTool{step, tool})
			}
		case "template", "condition", "items":
			p.literal(where, call, 0, "")
		case "prop":
			p.literal(where, call, 1, "value")
		}
		return true
	})
	w.unnamed = calls > 0
}

// literal parses the template that is one of the values of a call, by its place or its name; ""
// for one that has none.
func (p *parser) literal(where string, call *syntax.CallExpr, i int, name string) {
	var given syntax.Expr
	for j, arg := range call.Args {
		if named, ok := arg.(*syntax.BinaryExpr); !ok || named.Op != syntax.EQ {
			if j == i {
				given = arg
			}
		} else if x, ok := named.X.(*syntax.Ident); ok && name != "" && x.Name == name {
			given = named.Y
		}
	}
	if none, ok := given.(*syntax.Ident); ok && none.Name == "None" && name != "" {
		return
	}
	if given == nil {
		return
	}
	pos, _ := given.Span()
	at := fmt.Sprintf("%d:%d: ", pos.Line, pos.Col)
	s, ok := textOf(given)
	if !ok {
		p.wrong(where, "%sthe template must stand here as a text", at)
		return
	}
	if p.w.templates[s] != nil {
		return
	}
	t, err := parseTemplate(s)
	if err != nil {
		p.wrong(where, "%smust be a template: %s", at, err)
		return
	}
	t.declared = p.w.parameters.declared()
	p.w.templates[s] = t
	for _, r := range t.reads {
		if r.at(0) == "params" {
			before := len(p.faults)
			p.readParameter(where, r.at(1))
			for j := before; j < len(p.faults); j++ {
				p.faults[j].Message = at + p.faults[j].Message
			}
		}
	}
}

// textAt is the text that stands as one of the values of a call.
func textAt(call *syntax.CallExpr, i int) (string, bool) {
	if len(call.Args) <= i {
		return "", false
	}
	return textOf(call.Args[i])
}

func textOf(x syntax.Expr) (string, bool) {
	l, ok := x.(*syntax.Literal)
	if !ok || l.Token != syntax.STRING {
		return "", false
	}
	s, ok := l.Value.(string)
	return s, ok
}
