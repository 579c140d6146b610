package backend

import (
	"context"
	"io"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// Hearing of changes across the eras: a legacy server tells them on a stream
// of its session, a modern one on the stream of subscriptions/listen.

// MaxWished is how many resources one client may wait for.
const MaxWished = 1000

// Wish is the notifications member of subscriptions/listen.
type Wish struct {
	Tools, Prompts, Resources bool     // that their lists have changed
	URIs                      []string // that these resources have
}

// WishOf reads what a subscriptions/listen asks for.
func WishOf(m *mcp.Message) Wish {
	var w Wish
	for _, f := range mcp.Members(m.Get("notifications").Of(m.Raw)) {
		yes := string(f.Value) == "true"
		switch string(f.Name) {
		case "toolsListChanged":
			w.Tools = yes
		case "promptsListChanged":
			w.Prompts = yes
		case "resourcesListChanged":
			w.Resources = yes
		case "resourceSubscriptions":
			for _, u := range mcp.Elements(f.Value) {
				w.URIs = append(w.URIs, mcp.String(u))
			}
		}
	}
	return w
}

// Within is the part of the wish that a legacy server of these capabilities
// can fulfil.
func (w Wish) Within(caps []byte) Wish {
	can := func(path ...string) bool { return string(mcp.Lookup(caps, path...)) == "true" }
	w.Tools = w.Tools && can("tools", "listChanged")
	w.Prompts = w.Prompts && can("prompts", "listChanged")
	w.Resources = w.Resources && can("resources", "listChanged")
	if !can("resources", "subscribe") {
		w.URIs = nil
	}
	return w
}

func (w Wish) text() []byte {
	var set []mcp.Member
	add := func(name string, yes bool) {
		if yes {
			set = append(set, mcp.With(name, "true"))
		}
	}
	add("toolsListChanged", w.Tools)
	add("promptsListChanged", w.Prompts)
	add("resourcesListChanged", w.Resources)
	if len(w.URIs) > 0 {
		uris := []byte{'['}
		for i, u := range w.URIs {
			if i > 0 {
				uris = append(uris, ',')
			}
			uris = mcp.AppendString(uris, u)
		}
		set = append(set, mcp.Raw("resourceSubscriptions", append(uris, ']')))
	}
	return mcp.Change(nil, nil, set...)
}

// covers reports whether a notification is one that was wished for.
func (w Wish) covers(n *mcp.Message) bool {
	switch n.Method {
	case "notifications/tools/list_changed":
		return w.Tools
	case "notifications/prompts/list_changed":
		return w.Prompts
	case "notifications/resources/list_changed":
		return w.Resources
	case "notifications/resources/updated":
		return slices.Contains(w.URIs, n.Text("uri"))
	}
	return false
}

// lacking returns the resources that an acknowledgement of the wish leaves out; one that does not
// say what it is of leaves out nothing.
func (w Wish) lacking(ack *mcp.Message) (lacks []string) {
	if !ack.Get("notifications").OK() {
		return nil
	}
	honoured := WishOf(ack).URIs
	for _, uri := range w.URIs {
		if !slices.Contains(honoured, uri) {
			lacks = append(lacks, uri)
		}
	}
	return lacks
}

// subscribe answers subscriptions/listen of a modern client with what a legacy
// backend tells on a session of its own, until the client leaves.
func (b *Backend) subscribe(ctx context.Context, x *edge.Exchange, in *Introduction) (*edge.Response, error) {
	m := x.Request
	honoured := WishOf(m).Within(in.Capabilities)
	if len(honoured.URIs) > MaxWished {
		return nil, edge.Errorf(edge.Params, "listen", "a client can wait for %d resources", MaxWished)
	}
	s := newSession(b, in.SSE, nil, nil)
	s.personal, s.alone = true, true
	s.choose(x)
	defer s.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out := NewAudience(x.Client, m.IDText(), cancel)
	s.hear(out) // changes may come as soon as the session is open
	if b.apart() {
		s.ear, s.who = true, principalOf(x.Identity)
		uris := make(map[string]bool)
		for _, uri := range honoured.URIs {
			uris[uri] = true
		}
		defer b.news.listens(b.Log, s.who, &listener{out: out, on: s, uris: func() map[string]bool { return uris }, has: func(uri string) bool { return uris[uri] }})()
	}
	l, err := s.link(ctx)
	if err != nil {
		return nil, lost(err)
	}
	asked := honoured.URIs
	honoured.URIs = nil
	for _, uri := range asked {
		answer, _, err := s.roundTrip(ctx, l, "resources/subscribe", append(mcp.AppendString([]byte(`{"uri":`), uri), '}'))
		if err != nil {
			return nil, lost(err)
		}
		if answer.Kind != mcp.Failure { // one that can be subscribed to
			honoured.URIs = append(honoured.URIs, uri)
			s.mu.Lock()
			_, _ = s.subs.add(nil, uri) // for a session that is opened anew
			s.mu.Unlock()
		}
	}
	if err := out.Admit(honoured); err != nil {
		return nil, edge.Errorf(edge.Gone, "listen", "%w", err)
	}
	if err := s.listen(ctx, out, nil); err != nil {
		return nil, err
	}
	return result(m, out.Done()), nil
}

// Audience is a modern client that listens. What comes before it has been told
// which of its wishes are honoured waits until then. It is an edge.Client that
// cannot be asked.
type Audience struct {
	edge.NoClient // it hears, and answers no question

	client edge.Client
	id     []byte // of its request, which tags all that it hears
	gone   func() // ends the listening

	mu    sync.Mutex
	open  bool
	want  Wish
	early []*mcp.Message
}

// NewAudience returns the audience for a client by the id of its request. gone is
// called when the client turns out to be.
func NewAudience(client edge.Client, id []byte, gone func()) *Audience {
	return &Audience{client: client, id: id, gone: gone}
}

// Done is the result that ends the subscription in order.
func (a *Audience) Done() []byte {
	return mcp.Change(nil, nil, mcp.With("resultType", `"complete"`), mcp.Raw("_meta", mcp.Change(nil, nil, a.tag())))
}

func (a *Audience) tag() mcp.Member { return mcp.Raw(mcp.MetaSubscription, a.id) }

// maxEarly is how many notifications wait for the acknowledgement.
const maxEarly = 100

// Admit acknowledges the subscription.
func (a *Audience) Admit(want Wish) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	n, err := mcp.Decode(mcp.AppendRequest(nil, nil, "notifications/subscriptions/acknowledged",
		mcp.Change(nil, nil, mcp.Raw("_meta", mcp.Change(nil, nil, a.tag())), mcp.Raw("notifications", want.text()))))
	if err == nil {
		err = a.client.Send(n)
	}
	a.open, a.want = true, want
	for _, n := range a.early {
		if err == nil {
			err = a.pass(n)
		}
	}
	a.early = nil
	return err
}

