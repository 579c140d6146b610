package backend

import (
	"context"
	"io"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/wire"
)

// A process that stands in for another goes on with the sessions that this one
// has with legacy servers: a server that keeps state in its session must not meet
// the client anew. A session over HTTP with SSE is its stream, and ends with the
// process that holds that.

// Handed is what a client's session has with a backend, as one process hands it
// to the next. Everything in it is to be judged before it is used.
type Handed struct {
	ID         string   `json:"id,omitempty"`      // Mcp-Session-Id; "" where there is no session to go on with
	Version    string   `json:"version,omitempty"` // the revision agreed on
	First      uint64   `json:"first,omitempty"`   // before the numbers of its requests
	Requests   uint64   `json:"requests,omitempty"`
	Level      string   `json:"level,omitempty"`
	Subscribed []string `json:"subscribed,omitempty"` // URIs
	Heard      string   `json:"heard,omitempty"`      // id of the last event of the session's own stream

	Over bool `json:"over,omitempty"` // it has a process of a local server, which ends with this one
}

// maxHandedID is how long the id of a session, or of an event, may be that is
// handed over.
const maxHandedID = 1024

// apart is how far the numbers of two processes lie apart that both send
// requests of the edge's own in one session for a while.
const apart = 1 << 32

// Hand returns what there is to hand over of a client's session. It waits for
// the opening of one that is under way, as long as ctx lasts. Nothing is to be
// handed where ok is false.
func (b *Backend) Hand(ctx context.Context, client *edge.Session) (h Handed, ok bool) {
	if w, is := client.Attached(watchKey{b}).(*watcher); is {
		w.mu.Lock()
		h.Subscribed = w.uris.list()
		w.mu.Unlock()
	}
	if l, is := client.Attached(laneKey{b}).(*lane); is && (l.live.Load() != nil || l.lost.Load() || len(l.opening) > 0) {
		return Handed{Over: true}, true
	}
	s, is := client.Attached(b).(*session)
	if !is {
		return h, len(h.Subscribed) > 0
	}
	if s.live.Load() == nil {
		select {
		case s.opening <- struct{}{}:
			<-s.opening
		case <-ctx.Done():
		}
	}
	if b.lined != nil && (s.live.Load() != nil || s.lost.Load() || len(s.opening) > 0) {
		return Handed{Over: true}, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h.Level, h.Heard, h.First, h.Requests = s.level, s.heard, s.first, s.ids.Load()+apart
	if subs := s.subs.list(); len(subs) > 0 {
		h.Subscribed = subs
	}
	if l := s.live.Load(); l != nil && l.sse == nil && b.Local == nil && len(l.id) <= maxHandedID {
		h.ID, h.Version = l.id, l.version
	}
	return h, true
}

// Subscribed returns the URIs that a client's session is subscribed to at the backend.
func (b *Backend) Subscribed(client *edge.Session) (uris []string) {
	if w, is := client.Attached(watchKey{b}).(*watcher); is {
		w.mu.Lock()
		uris = w.uris.list()
		w.mu.Unlock()
	}
	if s, is := client.Attached(b).(*session); is {
		s.mu.Lock()
		defer s.mu.Unlock()
		uris = append(uris, s.subs.list()...)
	}
	return uris
}

// HandedOver notes that another process goes on with what h says: the end of the
// client's session here is none for the server.
func (b *Backend) HandedOver(client *edge.Session, h Handed) {
	s, is := client.Attached(b).(*session)
	if !is {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.ID != "" {
		s.handed = h.ID
	}
}

// Heard returns the id of the last event that a client's session has heard of the
// server's own stream; "" for none.
func (b *Backend) Heard(client *edge.Session) string {
	s, is := client.Attached(b).(*session)
	if !is {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heard
}

// HearFrom has the server's own stream of a client's session read from an event
// on, unless it is read already.
func (b *Backend) HearFrom(client *edge.Session, event string) {
	if s, is := client.Attached(b).(*session); is && wire.Visible(event, maxHandedID) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.notice == nil {
			s.heard = event
		}
	}
}

// TakenBack ends HandedOver.
func (b *Backend) TakenBack(client *edge.Session) {
	if s, is := client.Attached(b).(*session); is {
		s.mu.Lock()
		s.handed = ""
		s.mu.Unlock()
	}
}

// Take goes on with what another process handed over for a client's session. It
// reports false when it does not: what was handed is no such thing, the backend
// is spoken to in another way now, or the client has met it here already.
func (b *Backend) Take(client *edge.Session, h Handed) bool {
	if !h.sound() || h.Over && b.lined == nil {
		return false
	}
	if h.Over { // as where its process has ended here
		l, s := newLane(b, ownerOfSession(client), client), newSession(b, false, client, relayed(client))
		l.lost.Store(true)
		s.lost.Store(true)
		client.Attach(laneKey{b}, func() io.Closer { return l })
		client.Attach(b, func() io.Closer { return s })
		return true
	}
	if in := b.Known(); in != nil && in.Era == mcp.Modern || h.ID == "" {
		return b.takeWishes(client, h)
	}
	if b.SSE {
		return false
	}
	fresh := false
	c := client.Attach(b, func() io.Closer {
		fresh = true
		s := newSession(b, false, client, relayed(client))
		s.level, s.heard = h.Level, h.Heard
		for _, uri := range h.Subscribed {
			_, _ = s.subs.add(client, uri) // no more than a session may have
		}
		s.ids.Store(h.Requests)
		if s.first = h.First; s.first < firstNumber || s.first > h.Requests {
			s.first = h.Requests // what the other process has asked before is not known
		}
		s.live.Store(&link{id: h.ID, version: h.Version})
		b.bridge.enter(s)
		return s
	})
	if !fresh {
		s, is := c.(*session)
		if !is {
			return false
		}
		l := s.live.Load()
		return l != nil && l.id == h.ID // told twice
	}
	return true
}

// takeWishes goes on with subscriptions where there is no session to go on with:
// before a modern backend, and before a legacy one whose session is opened anew.
func (b *Backend) takeWishes(client *edge.Session, h Handed) bool {
	in := b.Known()
	if in == nil && h.ID == "" && (len(h.Subscribed) > 0 || h.Level != "") {
		// Nobody knows yet which of the two it is: what is wished for waits in both
		// places, and one of them is asked.
		b.wishSession(client, h)
		b.wishWatcher(client, h)
		return true
	}
	if in != nil && in.Era == mcp.Modern {
		b.wishWatcher(client, h)
		return h.ID == ""
	}
	b.wishSession(client, h)
	return true
}

func (b *Backend) wishWatcher(client *edge.Session, h Handed) {
	w := b.watcherOf(client)
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, uri := range h.Subscribed {
		_, _ = w.uris.add(client, uri) // no more than a session may have
	}
	w.wanted++
}

// wishSession makes a session that sets up what was set up before when it is
// opened.
func (b *Backend) wishSession(client *edge.Session, h Handed) {
	if len(h.Subscribed) == 0 && h.Level == "" {
		return
	}
	client.Attach(b, func() io.Closer {
		sse := b.SSE
		if in := b.Known(); in != nil {
			sse = in.SSE
		}
		s := newSession(b, sse, client, relayed(client))
		s.level = h.Level
		for _, uri := range h.Subscribed {
			_, _ = s.subs.add(client, uri) // no more than a session may have
		}
		return s
	})
}

// sound reports whether what was handed over may be used: an id stands in a
// header, and what a session has set up is bounded.
func (h *Handed) sound() bool {
	bytes := 0
	for _, uri := range h.Subscribed {
		bytes += len(uri)
	}
	return wire.Visible(h.ID, maxHandedID) && wire.Visible(h.Heard, maxHandedID) && (h.ID == "" || mcp.LegacyVersion(h.Version)) &&
		len(h.Subscribed) <= maxSubscriptions && bytes <= maxSubscriptionBytes && len(h.Level) <= 16
}
