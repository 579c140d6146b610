package scripting

import (
	"strings"

	"go.starlark.net/syntax"
)

// The engine in process has nothing around it that bounds memory, so what can make a large
// value out of small ones, or take long in one step, is compiled to a call that counts it.
// The tree is rewritten before it is compiled. Each node keeps its place, operands are
// evaluated in the order they were, and the calls take back the steps that they add, so that
// a program means the same, fails at the same place and counts the same as without.

// mark begins the names of what is called instead, which no text can say.
const hidden = "#"

// The hidden functions that are no operators.
const (
	fnNew    = hidden + "new"   // charges a value that was just made, and returns it
	fnElem   = hidden + "elem"  // charges an element of a comprehension, and returns it
	fnKey    = hidden + "key"   // looks at a key before it is hashed, and returns it
	fnStored = hidden + "store" // as fnKey, and charges the place of a new key
	fnStar   = hidden + "star"  // looks at a sequence before it becomes arguments
	fnCut    = hidden + "cut"   // looks at what is gone through in steps for a slice, and returns it
	fnMethod = hidden + "."     // a method, counted
	fnSet    = hidden + "[]="   // x[k] = v
	fnRight  = hidden + "right" // the right side of an assigning operator

	fnLacking = hidden + "lacking" // fails, in the place of a value that is missing; of both engines

	fnAt = hidden + "[]" // x[k] of x[k] %= v, and with an operator the rest of that
)

func isHidden(name string) bool { return strings.HasPrefix(name, hidden) }

// countedTree rewrites a file.
func countedTree(f *syntax.File) { rewriteAll(f.Stmts) }

func rewriteAll(stmts []syntax.Stmt) {
	for i, s := range stmts {
		stmts[i] = rewrite(s)
	}
}

func rewrite(s syntax.Stmt) syntax.Stmt {
	switch s := s.(type) {
	case *syntax.AssignStmt:
		return assignment(s)
	case *syntax.DefStmt:
		defaults(s.Params)
		rewriteAll(s.Body)
	case *syntax.ExprStmt:
		s.X = expr(s.X)
	case *syntax.IfStmt:
		s.Cond = expr(s.Cond)
		rewriteAll(s.True)
		rewriteAll(s.False)
	case *syntax.ForStmt:
		target(s.Vars)
		s.X = expr(s.X)
		rewriteAll(s.Body)
	case *syntax.WhileStmt:
		s.Cond = expr(s.Cond)
		rewriteAll(s.Body)
	case *syntax.ReturnStmt:
		if s.Result != nil {
			s.Result = expr(s.Result)
		}
	}
	return s
}

func assignment(s *syntax.AssignStmt) syntax.Stmt {
	if s.Op != syntax.EQ {
		op := s.Op - syntax.PLUS_EQ + syntax.PLUS
		if x, ok := unparen(s.LHS).(*syntax.IndexExpr); ok { // of a list, or a key that is there
			x.X, x.Y = expr(x.X), key(fnKey, x.Lbrack, x.Y)
		} else {
			target(s.LHS)
		}
		s.RHS = expr(s.RHS)
		switch {
		case isLiteralOf(s.RHS, syntax.FLOAT), s.Op == syntax.SLASH_EQ:
			return s // nothing large comes of it
		case s.Op == syntax.PERCENT_EQ || s.Op == syntax.LTLT_EQ || s.Op == syntax.GTGT_EQ: // these look at any right side, fnRight as well
			if x, ok := unparen(s.LHS).(*syntax.IndexExpr); ok {
				return &syntax.ExprStmt{X: call(s.OpPos, fnAt+op.String(), call(x.Lbrack, fnAt, x.X, x.Y), s.RHS)}
			}
			fallthrough
		case isLiteralOf(s.RHS, syntax.INT): // no left side is changed in place by it, so that no fnRight is made for a counter
			if x, ok := unparen(s.LHS).(*syntax.Ident); ok {
				whole := call(s.OpPos, hidden+op.String(), &syntax.Ident{NamePos: x.NamePos, Name: x.Name}, s.RHS)
				return &syntax.AssignStmt{OpPos: s.OpPos, Op: syntax.EQ, LHS: x, RHS: whole}
			}
		}
		s.RHS = call(s.OpPos, fnRight, s.RHS)
		return s
	}
	if x, ok := unparen(s.LHS).(*syntax.IndexExpr); ok {
		return &syntax.ExprStmt{X: call(x.Lbrack, fnSet, expr(s.RHS), expr(x.X), expr(x.Y))}
	}
	target(s.LHS)
	if t, ok := unparen(s.RHS).(*syntax.TupleExpr); ok && isPattern(s.LHS) {
		exprs(t.List) // unpacked at once
		return s
	}
	s.RHS = expr(s.RHS)
	return s
}

func isPattern(e syntax.Expr) bool {
	switch unparen(e).(type) {
	case *syntax.TupleExpr, *syntax.ListExpr:
		return true
	}
	return false
}

