package serve

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/filters/guest"
)

// Where the programs among a server's filters meet the rest of the edge.

// openGuest opens the programs of a server.
func (e *Edge) openGuest(s *server, p compile.Server, programs []guest.Loaded) error {
	s.guest = &edge.Guest{}
	if len(programs) == 0 {
		return nil
	}
	g, told, err := e.guests.Open(p.Name, programs, guest.Options{Resolve: s.target, Elsewhere: s.elsewhere}, e.env(s))
	if err != nil {
		return fmt.Errorf("server %s: %w", p.Name, err)
	}
	s.guest, s.programs = g, told
	return nil
}

// elsewhere finds the name under which clients see a tool of a backend.
func (s *server) elsewhere(ctx context.Context, x *edge.Exchange, backend, original string) string {
	if s.only != nil {
		if backend == s.only.Backend {
			return original
		}
		return ""
	}
	c, err := s.book.Catalog(ctx, x.Identity, edge.Tool)
	if err != nil {
		return ""
	}
	if t := c.Advertised(edge.Tool, backend, original); t != nil {
		return t.Name
	}
	return ""
}

// hear keeps the header lines that programs want to see.
func (s *server) hear(x *exchange, r *fasthttp.RequestHeader) {
	for name, value := range r.All() {
		if slices.ContainsFunc(s.guest.Headers, func(want string) bool { return strings.EqualFold(want, string(name)) }) {
			x.Heard = append(x.Heard, edge.Header{Name: strings.ToLower(string(name)), Value: string(value)})
		}
	}
}
