package route

import (
	"context"
	"errors"
	"strconv"
	"strings"
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
	m := x.Request
	if s.only != nil {
		if !s.bindsTasks(x) {
			return s.only, nil
		}
		return s.bound(x)
	}
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
	if t, done := s.searched(x, thing, plain); done {
		return t, nil
	}
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
			c, err := s.belated(ctx, x, string(plain), thing)
			if c != nil {
				if t := c.LookupBytes(thing, plain); t != nil {
					return t, nil
				}
			}
			if err == nil {
				err = s.away(x, thing, string(plain))
			}
			return nil, err
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
// be asked for its list, or that a backend may have which gives the user of x none; nil for
// a name that no backend has.
func (s *Server) away(x *edge.Exchange, thing edge.Thing, name string) error {
	return s.fault(x, name, func(b *backend.Backend) bool { return b.Personal() || s.o.Rules.Leads(b.Name, name) }, thing)
}

// fault returns why there is no list of some kinds of a backend that may have a name, "" for
// what has none, of those that are of.
func (s *Server) fault(x *edge.Exchange, name string, of func(*backend.Backend) bool, kinds ...edge.Thing) error {
	for _, b := range s.Backends {
		if !of(b) || name != "" && !s.o.Rules.May(b.Name, name) {
			continue
		}
		for _, thing := range kinds {
			if err := s.Book.Fault(x.Identity, b.Name, thing); err != nil {
				return err
			}
		}
	}
	return nil
}

// belated waits for lists of the user of x that are on their way and may hold a name, "" for what
// has none, and returns the catalog with them; nil where there are none.
func (s *Server) belated(ctx context.Context, x *edge.Exchange, name string, kinds ...edge.Thing) (*catalog.Catalog, error) {
	came := false
	for _, b := range s.Backends {
		if !b.Personal() || name != "" && !s.o.Rules.May(b.Name, name) {
			continue
		}
		for _, thing := range kinds {
			came = s.Book.Await(ctx, x.Identity, b.Name, thing) || came
		}
	}
	switch {
	case ctx.Err() != nil:
		return nil, gone(ctx)
	case !came:
		return nil, nil
	}
	return s.Book.Catalog(ctx, x.Identity, kinds[0])
}

// withheld is away for what has no name that says whose it is, of some kinds.
func (s *Server) withheld(x *edge.Exchange, kinds ...edge.Thing) error {
	return s.fault(x, "", (*backend.Backend).Personal, kinds...)
}

// glance is how long a call waits for all lists before it checks again for that of its
// own backend.
const glance = 20 * time.Millisecond

// located finds a resource.
func (s *Server) located(ctx context.Context, x *edge.Exchange, uri string) (*edge.Target, error) {
	if strings.HasPrefix(uri, catalog.AppScheme) { // a tool may name it
		if _, err := s.Book.Catalog(ctx, x.Identity, edge.Tool); err != nil {
			return nil, err
		}
	}
	c, err := s.Book.Catalog(ctx, x.Identity, edge.Resource)
	if err != nil {
		return nil, err
	}
	if t, err := s.resource(x, c, uri); t != nil || err != nil {
		return t, err
	}
	if c, err = s.belated(ctx, x, "", edge.Resource, edge.Template); err != nil {
		return nil, err
	}
	if c != nil {
		if t := c.ResourceOf(&x.Matched, uri); t != nil {
			return t, nil
		}
	}
	return nil, s.withheld(x, edge.Resource, edge.Template)
}

// resource finds a resource in a catalog. Before templates, which may be those of others, goes
// the backend whose answer has named the URI to the client. Of clients that cannot be told apart any
// may have a backend name a URI, so that templates go first for them.
func (s *Server) resource(x *edge.Exchange, c *catalog.Catalog, uri string) (*edge.Target, error) {
	if t := c.Located(uri); t != nil {
		return t, nil
	}
	if taskOwner(x) == ownerAnybody {
		if t := c.ResourceOf(&x.Matched, uri); t != nil {
			return t, nil
		}
	}
	at, err := s.at(s.links, x, uri)
	switch {
	case at != nil:
		return &edge.Target{Backend: at.Backend, Thing: edge.Resource, Name: uri, Original: uri}, nil
	case err != nil && !s.o.ServeWithoutStore: // it may be at a backend that another edge knows of
		return nil, err
	}
	if t := c.ResourceOf(&x.Matched, uri); t != nil {
		return t, nil
	}
	return nil, err
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
	if t, err := s.resource(x, c, uri); t != nil || err != nil {
		return t, err
	}
	return nil, s.withheld(x, edge.Template, edge.Resource)
}

// Lookup finds a thing for a message that names several, in what its client is shown.
func (s *Server) Lookup(x *edge.Exchange, thing edge.Thing, name string) *edge.Target {
	if s.Book == nil {
		return nil
	}
	c, err := s.Book.Catalog(s.hub.life, x.Identity, thing)
	if err != nil {
		return nil
	}
	if thing == edge.Resource {
		t, _ := s.resource(x, c, name)
		return t
	}
	return c.Lookup(thing, name)
}

// unknown returns the error for a message without a target: for what a backend may have that
// could never be asked for its list, that. Policies have judged the message: what they deny, and
// what nobody knows, is one answer to a client.
func (s *Server) unknown(x *edge.Exchange) error {
	m, thing := x.Request, edge.NoThing
	switch m.Method {
	case "tools/call":
		thing = edge.Tool
	case "prompts/get":
		thing = edge.Prompt
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		thing = edge.Resource
	}
	if err := s.fault(x, m.Text("name"), func(*backend.Backend) bool { return true }, thing); err != nil {
		return err
	}
	switch m.Method {
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		return &edge.Error{
			Kind: edge.NotFound, Op: "route", Err: errors.New("resource not found"),
			Data: append(mcp.AppendString([]byte(`{"uri":`), edge.Printable(m.Text("uri"))), '}'),
		}
	case "tasks/get", "tasks/result", "tasks/cancel", "tasks/update":
		return errNoTask()
	case "completion/complete":
		return edge.Errorf(edge.NotFound, "route", "what params.ref refers to is not found")
	case "prompts/get":
		return edge.Errorf(edge.NotFound, "route", "prompt %s not found", edge.Printable(strconv.Quote(m.Text("name"))))
	}
	return edge.Errorf(edge.NotFound, "route", "tool %s not found", edge.Printable(strconv.Quote(m.Text("name"))))
}

// everything is a view of all there is, whose lists are not public all the same.
type everything struct{}

func (everything) Key() string { return "" }

func (everything) Allows(*edge.Item) bool { return true }

// list answers a list request from the catalog.
func (s *Server) list(ctx context.Context, x *edge.Exchange) (*edge.Response, error) {
	m := x.Request
	cursor := m.Get("cursor").Of(m.Raw)
	search := s.o.Search != nil && m.Method == "tools/list"
	if cursor != nil && (cursor[0] != '"' || search) {
		return nil, edge.Errorf(edge.Params, "route", "invalid cursor")
	}
	if search {
		r := x.Answer()
		r.Share(m.IDText(), s.o.Search.List(x.Era), 200)
		return r, nil
	}
	view := x.View
	if view == nil && s.o.Judged {
		view = everything{}
	}
	result, err := s.Book.List(ctx, x.Identity, catalog.Thing(m.Method), x.Era, view, mcp.String(cursor))
	if err != nil {
		return nil, err
	}
	r := x.Answer()
	r.Share(m.IDText(), result, 200)
	return r, nil
}
