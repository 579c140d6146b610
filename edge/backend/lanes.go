package backend

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/wire"
)

// lane is where modern requests to a local server go: a stream of one legacy client's
// session, or of a principal's pool, opened when it is first needed. One of a pool is
// opened again when its process has ended; one of a session is over then.
type lane struct {
	b       *Backend
	who     string        // edge.Owner.Principal
	client  *edge.Session // whose it is; nil for a pool's
	opening chan struct{} // one place: whoever is in it opens the stream
	live    atomic.Pointer[lines]
	lost    atomic.Bool // the process of a session has ended
	closed  atomic.Bool
	idle    int // sweeps since it was used; the lanes' mutex guards it
}

func newLane(b *Backend, who string, client *edge.Session) *lane {
	return &lane{b: b, who: who, client: client, opening: make(chan struct{}, 1)}
}

// lines returns the stream, and opens it where it is not open.
func (l *lane) lines(ctx context.Context) (*lines, error) {
	if at := l.live.Load(); at != nil {
		return at, nil
	}
	select {
	case l.opening <- struct{}{}:
		defer func() { <-l.opening }()
	case <-ctx.Done():
		return nil, edge.Errorf(edge.Gone, "start", "%w", context.Cause(ctx))
	}
	if at := l.live.Load(); at != nil {
		return at, nil
	}
	if l.lost.Load() {
		return nil, errProcessOver
	}
	return l.open(ctx, false)
}

// open opens the stream; nobody else does at the time.
func (l *lane) open(ctx context.Context, trial bool) (*lines, error) {
	at := &lines{}
	at.hears.Store(&hears{
		beside: func(m *mcp.Message) { l.beside(at, m) },
		ended: func() {
			l.lost.Store(l.isClients())
			l.live.CompareAndSwap(at, nil)
			if l.isClients() {
				l.b.over(l.client)
			}
		},
	})
	at.served.Store(l.isClients())
	if err := l.b.openLines(ctx, at, edge.Owner{Principal: l.who, Session: l.isClients(), Trial: trial}); err != nil {
		return nil, err
	}
	l.live.Store(at)
	if at.dead() {
		l.live.CompareAndSwap(at, nil)
	}
	if l.closed.Load() {
		l.Close()
	}
	return at, nil
}

func (l *lane) isClients() bool { return l.client != nil && l.client.ID != "" }

// Close ends the stream.
func (l *lane) Close() error {
	l.closed.Store(true)
	if at := l.live.Swap(nil); at != nil {
		at.close()
	}
	return nil
}

// beside takes what a modern server sends besides answers, and passes it on to the client
// of the call that it is of (2026-07-28, basic/transports, stdio).
func (l *lane) beside(at *lines, m *mcp.Message) {
	if m.Kind == mcp.Request {
		l.b.odd(&l.b.strayed, "a request in the modern era; dropped", "method", m.Method)
		return
	}
	l.b.ears.changed(m)
	if m.Method == "notifications/progress" {
		token := m.Get("progressToken").Of(m.Raw)
		to, own, _ := at.whose(token)
		if to == nil || own == nil {
			return // nobody asked for it, or it came too late
		}
		if n, err := mcp.Decode(mcp.Retokened(nil, m, own)); err == nil {
			_ = to.Send(n) // a client that is gone ends its call
		}
		return
	}
	if tag := m.Meta(mcp.MetaSubscription); tag.OK() {
		l.heardNews(tag.Of(m.Raw), m)
		to, _, own := at.whose(tag.Of(m.Raw))
		if to == nil || own == nil || !mcp.SafePages(m) {
			return
		}
		if n, err := mcp.Decode(mcp.Splice(nil, m.Raw, m.WithMeta(nil, mcp.Raw(mcp.MetaSubscription, own)))); err == nil {
			_ = to.Send(n)
		}
		return
	}
	if m.Method == "notifications/cancelled" {
		at.torn(m.Get("requestId").Of(m.Raw))
		return
	}
	if m.Method == "notifications/message" {
		if to := at.logger(); to != nil {
			_ = to.Send(m)
		}
	}
}

