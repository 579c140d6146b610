package route

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/backend"
	"github.com/weir-edge/weir/edge/catalog"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/relay"
)

// A modern client hears of changes on the stream of its subscriptions/listen.
// The goroutine that finds a change only notes it; the exchange of the client sends
// it, so that a slow client delays no other.

const (
	// maxWatched bounds the resources that one client may subscribe to, and
	// maxWatchedTogether the different ones of all clients of a server.
	maxWatched         = backend.MaxWished
	maxWatchedTogether = 10 * maxWatched

	// maxWatchedEach bounds the subscriptions of all clients of one holder: see
	// edge.Holder.
	maxWatchedEach = maxWatchedTogether / 4

	// watchWithin is how long a client waits for the acknowledgement that lists the
	// resources it is subscribed to; backends that have not answered by then are left
	// out.
	watchWithin = 10 * time.Second

	// maxUpdate bounds the bytes of a resource update that is kept whole for a client.
	// Of a longer one only the URI is kept.
	maxUpdate = 16 << 10
)

// subscriber is a modern client that listens, and the changes due to it.
type subscriber struct {
	wake chan struct{} // holds a value while a change is due

	mu      sync.Mutex
	lists   catalog.Changes
	updates map[string]*mcp.Message // the latest of each resource, by URI
}

func newSubscriber() *subscriber { return &subscriber{wake: make(chan struct{}, 1)} }

func (l *subscriber) change(c catalog.Changes) {
	l.mu.Lock()
	l.lists.Add(c)
	l.mu.Unlock()
	l.rouse()
}

func (l *subscriber) update(uri string, n *mcp.Message) {
	if len(n.Raw) > maxUpdate {
		short, err := mcp.Decode(mcp.AppendRequest(nil, nil, n.Method, append(mcp.AppendString([]byte(`{"uri":`), uri), '}')))
		if err != nil {
			return
		}
		n = short
	}
	l.mu.Lock()
	if l.updates == nil {
		l.updates = make(map[string]*mcp.Message)
	}
	l.updates[uri] = n
	l.mu.Unlock()
	l.rouse()
}

func (l *subscriber) rouse() {
	select {
	case l.wake <- struct{}{}:
	default: // it is awake
	}
}

// take returns the changes that are due, and clears them.
func (l *subscriber) take() []*mcp.Message {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.lists.Notices()
	for _, n := range l.updates {
		all = append(all, n)
	}
	l.lists, l.updates = catalog.Changes{}, nil
	return all
}

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
	l := newSubscriber() // changes from here on are sent after the acknowledgement
	who := edge.Holder(x.Identity, x.Head.Remote)
	h.mu.Lock()
	if h.waiting[who]+len(wish.URIs) > maxWatchedEach {
		h.mu.Unlock()
		return nil, edge.Errorf(edge.Overload, "listen", "one client can wait for %d resources on all of its streams: end some", maxWatchedEach)
	}
	asked := len(wish.URIs)
	h.waiting[who] += asked
	h.subscribers[l] = struct{}{}
	h.mu.Unlock()
	var watching []resourceAt
	defer func() {
		h.mu.Lock()
		delete(h.subscribers, l)
		if h.waiting[who] -= asked; h.waiting[who] == 0 {
			delete(h.waiting, who)
		}
		h.mu.Unlock()
		h.unwatch(l, watching)
	}()
	within, done := context.WithTimeout(ctx, watchWithin)
	defer done()
	uris := wish.URIs
	wish.URIs = nil
	for _, uri := range uris {
		if within.Err() != nil {
			break
		}
		t, err := h.s.located(within, x, uri)
		if err != nil || t == nil {
			continue
		}
		if r := (resourceAt{t.Backend, uri}); h.watch(within, l, r) {
			watching, wish.URIs = append(watching, r), append(wish.URIs, uri)
		}
	}
	a := backend.NewAudience(x.Client, m.IDText(), cancel)
	if err := a.Admit(wish); err != nil {
		return nil, edge.Errorf(edge.Gone, "listen", "%w", err)
	}
	for {
		select {
		case <-l.wake:
			for _, n := range l.take() {
				if a.Send(n) != nil { // which ends ctx
					break
				}
			}
			continue
		case <-ctx.Done():
		case <-h.life.Done():
		}
		return edge.Reply(m, a.Done())
	}
}

