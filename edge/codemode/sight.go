package codemode

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/catalog"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/near"
	"github.com/weir-edge/weir/scripting"
)

// sight is the tools that a client may see, as its scripts know them. It never changes.
type sight struct {
	key   edge.Key
	names []string          // advertised, in the order of the list
	tools map[string][]byte // definitions by advertised name, JSON text
	named map[string]string // advertised names by those of functions
	aside []string          // tools that are no functions, since something else has their name
	size  int
}

// seen returns what the client of an exchange may see.
func (t *Tool) seen(ctx context.Context, x *edge.Exchange) (*sight, error) {
	c, err := t.o.Catalog(ctx, x.Identity)
	if err != nil {
		return nil, err
	}
	listed := c.Listed(edge.Tool)
	h := sha256.New()
	h.Write([]byte("sight\x00"))
	h.Write(listed[:])
	if x.View != nil {
		h.Write([]byte("\x00" + x.View.Key()))
	}
	key, now := edge.Key(h.Sum(nil)), time.Now()
	if s, ok := t.o.Cache.Get(key, now).(*sight); ok {
		return s, nil
	}
	s := look(c.Seen(edge.Tool, x.View))
	s.key = key
	t.o.Cache.Put(key, s, int64(s.size), time.Time{})
	return s, nil
}

// look makes the sight of tools. Names that are taken by the language stay its own, and two
// tools with one name both lose it.
func look(things catalog.Things) *sight {
	s := &sight{tools: map[string][]byte{}, named: map[string]string{}}
	twice := map[string]bool{}
	for target, raw := range things {
		if own(target) {
			continue
		}
		s.names = append(s.names, target.Name)
		s.tools[target.Name] = raw
		s.size += 256 + len(raw) + 4*len(target.Name)
		name := scripting.Sanitize(target.Name)
		if _, ok := s.named[name]; ok {
			twice[name] = true
		}
		s.named[name] = target.Name
	}
	for name := range s.named {
		if twice[name] || scripting.Taken(name) {
			delete(s.named, name)
		}
	}
	for _, name := range s.names {
		if !s.isFunction(name) {
			s.aside = append(s.aside, name)
		}
	}
	return s
}

// own reports whether a tool is one of the edge's own that no script may call.
func own(t *edge.Target) bool { return t.Backend == "" && catalog.Reserved(t.Name) }

// function returns the advertised name of the tool that a function is.
func (s *sight) function(name string) (advertised string, ok bool) {
	advertised, ok = s.named[name]
	return advertised, ok
}

// isFunction reports whether a tool is a function.
func (s *sight) isFunction(advertised string) bool {
	name, ok := s.named[scripting.Sanitize(advertised)]
	return ok && name == advertised
}

// functions returns the names of all functions.
func (s *sight) functions() []string {
	var all []string
	for name := range s.named {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// parameter is a parameter of a tool.
type parameter struct {
	name     string
	required bool
}

// parametersOf returns the parameters of a tool by its definition: those that it requires,
// in their order, then the others.
func parametersOf(definition []byte) []parameter {
	schema := mcp.Lookup(definition, "inputSchema")
	var all []parameter
	known := map[string]bool{}
	for _, e := range mcp.Elements(mcp.Lookup(schema, "required")) {
		if name, ok := text(e); ok && !known[name] {
			known[name] = true
			all = append(all, parameter{name, true})
		}
	}
	mcp.Each(mcp.Lookup(schema, "properties"), func(name, _ []byte) bool {
		if name := string(mcp.Unquote(name)); !known[name] {
			known[name] = true
			all = append(all, parameter{name, false})
		}
		return len(all) < maxParameters
	})
	return all
}

// maxParameters is how many parameters of one tool are looked at.
const maxParameters = 1000

// meant says which tool somebody may have meant by a name that none has, for the end of a
// message; "" for none.
func (s *sight) meant(name string) string {
	if word, ok := near.Word(name, s.names); ok {
		return fmt.Sprintf(" (did you mean %s?)", word)
	}
	return ""
}