// Send passes on what the client wished for.
func (a *Audience) Send(n *mcp.Message) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open {
		return a.pass(n)
	}
	if len(a.early) < maxEarly {
		a.early = append(a.early, n)
	}
	return nil
}

// pass sends a notification under the client's subscription; a.mu is held.
func (a *Audience) pass(n *mcp.Message) error {
	if !a.want.covers(n) {
		return nil
	}
	out, err := mcp.Decode(mcp.Splice(nil, n.Raw, n.WithMeta(nil, a.tag())))
	if err == nil {
		err = a.client.Send(out)
	}
	if err != nil {
		a.gone()
	}
	return err
}

// watcher is what a legacy client's session wants to hear from a modern
// backend. One listen stream at a time carries all of it; another takes its
// place when the session wants something else, and is heard before the first is
// let go, so that nothing is missed in between.
type watcher struct {
	b       *Backend
	session *edge.Session
	renew   chan struct{} // holds a value while another stream is wanted

	mu      sync.Mutex
	uris    subscriptions
	wanted  int           // how often the wishes have changed
	heard   int           // of these the backend has acknowledged
	refused int           // and of these it has refused the last
	lacks   []string      // URIs that the last acknowledgement leaves out
	told    chan struct{} // closed when heard or refused changes
	live    bool          // somebody listens
	closed  chan struct{} // closed with the session
	closing sync.Once
}

// listening is one stream.
type listening struct {
	end   context.CancelFunc
	acked chan struct{} // closed when the backend has acknowledged it
	ended chan struct{} // closed when it has ended; then err is there
	err   error
}

// refused reports whether the stream has ended before the backend acknowledged it.
func (l *listening) refused() bool {
	select {
	case <-l.acked:
		return false
	default:
	}
	select {
	case <-l.ended:
		return true
	default:
		return false
	}
}

// watchKey is what a session's watcher of a backend is attached under.
type watchKey struct{ *Backend }

func (b *Backend) watcherOf(s *edge.Session) *watcher {
	w, _ := s.Attach(watchKey{b}, func() io.Closer {
		return &watcher{b: b, session: s, renew: make(chan struct{}, 1), told: make(chan struct{}), closed: make(chan struct{})}
	}).(*watcher)
	return w
}

// Close ends the stream.
func (w *watcher) Close() error {
	w.closing.Do(func() { close(w.closed) })
	return nil
}

