package authz

import (
	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/ast"
	"github.com/cedar-policy/cedar-go/types"
	internalast "github.com/cedar-policy/cedar-go/x/exp/ast"
)

// outcome is what evaluating an expression can come to: a set of the three.
type outcome uint8

const (
	isTrue outcome = 1 << iota
	isFalse
	isError

	anything = isTrue | isFalse | isError
)

// tree is a policy as it looks while the arguments of a call are not known:
// and, or, not and if are kept, what depends on no argument is evaluated by the
// policy language, and of what does depend on one any outcome is possible.
type tree interface {
	outcome(cedar.EntityGetter, cedar.Request) outcome
}

// openTree makes the tree of a policy.
func openTree(p *cedar.Policy) tree {
	source := p.AST()
	scope := ast.Permit()
	scope.Principal, scope.Action, scope.Resource = source.Principal, source.Action, source.Resource
	var t tree = leaf{cedar.NewPolicyFromAST(scope)}
	for _, c := range source.Conditions {
		condition := treeOf(c.Body)
		if c.Condition == internalast.ConditionUnless {
			condition = not{condition}
		}
		t = and{t, condition}
	}
	return t
}

func treeOf(n internalast.IsNode) tree {
	if !readsArguments(n) {
		return leaf{cedar.NewPolicyFromAST(ast.Permit().When(ast.Node{Node: internalast.NewNode(n)}))}
	}
	switch n := n.(type) {
	case internalast.NodeTypeAnd:
		return and{treeOf(n.Left), treeOf(n.Right)}
	case internalast.NodeTypeOr:
		return or{treeOf(n.Left), treeOf(n.Right)}
	case internalast.NodeTypeNot:
		return not{treeOf(n.Arg)}
	case internalast.NodeTypeIfThenElse:
		return choice{treeOf(n.If), treeOf(n.Then), treeOf(n.Else)}
	}
	return unknown{}
}

// leaf is an expression that is known: a policy that permits when it is true.
type leaf struct{ policy *cedar.Policy }

func (l leaf) outcome(g cedar.EntityGetter, r cedar.Request) outcome {
	decision, d := cedar.Authorize(l, g, r)
	switch {
	case len(d.Errors) > 0:
		return isError
	case decision == types.Allow:
		return isTrue
	}
	return isFalse
}

// All makes a leaf a set of one policy.
func (l leaf) All() policySeq {
	return func(yield func(cedar.PolicyID, *cedar.Policy) bool) { yield("", l.policy) }
}

type unknown struct{}

func (unknown) outcome(cedar.EntityGetter, cedar.Request) outcome { return anything }

type and struct{ left, right tree }

func (a and) outcome(g cedar.EntityGetter, r cedar.Request) outcome {
	left := a.left.outcome(g, r)
	if left&isTrue == 0 {
		return left
	}
	return left&^isTrue | a.right.outcome(g, r)
}

type or struct{ left, right tree }

func (o or) outcome(g cedar.EntityGetter, r cedar.Request) outcome {
	left := o.left.outcome(g, r)
	if left&isFalse == 0 {
		return left
	}
	return left&^isFalse | o.right.outcome(g, r)
}

type not struct{ arg tree }

func (n not) outcome(g cedar.EntityGetter, r cedar.Request) outcome {
	o := n.arg.outcome(g, r)
	turned := o & isError
	if o&isTrue != 0 {
		turned |= isFalse
	}
	if o&isFalse != 0 {
		turned |= isTrue
	}
	return turned
}

type choice struct{ condition, yes, no tree }

func (c choice) outcome(g cedar.EntityGetter, r cedar.Request) outcome {
	condition := c.condition.outcome(g, r)
	o := condition & isError
	if condition&isTrue != 0 {
		o |= c.yes.outcome(g, r)
	}
	if condition&isFalse != 0 {
		o |= c.no.outcome(g, r)
	}
	return o
}
