package workflow

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"text/template/parse"
)

// frame is one template under way: a rendering, and the variables that this template sees.
type frame struct {
	*rendering
	vars []variable // the innermost last
}

type variable struct {
	name  string
	value any
}

// flow says how the rest of a list goes on.
type flow int

const (
	onward flow = iota
	broken      // out of the innermost range
	turned      // on to the next turn of the innermost range
)

// walk renders a list of nodes. Variables live until the end of the list that stands around.
func (f *frame) walk(dot any, list *parse.ListNode) (flow, error) {
	if err := f.enter(); err != nil {
		return onward, err
	}
	defer f.leave()
	for _, n := range list.Nodes {
		if err := f.spend(1); err != nil {
			return onward, err
		}
		var then flow
		var err error
		switch n := n.(type) {
		case *parse.TextNode:
			err = f.write(string(n.Text))
		case *parse.ActionNode:
			err = f.action(dot, n.Pipe)
		case *parse.IfNode:
			then, err = f.branch(dot, &n.BranchNode, false)
		case *parse.WithNode:
			then, err = f.branch(dot, &n.BranchNode, true)
		case *parse.RangeNode:
			then, err = f.rangeOver(dot, n)
		case *parse.TemplateNode:
			err = f.template(dot, n)
		case *parse.BreakNode:
			then = broken
		case *parse.ContinueNode:
			then = turned
		}
		if err != nil || then != onward {
			return then, err
		}
	}
	return onward, nil
}

// action prints the value of a pipeline, or gives it to variables.
func (f *frame) action(dot any, pipe *parse.PipeNode) error {
	v, err := f.pipeline(dot, pipe)
	if err != nil || len(pipe.Decl) > 0 {
		return err
	}
	if v == nil {
		return misprinted("%s has no value", pipe)
	}
	s, err := f.printed(v)
	if err != nil {
		return err
	}
	return f.write(s)
}

// branch is an if, or a with, in which the value becomes the dot.
func (f *frame) branch(dot any, n *parse.BranchNode, with bool) (flow, error) {
	defer f.forget(len(f.vars))
	v, err := f.pipeline(dot, n.Pipe)
	switch {
	case err != nil:
		return onward, err
	case isTrue(v) && with:
		return f.walk(v, n.List)
	case isTrue(v):
		return f.walk(dot, n.List)
	case n.ElseList != nil:
		return f.walk(dot, n.ElseList)
	}
	return onward, nil
}

// isTrue says whether a value counts as true: all do but the empty ones.
func isTrue(v any) bool {
	switch v := v.(type) {
	case bool:
		return v
	case string:
		return v != ""
	case digits:
		return v != ""
	case int64:
		return v != 0
	case int:
		return v != 0
	case byte:
		return v != 0
	case decimal:
		return v != 0
	case complex128:
		return v != 0
	case []any:
		return len(v) > 0
	case map[string]any:
		return len(v) > 0
	}
	return false
}

// rangeOver is a range. A break within its else ends the range too.
func (f *frame) rangeOver(dot any, n *parse.RangeNode) (flow, error) {
	defer f.forget(len(f.vars))
	over, err := f.pipeline(dot, n.Pipe)
	if err != nil {
		return onward, err
	}
	ran := false
	inside := len(f.vars)
	turn := func(index, element any) (more bool, err error) {
		ran = true
		if f.turns++; f.turns > maxTurns {
			return false, misprinted("more than %d turns of range", maxTurns)
		}
		if err := f.spend(1); err != nil {
			return false, err
		}
		if err := f.turn(n.Pipe, index, element); err != nil {
			return false, err
		}
		then, err := f.walk(element, n.List)
		f.forget(inside)
		return then != broken, err
	}
	switch over := over.(type) {
	case nil:
	case int64, int, byte:
		if len(n.Pipe.Decl) > 1 {
			return onward, wrongAt(n.Pipe, "a number has one variable to go over it")
		}
		err = upTo(over, turn)
	case []any:
		for i, element := range over {
			more, bad := turn(i, element)
			if err = bad; err != nil || !more {
				break
			}
		}
	case map[string]any:
		names, bad := f.sorted(over)
		if bad != nil {
			return onward, bad
		}
		for _, name := range names {
			more, bad := turn(name, over[name])
			if err = bad; err != nil || !more {
				break
			}
		}
	default:
		return onward, wrongAt(n.Pipe, "range can't go over %s", kindOf(over))
	}
	if err != nil || ran || n.ElseList == nil {
		return onward, err
	}
	then, err := f.walk(dot, n.ElseList)
	if then == broken {
		then = onward
	}
	return then, err
}

