package route

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/backend"
	"github.com/weir-edge/weir/edge/catalog"
	"github.com/weir-edge/weir/edge/mcp"
)

// Changes behind a server of several backends reach each client once: the edge
// listens to each backend on a session of its own, tells the catalog which lists to
// fetch again, and tells clients which of the merged lists have changed. A resource
// that several modern clients subscribe to is subscribed to once.

// hub listens for changes behind a server and passes them on to its clients.
type hub struct {
	s    *Server
	life context.Context
	end  context.CancelFunc
	work sync.WaitGroup // of the listeners

	ears map[string]*edge.Session // the edge's own sessions, by backend; for listening

	mu          sync.Mutex
	subscribers map[*subscriber]struct{}
	watched     map[resourceAt]*watched // resources with a subscriber
	waiting     map[string]int          // subscriptions by holder
}

// newHub makes a hub that does not listen yet.
func newHub(s *Server) *hub {
	h := &hub{
		s: s, ears: make(map[string]*edge.Session, len(s.Backends)),
		subscribers: make(map[*subscriber]struct{}), watched: make(map[resourceAt]*watched), waiting: make(map[string]int),
	}
	h.life, h.end = context.WithCancel(context.Background())
	for _, b := range s.Backends {
		h.ears[b.Name] = &edge.Session{Version: mcp.V2511, Info: s.o.Client, Capabilities: []byte("{}")}
	}
	return h
}

// open begins to listen to the backends, whose lists are in the server's book by now.
func (h *hub) open() {
	for _, b := range h.s.Backends {
		ear := h.ears[b.Name]
		h.work.Go(func() {
			defer edge.Contain(h.s.o.Log, "hub")
			defer ear.End()
			h.hear(b, ear)
		})
	}
}

// close ends the listening and waits for it.
func (h *hub) close() {
	h.end()
	h.work.Wait()
}

// hear listens to one backend until the hub ends. Notifications are lost while its
// stream is broken or cannot be opened, so all its lists are fetched again after that.
func (h *hub) hear(b *backend.Backend, ear *edge.Session) {
	wait := time.Second
	var before atomic.Bool
	opened := func(resumes bool) {
		if before.Swap(true) && !resumes {
			h.s.Book.Drop(b.Name)
		}
	}
	for h.life.Err() == nil {
		began := time.Now()
		err := b.Listen(h.life, ear, hearing{h: h, backend: b.Name}, opened)
		if h.life.Err() != nil {
			return
		}
		before.Store(true)
		if err == nil || time.Since(began) > time.Minute {
			wait = time.Second
		}
		select {
		case <-h.life.Done():
			return
		case <-time.After(wait):
		}
		wait = min(2*wait, 30*time.Second)
	}
}

// hearing is the hub as the client of one backend.
type hearing struct {
	edge.NoClient // no client is there to answer questions
	h             *hub
	backend       string
}

// Send takes a notification of the backend outside of calls.
func (e hearing) Send(n *mcp.Message) error {
	switch n.Method {
	case "notifications/tools/list_changed":
		e.h.s.Book.Drop(e.backend, edge.Tool)
	case "notifications/prompts/list_changed":
		e.h.s.Book.Drop(e.backend, edge.Prompt)
	case "notifications/resources/list_changed":
		e.h.s.Book.Drop(e.backend, edge.Resource, edge.Template)
	case "notifications/resources/updated":
		e.h.updated(e.backend, n)
	}
	return nil
}

// updated passes an update on to the subscribers of a resource.
func (h *hub) updated(from string, n *mcp.Message) {
	uri := n.Text("uri")
	h.mu.Lock()
	defer h.mu.Unlock()
	if w := h.watched[resourceAt{from, uri}]; w != nil && len(w.who) > 0 {
		n = n.Clone() // it waits for its clients
		for l := range w.who {
			l.update(uri, n)
		}
	}
}

// changed tells every client which lists to fetch again, without waiting for any
// of them.
func (h *hub) changed(c catalog.Changes) {
	h.mu.Lock()
	for l := range h.subscribers {
		l.change(c)
	}
	h.mu.Unlock()
	h.s.o.Changed(c)
}
