package route

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/backend"
	"github.com/weir-edge/weir/edge/catalog"
	"github.com/weir-edge/weir/edge/mcp"
)

// Names lead to backends by the tables of the catalog, and are replaced by those that
// the backend uses.

// source is a backend as the catalog sees it.
type source struct{ *backend.Backend }

func (s source) Name() string { return s.Backend.Name }

func (s source) Capabilities(ctx context.Context, id *edge.Identity) ([]byte, error) {
	in, err := s.Introduced(ctx, id)
	if err != nil {
		return nil, err
	}
	return in.Capabilities, nil
}

// Target finds the target of a message before the hallway, so that every filter
// can see it; nil if there is none.
func (s *Server) Target(ctx context.Context, x *edge.Exchange) (*edge.Target, error) {
	if s.only != nil {
		return s.only, nil
	}
	m := x.Request
	switch m.Method {
	case "tools/call":
		return s.named(ctx, x, edge.Tool, m.Get("name").Of(m.Raw))
	case "prompts/get":
		return s.named(ctx, x, edge.Prompt, m.Get("name").Of(m.Raw))
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		return s.located(ctx, x, m.Text("uri"))
	case "completion/complete":
		ref := m.Get("ref").Of(m.Raw)
		switch mcp.String(mcp.Lookup(ref, "type")) { // other types are unknown
		case "ref/prompt":
			return s.named(ctx, x, edge.Prompt, mcp.Lookup(ref, "name"))
		case "ref/resource":
			return s.templated(ctx, x, mcp.String(mcp.Lookup(ref, "uri")))
		}
		return nil, nil
	case "tasks/get", "tasks/result", "tasks/cancel", "tasks/update":
		return s.taskAt(x, m.Text("taskId"))
	}
	return s.here, nil
}

// named finds a tool or prompt by its advertised name, JSON text.
func (s *Server) named(ctx context.Context, x *edge.Exchange, thing edge.Thing, name []byte) (*edge.Target, error) {
	if len(name) < 2 || name[0] != '"' {
		return nil, nil
	}
	plain := mcp.Unquote(name[1 : len(name)-1])
	if t := s.o.Local.target(thing, plain); t != nil {
		// A tool of a backend may have the name of a composite one: then neither has it.
		if s.o.Local[t.Name].asks && s.Book != nil {
			if c, err := s.Book.Catalog(ctx, x.Identity, edge.NoThing); err == nil && c.LookupBytes(thing, plain) == nil {
				return nil, nil
			}
		}
		return t, nil
	}
	for c := s.Book.Settled(x.Identity, thing); ; {
		if c != nil {
			if t := c.LookupBytes(thing, plain); t != nil {
				return t, nil
			}
			return nil, s.away(thing, string(plain))
		}
		// A name that only one backend can have, by its prefix, does not wait for the
		// lists of the others.
		if c, err := s.Book.Catalog(ctx, x.Identity, edge.NoThing); err == nil {
			if t := c.LookupBytes(thing, plain); t != nil && s.o.Rules.Sole(t.Backend, t.Name) {
				return t, nil
			}
		}
		soon, cancel := context.WithTimeout(ctx, glance)
		var err error
		c, err = s.Book.Catalog(soon, x.Identity, thing)
		cancel()
		switch {
		case c == nil && ctx.Err() != nil:
			return nil, gone(ctx)
		case err != nil && edge.KindOf(err) != edge.Gone: // waiting does not help
			return nil, err
		}
	}
}

func gone(ctx context.Context) error {
	return edge.Errorf(edge.Gone, "route", "%w", context.Cause(ctx))
}

// away returns the error for an unknown name with the prefix of a backend that cannot
// be asked for its list; nil for a name that no backend has.
func (s *Server) away(thing edge.Thing, name string) error {
	for _, b := range s.Backends {
		if s.o.Rules.Leads(b.Name, name) && s.Book.Lacks(b.Name, thing) {
			return edge.Errorf(edge.Unavailable, "route", "backend %q unavailable", b.Name)
		}
	}
	return nil
}

// glance is how long a call waits for all lists before it checks again for that of its
// own backend.
const glance = 20 * time.Millisecond

// located finds a resource.
func (s *Server) located(ctx context.Context, x *edge.Exchange, uri string) (*edge.Target, error) {
	c, err := s.Book.Catalog(ctx, x.Identity, edge.Resource)
	if err != nil {
		return nil, err
	}
	return c.Resource(uri), nil
}

// templated finds the target of a completion: a template, by its own text, or a
// resource.
func (s *Server) templated(ctx context.Context, x *edge.Exchange, uri string) (*edge.Target, error) {
	c, err := s.Book.Catalog(ctx, x.Identity, edge.Template)
	if err != nil {
		return nil, err
	}
	if t := c.Lookup(edge.Template, uri); t != nil {
		return t, nil
	}
	return c.Resource(uri), nil
}

// Lookup finds a thing for a message that names several.
func (s *Server) Lookup(_ string, thing edge.Thing, name string) *edge.Target {
	if s.Book == nil {
		return nil
	}
	c, err := s.Book.Catalog(s.hub.life, nil, thing)
	if err != nil {
		return nil
	}
	if thing == edge.Resource {
		return c.Resource(name)
	}
	return c.Lookup(thing, name)
}

// unknown returns the error for a message without a target.
func unknown(m *mcp.Message) error {
	switch m.Method {
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		return &edge.Error{
			Kind: edge.NotFound, Op: "route", Err: errors.New("resource not found"),
			Data: append(mcp.AppendString([]byte(`{"uri":`), edge.Printable(m.Text("uri"))), '}'),
		}
	case "tasks/get", "tasks/result", "tasks/cancel", "tasks/update":
		return edge.Errorf(edge.NotFound, "route", "task not found")
	case "completion/complete":
		return edge.Errorf(edge.NotFound, "route", "what params.ref refers to is not found")
	case "prompts/get":
		return edge.Errorf(edge.NotFound, "route", "prompt %s not found", edge.Printable(strconv.Quote(m.Text("name"))))
	}
	return edge.Errorf(edge.NotFound, "route", "tool %s not found", edge.Printable(strconv.Quote(m.Text("name"))))
}

// list answers a list request from the catalog.
func (s *Server) list(ctx context.Context, x *edge.Exchange) (*edge.Response, error) {
	m := x.Request
	cursor := m.Get("cursor").Of(m.Raw)
	if cursor != nil && cursor[0] != '"' {
		return nil, edge.Errorf(edge.Params, "route", "invalid cursor")
	}
	result, err := s.Book.List(ctx, x.Identity, catalog.Thing(m.Method), x.Era, x.View, mcp.String(cursor))
	if err != nil {
		return nil, err
	}
	r := x.Answer()
	r.Share(m.IDText(), result, 200)
	return r, nil
}
