package serve

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/backend"
	"github.com/weir-edge/weir/edge/catalog"
	"github.com/weir-edge/weir/edge/mcp"
)

// What changes behind a server of several backends reaches its clients once:
// the edge hears each backend on a session of its own, tells the catalog which
// lists to get anew, and tells clients what of the merged lists is new. A
// resource that several modern clients wait for is subscribed to once.

// hub is who hears what changes behind a server.
type hub struct {
	s    *server
	life context.Context
	end  context.CancelFunc
	work sync.WaitGroup // of the listeners

	ears map[string]*edge.Session // the edge's own sessions, by backend; for listening

	mu       sync.Mutex
	audience map[*backend.Audience]backend.Wish
	watched  map[string]*watched // resources that somebody waits for, by URI
}

// watched is a resource that modern clients wait for.
type watched struct {
	backend string
	count   int
	known   chan struct{} // closed when it is known whether the backend took the subscription
	taken   bool          // it did
}

// newHub begins to listen to the backends.
func newHub(s *server, info []byte) *hub {
	h := &hub{
		s: s, ears: make(map[string]*edge.Session, len(s.backends)),
		audience: make(map[*backend.Audience]backend.Wish), watched: make(map[string]*watched),
	}
	h.life, h.end = context.WithCancel(context.Background())
	for _, b := range s.backends {
		ear := &edge.Session{Version: mcp.V2511, Info: info, Capabilities: []byte("{}")}
		h.ears[b.Name] = ear
		h.work.Go(func() {
			defer edge.Contain(s.edge.log, "hub")
			defer ear.End()
			h.hear(b, ear)
		})
	}
	return h
}

// close ends the listening and waits for it.
func (h *hub) close() {
	h.end()
	h.work.Wait()
}

