package serve

import (
	"context"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/route"
	"github.com/weir-edge/weir/edge/session"
)

// host returns the server as its sessions see it.
func (s *server) host() *session.Host {
	h := &session.Host{
		Store: s.store, Backends: s.Backends, Digest: s.digest, Guarded: s.gate != nil,
		Ask: s.askFor, Level: s.Level, Hear: s.hearFor,
		Tasks: func() (all []session.Task) {
			for _, t := range s.Tasks() {
				all = append(all, session.Task{Server: s.Name, Owner: t.Owner, ID: t.ID, Backend: t.Backend})
			}
			return all
		},
		TakeTask: func(t session.Task) bool {
			return s.TakeTask(route.Task{Owner: t.Owner, ID: t.ID, Backend: t.Backend})
		},
	}
	if s.guest != nil {
		h.End = s.guest.SessionEnd
	}
	return h
}

// askFor sends a request of the edge's own through the filters.
func (s *server) askFor(ctx context.Context, x *edge.Exchange) (_ *edge.Response, err error) {
	if x.Target, err = s.Target(ctx, x); err != nil {
		return nil, err
	}
	return s.chain.Handle(ctx, x)
}

// hearFor begins to listen to the backends for a session.
func (s *server) hearFor(ctx context.Context, of *edge.Session, out edge.Client) {
	if !s.Bare() {
		out = ofOthers{out}
	}
	for _, b := range s.Backends {
		s.edge.work.Go(func() {
			defer edge.Contain(s.edge.log, "listener")
			if err := b.Attend(ctx, of, out); err != nil && ctx.Err() == nil {
				s.edge.log.Debug("backend is not heard", "backend", b.Name, "error", err)
			}
		})
	}
}

// ofOthers passes on to a legacy client what belongs to none of its calls, except list
// changes, of which the hub tells it.
type ofOthers struct{ edge.Client }

// Send passes on what concerns this client alone.
func (o ofOthers) Send(n *mcp.Message) error {
	switch n.Method {
	case "notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed":
		return nil
	}
	return o.Client.Send(n)
}
