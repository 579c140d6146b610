package serve

import (
	"context"
	"log/slog"
	"slices"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/session"
	"github.com/weir-edge/weir/filters/audit"
	"github.com/weir-edge/weir/filters/guest"
)

// Where the programs among a server's filters meet the rest of the edge.

// openGuest opens the programs of a server.
func (o *opening) openGuest(s *server) error {
	s.guest = &edge.Guest{}
	if len(o.programs) == 0 {
		return nil
	}
	guests := o.edge.world.guests
	g, told, err := guests.Open(s.Name, o.programs, guest.Options{
		Resolve: s.Target, Elsewhere: s.elsewhere, Call: s.Caller(edge.NoClient{}), Emit: s.emitted, Store: s.store.ID(), Guarded: s.guarded, Audited: o.plan.Audit != nil,
	}, s.env(&s.after))
	if err != nil {
		return err
	}
	s.guest, s.programs, s.Upstream = g, told, g.Upstream
	s.counting = append(s.counting, edge.CollectorFunc(func(m edge.Emitter) { guests.Collect(s.Name, m) }))
	if s.gate != nil {
		s.gate.Map = g.MapIdentity
	}
	return nil
}

// judge asks programs about a session that is to begin, and marks it so that they are told
// of its end.
func (x *exchange) judge(s *session.Session) error {
	g := x.server.guest
	if g.SessionStart == nil && g.SessionEnd == nil {
		return nil
	}
	if g.SessionStart != nil {
		if err := g.SessionStart(&x.Call, &x.Exchange, &s.Session); err != nil {
			return err
		}
		x.Head.Attributes = s.Attributes(g.Beginners).With(x.Head.Attributes)
	}
	s.TellEnd()
	return nil
}

// undo ends a session that may not begin, also in the store, where another edge would find it.
func undo(all *session.Sessions, s *session.Session) {
	_ = all.EndShared(s) // what the store cannot be told ends with its lifetime
	all.End(s.ID)
}

// elsewhere finds the name under which clients see a tool of a backend.
func (s *server) elsewhere(ctx context.Context, x *edge.Exchange, backend, original string) string {
	if s.Bare() {
		if backend == s.Backends[0].Name {
			return original
		}
		return ""
	}
	c, err := s.Book.Catalog(ctx, x.Identity, edge.Tool)
	if err != nil {
		return ""
	}
	if t := c.Advertised(edge.Tool, backend, original); t != nil {
		return t.Name
	}
	return ""
}

// happened shows an audit record to the programs of the server that has a name now, since
// the log outlives a reload.
func (e *Edge) happened(name string, record []byte) {
	live := e.live.Load()
	if live == nil {
		return
	}
	if s := live.servers[name]; s != nil && s.guest.Event != nil {
		s.guest.Event(record)
	}
}

// hear returns the header lines that programs want to see.
func (s *server) hear(r *fasthttp.RequestHeader) (heard []edge.Header) {
	for name, value := range r.All() {
		if slices.ContainsFunc(s.guest.Headers, func(want string) bool { return strings.EqualFold(want, string(name)) }) {
			heard = append(heard, edge.Header{Name: strings.ToLower(string(name)), Value: string(value)})
		}
	}
	return heard
}

// known asks programs to identify a client without a bearer token, which the gate refused
// with an error.
func (s *server) known(req *request, refused error) (*edge.Identity, error) {
	r := &req.ctx.Request.Header
	authorization := r.Peek("Authorization")
	const scheme = "bearer "
	claimed := len(authorization) >= len(scheme) && strings.EqualFold(string(authorization[:len(scheme)]), scheme)
	if s.guest.Authenticate == nil || claimed || edge.KindOf(refused) != edge.Unauthenticated {
		return nil, refused
	}
	who, err := s.guest.Authenticate(context.Background(), req.client(), s.hear(r))
	if who == nil && err == nil {
		err = refused
	}
	return who, err
}

// emitted records an event of a program in the audit log, or without one in the process
// log.
func (s *server) emitted(x *edge.Exchange, filter, hook, name string, data []byte) {
	if l := s.record; l != nil {
		l.Write(audit.Event{Type: audit.Told, Exchange: x, Component: filter, Method: hook, Name: name, Kind: "filter", Data: data})
		return
	}
	attrs := []slog.Attr{slog.String("server", s.Name), slog.String("filter", filter), slog.String("hook", hook), slog.String("event", name)}
	if len(data) > 0 {
		attrs = append(attrs, slog.String("data", string(audit.Masked(data))))
	}
	s.log.LogAttrs(context.Background(), slog.LevelInfo, "a filter tells of an event", attrs...)
}
