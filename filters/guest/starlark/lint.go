package starlark

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.starlark.net/syntax"

	"github.com/weir-edge/weir/scripting"
	"github.com/weir-edge/weir/sdk/abi"
)

// linter finds what is surely a mistake in a text, though it is well-formed.
type linter struct {
	p      *Program
	faults Faults
}

func (l *linter) wrong(pos syntax.Position, format string, args ...any) {
	l.faults = append(l.faults, &Fault{File: l.p.file, Line: int(pos.Line), Column: int(pos.Col), Message: scripting.Clean(fmt.Sprintf(format, args...))})
}

func (l *linter) sorted() Faults {
	slices.SortStableFunc(l.faults, func(a, b *Fault) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return l.faults
}

func hookNames() []string {
	var names []string
	for h := range abi.Hooks {
		names = append(names, h.String())
	}
	return names
}

// file looks at a whole text.
func (l *linter) file(f *syntax.File) {
	used, own := map[string]bool{}, map[*syntax.Ident]bool{} // names that are read, and those of functions where they are defined
	for _, s := range f.Stmts {
		syntax.Walk(s, func(n syntax.Node) bool {
			switch n := n.(type) {
			case *syntax.DefStmt:
				own[n.Name] = true
			case *syntax.ExprStmt:
				l.dropped(n)
			case *syntax.Ident:
				used[n.Name] = used[n.Name] || !own[n]
			}
			return true
		})
	}
	top(f.Stmts, func(d *syntax.DefStmt) {
		name := d.Name.Name
		if hook, ok := abi.HookNamed(name); ok {
			l.hook(hook, d)
			return
		}
		// A helper may have any name; one that nobody calls was meant as a hook.
		if near := scripting.Nearest(name, hookNames()); !used[name] && near != "" {
			l.wrong(d.Name.NamePos, "there is no hook %s (did you mean %s?), and nothing calls the function", name, near)
		} else if !used[name] && strings.HasPrefix(name, "on_") {
			l.wrong(d.Name.NamePos, "there is no hook %s, and nothing calls the function: the hooks are %s", name, strings.Join(hookNames(), ", "))
		}
	})
}

// top calls a function for each def that makes a global.
func top(stmts []syntax.Stmt, each func(*syntax.DefStmt)) {
	for _, s := range stmts {
		switch s := s.(type) {
		case *syntax.DefStmt:
			each(s)
		case *syntax.IfStmt:
			top(s.True, each)
			top(s.False, each)
		case *syntax.ForStmt:
			top(s.Body, each)
		case *syntax.WhileStmt:
			top(s.Body, each)
		}
	}
}

// dropped finds an operation that is made and not returned.
func (l *linter) dropped(s *syntax.ExprStmt) {
	call, ok := s.X.(*syntax.CallExpr)
	if !ok {
		return
	}
	if id, ok := call.Fn.(*syntax.Ident); ok && operationNamed(id.Name) != nil {
		l.wrong(id.NamePos, "%s makes an operation, which is lost here: return it, or put it into the list that is returned", id.Name)
	}
}

// hook looks at the function for a hook.
func (l *linter) hook(hook abi.Hook, d *syntax.DefStmt) {
	l.p.hooks[hook] = function{there: true}
	var param *syntax.Ident
	more := 0
	for _, p := range d.Params {
		switch p := p.(type) {
		case *syntax.Ident:
			if param == nil {
				param = p
			} else {
				more++
			}
		case *syntax.UnaryExpr, *syntax.BinaryExpr: // *args, or one with a default
		}
	}
	if param == nil || more > 0 {
		l.wrong(d.Name.NamePos, "%s takes one value, the input: def %s(c):", hook, hook)
		return
	}
	l.fields(hook, param.Name, d)
}

// fields finds which fields of the input a function reads, as long as it says each of them
// by its name.
func (l *linter) fields(hook abi.Hook, input string, d *syntax.DefStmt) {
	fields, elsewhere, again := uint64(0), 0, false
	var dots []*syntax.DotExpr
	for _, s := range d.Body {
		syntax.Walk(s, func(n syntax.Node) bool {
			switch n := n.(type) {
			case *syntax.DotExpr:
				if id, ok := n.X.(*syntax.Ident); ok && id.Name == input {
					dots = append(dots, n)
					elsewhere-- // the walk meets the name within
				}
			case *syntax.Ident:
				if n.Name == input {
					elsewhere++
				}
			case *syntax.DefStmt:
				again = again || binds(n.Params, input)
			case *syntax.LambdaExpr:
				again = again || binds(n.Params, input)
			case *syntax.AssignStmt:
				again = again || assigns(n.LHS, input)
			case *syntax.ForStmt:
				again = again || assigns(n.Vars, input)
			case *syntax.ForClause:
				again = again || assigns(n.Vars, input)
			}
			return true
		})
	}
	if again {
		return // another value has the name somewhere
	}
	for _, dot := range dots {
		f := fieldNamed(dot.Name.Name)
		if f == nil {
			message := "the input has no field " + dot.Name.Name
			if near := scripting.Nearest(dot.Name.Name, fieldNames()); near != "" {
				message += " (did you mean " + near + "?)"
			}
			l.wrong(dot.Name.NamePos, "%s", message)
			continue
		}
		fields |= 1 << f.number
	}
	if elsewhere == 0 {
		l.p.hooks[hook].fields = fields | 1<<abi.CallMethod // never 0, which is all of them
	}
}

func binds(params []syntax.Expr, name string) (found bool) {
	for _, p := range params {
		if b, ok := p.(*syntax.BinaryExpr); ok {
			p = b.X
		}
		if u, ok := p.(*syntax.UnaryExpr); ok && u.X != nil {
			p = u.X
		}
		id, ok := p.(*syntax.Ident)
		found = found || ok && id.Name == name
	}
	return found
}

func assigns(left syntax.Expr, name string) (found bool) {
	switch e := left.(type) {
	case *syntax.Ident:
		return e.Name == name
	case *syntax.ParenExpr:
		return assigns(e.X, name)
	case *syntax.TupleExpr:
		return slices.ContainsFunc(e.List, func(x syntax.Expr) bool { return assigns(x, name) })
	case *syntax.ListExpr:
		return slices.ContainsFunc(e.List, func(x syntax.Expr) bool { return assigns(x, name) })
	}
	return false
}
