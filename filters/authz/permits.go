package authz

import (
	"github.com/cedar-policy/cedar-go"
	internalast "github.com/cedar-policy/cedar-go/x/exp/ast"
)

// Permits reports whether a policy of a set may permit somebody a call of one of the edge's
// own tools at a server, as far as their scopes say. Conditions are not looked at, so that
// false is certain and true is not. A set that is not right permits everything.
func Permits(spec Spec, server, tool string) bool {
	p, wrong := readSet(spec, nil)
	if len(wrong) > 0 || p.static == nil {
		return true
	}
	action := lineageOf(p.static.all, cedar.NewEntityUID(typeAction, "call_tool"))
	resource := lineageOf(p.static.all, cedar.NewEntityUID(typeTool, cedar.String(tool)))
	above := lineageOf(p.static.all, cedar.NewEntityUID(typeServer, cedar.String(server)))
	for _, uid := range above.all {
		if !resource.has(uid) {
			resource.put(uid)
		}
	}
	for i := range p.policies {
		one := &p.policies[i]
		if ast := one.compiled.AST(); !one.forbids && holds(ast.Action, &action) && holds(ast.Resource, &resource) {
			return true
		}
	}
	return false
}

// holds reports whether a scope holds for an entity.
func holds(scope internalast.IsScopeNode, l *lineage) bool {
	switch s := scope.(type) {
	case internalast.ScopeTypeEq:
		return s.Entity == l.self
	case internalast.ScopeTypeIn:
		return l.has(s.Entity)
	case internalast.ScopeTypeIsIn:
		return s.Type == l.self.Type && l.has(s.Entity)
	case internalast.ScopeTypeIs:
		return s.Type == l.self.Type
	case internalast.ScopeTypeInSet:
		for _, e := range s.Entities {
			if l.has(e) {
				return true
			}
		}
		return false
	}
	return true
}
