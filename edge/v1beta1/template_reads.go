package v1beta1

import "text/template/parse"

// TemplateReads calls read with every chain of names that a part of a template reads from
// its root, such as steps, a, output, whether it stands as .steps.a.output or as
// (index .steps "a").output. atRoot says whether the dot is the root.
func TemplateReads(n parse.Node, atRoot bool, read func(chain []string)) {
	branch := func(b *parse.BranchNode, inside bool) {
		TemplateReads(b.Pipe, atRoot, read)
		TemplateReads(b.List, inside, read)
		if b.ElseList != nil {
			TemplateReads(b.ElseList, atRoot, read)
		}
	}
	switch n := n.(type) {
	case *parse.ListNode:
		for _, c := range n.Nodes {
			TemplateReads(c, atRoot, read)
		}
	case *parse.ActionNode:
		TemplateReads(n.Pipe, atRoot, read)
	case *parse.PipeNode:
		for _, c := range n.Cmds {
			TemplateReads(c, atRoot, read)
		}
	case *parse.CommandNode:
		args := n.Args
		if chain := indexed(n, atRoot); chain != nil {
			read(chain)
			args = args[2:]
		}
		for _, c := range args {
			TemplateReads(c, atRoot, read)
		}
	case *parse.FieldNode:
		if atRoot {
			read(n.Ident)
		}
	case *parse.VariableNode:
		if n.Ident[0] == "$" && len(n.Ident) > 1 {
			read(n.Ident[1:])
		}
	case *parse.ChainNode:
		// (index .steps "my-step").output
		if p, ok := n.Node.(*parse.PipeNode); ok && len(p.Cmds) == 1 && len(p.Decl) == 0 {
			if chain := indexed(p.Cmds[0], atRoot); chain != nil && len(p.Cmds[0].Args) == 1+len(chain) {
				read(append(chain, n.Field...))
				return
			}
		}
		TemplateReads(n.Node, atRoot, read)
	case *parse.IfNode:
		branch(&n.BranchNode, atRoot)
	case *parse.RangeNode:
		branch(&n.BranchNode, false)
	case *parse.WithNode:
		branch(&n.BranchNode, false)
	case *parse.TemplateNode:
		if n.Pipe != nil {
			TemplateReads(n.Pipe, atRoot, read)
		}
	}
}

// indexed is the chain that index .steps "my-step" "output" reads; nil for another command.
// The chain may be longer than the texts that stand in a row.
func indexed(n *parse.CommandNode, atRoot bool) []string {
	if len(n.Args) < 3 {
		return nil
	}
	if id, ok := n.Args[0].(*parse.IdentifierNode); !ok || id.Ident != "index" {
		return nil
	}
	var chain []string
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
