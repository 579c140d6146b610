package authz

import (
	"slices"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/ast"
	internalast "github.com/cedar-policy/cedar-go/x/exp/ast"
)

// branch is a node of the index, which has three levels: principal, action and
// resource. At each level a policy lies under what its scope asks of the entity
// there, so that a walk along the entities of a request meets the policies whose
// scope can hold, and no others: the cost of a decision follows the number of
// those, not of all. A policy whose scope does not hold says nothing and cannot
// err, so leaving it out changes neither the decision nor the errors.
type branch struct {
	any      *branch // no condition on the entity
	is       map[cedar.EntityUID]*branch
	within   map[cedar.EntityUID]*branch // the entity or one of its ancestors
	typed    map[cedar.EntityType]*branch
	policies []int32 // at the third level
}

// add puts a policy in its place, or places when its scope lists actions.
func (b *branch) add(p *ast.Policy, number int32) {
	for _, first := range b.children(p.Principal) {
		for _, second := range first.children(p.Action) {
			for _, third := range second.children(p.Resource) {
				if n := len(third.policies); n == 0 || third.policies[n-1] != number {
					third.policies = append(third.policies, number)
				}
			}
		}
	}
}

// children returns the branches for a scope, which it makes where there are none.
func (b *branch) children(scope internalast.IsScopeNode) []*branch {
	switch s := scope.(type) {
	case internalast.ScopeTypeEq:
		return []*branch{child(&b.is, s.Entity)}
	case internalast.ScopeTypeIn:
		return []*branch{child(&b.within, s.Entity)}
	case internalast.ScopeTypeIsIn:
		return []*branch{child(&b.within, s.Entity)} // its type is left to the evaluation
	case internalast.ScopeTypeIs:
		return []*branch{child(&b.typed, s.Type)}
	case internalast.ScopeTypeInSet:
		list := make([]*branch, 0, len(s.Entities))
		for _, e := range s.Entities {
			list = append(list, child(&b.within, e))
		}
		return list
	}
	if b.any == nil {
		b.any = new(branch)
	}
	return []*branch{b.any}
}

func child[K comparable](m *map[K]*branch, key K) *branch {
	c := (*m)[key]
	if c == nil {
		if *m == nil {
			*m = map[K]*branch{}
		}
		c = new(branch)
		(*m)[key] = c
	}
	return c
}

// find appends the policies whose scope can hold for the entities, each once
// and in the order of the set.
func (b *branch) find(dst []int32, principal, action, resource *lineage) []int32 {
	b.walk(principal, func(first *branch) {
		first.walk(action, func(second *branch) {
			second.walk(resource, func(third *branch) {
				dst = append(dst, third.policies...)
			})
		})
	})
	slices.Sort(dst)
	return slices.Compact(dst)
}

// walk visits the branches that an entity leads to.
func (b *branch) walk(l *lineage, visit func(*branch)) {
	if b.any != nil {
		visit(b.any)
	}
	if c := b.is[l.self]; c != nil {
		visit(c)
	}
	if c := b.typed[l.self.Type]; c != nil {
		visit(c)
	}
	if len(b.within) < len(l.all) {
		for uid, c := range b.within {
			if l.has(uid) {
				visit(c)
			}
		}
		return
	}
	for _, uid := range l.all {
		if c := b.within[uid]; c != nil {
			visit(c)
		}
	}
}
