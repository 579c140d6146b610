package authz

import (
	"crypto/sha256"
	"hash"
	"maps"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"
	internalast "github.com/cedar-policy/cedar-go/x/exp/ast"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// The beginnings of attributes whose names the message or the token chooses.
const (
	prefixArgument = "arg_"
	prefixClaim    = "claim_"
	prefixClaimSet = "claimset_"
	suffixPresent  = "_present"
)

// prefixAttribute is the beginning of attributes of a principal that programs
// alone choose.
const prefixAttribute = "attr_"

// reads is what the policies of a set can learn of a request. Where two
// requests agree in all of it they get the same decision, which is what lets
// decisions be kept, and lists be shared between principals.
//
// Cedar has no computed names: an attribute is read by a name that is written
// in the policy, or with the whole record that it is in. An entity reached in a
// roundabout way, as the owner of something, is found by the name all the same.
// Of who or what somebody is only equality can be asked, and since nothing that a
// client sends becomes an entity, only with one that the set mentions: entities
// that it does not mention are all alike to it.
type reads struct {
	arguments    map[string]struct{} // names, without the prefix
	folded       map[string]string   // the same as readers that ignore case see them, and one that it is
	allArguments bool
	argumentsOf  []bool // by policy: whether it reads any

	claims    map[string]struct{}
	claimSets map[string]struct{}
	allClaims bool

	mentioned map[cedar.EntityUID]struct{} // by the policies and the static entities
	overlap   bool                         // whether any asks if two sets share an element
	backend   bool                         // whether it matters where a thing comes from
	names     map[string]struct{}          // of all attributes that are read, of whatever
}

func readsOf(policies []policy, static *entities) reads {
	r := reads{
		arguments: map[string]struct{}{}, claims: map[string]struct{}{}, claimSets: map[string]struct{}{},
		mentioned: map[cedar.EntityUID]struct{}{}, names: map[string]struct{}{}, argumentsOf: make([]bool, len(policies)),
	}
	for uid := range static.all {
		r.mentioned[uid] = struct{}{}
	}
	for uid := range static.mentioned {
		r.mentioned[uid] = struct{}{}
	}
	for i := range policies {
		p := policies[i].compiled.AST()
		for _, scope := range []internalast.IsScopeNode{p.Principal, p.Action, p.Resource} {
			r.scope(scope)
		}
		for _, c := range p.Conditions {
			r.node(c.Body)
			r.argumentsOf[i] = r.argumentsOf[i] || readsArguments(c.Body)
		}
	}
	for uid := range r.mentioned {
		r.backend = r.backend || uid.Type == typeBackend
	}
	r.folded = make(map[string]string, len(r.arguments))
	for _, name := range slices.Sorted(maps.Keys(r.arguments)) {
		r.folded[mcp.Fold(name)] = name
	}
	return r
}

func (r *reads) scope(scope internalast.IsScopeNode) {
	switch s := scope.(type) {
	case internalast.ScopeTypeEq:
		r.mentioned[s.Entity] = struct{}{}
	case internalast.ScopeTypeIn:
		r.mentioned[s.Entity] = struct{}{}
	case internalast.ScopeTypeIsIn:
		r.mentioned[s.Entity] = struct{}{}
	case internalast.ScopeTypeInSet:
		for _, e := range s.Entities {
			r.mentioned[e] = struct{}{}
		}
	}
}

// node notes what an expression reads.
func (r *reads) node(n internalast.IsNode) {
	internalast.Inspect(internalast.NewNode(n), func(n internalast.IsNode) bool {
		switch n := n.(type) {
		case internalast.NodeTypeAccess:
			r.attribute(string(n.Value))
			return !variable(n.Arg)
		case internalast.NodeTypeHas:
			r.attribute(string(n.Value))
			return !variable(n.Arg)
		case internalast.NodeTypeVariable:
			if n.Name == "context" {
				r.allArguments, r.allClaims = true, true
			}
		case internalast.NodeTypeContainsAny:
			r.overlap = true
		case internalast.NodeTypeRecord:
			for _, e := range n.Elements {
				r.argument(string(e.Key))
			}
		case internalast.NodeValue:
			mention(r.mentioned, n.Value)
			r.members(n.Value)
		}
		return true
	})
}

// variable reports whether an expression is a variable. As what an attribute is
// read of, it is no more than that attribute.
func variable(n internalast.IsNode) bool {
	_, ok := n.(internalast.NodeTypeVariable)
	return ok
}

// said reports whether policies read what programs say of a principal under a name.
func (r *reads) said(name string) bool {
	_, read := r.names[prefixAttribute+name]
	return read
}

// digestAttributes returns a digest of those attributes that policies read; zero
// for none.
func (r *reads) digestAttributes(all edge.Attributes) (digest [sha256.Size]byte) {
	var h hash.Hash
	for i := range all {
		if r.said(all[i].Name) {
			if h == nil {
				h = sha256.New()
			}
			write(h, all[i].Name, all[i].Value)
		}
	}
	if h != nil {
		h.Sum(digest[:0])
	}
	return digest
}

func (r *reads) attribute(name string) {
	r.names[name] = struct{}{}
	r.argument(name)
	if name, ok := strings.CutPrefix(name, prefixClaim); ok {
		r.claims[name] = struct{}{}
	}
	if name, ok := strings.CutPrefix(name, prefixClaimSet); ok {
		r.claimSets[name] = struct{}{}
	}
	r.backend = r.backend || slices.Contains([]string{"backend", "originalName", "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"}, name)
}

// argument notes the argument that an attribute is. Members of records that
// policies write are noted, too: the whole context may be compared with them.
func (r *reads) argument(name string) {
	name, ok := strings.CutPrefix(name, prefixArgument)
	if !ok {
		return
	}
	r.arguments[name] = struct{}{}
	if name, ok := strings.CutSuffix(name, suffixPresent); ok {
		r.arguments[name] = struct{}{}
	}
}

// members notes the members of the records in a value.
func (r *reads) members(v cedar.Value) {
	switch v := v.(type) {
	case cedar.Record:
		for name, value := range v.All() {
			r.argument(string(name))
			r.members(value)
		}
	case cedar.Set:
		for value := range v.All() {
			r.members(value)
		}
	}
}

// readsArguments reports whether the value of an expression can depend on
// arguments.
func readsArguments(n internalast.IsNode) (does bool) {
	internalast.Inspect(internalast.NewNode(n), func(n internalast.IsNode) bool {
		switch n := n.(type) {
		case internalast.NodeTypeAccess:
			does = does || strings.HasPrefix(string(n.Value), prefixArgument)
			return !variable(n.Arg)
		case internalast.NodeTypeHas:
			does = does || strings.HasPrefix(string(n.Value), prefixArgument)
			return !variable(n.Arg)
		case internalast.NodeTypeVariable:
			does = does || n.Name == "context"
		}
		return !does
	})
	return does
}