// acknowledged notes that the backend has heard the wishes of a moment, but for what it lacks.
func (w *watcher) acknowledged(wanted int, lacks []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if wanted >= w.heard {
		w.heard, w.lacks = wanted, lacks
		w.tell()
	}
}

// refuse notes that the backend does not take the wishes of a moment.
func (w *watcher) refuse(wanted int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused = max(w.refused, wanted)
	w.tell()
}

// tell wakes those who wait; w.mu is held.
func (w *watcher) tell() {
	close(w.told)
	w.told = make(chan struct{})
}

// wish asks for another stream.
func (w *watcher) wish() {
	select {
	case w.renew <- struct{}{}:
	default: // it is wanted already
	}
}

// givesUp reports whether the backend has said, of the wishes of a moment, that it does not tell
// of a resource; then that is wished for no longer.
func (w *watcher) givesUp(uri string, wanted int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.heard >= wanted && slices.Contains(w.lacks, uri):
	case w.heard < wanted && w.refused >= wanted:
		w.wish() // without it
	default:
		return false
	}
	w.uris.drop(uri)
	return true
}

// acknowledgeWithin is how long a subscription waits for the backend's word.
const acknowledgeWithin = 2 * time.Second

// await waits until the backend has heard the wishes of a moment, or for so long
// as is worth it. Where nobody listens there is nothing to wait for.
func (w *watcher) await(ctx context.Context, wanted int) {
	limit := time.NewTimer(acknowledgeWithin)
	defer limit.Stop()
	for {
		w.mu.Lock()
		done, told := w.heard >= wanted || w.refused >= wanted || !w.live, w.told
		w.mu.Unlock()
		if done {
			return
		}
		select {
		case <-told:
		case <-limit.C:
			return
		case <-ctx.Done():
			return
		case <-w.closed:
			return
		}
	}
}

// watch answers a legacy client's resources/subscribe and unsubscribe, which a
// modern backend does not have.
func (b *Backend) watch(ctx context.Context, x *edge.Exchange) (bool, *edge.Response, error) {
	m := x.Request
	if m.Method != "resources/subscribe" && m.Method != "resources/unsubscribe" {
		return false, nil, nil
	}
	uri := m.Text("uri")
	if uri == "" {
		return true, nil, edge.Errorf(edge.Params, m.Method, "uri is missing")
	}
	w := b.watcherOf(x.Session)
	if w == nil {
		return true, nil, edge.Errorf(edge.NoSession, "session", "Session not found")
	}
	w.mu.Lock()
	var err error
	fresh := false
	if m.Method == "resources/subscribe" {
		fresh, err = w.uris.add(x.Session, uri)
	} else {
		w.uris.drop(uri)
	}
	w.wanted++
	wanted := w.wanted
	w.mu.Unlock()
	if err != nil {
		return true, nil, err
	}
	if x.Session.ID == "" {
		b.news.version.Add(1)
	}
	w.wish()
	w.await(ctx, wanted)
	if fresh && w.givesUp(uri, wanted) {
		return true, nil, edge.Errorf(edge.Params, m.Method, "backend %q does not tell of changes of this resource", b.Name)
	}
	return true, result(m, []byte("{}")), nil
}

// listenModern passes on to out what a modern backend tells a session, until
// ctx ends.
func (b *Backend) listenModern(ctx context.Context, client *edge.Session, out edge.Client, opened func(resumes bool)) error {
	w := b.watcherOf(client)
	if w == nil {
		return edge.Errorf(edge.NoSession, "session", "Session not found")
	}
	ctx, cancel := context.WithCancel(ctx)
	var streams sync.WaitGroup
	defer streams.Wait()
	defer cancel()
	var last int64         // stream
	var heard atomic.Int64 // the last that was acknowledged
	start := func(resumes bool) *listening {
		out := out
		last++
		number := last
		if b.lined != nil { // all come in order, and what comes after the acknowledgement comes there
			out = unless{out, func() bool { return heard.Load() > number }}
		}
		w.mu.Lock()
		want, wanted := Wish{Tools: true, Prompts: true, Resources: true, URIs: w.uris.list()}, w.wanted
		w.mu.Unlock()
		one, end := context.WithCancel(ctx)
		l := &listening{end: end, acked: make(chan struct{}), ended: make(chan struct{})}
		streams.Go(func() {
			defer close(l.ended)
			defer end()
			var once sync.Once
			l.err = b.listenOnce(one, client, want, out, func(lacks []string) {
				once.Do(func() {
					heard.Store(max(heard.Load(), number))
					close(l.acked)
					w.acknowledged(wanted, lacks)
					opened(resumes)
				})
			})
			if edge.KindOf(l.err) == edge.Params {
				w.refuse(wanted)
			}
		})
		return l
	}
	w.listened(true)
	defer w.listened(false)
	wait := 100 * time.Millisecond
	for now := start(false); ; {
		began := time.Now()
		select {
		case <-ctx.Done():
			return nil
		case <-w.closed:
			return nil
		case <-w.renew:
			next := start(true)
			select {
			case <-next.acked:
			case <-next.ended:
			case <-time.After(acknowledgeWithin):
			case <-ctx.Done():
			}
			if next.refused() { // the one before goes on
				if kind := edge.KindOf(next.err); kind != edge.Params && kind != edge.NoMethod {
					time.AfterFunc(wait, w.wish)
					wait = min(2*wait, 30*time.Second)
				}
				continue
			}
			now.end()
			now = next
			continue
		case <-now.ended:
		}
		if edge.KindOf(now.err) == edge.NoMethod {
			w.listened(false)
			select { // it tells nothing of its own
			case <-ctx.Done():
			case <-w.closed:
			}
			return nil
		}
		if !now.refused() && time.Since(began) > time.Second { // as behind a proxy that cuts every stream after a while
			wait = 100 * time.Millisecond
		}
		select {
		case <-ctx.Done():
			return nil
		case <-w.closed:
			return nil
		case <-w.renew:
		case <-time.After(wait):
		}
		wait = min(2*wait, 30*time.Second)
		now = start(false)
	}
}

