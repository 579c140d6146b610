package serve

import (
	"context"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/backend"
	"github.com/weir-edge/weir/edge/mcp"
)

// server is one virtual server of the plan, open.
type server struct {
	edge     *Edge
	name     string
	digest   string // of its part of the plan
	info     []byte // JSON text: serverInfo
	backends []*backend.Backend
	targets  map[string]*edge.Target // of messages that name nothing the catalog knows, by backend
	chain    edge.Handler            // the hallway, with route at its end
	lot      *lot                    // calls that wait for a modern client's answers
}

// backend returns the backend of a name.
func (s *server) backend(name string) *backend.Backend {
	for _, b := range s.backends {
		if b.Name == name {
			return b
		}
	}
	return nil
}

// target names the backend that a message goes to. It is a pure lookup, done
// before the hallway so that every filter can see where the message goes.
func (s *server) target(m *mcp.Message) *edge.Target {
	return s.targets[s.backends[0].Name]
}

// route is the living room: it sends an exchange where its target says, or
// answers it here when it asks about the server itself.
func (s *server) route(ctx context.Context, x *edge.Exchange) (*edge.Response, error) {
	switch m := x.Request; m.Method {
	case "ping":
		return reply(m, []byte("{}"))
	case "server/discover":
		caps, instructions := s.offer(ctx, mcp.Modern)
		return reply(m, mcp.Discovered(caps, s.info, instructions))
	case "logging/setLevel":
		if !logLevel(m.Text("level")) {
			return nil, edge.Errorf(edge.Params, "route", "params.level is no log level")
		}
	}
	b := s.backend(x.Target.Backend)
	if b == nil {
		return nil, edge.Errorf(edge.Internal, "route", "no backend %q", x.Target.Backend)
	}
	// A legacy backend may ask in the middle of the call. A modern client that
	// says it can be asked hears of it by input_required, and comes back.
	if x.Era == mcp.Modern {
		if in, err := b.Introduced(ctx); err == nil && in.Era == mcp.Legacy {
			if caps := mayAsk(x.Request); caps != nil {
				return s.lot.serve(ctx, x, caps, b)
			}
		}
	}
	return b.Handle(ctx, x)
}

// offer is what the server can do and how to use it, as far as its backends
// have said. It does not wait for one that is down.
func (s *server) offer(ctx context.Context, era mcp.Era) (caps, instructions []byte) {
	b := s.backends[0]
	in := b.Known()
	if in == nil {
		ctx, cancel := context.WithTimeout(ctx, introductionWait)
		defer cancel()
		if in, _ = b.Introduced(ctx); in == nil {
			return backend.Everything(), nil
		}
	}
	return mcp.ServerCapabilities(in.Capabilities, in.Era, era), in.Instructions
}

// reply answers a request here.
func reply(m *mcp.Message, result []byte) (*edge.Response, error) {
	r := &edge.Response{Status: 200}
	if err := r.Decode(mcp.AppendResult(nil, m.IDText(), result)); err != nil {
		return nil, edge.Errorf(edge.Internal, "reply", "%w", err)
	}
	return r, nil
}