// errTorn says that the server has ended a subscription, which goes without an answer where
// it says so by notifications/cancelled (2026-07-28, basic/patterns/cancellation).
var errTorn = edge.Errorf(edge.Unavailable, "listen", "the server has ended the subscription")

// torn ends the subscription of a number, the one request that a server may end so.
func (l *lines) torn(number []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := l.find(number); i >= 0 && l.calls[i].lasts {
		w := l.calls[i]
		w.over, w.err = true, errTorn
		l.drop(i)
		w.Close()
	}
}

// whose returns the client of the request of a number, and what it calls its progress and
// its subscription.
func (l *lines) whose(number []byte) (to edge.Client, token, tag []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := l.find(number)
	if i < 0 {
		return nil, nil, nil
	}
	w := l.calls[i]
	w.heard.Store(time.Now().UnixNano())
	if w.lasts {
		tag = bytes.Clone(w.tag)
	}
	return w.client, bytes.Clone(w.token), tag
}

// logger returns the client of the one call under way that takes log messages; nil for
// none, and where nothing says which of several a message is of.
func (l *lines) logger() edge.Client {
	l.mu.Lock()
	defer l.mu.Unlock()
	var of *waiter
	for _, w := range l.calls {
		if !w.logs || w.client == nil {
			continue
		}
		if of != nil {
			return nil
		}
		of = w
	}
	if of == nil {
		return nil
	}
	of.heard.Store(time.Now().UnixNano())
	return of.client
}

// lanes are those of the pools, by principal.
type lanes struct {
	mu     sync.Mutex
	of     map[string][]*lane
	timer  *time.Timer // looks for those that have rested; nil while there are none
	closed bool
}

// crowded is how many calls on each of a principal's lanes are worth another process.
const crowded = 4

// poolLane returns the lane of a principal's pool that has the least to do; one on which the
// principal listens comes first as long as it has not much to do, since there it is told what
// its calls change. Where all have much to do another is opened for those who come later.
func (b *Backend) poolLane(who string) *lane {
	t := &b.lanes
	t.mu.Lock()
	defer t.mu.Unlock()
	var best *lane
	least := 0
	all := t.of[who]
	for _, l := range all {
		n, listened := 0, false
		if at := l.live.Load(); at != nil {
			n, listened = at.under()
		}
		if listened && n < crowded {
			best, least = l, n
			break
		}
		if best == nil || n < least {
			best, least = l, n
		}
	}
	if best == nil || least >= crowded && len(all) < b.lined.Pool() {
		l := newLane(b, who, nil)
		t.add(b, l)
		if best == nil {
			best = l
		} else {
			b.spawn("process", func() {
				if _, err := l.lines(b.life); err != nil {
					t.remove(l) // there is no room for one, or not now
				}
			})
		}
	}
	best.idle = 0
	return best
}

// add adds a lane; t.mu is held.
func (t *lanes) add(b *Backend, l *lane) {
	if t.of == nil {
		t.of = make(map[string][]*lane)
	}
	t.of[l.who] = append(t.of[l.who], l)
	if t.timer == nil && !t.closed {
		t.timer = time.AfterFunc(b.Rest/sweeps, func() { t.sweep(b) })
	}
}

// keep makes a lane that is open the first of the edge's own.
func (t *lanes) keep(b *Backend, l *lane) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		l.Close()
		return
	}
	t.add(b, l)
}

func (t *lanes) remove(l *lane) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drop(l)
}

// drop takes a lane out; t.mu is held.
func (t *lanes) drop(l *lane) {
	all := t.of[l.who]
	for i, one := range all {
		if one == l {
			all[i] = all[len(all)-1]
			all[len(all)-1] = nil
			all = all[:len(all)-1]
			break
		}
	}
	if t.of[l.who] = all; len(all) == 0 {
		delete(t.of, l.who)
	}
}

