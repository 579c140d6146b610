package authz

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"

	"github.com/weir-edge/weir/edge/mcp"
)

// The bounds of entitiesJson, checked before it is read.
const (
	maxEntityText = 1 << 20 // bytes
	maxEntities   = 20_000

	maxWrongEntities = 10 // that are told of
)

// entities are those that a policy set brings along.
type entities struct {
	all       cedar.EntityMap
	mentioned map[cedar.EntityUID]struct{} // in attributes, tags and parents
}

// parseEntities reads and judges entitiesJson. Without a schema Cedar takes
// what looks like an entity, {"type": …, "id": …}, for a record, and a policy
// that compares it with an entity then says no without an error; so that form
// is refused in attributes and tags, as are unknown members, entities given
// twice and entities that are their own ancestors.
func parseEntities(text string) (*entities, error) {
	e := &entities{all: cedar.EntityMap{}, mentioned: map[cedar.EntityUID]struct{}{}}
	if text == "" {
		return e, nil
	}
	if len(text) > maxEntityText {
		return nil, fmt.Errorf("more than %d bytes", maxEntityText)
	}
	if err := mcp.Valid([]byte(text)); err != nil {
		return nil, err
	}
	var list []json.RawMessage
	if err := json.Unmarshal([]byte(text), &list); err != nil || list == nil {
		return nil, errors.New("must be a JSON array")
	}
	if len(list) > maxEntities {
		return nil, fmt.Errorf("more than %d entities", maxEntities)
	}
	var wrong []string
	for i, one := range list {
		if err := e.add(one); err != nil {
			if wrong = append(wrong, fmt.Sprintf("entity %d: %v", i, err)); len(wrong) == maxWrongEntities {
				break
			}
		}
	}
	if len(wrong) > 0 {
		return nil, errors.New(strings.Join(wrong, "; "))
	}
	return e, e.acyclic()
}

func (e *entities) add(text []byte) error {
	for _, m := range mcp.Members(text) {
		switch name := string(mcp.Unquote(m.Name)); name {
		case "uid", "parents":
		case "attrs", "tags":
			for _, attr := range mcp.Members(m.Value) {
				if err := explicit(attr.Value, name+"."+string(attr.Name)); err != nil {
					return err
				}
			}
		default:
			return fmt.Errorf("unknown member %q: an entity has uid, attrs, parents and tags", name)
		}
	}
	var one cedar.Entity
	if err := one.UnmarshalJSON(text); err != nil {
		return err
	}
	if one.UID.Type == typeClient {
		for name := range one.Attributes.Keys() {
			if strings.HasPrefix(string(name), prefixAttribute) {
				return fmt.Errorf("attrs.%s of %s: what begins with %s is what filters say of a client: use another name", name, one.UID, prefixAttribute)
			}
		}
	}
	if _, twice := e.all[one.UID]; twice {
		return fmt.Errorf("%s is given twice", one.UID)
	}
	e.all[one.UID] = one
	for parent := range one.Parents.All() {
		e.mentioned[parent] = struct{}{}
	}
	mention(e.mentioned, one.Attributes)
	mention(e.mentioned, one.Tags)
	return nil
}

// explicit refuses references that are not written as such.
func explicit(text []byte, path string) error {
	var v mcp.Outline
	if err := v.Read(text, mcp.Bounds{}); err != nil {
		return err
	}
	if at, bad := implicit(&v, 0); bad {
		return fmt.Errorf(`%s%s looks like an entity but would be a record: write {"__entity": {"type": …, "id": …}}`, path, at)
	}
	return nil
}

