package session

import (
	"context"
	"maps"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/relay"
)

// What replicas tell each other about sessions, and what comes of it here: see
// edge/relay.

// tellOthers writes to all other edges that have a session.
func (ss *Sessions) tellOthers(store *Store, r *storedSession, l relay.Message, body []byte) {
	for _, node := range r.Nodes {
		if node != ss.o.Relay.Node {
			_ = store.Send(node, l, body) // an edge that cannot be told asks the store itself soon
		}
	}
}

// handlers are what comes of messages through a store, by their kinds. What takes
// time goes on by itself: messages are read one after the other.
func (ss *Sessions) handlers(t *Store) map[string]relay.Handler {
	all := map[string]relay.Handler{
		relay.KindEnd: func(m relay.Message, _ []byte, _ int) bool {
			if s := ss.known(m.Session); s != nil {
				t.Work.Go(func() { // its streams may take a moment
					defer edge.Contain(ss.o.Log, "session")
					ss.endedAt(t, s)
					ss.End(s.ID)
				})
			}
			return true
		},
		relay.KindLook: func(m relay.Message, _ []byte, _ int) bool {
			if s := ss.known(m.Session); s != nil {
				s.stored.seen.Store(0)
				t.Work.Go(func() {
					defer edge.Contain(ss.o.Log, "session")
					if _, err := ss.confirm(t, s); err == nil {
						ss.CatchUp(s)
					}
				})
			}
			return true
		},
		relay.KindAnswer: ss.forSession((*Session).Answered),
		relay.KindCancel: ss.forSession((*Session).Cancel),
		relay.KindRoots: func(m relay.Message, _ []byte, _ int) bool {
			if s := ss.known(m.Session); s != nil && s.stored.roots.Add(1) == 1 {
				t.Work.Go(func() {
					defer edge.Contain(ss.o.Log, "roots")
					ss.rootsChanged(s)
				})
			}
			return true
		},
		relay.KindAsk: func(m relay.Message, body []byte, _ int) bool {
			back := ss.asked(m, body) // before who asks may leave
			t.Work.Go(func() {
				defer edge.Contain(ss.o.Log, "relay")
				_ = t.Send(m.From, back, nil) // who waits gives up by itself
			})
			return true
		},
		relay.KindFollow: func(m relay.Message, _ []byte, size int) bool {
			t.Serve(m, size, m.Session, func(ctx context.Context) { ss.followed(ctx, t, m) })
			return true
		},
	}
	maps.Copy(all, ss.o.Handlers(t))
	return all
}

// forSession hands what a client said to its session, when that is here.
func (ss *Sessions) forSession(hear func(*Session, *mcp.Message) bool) relay.Handler {
	return func(m relay.Message, body []byte, _ int) bool {
		said, err := mcp.Decode(body)
		if s := ss.known(m.Session); s != nil && err == nil {
			hear(s, said)
		}
		return err == nil
	}
}

// rootsChanged tells the backends that the roots of a session have changed at another edge, and
// once more where they have meanwhile.
func (ss *Sessions) rootsChanged(s *Session) {
	n, err := mcp.Decode(mcp.AppendRequest(nil, nil, "notifications/roots/list_changed", nil))
	for due := int64(1); due > 0 && err == nil; {
		due = s.stored.roots.Load()
		if host := ss.o.Servers()[s.Server]; host != nil {
			host.Notify(context.Background(), &s.Session, n)
		}
		due = s.stored.roots.Add(-due)
	}
}

// asked says whether something that is at another edge is wanted here, and keeps
// the place for it then.
func (ss *Sessions) asked(l relay.Message, body []byte) (back relay.Message) {
	back = relay.Message{Kind: relay.KindTaken, From: ss.o.Relay.Node, Stream: l.Stream}
	if err := ss.wanted(l, body); err != nil {
		back.Kind, back.Error = relay.KindError, relay.FaultOf(err)
	}
	return back
}

func (ss *Sessions) wanted(l relay.Message, body []byte) error {
	if l.Session != "" {
		s := ss.known(l.Session)
		if s == nil || !s.waitsFor(body) {
			return edge.Errorf(edge.Invalid, "relay", "nobody waits for this answer")
		}
		if !ss.o.Relay.Claims.Take(time.Now(), l.Session+" "+string(body), l.From+l.Stream, "session "+l.Session) {
			return relay.ErrClaimed()
		}
		return nil
	}
	return ss.o.Wanted(l, body)
}