// target rewrites what stands on the left of an assignment.
func target(e syntax.Expr) {
	switch e := e.(type) {
	case *syntax.ParenExpr:
		target(e.X)
	case *syntax.TupleExpr:
		for _, x := range e.List {
			target(x)
		}
	case *syntax.ListExpr:
		for _, x := range e.List {
			target(x)
		}
	case *syntax.IndexExpr:
		e.X, e.Y = expr(e.X), key(fnStored, e.Lbrack, e.Y)
	case *syntax.DotExpr:
		e.X = expr(e.X)
	}
}

// defaults rewrites the default values of parameters.
func defaults(params []syntax.Expr) {
	for _, p := range params {
		if b, ok := p.(*syntax.BinaryExpr); ok {
			b.Y = expr(b.Y)
		}
	}
}

func exprs(list []syntax.Expr) {
	for i, x := range list {
		list[i] = expr(x)
	}
}

func expr(e syntax.Expr) syntax.Expr {
	switch e := e.(type) {
	case *syntax.ParenExpr:
		e.X = expr(e.X)
	case *syntax.ListExpr:
		exprs(e.List)
		return call(e.Lbrack, fnNew, e)
	case *syntax.TupleExpr:
		exprs(e.List)
		if len(e.List) > 0 {
			return call(syntax.Start(e), fnNew, e)
		}
	case *syntax.DictExpr:
		for _, x := range e.List {
			entry := x.(*syntax.DictEntry)
			entry.Key, entry.Value = key(fnKey, entry.Colon, entry.Key), expr(entry.Value)
		}
		return call(e.Lbrace, fnNew, e)
	case *syntax.Comprehension:
		return comprehension(e)
	case *syntax.CondExpr:
		e.Cond, e.True, e.False = expr(e.Cond), expr(e.True), expr(e.False)
	case *syntax.IndexExpr:
		e.X, e.Y = expr(e.X), key(fnKey, e.Lbrack, e.Y)
	case *syntax.SliceExpr:
		e.X = expr(e.X)
		if e.Step != nil {
			e.X = call(e.Lbrack, fnCut, e.X)
		}
		for _, x := range []*syntax.Expr{&e.Lo, &e.Hi, &e.Step} {
			if *x != nil {
				*x = expr(*x)
			}
		}
		return call(e.Lbrack, fnNew, e)
	case *syntax.UnaryExpr:
		e.X = expr(e.X)
		if (e.Op == syntax.MINUS || e.Op == syntax.TILDE) && !isNumber(e.X) {
			return call(e.OpPos, fnNew, e)
		}
	case *syntax.BinaryExpr:
		return operator(e)
	case *syntax.DotExpr:
		e.X = expr(e.X)
		if isMethod(e.Name.Name) {
			name := &syntax.Literal{Token: syntax.STRING, TokenPos: e.NamePos, Value: e.Name.Name}
			return call(e.Dot, fnMethod, e.X, name)
		}
	case *syntax.CallExpr:
		e.Fn = expr(e.Fn)
		arguments(e.Args)
	case *syntax.LambdaExpr:
		defaults(e.Params)
		e.Body = expr(e.Body)
		return call(e.Lambda, fnNew, e)
	}
	return e
}

func arguments(args []syntax.Expr) {
	for i, a := range args {
		switch a := a.(type) {
		case *syntax.BinaryExpr:
			if a.Op == syntax.EQ {
				a.Y = expr(a.Y)
				continue
			}
		case *syntax.UnaryExpr:
			if a.Op == syntax.STAR || a.Op == syntax.STARSTAR {
				a.X = call(a.OpPos, fnStar, expr(a.X))
				continue
			}
		}
		args[i] = expr(a)
	}
}

func comprehension(e *syntax.Comprehension) syntax.Expr {
	for _, c := range e.Clauses {
		switch c := c.(type) {
		case *syntax.ForClause:
			target(c.Vars)
			c.X = expr(c.X)
		case *syntax.IfClause:
			c.Cond = expr(c.Cond)
		}
	}
	if entry, ok := e.Body.(*syntax.DictEntry); ok {
		entry.Key, entry.Value = call(entry.Colon, fnStored, expr(entry.Key)), expr(entry.Value)
	} else {
		e.Body = call(syntax.Start(e.Body), fnElem, expr(e.Body))
	}
	return e
}

// key rewrites a key or an index. One that stands in the text needs no look.
func key(name string, pos syntax.Position, e syntax.Expr) syntax.Expr {
	if isLiteral(e) && name == fnKey {
		return e
	}
	return call(pos, name, expr(e))
}

func isLiteral(e syntax.Expr) bool {
	_, ok := unparen(e).(*syntax.Literal)
	return ok
}

func isLiteralOf(e syntax.Expr, kind syntax.Token) bool {
	l, ok := unparen(e).(*syntax.Literal)
	return ok && l.Token == kind
}

// isCheap reports whether an expression is soon compared with anything: a literal that is neither a
// float nor a large number.
func isCheap(e syntax.Expr) bool {
	return isLiteral(e) && !isLiteralOf(e, syntax.FLOAT) && (!isLiteralOf(e, syntax.INT) || isNumber(e))
}