// unless is a client that hears nothing once something is so.
type unless struct {
	edge.Client
	so func() bool
}

// Send is edge.Client.Send.
func (u unless) Send(n *mcp.Message) error {
	if u.so() {
		return nil
	}
	return u.Client.Send(n)
}

// watched returns the resources that the session waits for.
func (w *watcher) watched() map[string]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.uris.uris)
}

// watches reports whether the session waits for a resource.
func (w *watcher) watches(uri string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.uris.uris[uri]
}

// listened notes whether somebody listens.
func (w *watcher) listened(live bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.live = live
	w.tell()
}

func (b *Backend) listenOnce(ctx context.Context, client *edge.Session, want Wish, out edge.Client, acknowledged func(lacks []string)) error {
	caller := mcp.Caller{Info: client.Info, Capabilities: relayed(client)}
	params := mcp.Change(nil, nil,
		mcp.Raw("_meta", mcp.Change(nil, nil, caller.Members()...)),
		mcp.Raw("notifications", want.text()))
	id := []byte(`"listen"`)
	o := outgoing{
		method: "POST", version: mcp.V2607, rpc: "subscriptions/listen", x: b.on(client.Who()), forward: client.Forward,
		body: mcp.AppendRequest(nil, id, "subscriptions/listen", params),
	}
	m := new(mcp.Message)
	hear := func(n *mcp.Message, _ *reply) {
		if n.Kind == mcp.Notification && n.Method == "notifications/subscriptions/acknowledged" {
			acknowledged(want.lacking(n))
		}
		if n.Kind != mcp.Notification || !want.covers(n) {
			return
		}
		clean, err := mcp.Decode(mcp.Splice(nil, n.Raw, n.WithMeta([]string{mcp.MetaSubscription})))
		if err == nil {
			_ = out.Send(clean)
		}
	}
	if b.lined != nil {
		return b.listenLocal(ctx, client, o.body, func(n *mcp.Message) { hear(n, nil) })
	}
	_, err := b.peer.converse(ctx, &o, id, m, hear)
	if r, ok := err.(*refusal); ok && r.code != 0 {
		return notListened(r.code)
	}
	if err == nil && m.Kind == mcp.Failure {
		return notListened(m.Code())
	}
	return err
}

// notListened is what it means that a backend answers subscriptions/listen with an error of a
// code: that it has no such method, that it does not take what is listened for, or that it
// fails for now.
func notListened(code int) error {
	switch code {
	case mcp.CodeMethodNotFound:
		return edge.Errorf(edge.NoMethod, "listen", "the backend tells of no changes")
	case mcp.CodeInvalidParams:
		return edge.Errorf(edge.Params, "listen", "the backend does not tell of what is listened for")
	}
	return edge.Errorf(edge.Unavailable, "listen", "answered with error %d", code)
}

// listenLocal is listenOnce to a local server, with the text of the request.
func (b *Backend) listenLocal(ctx context.Context, client *edge.Session, body []byte, hear func(*mcp.Message)) error {
	m, err := mcp.Decode(body)
	if err != nil {
		return nonsense(err)
	}
	l, err := b.laneOf(client)
	if err != nil {
		return err
	}
	answer := new(mcp.Message)
	err = l.call(ctx, teller{tell: hear}, m, answer, true)
	if err == nil && answer.Kind == mcp.Failure {
		return notListened(answer.Code())
	}
	return err
}