// hear listens to one backend until the hub ends.
func (h *hub) hear(b *backend.Backend, ear *edge.Session) {
	wait := time.Second
	for h.life.Err() == nil {
		began := time.Now()
		err := b.Listen(h.life, ear, hearing{h, b.Name})
		if h.life.Err() != nil {
			return
		}
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

// hearing is the hub as a backend's client.
type hearing struct {
	h       *hub
	backend string
}

// Send takes what a backend tells outside of calls.
func (e hearing) Send(n *mcp.Message) error {
	switch n.Method {
	case "notifications/tools/list_changed":
		e.h.s.book.Drop(e.backend, edge.Tool)
	case "notifications/prompts/list_changed":
		e.h.s.book.Drop(e.backend, edge.Prompt)
	case "notifications/resources/list_changed":
		e.h.s.book.Drop(e.backend, edge.Resource, edge.Template)
	case "notifications/resources/updated":
		e.h.updated(e.backend, n)
	}
	return nil
}

// Ask fails: nobody is there to answer.
func (e hearing) Ask(context.Context, map[string]edge.Question) (map[string]edge.Answer, error) {
	return nil, edge.Errorf(edge.NoMethod, "ask", "nobody is there to answer")
}

// updated tells those who wait for a resource.
func (h *hub) updated(from string, n *mcp.Message) {
	uri := n.Text("uri")
	h.mu.Lock()
	w := h.watched[uri]
	var all []*backend.Audience
	if w != nil && w.backend == from {
		for a, wish := range h.audience {
			if slices.Contains(wish.URIs, uri) {
				all = append(all, a)
			}
		}
	}
	h.mu.Unlock()
	for _, a := range all {
		_ = a.Send(n) // one that is gone ends by itself
	}
}

// changed tells every client which lists to get anew.
func (h *hub) changed(c catalog.Changes) {
	h.mu.Lock()
	all := make([]*backend.Audience, 0, len(h.audience))
	for a := range h.audience {
		all = append(all, a)
	}
	h.mu.Unlock()
	sessions := h.s.edge.sessions.of(h.s.name)
	for _, method := range c.Methods() {
		n, err := mcp.Decode(mcp.AppendRequest(nil, nil, method, nil))
		if err != nil {
			continue
		}
		for _, a := range all {
			_ = a.Send(n)
		}
		for _, s := range sessions {
			_ = newest{s}.Send(n) // a client without a stream asks when it next wants to know
		}
	}
}

// maxWatched is how many resources one client may wait for.
const maxWatched = 1000

// listen answers subscriptions/listen until the client leaves or the edge ends
// it.
func (h *hub) listen(ctx context.Context, x *edge.Exchange) (*edge.Response, error) {
	m := x.Request
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wish := backend.WishOf(m)
	if len(wish.URIs) > maxWatched {
		return nil, edge.Errorf(edge.Params, "listen", "a client can wait for %d resources", maxWatched)
	}
	a := backend.NewAudience(x.Client, m.IDText(), cancel)
	h.mu.Lock()
	h.audience[a] = wish // what changes from here on waits for the acknowledgement
	h.mu.Unlock()
	var watching []string
	defer func() {
		h.mu.Lock()
		delete(h.audience, a)
		h.mu.Unlock()
		for _, uri := range watching {
			h.unwatch(uri)
		}
	}()
	for _, uri := range wish.URIs {
		if t, err := h.s.located(ctx, x, uri); err == nil && t != nil && h.watch(ctx, t.Backend, uri) {
			watching = append(watching, uri)
		}
	}
	wish.URIs = watching
	h.mu.Lock()
	h.audience[a] = wish
	h.mu.Unlock()
	if err := a.Admit(wish); err != nil {
		return nil, edge.Errorf(edge.Gone, "listen", "%w", err)
	}
	select {
	case <-ctx.Done():
	case <-h.life.Done():
	}
	return reply(m, a.Done())
}

// watch counts a client that waits for a resource, and subscribes to it for the
// first. It reports false when it cannot be subscribed to.
func (h *hub) watch(ctx context.Context, at, uri string) bool {
	h.mu.Lock()
	w := h.watched[uri]
	first := w == nil || w.backend != at
	if first {
		w = &watched{backend: at, known: make(chan struct{})}
		h.watched[uri] = w
	}
	w.count++
	h.mu.Unlock()
	if first {
		err := h.subscribe(ctx, at, uri, "resources/subscribe")
		h.mu.Lock()
		w.taken = err == nil
		h.mu.Unlock()
		close(w.known)
	}
	select {
	case <-w.known:
	case <-ctx.Done():
	}
	h.mu.Lock()
	taken := w.taken
	h.mu.Unlock()
	if !taken {
		h.drop(uri)
	}
	return taken
}

// unwatch counts a client that waits no longer.
func (h *hub) unwatch(uri string) {
	if at := h.drop(uri); at != "" && h.life.Err() == nil {
		ctx, cancel := context.WithTimeout(h.life, 5*time.Second)
		defer cancel()
		_ = h.subscribe(ctx, at, uri, "resources/unsubscribe") // what still comes is wanted by nobody
	}
}

// drop takes one client off, and returns the backend when it was the last.
func (h *hub) drop(uri string) (at string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.watched[uri]
	if w == nil {
		return ""
	}
	if w.count--; w.count > 0 {
		return ""
	}
	delete(h.watched, uri)
	return w.backend
}

// subscribe subscribes or unsubscribes on the edge's own session.
func (h *hub) subscribe(ctx context.Context, at, uri, method string) error {
	b, ear := h.s.byName[at], h.ears[at]
	if b == nil || ear == nil {
		return edge.Errorf(edge.NotFound, "subscribe", "no backend %q", at)
	}
	m, err := mcp.Decode(mcp.AppendRequest(nil, mcp.Quote("weir-"+method+"-"+uri), method, append(mcp.AppendString([]byte(`{"uri":`), uri), '}')))
	if err != nil {
		return err
	}
	r, err := b.Handle(ctx, &edge.Exchange{Era: mcp.Legacy, Request: m, Session: ear, Client: hearing{h, at}})
	if err != nil {
		return err
	}
	if r != nil && r.Kind == mcp.Failure {
		return errors.New("refused")
	}
	return nil
}

// ofOthers is a legacy client's way outside its calls, without what the hub
// tells it.
type ofOthers struct{ edge.Client }

// Send passes on what concerns this client alone.
func (o ofOthers) Send(n *mcp.Message) error {
	switch n.Method {
	case "notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed":
		return nil
	}
	return o.Client.Send(n)
}