// resourceAt is a resource of a backend.
type resourceAt struct{ backend, uri string }

// watched is a resource that modern clients subscribe to. The mutex of the hub guards it.
type watched struct {
	who   map[*subscriber]struct{}
	known chan struct{} // closed when the backend has accepted or refused the subscription
	taken bool          // it accepted
	gone  chan struct{} // closed when it is unsubscribed; nil while it has subscribers
}

// watch subscribes a client to a resource; the first client of a resource makes the
// edge subscribe at the backend. It reports false if that fails.
func (h *hub) watch(ctx context.Context, l *subscriber, r resourceAt) bool {
	for {
		h.mu.Lock()
		w := h.watched[r]
		if w != nil && w.gone != nil { // a subscription must not overtake the end of the one before
			h.mu.Unlock()
			select {
			case <-w.gone:
				continue
			case <-ctx.Done():
				return false
			}
		}
		first := w == nil
		if first {
			if len(h.watched) >= maxWatchedTogether {
				h.mu.Unlock()
				return false
			}
			w = &watched{who: make(map[*subscriber]struct{}), known: make(chan struct{})}
			h.watched[r] = w
		}
		w.who[l] = struct{}{}
		h.mu.Unlock()
		if first {
			h.begin(r, w)
		}
		select {
		case <-w.known:
		case <-ctx.Done():
		}
		h.mu.Lock()
		taken := w.taken
		h.mu.Unlock()
		if !taken {
			h.unwatch(l, []resourceAt{r})
		}
		return taken
	}
}

// begin subscribes to a resource for all its clients: the first one may leave before
// the backend answers.
func (h *hub) begin(r resourceAt, w *watched) {
	ctx, cancel := context.WithTimeout(h.life, watchWithin)
	defer cancel()
	err := h.subscribe(ctx, r, "resources/subscribe")
	h.mu.Lock()
	defer h.mu.Unlock()
	if w.taken = err == nil; !w.taken && h.watched[r] == w {
		delete(h.watched, r)
	}
	close(w.known)
}

// unwatch removes a client, and unsubscribes from resources that have no other.
func (h *hub) unwatch(l *subscriber, all []resourceAt) {
	ctx, cancel := context.WithTimeout(h.life, watchWithin)
	defer cancel()
	for _, r := range all {
		h.mu.Lock()
		w := h.watched[r]
		if w == nil {
			h.mu.Unlock()
			continue
		}
		delete(w.who, l)
		last := len(w.who) == 0 && w.taken && w.gone == nil
		if last {
			w.gone = make(chan struct{})
		}
		h.mu.Unlock()
		if !last {
			continue
		}
		_ = h.subscribe(ctx, r, "resources/unsubscribe") // later updates have no subscriber
		h.mu.Lock()
		delete(h.watched, r)
		close(w.gone)
		h.mu.Unlock()
	}
}

// subscribe subscribes or unsubscribes on the edge's own session.
func (h *hub) subscribe(ctx context.Context, r resourceAt, method string) error {
	b, ear := h.s.byName[r.backend], h.ears[r.backend]
	if b == nil || ear == nil {
		return edge.Errorf(edge.NotFound, "subscribe", "no backend %q", r.backend)
	}
	m, err := mcp.Decode(mcp.AppendRequest(nil, mcp.Quote("weir-"+relay.NewName()), method, append(mcp.AppendString([]byte(`{"uri":`), r.uri), '}')))
	if err != nil {
		return err
	}
	answer, err := b.Handle(ctx, &edge.Exchange{Era: mcp.Legacy, Request: m, Session: ear, Client: hearing{h: h, backend: r.backend}})
	if err != nil {
		return err
	}
	if answer != nil && answer.Kind == mcp.Failure {
		return errors.New("refused")
	}
	return nil
}
