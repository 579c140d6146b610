package v1beta1

import (
	"slices"
	"strings"
	"text/template/parse"
)

// TemplateReads calls read with every chain of names that a template reads from its root, such
// as steps, a, output: whether it stands as .steps.a.output, as (index .steps "a").output, or
// under a with, a variable or in a template that is given a part of the root. trees are those
// of the template by their names, main is the name of what is in no define.
func TemplateReads(trees map[string]*parse.Tree, main string, read func(chain []string)) {
	r := &reads{trees: trees, read: read, assigned: map[string]bool{}, seen: map[string]bool{}, told: map[string]bool{}, left: maxReads}
	for _, tree := range trees {
		r.assignments(tree.Root)
	}
	r.follow(main, &place{})
}

// Bounds of what is followed. What is beyond is not known, and told when the template runs.
const (
	maxReads = 100_000 // nodes
	maxChain = 4       // names, such as steps, a, output, text: nobody asks for more
)

// place is where a value stands below the root, which is the place without names; nil is one
// that is not known.
type place struct{ chain []string }

// below is the place of a name, or of some, in a value.
func (p *place) below(names ...string) *place {
	if p == nil {
		return nil
	}
	chain := slices.Concat(p.chain, names)
	return &place{chain[:min(len(chain), maxChain)]}
}

// reads is the state of a walk.
type reads struct {
	trees    map[string]*parse.Tree
	read     func(chain []string)
	assigned map[string]bool // variables that are given other values later
	seen     map[string]bool // templates with the places that they were given
	told     map[string]bool // chains
	vars     []placed
	left     int
}

type placed struct {
	name string
	at   *place
}

// follow walks through a template that is given the value of a place, once.
func (r *reads) follow(name string, dot *place) {
	tree, key := r.trees[name], name
	if dot != nil {
		key += "\x00" + strings.Join(dot.chain, "\x00")
	}
	if tree == nil || tree.Root == nil || r.seen[key] {
		return
	}
	r.seen[key] = true
	outer := r.vars
	r.vars = []placed{{"$", dot}}
	r.walk(tree.Root, dot)
	r.vars = outer
}

// tell tells of a read, once, but of the whole root.
func (r *reads) tell(p *place) *place {
	if p == nil || len(p.chain) == 0 {
		return p
	}
	if key := strings.Join(p.chain, "\x00"); !r.told[key] {
		r.told[key] = true
		r.read(p.chain)
	}
	return p
}

// walk walks through a part of a template.
func (r *reads) walk(n parse.Node, dot *place) {
	switch n := n.(type) {
	case *parse.ListNode:
		if n == nil {
			return
		}
		for _, c := range n.Nodes {
			r.walk(c, dot)
		}
	case *parse.ActionNode:
		r.pipe(n.Pipe, dot)
	case *parse.IfNode:
		r.branch(&n.BranchNode, dot, func(*place) *place { return dot })
	case *parse.WithNode:
		r.branch(&n.BranchNode, dot, func(of *place) *place { return of })
	case *parse.RangeNode:
		r.branch(&n.BranchNode, dot, func(*place) *place { return nil })
	case *parse.TemplateNode:
		var given *place
		if n.Pipe != nil {
			given = r.pipe(n.Pipe, dot)
		}
		r.follow(n.Name, given)
	}
}

// branch walks through what stands under a condition, whose variables end with it.
func (r *reads) branch(b *parse.BranchNode, dot *place, inside func(*place) *place) {
	before := len(r.vars)
	of := r.pipe(b.Pipe, dot)
	if b.Type() == parse.NodeRange { // whose variables have an element and its place
		for i := before; i < len(r.vars); i++ {
			r.vars[i].at = nil
		}
	}
	within := len(r.vars)
	r.walk(b.List, inside(of))
	r.vars = r.vars[:within]
	r.walk(b.ElseList, dot)
	r.vars = r.vars[:before]
}

// pipe returns the place of the value of a pipeline, which it gives to its variables.
func (r *reads) pipe(n *parse.PipeNode, dot *place) (at *place) {
	for i, c := range n.Cmds {
		at = r.command(c, dot)
		if i > 0 {
			at = nil // a function made it
		}
	}
	for _, v := range n.Decl {
		if !n.IsAssign {
			r.vars = append(r.vars, placed{v.Ident[0], at})
		}
	}
	return at
}

// command returns the place of the value of a command: of one value that stands alone, or of
// an index by texts.
func (r *reads) command(n *parse.CommandNode, dot *place) *place {
	if id, ok := n.Args[0].(*parse.IdentifierNode); ok && id.Ident == "index" && len(n.Args) > 2 {
		var names []string
		for _, a := range n.Args[2:] {
			s, ok := a.(*parse.StringNode)
			if !ok {
				break
			}
			names = append(names, s.Text)
		}
		at := r.value(n.Args[1], dot).below(names...)
		for _, a := range n.Args[2+len(names):] {
			r.tell(r.value(a, dot))
		}
		if r.tell(at); len(names) < len(n.Args)-2 {
			return nil
		}
		return at
	}
	var at *place
	for _, a := range n.Args {
		at = r.tell(r.value(a, dot))
	}
	if len(n.Args) > 1 {
		return nil
	}
	return at
}

// value returns the place of a value, and tells of none but of those within parentheses.
func (r *reads) value(n parse.Node, dot *place) *place {
	if r.left--; r.left < 0 {
		return nil
	}
	switch n := n.(type) {
	case *parse.DotNode:
		return dot
	case *parse.FieldNode:
		return dot.below(n.Ident...)
	case *parse.VariableNode:
		return r.variable(n.Ident[0]).below(n.Ident[1:]...)
	case *parse.ChainNode:
		return r.value(n.Node, dot).below(n.Field...)
	case *parse.PipeNode:
		return r.pipe(n, dot)
	}
	return nil
}

// variable is the place of the innermost variable of a name.
func (r *reads) variable(name string) *place {
	for i := len(r.vars) - 1; i >= 0 && !r.assigned[name]; i-- {
		if r.vars[i].name == name {
			return r.vars[i].at
		}
	}
	return nil
}

// assignments notes the variables that are given other values.
func (r *reads) assignments(n parse.Node) {
	pipe := func(p *parse.PipeNode) {
		if p == nil || !p.IsAssign {
			return
		}
		for _, v := range p.Decl {
			r.assigned[v.Ident[0]] = true
		}
	}
	branch := func(b *parse.BranchNode) {
		pipe(b.Pipe)
		r.assignments(b.List)
		r.assignments(b.ElseList)
	}
	switch n := n.(type) {
	case *parse.ListNode:
		if n == nil {
			return
		}
		for _, c := range n.Nodes {
			r.assignments(c)
		}
	case *parse.ActionNode:
		pipe(n.Pipe)
	case *parse.IfNode:
		branch(&n.BranchNode)
	case *parse.WithNode:
		branch(&n.BranchNode)
	case *parse.RangeNode:
		branch(&n.BranchNode)
	}
}
