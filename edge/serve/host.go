package serve

import (
	"context"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/route"
	"github.com/weir-edge/weir/edge/session"
	"github.com/weir-edge/weir/filters/authz"
)

// host returns the server as its sessions see it.
func (s *server) host() *session.Host {
	h := &session.Host{
		Store: s.store, Backends: s.Backends, Digest: s.digest, Guarded: s.gate != nil && !s.gate.Anonymous(), TTL: s.ttl,
		Ask: s.askFor, Level: s.Level, Notify: s.Notify, Hear: s.hearFor, Told: s.told,
		Tasks: func() (all []session.Task) {
			for _, t := range s.Tasks() {
				all = append(all, session.Task{Server: s.Name, Owner: t.Owner, ID: t.ID, Backend: t.Backend, Link: t.Link})
			}
			for _, t := range authz.Remembered(s.judging, s.edge.world.memory) {
				all = append(all, session.Task{Server: s.Name, Owner: t.Owner, Key: t.Key, Call: t.Value, Until: t.Until})
			}
			return all
		},
		TakeTask: func(t session.Task) bool {
			if t.Key != "" {
				return s.store == nil && authz.Remember(s.judging, s.edge.world.memory, authz.Task{Owner: t.Owner, Key: t.Key, Value: t.Call, Until: t.Until})
			}
			return s.TakeTask(route.Task{Owner: t.Owner, ID: t.ID, Backend: t.Backend, Link: t.Link})
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

// hearFor begins to listen to the backends for a session of somebody. One that is away is asked
// again until it is there, as by the hub.
func (s *server) hearFor(ctx context.Context, of *edge.Session, who *edge.Identity, out edge.Client) {
	for _, b := range s.Backends {
		to := s.beside(ctx, of, who, &edge.Target{Backend: b.Name}, out)
		if !s.Bare() {
			to = ofOthers{to}
		}
		s.edge.work.Go(func() {
			defer edge.Contain(s.edge.log, "listener")
			for wait := time.Second; ; wait = min(2*wait, 30*time.Second) {
				began := time.Now()
				err := b.Attend(ctx, of, to)
				if err == nil || ctx.Err() != nil {
					return
				}
				s.edge.log.Debug("backend is not heard", "backend", b.Name, "error", err)
				if edge.KindOf(err) == edge.NoSession {
					return
				}
				if began.Before(time.Now().Add(-time.Minute)) { // it was heard for a while
					wait = time.Second
				}
				select {
				case <-ctx.Done():
					return
				case <-time.After(wait):
				}
			}
		})
	}
}

// told is the way for what the edge itself tells a session of somebody.
func (s *server) told(of *edge.Session, who *edge.Identity, to edge.Client) edge.Client {
	return s.beside(context.Background(), of, who, nil, to)
}

// beside puts the programs of the server before a client outside of its calls.
func (s *server) beside(ctx context.Context, of *edge.Session, who *edge.Identity, from *edge.Target, to edge.Client) edge.Client {
	g := s.guest
	if g == nil || g.Beside == nil {
		return to
	}
	x := &edge.Exchange{Server: s.Name, Era: mcp.Legacy, Session: of, Identity: who, Target: from}
	if g.SessionStart != nil {
		x.Head.Attributes = of.Attributes(g.Beginners)
	}
	return g.Beside(ctx, x, to)
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