// isNumber reports whether an expression is a number of the text that is not large.
func isNumber(e syntax.Expr) bool {
	l, ok := unparen(e).(*syntax.Literal)
	if !ok {
		return false
	}
	_, small := l.Value.(int64) // a large one is a *big.Int
	return small || l.Token == syntax.FLOAT
}

// operator rewrites an operator with two sides.
func operator(e *syntax.BinaryExpr) syntax.Expr {
	switch e.Op {
	case syntax.PLUS:
		return sum(e)
	case syntax.NOT_IN:
		return &syntax.UnaryExpr{OpPos: e.OpPos, Op: syntax.NOT, X: call(e.OpPos, hidden+syntax.IN.String(), expr(e.X), expr(e.Y))}
	}
	e.X, e.Y = expr(e.X), expr(e.Y)
	switch e.Op {
	case syntax.EQL, syntax.NEQ, syntax.LT, syntax.LE, syntax.GT, syntax.GE:
		if isCheap(e.X) || isCheap(e.Y) {
			return e
		}
	case syntax.MINUS:
		if isLiteralOf(e.X, syntax.FLOAT) || isLiteralOf(e.Y, syntax.FLOAT) {
			return e
		}
	case syntax.AMP: // no larger than a number that is not below zero
		if isNumber(e.X) || isNumber(e.Y) {
			return e
		}
	case syntax.PIPE, syntax.CIRCUMFLEX, syntax.STAR, syntax.PERCENT, syntax.SLASHSLASH, syntax.LTLT, syntax.GTGT, syntax.IN:
	default:
		return e
	}
	return call(e.OpPos, hidden+e.Op.String(), e.X, e.Y)
}

// sum rewrites a chain of pluses. The compiler joins texts, lists and tuples of the text that
// are next to each other; what it would join stays together.
func sum(e *syntax.BinaryExpr) syntax.Expr {
	type summand struct {
		x   syntax.Expr
		pos syntax.Position
	}
	var reversed []summand
	for left := syntax.Expr(e); ; {
		plus, ok := left.(*syntax.BinaryExpr)
		if !ok || plus.Op != syntax.PLUS {
			reversed = append(reversed, summand{x: left})
			break
		}
		reversed = append(reversed, summand{unparen(plus.Y), plus.OpPos})
		left = unparen(plus.X)
	}
	var parts []summand
	for end := len(reversed); end > 0; {
		first := reversed[end-1]
		begin := end - 1
		if code := addable(first.x); code != 0 {
			for begin > 0 && addable(reversed[begin-1].x) == code {
				begin--
			}
		}
		if begin < end-1 {
			var same []syntax.Expr
			for i := end - 1; i >= begin; i-- {
				same = append(same, reversed[i].x)
			}
			first.x = joinAll(same)
		}
		parts = append(parts, first)
		end = begin
	}
	whole := expr(parts[0].x)
	for i, s := range parts[1:] {
		if isLiteralOf(s.x, syntax.FLOAT) || isLiteralOf(parts[i].x, syntax.FLOAT) && i == 0 {
			whole = &syntax.BinaryExpr{X: whole, OpPos: s.pos, Op: syntax.PLUS, Y: expr(s.x)}
		} else {
			whole = call(s.pos, hidden+"+", whole, expr(s.x))
		}
	}
	return whole
}

// addable is the kind of what the compiler joins with its neighbours, or 0.
func addable(e syntax.Expr) syntax.Token {
	switch e := e.(type) {
	case *syntax.Literal:
		if e.Token == syntax.STRING || e.Token == syntax.BYTES {
			return e.Token
		}
	case *syntax.ListExpr:
		return syntax.LBRACK
	case *syntax.TupleExpr:
		return syntax.LPAREN
	}
	return 0
}

// joinAll joins neighbours of one kind.
func joinAll(parts []syntax.Expr) syntax.Expr {
	switch first := parts[0].(type) {
	case *syntax.Literal:
		var text strings.Builder
		for _, p := range parts {
			text.WriteString(p.(*syntax.Literal).Value.(string))
		}
		return &syntax.Literal{Token: first.Token, TokenPos: first.TokenPos, Raw: first.Raw, Value: text.String()}
	case *syntax.ListExpr:
		list := &syntax.ListExpr{Lbrack: first.Lbrack, Rbrack: first.Rbrack}
		for _, p := range parts {
			list.List = append(list.List, p.(*syntax.ListExpr).List...)
		}
		return list
	case *syntax.TupleExpr:
		tuple := &syntax.TupleExpr{Lparen: first.Lparen, Rparen: first.Rparen}
		for _, p := range parts {
			tuple.List = append(tuple.List, p.(*syntax.TupleExpr).List...)
		}
		return tuple
	}
	return parts[0]
}

func unparen(e syntax.Expr) syntax.Expr {
	for {
		p, ok := e.(*syntax.ParenExpr)
		if !ok {
			return e
		}
		e = p.X
	}
}

// call is a call of a hidden function, at a place of the text.
func call(pos syntax.Position, name string, args ...syntax.Expr) syntax.Expr {
	return &syntax.CallExpr{Fn: &syntax.Ident{NamePos: pos, Name: name}, Lparen: pos, Args: args, Rparen: pos}
}