// upTo takes the turns from 0 to a number, which are of its type.
func upTo(n any, turn func(index, element any) (bool, error)) error {
	most, _ := whole(n)
	for i := range most {
		var element any = i
		switch n.(type) {
		case int:
			element = int(i)
		case byte:
			element = byte(i)
		}
		if more, err := turn(nil, element); err != nil || !more {
			return err
		}
	}
	return nil
}

// turn gives the variables of a range their values. One alone has the element.
func (f *frame) turn(pipe *parse.PipeNode, index, element any) error {
	values := []any{index, element}
	values = values[max(0, 2-len(pipe.Decl)):]
	if !pipe.IsAssign {
		for i, v := range values {
			f.vars[len(f.vars)-len(values)+i].value = v
		}
		return nil
	}
	for i, v := range values {
		if err := f.set(pipe.Decl[i], v); err != nil {
			return err
		}
	}
	return nil
}

// sorted are the names of an object, in order.
func (f *frame) sorted(m map[string]any) ([]string, error) {
	size := 0
	for name := range m {
		size += len(name)
	}
	if err := f.spend(8*len(m) + size/8); err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(m)), nil
}

// template renders another template, which sees no variables of this one.
func (f *frame) template(dot any, n *parse.TemplateNode) error {
	tree := f.text.trees[n.Name]
	if tree == nil {
		return wrongAt(n, "template %q not defined", n.Name)
	}
	if f.depth == maxDepth {
		return misprinted("templates within each other more than %d deep", maxDepth)
	}
	var data any
	if n.Pipe != nil {
		var err error
		if data, err = f.pipeline(dot, n.Pipe); err != nil {
			return err
		}
	}
	if err := f.spend(4); err != nil {
		return err
	}
	f.depth++
	defer func() { f.depth-- }()
	inner := frame{rendering: f.rendering, vars: []variable{{"$", data}}}
	_, err := inner.walk(data, tree.Root)
	return err
}

// pipeline evaluates commands, each of which has the value of the one before as its last
// argument, and gives the value to variables.
func (f *frame) pipeline(dot any, pipe *parse.PipeNode) (any, error) {
	if err := f.enter(); err != nil {
		return nil, err
	}
	defer f.leave()
	var value any
	for i, c := range pipe.Cmds {
		var err error
		if value, err = f.command(dot, c, value, i > 0); err != nil {
			return nil, err
		}
	}
	for _, v := range pipe.Decl {
		if !pipe.IsAssign {
			f.vars = append(f.vars, variable{v.Ident[0], value})
		} else if err := f.set(v, value); err != nil {
			return nil, err
		}
	}
	return value, nil
}

// command evaluates one command: a function with its arguments, or a value without. last is
// the value of the command before, if piped says that there was one.
func (f *frame) command(dot any, c *parse.CommandNode, last any, piped bool) (any, error) {
	first, more := c.Args[0], len(c.Args) > 1 || piped
	switch n := first.(type) {
	case *parse.IdentifierNode:
		return f.call(dot, c, n.Ident, c.Args[1:], last, piped)
	case *parse.FieldNode, *parse.ChainNode:
	case *parse.VariableNode:
		if len(n.Ident) == 1 && more {
			return nil, wrongAt(c, "can't give argument to non-function %s", n)
		}
	case *parse.NilNode:
		return nil, wrongAt(n, "nil is not a command")
	default:
		if more {
			return nil, wrongAt(c, "can't give argument to non-function %s", n)
		}
	}
	return f.value(dot, first, more)
}