// implicit looks for what would be a record in a value, and says where it is.
func implicit(v *mcp.Outline, n int) (at string, bad bool) {
	switch v.Value(n)[0] {
	case '{':
		var names []string
		for i := v.First(n); i < v.End(n) && len(names) < 3; i = v.After(i) {
			names = append(names, string(mcp.Unquote(v.Name(i))))
		}
		if slices.Equal(names, []string{"type", "id"}) || slices.Equal(names, []string{"id", "type"}) {
			return "", true
		}
		if len(names) == 1 && (names[0] == "__entity" || names[0] == "__extn") {
			return "", false
		}
		for i := v.First(n); i < v.End(n); i = v.After(i) {
			if at, bad = implicit(v, i); bad {
				return "." + string(mcp.Unquote(v.Name(i))) + at, true
			}
		}
	case '[':
		for i, k := v.First(n), 0; i < v.End(n); i, k = v.After(i), k+1 {
			if at, bad = implicit(v, i); bad {
				return fmt.Sprintf("[%d]%s", k, at), true
			}
		}
	}
	return "", false
}

// mention collects the entities that a value refers to.
func mention(into map[cedar.EntityUID]struct{}, v cedar.Value) {
	switch v := v.(type) {
	case cedar.EntityUID:
		into[v] = struct{}{}
	case cedar.Record:
		for value := range v.Values() {
			mention(into, value)
		}
	case cedar.Set:
		for value := range v.All() {
			mention(into, value)
		}
	}
}

// acyclic refuses an entity that is its own ancestor.
func (e *entities) acyclic() error {
	const under, done = 1, 2
	state := make(map[cedar.EntityUID]int8, len(e.all))
	type step struct {
		uid  cedar.EntityUID
		left []cedar.EntityUID
	}
	for uid := range e.all {
		if state[uid] == done {
			continue
		}
		state[uid] = under
		for path := []step{{uid, e.all[uid].Parents.Slice()}}; len(path) > 0; {
			top := &path[len(path)-1]
			if len(top.left) == 0 {
				state[top.uid] = done
				path = path[:len(path)-1]
				continue
			}
			next := top.left[0]
			top.left = top.left[1:]
			switch state[next] {
			case under:
				return fmt.Errorf("%s is its own ancestor", next)
			case done:
				continue
			}
			state[next] = under
			path = append(path, step{next, e.all[next].Parents.Slice()})
		}
	}
	return nil
}

// world is every entity that a request can see: the set's, and on top of them
// the client and what it asks for. It is what the policy language's evaluation
// asks.
type world struct {
	static              cedar.EntityMap
	principal, resource *cedar.Entity
}

// Get returns an entity.
func (w *world) Get(uid cedar.EntityUID) (cedar.Entity, bool) {
	switch {
	case uid == w.resource.UID:
		return *w.resource, true
	case uid == w.principal.UID:
		return *w.principal, true
	}
	e, ok := w.static[uid]
	return e, ok
}

// lineage is an entity and all its ancestors.
type lineage struct {
	self cedar.EntityUID
	all  []cedar.EntityUID // self first
	set  map[cedar.EntityUID]struct{}
}

// lineageOf walks the ancestors of an entity, those of the static set included.
func lineageOf(get cedar.EntityGetter, self cedar.EntityUID) lineage {
	l := lineage{self: self, all: []cedar.EntityUID{self}}
	for i := 0; i < len(l.all); i++ {
		e, ok := get.Get(l.all[i])
		if !ok {
			continue
		}
		for parent := range e.Parents.All() {
			if !l.has(parent) {
				l.put(parent)
			}
		}
	}
	return l
}

// fewAncestors is up to how many of them a walk beats a map.
const fewAncestors = 16

func (l *lineage) put(uid cedar.EntityUID) {
	l.all = append(l.all, uid)
	if l.set == nil && len(l.all) > fewAncestors {
		l.set = make(map[cedar.EntityUID]struct{}, 2*len(l.all))
		for _, one := range l.all {
			l.set[one] = struct{}{}
		}
	}
	if l.set != nil {
		l.set[uid] = struct{}{}
	}
}

func (l *lineage) has(uid cedar.EntityUID) bool {
	if l.set != nil {
		_, ok := l.set[uid]
		return ok
	}
	for _, one := range l.all {
		if one == uid {
			return true
		}
	}
	return false
}