// sweep ends the lanes that have rested for long enough.
func (t *lanes) sweep(b *Backend) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	for _, all := range t.of {
		for _, l := range append([]*lane(nil), all...) {
			at := l.live.Load()
			if at != nil {
				if use := at.use(); use.Calls > 0 || use.Listens {
					l.idle = 0
					continue
				}
			}
			if l.idle++; l.idle > sweeps {
				t.drop(l)
				b.spawn("process", func() { l.Close() })
			}
		}
	}
	if t.timer = nil; len(t.of) > 0 {
		t.timer = time.AfterFunc(b.Rest/sweeps, func() { t.sweep(b) })
	}
}

// close ends all lanes.
func (t *lanes) close() {
	t.mu.Lock()
	t.closed = true
	if t.timer != nil {
		t.timer.Stop()
	}
	all := t.of
	t.of = nil
	t.mu.Unlock()
	for _, some := range all {
		for _, l := range some {
			l.Close()
		}
	}
}

// laneKey is what the lane of a client's session is attached under.
type laneKey struct{ *Backend }

// laneOf returns the lane of a client's session.
func (b *Backend) laneOf(client *edge.Session) (*lane, error) {
	l, ok := client.Attach(laneKey{b}, func() io.Closer {
		return newLane(b, ownerOfSession(client), client)
	}).(*lane)
	if !ok {
		return nil, errProcessOver
	}
	return l, nil
}

// overLines sends a modern request to a local server, and has its answer in m's place.
func (b *Backend) overLines(ctx context.Context, x *edge.Exchange, m *mcp.Message, answer *mcp.Message) error {
	for try := 0; ; try++ {
		var l *lane
		var err error
		if x.Session != nil {
			l, err = b.laneOf(x.Session)
		} else {
			l = b.poolLane(ownerOf(x.Identity))
		}
		if err != nil {
			return err
		}
		if err = l.call(ctx, x.Client, m, answer, m.Method == "subscriptions/listen"); err == nil {
			return nil
		}
		var u *unsent
		if !errors.As(err, &u) {
			return err
		}
		if err = u.error; edge.KindOf(err) != edge.Unavailable || try > 0 {
			return err
		}
		// The process had ended before: nothing has been sent.
	}
}

// call sends a modern request over the lane.
func (l *lane) call(ctx context.Context, client edge.Client, m, answer *mcp.Message, lasts bool) error {
	at, err := l.lines(ctx)
	if err != nil {
		return err
	}
	if _, own := client.(edge.NoClient); !own && !at.served.Load() {
		at.served.Store(true)
	}
	if l.b.ears.some.Load() {
		l.listenForNews(at)
	}
	w := l.b.newWaiter(answer)
	defer w.release()
	w.client, w.lasts, w.tag, w.logs = client, lasts, m.IDText(), m.Meta(mcp.MetaLogLevel).OK()
	silence, until := l.b.silence(client), time.Now().Add(l.b.Cap)
	if lasts {
		silence, until = 0, time.Time{}
	}
	err = at.ask(ctx, w, m.Raw, w.numbered(m), silence, until)
	if lasts { // it may have ended already
		why := "it is over"
		if err != nil {
			why = wire.Reason(err)
		}
		at.stream.Unlisten(w.id, why)
	}
	if err == nil {
		answer.SetID(m.IDText())
		if t := answer.Meta(mcp.MetaSubscription); lasts && t.OK() {
			return answer.Decode(mcp.Splice(nil, answer.Raw, mcp.Edit{Span: t, With: m.IDText()}))
		}
		return nil
	}
	var u *unsent
	switch kind := edge.KindOf(err); {
	case errors.As(err, &u):
		if edge.KindOf(u.error) == edge.Unavailable {
			l.live.CompareAndSwap(at, nil)
		}
	case lasts:
	case kind == edge.Gone || kind == edge.Timeout:
		at.cancel(w.id, wire.Reason(err))
	}
	return err
}

// teller is an edge.Client that hears, and cannot be asked.
type teller struct {
	edge.NoClient
	tell func(*mcp.Message)
}

// Send passes a notification on.
func (t teller) Send(n *mcp.Message) error { t.tell(n); return nil }
