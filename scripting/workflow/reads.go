package workflow

import "text/template/parse"

// readOf is one chain of names that a template reads from its root, such as
// steps, a, output.
type readOf []string

// at returns one name of the chain; "" beyond its end.
func (r readOf) at(i int) string {
	if i < len(r) {
		return r[i]
	}
	return ""
}

// readsOf notes what a part of a template reads. atRoot says whether the dot is the root.
func (t *text) readsOf(n parse.Node, atRoot bool) {
	branch := func(b *parse.BranchNode, inside bool) {
		t.readsOf(b.Pipe, atRoot)
		t.readsOf(b.List, inside)
		if b.ElseList != nil {
			t.readsOf(b.ElseList, atRoot)
		}
	}
	switch n := n.(type) {
	case *parse.ListNode:
		for _, c := range n.Nodes {
			t.readsOf(c, atRoot)
		}
	case *parse.ActionNode:
		t.readsOf(n.Pipe, atRoot)
	case *parse.PipeNode:
		for _, c := range n.Cmds {
			t.readsOf(c, atRoot)
		}
	case *parse.CommandNode:
		args := n.Args
		if chain := indexed(n, atRoot); chain != nil {
			t.reads = append(t.reads, chain)
			args = args[2:]
		}
		for _, c := range args {
			t.readsOf(c, atRoot)
		}
	case *parse.FieldNode:
		if atRoot {
			t.reads = append(t.reads, n.Ident)
		}
	case *parse.VariableNode:
		if n.Ident[0] == "$" && len(n.Ident) > 1 {
			t.reads = append(t.reads, n.Ident[1:])
		}
	case *parse.ChainNode:
		// (index .steps "my-step").output
		if p, ok := n.Node.(*parse.PipeNode); ok && len(p.Cmds) == 1 && len(p.Decl) == 0 {
			if chain := indexed(p.Cmds[0], atRoot); chain != nil && len(p.Cmds[0].Args) == 1+len(chain) {
				t.reads = append(t.reads, append(chain, n.Field...))
				return
			}
		}
		t.readsOf(n.Node, atRoot)
	case *parse.IfNode:
		branch(&n.BranchNode, atRoot)
	case *parse.RangeNode:
		branch(&n.BranchNode, false)
	case *parse.WithNode:
		branch(&n.BranchNode, false)
	case *parse.TemplateNode:
		if n.Pipe != nil {
			t.readsOf(n.Pipe, atRoot)
		}
	}
}

// indexed is the chain that index .steps "my-step" "output" reads; nil for another command.
// The chain may be longer than the texts that stand in a row.
func indexed(n *parse.CommandNode, atRoot bool) readOf {
	if len(n.Args) < 3 {
		return nil
	}
	if id, ok := n.Args[0].(*parse.IdentifierNode); !ok || id.Ident != "index" {
		return nil
	}
	var chain readOf
	switch root := n.Args[1].(type) {
	case *parse.FieldNode:
		if atRoot {
			chain = append(chain, root.Ident...)
		}
	case *parse.VariableNode:
		if root.Ident[0] == "$" {
			chain = append(chain, root.Ident[1:]...)
		}
	}
	if len(chain) == 0 {
		return nil
	}
	for _, a := range n.Args[2:] {
		s, ok := a.(*parse.StringNode)
		if !ok {
			break
		}
		chain = append(chain, s.Text)
	}
	return chain
}