// value evaluates what stands alone: a constant, a field, a variable, a function without
// arguments or a pipeline in parentheses. called says whether there are arguments, which
// fields do not take.
func (f *frame) value(dot any, n parse.Node, called bool) (any, error) {
	if err := f.spend(1); err != nil {
		return nil, err
	}
	switch n := n.(type) {
	case *parse.DotNode:
		return dot, nil
	case *parse.NilNode:
		return nil, nil
	case *parse.BoolNode:
		return n.True, nil
	case *parse.StringNode:
		return n.Text, nil
	case *parse.NumberNode:
		return constant(n)
	case *parse.FieldNode:
		return f.fields(n, dot, n.Ident, called)
	case *parse.VariableNode:
		v, err := f.find(n)
		if err != nil {
			return nil, err
		}
		return f.fields(n, v.value, n.Ident[1:], called)
	case *parse.ChainNode:
		if n.Node.Type() == parse.NodeNil {
			return nil, wrongAt(n, "nil has no fields")
		}
		from, err := f.value(dot, n.Node, false)
		if err != nil {
			return nil, err
		}
		return f.fields(n, from, n.Field, called)
	case *parse.IdentifierNode:
		return f.call(dot, n, n.Ident, nil, nil, false)
	case *parse.PipeNode:
		return f.pipeline(dot, n)
	}
	return nil, wrongAt(n, "has no value")
}

// constant is the value of a number: whole, unless it is written otherwise.
func constant(n *parse.NumberNode) (any, error) {
	isHex := len(n.Text) > 2 && n.Text[0] == '0' && (n.Text[1] == 'x' || n.Text[1] == 'X') && !strings.ContainsAny(n.Text, "pP")
	isRune := n.Text[0] == '\''
	switch {
	case n.IsComplex:
		return n.Complex128, nil
	case n.IsFloat && !isHex && !isRune && strings.ContainsAny(n.Text, ".eEpP"):
		return decimal(n.Float64), nil
	case n.IsInt && int64(int(n.Int64)) == n.Int64:
		return int(n.Int64), nil
	}
	return nil, wrongAt(n, "%s overflows int", n.Text)
}

// fields follows names into objects.
func (f *frame) fields(n parse.Node, v any, names []string, called bool) (any, error) {
	for i, name := range names {
		if err := f.spend(1 + len(name)/64); err != nil {
			return nil, err
		}
		switch object := v.(type) {
		case nil:
			return nil, wrongAt(n, "nil data; no entry for key %q", name)
		case map[string]any:
			if called && i == len(names)-1 {
				return nil, wrongAt(n, "%s is not a method but has arguments", name)
			}
			inner, ok := object[name]
			if !ok && !f.optional(object, name) {
				return nil, wrongAt(n, "map has no entry for key %q", name)
			}
			v = inner
		default:
			return nil, wrongAt(n, "can't evaluate field %s in %s", name, kindOf(v))
		}
	}
	return v, nil
}

// optional says whether a name is that of a parameter that was declared: where it was not given it
// is nothing when it is read by its name, and not there in all of them.
func (r *rendering) optional(object map[string]any, name string) bool {
	_, declared := r.text.declared[name]
	return declared && reflect.ValueOf(object).UnsafePointer() == reflect.ValueOf(r.params).UnsafePointer()
}

// find finds the innermost variable of a name.
func (f *frame) find(n *parse.VariableNode) (*variable, error) {
	for i := len(f.vars) - 1; i >= 0; i-- {
		if f.vars[i].name == n.Ident[0] {
			return &f.vars[i], f.spend((len(f.vars) - i) / 8)
		}
	}
	return nil, wrongAt(n, "undefined variable: %s", n.Ident[0])
}

func (f *frame) set(n *parse.VariableNode, value any) error {
	v, err := f.find(n)
	if err != nil {
		return err
	}
	v.value = value
	return nil
}

// forget drops variables beyond a number of them.
func (f *frame) forget(n int) { f.vars = f.vars[:n] }
