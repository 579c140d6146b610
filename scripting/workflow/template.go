package workflow

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"text/template"
	"text/template/parse"
	"time"

	"github.com/weir-edge/weir/scripting"
)

// The bounds of a template and of one rendering of it.
const (
	maxTemplate = 64 << 10 // bytes of text
	maxRendered = 1 << 20  // bytes
	maxTurns    = 1_000_000
	maxTime     = 100 * time.Millisecond
	maxDepth    = 100 // templates within templates
)

// text is a template: the language of Go's text/template, with json, quote and fromJson.
// What is missing is an error, and so is to print nothing; objects and arrays are printed
// as JSON. It is immutable, and may be rendered many times at once.
type text struct {
	plain  string // where there is nothing to render
	parsed *template.Template
	reads  []readOf
	spare  sync.Pool // of *rendering
}

// parseTemplate parses a template of at most 64 KiB.
func parseTemplate(s string) (*text, error) {
	if len(s) > maxTemplate {
		return nil, fmt.Errorf("longer than %d bytes", maxTemplate)
	}
	if !strings.Contains(s, "{{") {
		return &text{plain: s}, nil
	}
	var nobody rendering
	t, err := template.New("template").Funcs(nobody.functions()).Option("missingkey=error").Parse(s)
	if err != nil {
		return nil, errors.New(parseCause(err))
	}
	out := &text{parsed: t}
	for _, each := range t.Templates() {
		if each.Tree == nil || each.Root == nil {
			continue
		}
		out.readsOf(each.Root, each.Name() == "template")
		guardList(each.Root)
		if each.Name() != "template" {
			each.Root.Nodes = append([]parse.Node{hook(fnEnter)}, append(each.Root.Nodes, hook(fnLeave))...)
		}
	}
	return out, nil
}

// parseCause takes the position out of an error of the parser, which writes
// template: NAME:LINE: CAUSE.
func parseCause(err error) string {
	parts := strings.SplitN(err.Error(), ": ", 3)
	return scripting.Clean(parts[len(parts)-1])
}

// Hidden functions, which no text can name: the parser does not know them.
const (
	fnPrint = "_print"
	fnTurn  = "_turn"
	fnEnter = "_enter"
	fnLeave = "_leave"
)

// hook is an action that calls a hidden function.
func hook(name string) parse.Node {
	return &parse.ActionNode{NodeType: parse.NodeAction, Pipe: &parse.PipeNode{NodeType: parse.NodePipe, Cmds: []*parse.CommandNode{command(name)}}}
}

func command(name string, args ...parse.Node) *parse.CommandNode {
	return &parse.CommandNode{NodeType: parse.NodeCommand, Args: append([]parse.Node{parse.NewIdentifier(name)}, args...)}
}

// guardList has what a list prints go through a function of ours, and counts turns.
func guardList(list *parse.ListNode) {
	if list == nil {
		return
	}
	for _, n := range list.Nodes {
		switch n := n.(type) {
		case *parse.ActionNode:
			if len(n.Pipe.Decl) == 0 {
				where := n.Pipe.String()
				n.Pipe.Cmds = append(n.Pipe.Cmds, command(fnPrint, &parse.StringNode{NodeType: parse.NodeString, Quoted: where, Text: where}))
			}
		case *parse.IfNode:
			guardList(n.List)
			guardList(n.ElseList)
		case *parse.WithNode:
			guardList(n.List)
			guardList(n.ElseList)
		case *parse.RangeNode:
			guardList(n.List)
			n.List.Nodes = append([]parse.Node{hook(fnTurn)}, n.List.Nodes...)
			guardList(n.ElseList)
		}
	}
}

// misprint is an error of rendering that is told as it is.
type misprint struct{ message string }

func (m *misprint) Error() string { return m.message }

func misprinted(format string, args ...any) error {
	return &misprint{fmt.Sprintf(format, args...)}
}

// rendering is the state of one rendering.
type rendering struct {
	template *template.Template
	began    time.Time
	turns    int
	depth    int
	out      strings.Builder
}

// render renders the template over data.
func (t *text) render(data map[string]any) (string, error) {
	if t.parsed == nil {
		return t.plain, nil
	}
	r, _ := t.spare.Get().(*rendering)
	if r == nil {
		r = &rendering{}
		clone, err := t.parsed.Clone()
		if err != nil {
			return "", err
		}
		r.template = clone.Funcs(r.functions()).Funcs(r.hidden())
	}
	defer t.spare.Put(r)
	r.began, r.turns, r.depth = time.Now(), 0, 0
	r.out.Reset()
	err := r.template.Execute(r, data)
	if err == nil {
		return r.out.String(), nil
	}
	var told *misprint
	if errors.As(err, &told) {
		return "", fmt.Errorf("template: %s", scripting.Clean(told.message))
	}
	return "", fmt.Errorf("template: %s", scripting.Clean(executeCause(err)))
}

// executeCause takes the position out of an error of the executor, which writes
// template: NAME:LINE:COLUMN: executing "NAME" at <WHAT>: CAUSE.
func executeCause(err error) string {
	s := err.Error()
	if _, after, ok := strings.Cut(s, " at <"); ok {
		return "<" + after
	}
	return parseCause(err)
}

// Write takes what is printed.
func (r *rendering) Write(b []byte) (int, error) {
	if r.out.Len()+len(b) > maxRendered {
		return 0, misprinted("renders more than %d bytes", maxRendered)
	}
	return r.out.Write(b)
}

// late is the error when the time is over.
func (r *rendering) late() error {
	if time.Since(r.began) > maxTime {
		return misprinted("takes longer than %s", maxTime)
	}
	return nil
}

// hidden are the functions that no text can name.
func (r *rendering) hidden() template.FuncMap {
	return template.FuncMap{
		fnPrint: func(where string, v any) (string, error) {
			if err := r.late(); err != nil {
				return "", err
			}
			if v == nil {
				return "", misprinted("%s has no value", where)
			}
			return printed(v)
		},
		fnTurn: func() (string, error) {
			if r.turns++; r.turns > maxTurns {
				return "", misprinted("more than %d turns of range", maxTurns)
			}
			if r.turns%1024 == 0 {
				return "", r.late()
			}
			return "", nil
		},
		fnEnter: func() (string, error) {
			if r.depth++; r.depth > maxDepth {
				return "", misprinted("templates within each other more than %d deep", maxDepth)
			}
			return "", r.late()
		},
		fnLeave: func() string {
			r.depth--
			return ""
		},
	}
}

// printed is the text of a value.
func printed(v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "", misprinted("nothing has no text")
	case string:
		return v, nil
	case digits:
		return string(v), nil
	case map[string]any, []any:
		if weigh(v) > maxRendered*2 {
			return "", misprinted("renders more than %d bytes", maxRendered)
		}
		return bounded(string(appendData(nil, v)))
	}
	return bounded(fmt.Sprint(v))
}

// bounded refuses a text that no rendering could hold.
func bounded(s string) (string, error) {
	if len(s) > maxRendered {
		return "", misprinted("renders more than %d bytes", maxRendered)
	}
	return s, nil
}
