package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// Edges that share a store write to each other through it. A call in flight, a
// parked call and an open stream stay at the edge where they began; what a
// client sends about them to another edge is posted to the box of that one, and
// what comes of it is posted back.

const (
	// letterFor is how long a letter waits to be read: about as long as an edge
	// may be silent until it counts as gone.
	letterFor = 10 * time.Second

	// aliveFor is how long an edge counts as alive after it last said so, which
	// it does every aliveEvery.
	aliveFor   = 5 * time.Second
	aliveEvery = time.Second

	// maxThreads is how many exchanges with other edges are under way at a time,
	// in each direction, and maxWaiting how many letters of one of them wait.
	maxThreads = 4096
	maxWaiting = 1024

	// maxWaitingBytes is how many bytes of letters wait in this edge, for all of
	// its exchanges together, and maxHeld how many bytes of requests it holds for
	// other edges. One exchange has no more waiting than waitingBytes and one
	// letter.
	waitingBytes    = 4 << 20
	maxWaitingBytes = 64 << 20
	maxHeld         = 64 << 20

	// letterHead is how many bytes a letter may have besides a message.
	letterHead = 1 << 20
)

// letterSize is how many bytes a letter may have: the largest message that goes
// in or out, and its head.
func (s *Settings) letterSize() int { return max(s.MaxBody, s.MaxMessage) + letterHead }

// The kinds of letters.
const (
	letterEnd    = "end"    // a session has ended
	letterLook   = "look"   // what a session has set up has changed
	letterAnswer = "answer" // a client's answer to a question; the body is the message
	letterCancel = "cancel" // a client's cancellation; the body is the message
	letterRetry  = "retry"  // a round of a parked call; the body is the request
	letterFollow = "follow" // a client is back for a stream
	letterOpen   = "open"   // a stream of the older transport has its session; the body is what its client is told first
	letterSay    = "say"    // something for the client of such a stream; the body is the message
	letterLeave  = "leave"  // whoever waits for what comes of a letter has left

	letterNote   = "note"   // a notification for the client; the body is the message
	letterResult = "result" // the answer; the body is the message
	letterError  = "error"  // an error in place of the answer
	letterTaken  = "taken"  // the stream is there, and its events follow
	letterEvent  = "event"  // an event of a stream; the body is its data
	letterDone   = "done"   // the stream has ended
)

// letter is the head of what edges post to each other.
type letter struct {
	Kind    string `json:"k"`
	From    string `json:"f,omitempty"` // the edge that waits for what comes of it
	Thread  string `json:"t,omitempty"` // which of its exchanges does
	Session string `json:"s,omitempty"` // key of a session
	Event   string `json:"e,omitempty"` // id of an event
	Status  int    `json:"h,omitempty"` // of an answer
	Error   *wrong `json:"w,omitempty"`
}

// wrong is an edge.Error.
type wrong struct {
	Kind  edge.Kind       `json:"k"`
	Text  string          `json:"t"`
	After time.Duration   `json:"a,omitempty"`
	Data  json.RawMessage `json:"d,omitempty"`
}

// pack is the text of a letter: its head in a line, then the body as it is.
func (l letter) pack(body []byte) []byte {
	head, err := json.Marshal(l)
	if err != nil {
		panic(err) // Data is JSON text, and the rest always has a JSON form
	}
	return append(append(append(make([]byte, 0, len(head)+1+len(body)), head...), '\n'), body...)
}

func unpack(text []byte) (l letter, body []byte, ok bool) {
	head, body, ok := bytes.Cut(text, []byte{'\n'})
	if !ok || json.Unmarshal(head, &l) != nil {
		return letter{}, nil, false
	}
	return l, body, true
}

func boxOf(node string) string   { return "node:" + node }
func aliveOf(node string) string { return "alive:" + node }

// post writes to another edge.
func (t *shared) post(node string, l letter, body []byte) error {
	text := l.pack(body)
	if len(text) > t.letter {
		return edge.Errorf(edge.TooLarge, "relay", "%d bytes are more than a letter between edges has (%d)", len(text), t.letter)
	}
	return t.Post(context.Background(), boxOf(node), text, letterFor)
}

// alive reports whether an edge has lately said that it is. A store that cannot
// say leaves it so.
func (t *shared) alive(node string) bool {
	said, err := t.Get(context.Background(), aliveOf(node))
	return err != nil || said != nil
}

// gone reports whether an edge has said nothing for so long that it is no longer
// there. A store that was away itself has not heard of anybody for a while.
func (t *shared) gone(node string) bool {
	return !t.alive(node) && time.Since(t.State().Since) > aliveFor
}

// tellOthers writes to all other edges that have a session.
func (e *Edge) tellOthers(store *shared, r *record, l letter, body []byte) {
	for _, node := range r.Nodes {
		if node != e.node {
			_ = store.post(node, l, body) // an edge that cannot be told asks the store itself soon
		}
	}
}

// takePart has the edge take part in what edges that share a store tell each other,
// until ctx ends.
func (e *Edge) takePart(ctx context.Context, t *shared) {
	t.work.Go(func() {
		defer edge.Contain(e.log, "heartbeat")
		tick := time.NewTicker(aliveEvery)
		defer tick.Stop()
		for {
			_ = t.Put(ctx, aliveOf(e.node), []byte("1"), aliveFor) // the store says in the log that it is away
			select {
			case <-ctx.Done():
				if e.leaving.Load() { // else it goes on with another store, which may be the same
					_ = t.Delete(context.Background(), aliveOf(e.node)) // it is forgotten soon in any case
				}
				return
			case <-tick.C:
			}
		}
	})
	t.work.Go(func() {
		defer edge.Contain(e.log, "letters")
		_ = t.Listen(ctx, boxOf(e.node), func(text []byte) { e.read(t, text) }) // it ends with ctx
	})
	t.work.Go(func() {
		defer edge.Contain(e.log, "stream logs")
		t.keeper.run(ctx, t)
	})
}

// read takes a letter. What takes time goes on by itself: letters are read one
// after the other.
func (e *Edge) read(t *shared, text []byte) {
	l, body, ok := unpack(text)
	if !ok {
		return // no edge wrote it
	}
	if len(text) > t.letter {
		e.tooLarge(t, l)
		return
	}
	switch l.Kind {
	case letterEnd:
		if s := e.sessions.known(l.Session); s != nil {
			t.work.Go(func() { // its streams may take a moment
				defer edge.Contain(e.log, "session")
				e.sessions.end(s.ID)
			})
		}
	case letterLook:
		if s := e.sessions.known(l.Session); s != nil {
			s.common.seen.Store(0)
			t.work.Go(func() {
				defer edge.Contain(e.log, "session")
				if _, err := e.confirm(t, s); err == nil {
					e.catchUp(s)
				}
			})
		}
	case letterAnswer, letterCancel:
		s := e.sessions.known(l.Session)
		m, err := mcp.Decode(body)
		if s == nil || err != nil {
			return
		}
		if l.Kind == letterAnswer {
			s.answered(m)
		} else {
			s.cancelCall(m)
		}
	case letterRetry:
		e.serveThread(t, l, len(text), func(ctx context.Context) { e.retried(ctx, t, l, body) })
	case letterFollow:
		e.serveThread(t, l, len(text), func(ctx context.Context) { e.followed(ctx, t, l) })
	case letterOpen:
		e.serveThread(t, l, len(text), func(context.Context) { e.opened(t, l, body) })
	case letterLeave:
		e.threads.leave(l.From + l.Thread)
	default:
		e.threads.give(l.Thread, l, body)
	}
}

// tooLarge is what comes of a letter that is larger than any of this edge's may
// be, as one of an edge of other settings: whoever waits for it, or for what
// comes of it, is told.
func (e *Edge) tooLarge(t *shared, l letter) {
	switch l.Kind {
	case letterRetry, letterFollow, letterOpen:
		if isNode(l.From) {
			why := edge.Errorf(edge.TooLarge, "relay", "a letter between edges has at most %d bytes", t.letter)
			_ = t.post(l.From, letter{Kind: letterError, From: e.node, Thread: l.Thread, Error: wrongOf(why)}, nil) // who waits gives up by itself
		}
	default:
		e.threads.spoil(l.Thread)
	}
}

// threads are the exchanges with other edges that are under way.
type threads struct {
	mu      sync.Mutex
	waiting map[string]*thread // of this edge's clients, by name
	bytes   int                // that wait for them
	serving map[string]served  // of other edges', by edge and name
	held    int                // bytes of their requests
}

// served is an exchange of another edge's that goes on here.
type served struct {
	cancel context.CancelFunc
	bytes  int
}

func errThreads() error {
	return edge.Errorf(edge.Overload, "relay", "as much goes on with other edges as may")
}

// thread is what comes back for a letter.
type thread struct {
	name string
	wake chan struct{} // holds one while there is something

	// What follows is guarded by the mu of threads.
	queue []delivered
	bytes int
	over  bool // too much has come
}

type delivered struct {
	letter
	body []byte
}

// open begins to wait for what comes back under a name.
func (t *threads) open(name string) (*thread, error) {
	one := &thread{name: name, wake: make(chan struct{}, 1)}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiting) >= maxThreads {
		return nil, errThreads()
	}
	if t.waiting == nil {
		t.waiting = make(map[string]*thread)
	}
	t.waiting[name] = one
	return one, nil
}

func (t *threads) close(one *thread) {
	t.mu.Lock()
	delete(t.waiting, one.name)
	t.bytes -= one.bytes
	one.queue, one.bytes = nil, 0
	t.mu.Unlock()
}

// give hands on a letter to whoever waits for it, if anybody does.
func (t *threads) give(name string, l letter, body []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	one := t.waiting[name]
	if one == nil {
		return
	}
	if one.over || len(one.queue) >= maxWaiting || one.bytes >= waitingBytes || t.bytes+len(body) > maxWaitingBytes {
		one.over = true // what comes after what is missing is of no use either
	} else {
		one.queue = append(one.queue, delivered{l, body})
		one.bytes += len(body)
		t.bytes += len(body)
	}
	select {
	case one.wake <- struct{}{}:
	default:
	}
}

// spoil says that something is missing of what was to come back under a name.
func (t *threads) spoil(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one := t.waiting[name]; one != nil {
		one.over = true
		select {
		case one.wake <- struct{}{}:
		default:
		}
	}
}

// take takes the next thing that has come back, if there is any. over says that
// something is missing after what was there.
func (t *threads) take(one *thread) (d delivered, there, over bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(one.queue) == 0 {
		return d, false, one.over
	}
	d, one.queue = one.queue[0], one.queue[1:]
	one.bytes -= len(d.body)
	t.bytes -= len(d.body)
	return d, true, one.over
}

// serve notes that something goes on here for another edge. It reports false
// when it does already; full says that there is no room.
func (t *threads) serve(name string, bytes int, cancel context.CancelFunc) (begins, full bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, there := t.serving[name]; there {
		return false, false
	}
	if len(t.serving) >= maxThreads || t.held+bytes > maxHeld {
		return false, true
	}
	if t.serving == nil {
		t.serving = make(map[string]served)
	}
	t.serving[name] = served{cancel, bytes}
	t.held += bytes
	return true, false
}

func (t *threads) done(name string) {
	t.mu.Lock()
	t.held -= t.serving[name].bytes
	delete(t.serving, name)
	t.mu.Unlock()
}

// leave ends what goes on here for another edge.
func (t *threads) leave(name string) {
	t.mu.Lock()
	one, there := t.serving[name]
	t.mu.Unlock()
	if there {
		one.cancel()
	}
}

// serveThread does something for a client at another edge, until it is done, the
// client leaves, or that edge is gone.
func (e *Edge) serveThread(t *shared, l letter, bytes int, do func(context.Context)) {
	ctx, cancel := context.WithCancel(t.life)
	name := l.From + l.Thread
	begins, full := e.threads.serve(name, bytes, cancel)
	if !begins {
		cancel()
		if full {
			_ = t.post(l.From, letter{Kind: letterError, From: e.node, Thread: l.Thread, Error: wrongOf(errThreads())}, nil) // who waits gives up by itself
		}
		return
	}
	t.work.Go(func() {
		defer e.threads.done(name)
		defer cancel()
		defer edge.Contain(e.log, "relay")
		stop := e.whileAlive(ctx, t, l.From, cancel)
		defer stop()
		do(ctx)
	})
}

// whileAlive calls gone when an edge is no longer there, until stop is called.
func (e *Edge) whileAlive(ctx context.Context, t *shared, node string, gone func()) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	t.work.Go(func() {
		defer edge.Contain(e.log, "relay")
		tick := time.NewTicker(aliveEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if t.gone(node) {
					gone()
					return
				}
			}
		}
	})
	return cancel
}

// errHolderGone is the end of a call whose edge is no longer there.
func errHolderGone() error {
	return edge.Errorf(edge.Gone, "relay", "the edge that held this call is gone")
}

// next waits for what comes back from an edge. The error is errHolderGone when
// that is no longer there.
func (e *Edge) next(ctx context.Context, t *shared, one *thread, node string) (delivered, error) {
	tick := time.NewTicker(aliveEvery)
	defer tick.Stop()
	for {
		d, there, over := e.threads.take(one)
		switch {
		case there:
			return d, nil
		case over:
			return d, edge.Errorf(edge.Overload, "relay", "more has come of this call than its client reads, or than an edge takes")
		}
		select {
		case <-one.wake:
		case <-ctx.Done():
			return d, edge.Errorf(edge.Gone, "relay", "%w", context.Cause(ctx))
		case <-t.life.Done():
			return d, edge.Errorf(edge.Gone, "relay", "the edge ends")
		case <-tick.C:
			if t.gone(node) {
				return d, errHolderGone()
			}
		}
	}
}

// relay has a round of a parked call served by the edge that holds the call.
func (e *Edge) relay(ctx context.Context, t *shared, x *edge.Exchange, at state) (*edge.Response, error) {
	if !isNode(at.Node) {
		return nil, errState()
	}
	if t.gone(at.Node) {
		return nil, errHolderGone()
	}
	one, err := e.threads.open(newName())
	if err != nil {
		return nil, err
	}
	defer e.threads.close(one)
	if err := t.post(at.Node, letter{Kind: letterRetry, From: e.node, Thread: one.name}, x.Request.Raw); err != nil {
		return nil, errAway()
	}
	ctx, cancel := context.WithTimeoutCause(ctx, t.cap, errors.New("the call took too long"))
	defer cancel()
	for {
		d, err := e.next(ctx, t, one, at.Node)
		if err != nil {
			_ = t.post(at.Node, letter{Kind: letterLeave, From: e.node, Thread: one.name}, nil) // it notices by itself, only later
			return nil, err
		}
		switch d.Kind {
		case letterNote:
			if n, err := mcp.Decode(d.body); err == nil {
				_ = x.Client.Send(n) // a client that is gone ends ctx
			}
		case letterResult:
			out := x.Answer()
			if err := out.Decode(d.body); err != nil {
				return nil, edge.Errorf(edge.Internal, "relay", "%w", err)
			}
			out.Status = d.Status
			return out, nil
		case letterError:
			return nil, d.Error.err()
		}
	}
}

// retried serves a round of a parked call for a client at another edge.
func (e *Edge) retried(ctx context.Context, t *shared, l letter, body []byte) {
	back := letter{From: e.node, Thread: l.Thread}
	r, err := func() (*edge.Response, error) {
		m, err := mcp.Decode(body)
		if err != nil {
			return nil, edge.Errorf(edge.Invalid, "relay", "%w", err)
		}
		// What the request is of, and whose it is, is in its state, which the
		// other edge has compared with both.
		at, ok := e.lot.seal.open(m.Text("requestState"))
		if !ok {
			return nil, errState()
		}
		x := &edge.Exchange{
			Server: at.Server, Era: mcp.Modern, Request: m, Target: &edge.Target{Backend: at.Backend},
			Client: toOther{t, l.From, back},
		}
		if issuer, subject, ok := strings.Cut(at.Principal, "\x00"); ok {
			x.Identity = &edge.Identity{Issuer: issuer, Subject: subject}
		}
		return e.lot.resume(ctx, x)
	}()
	if ctx.Err() != nil {
		return // nobody waits
	}
	if err == nil {
		back.Kind, back.Status = letterResult, r.Status
		if err = t.deliver(ctx, l.From, back, r.Whole()); err == nil {
			return
		}
		e.log.Warn("an answer did not reach the edge that waits for it", "error", err)
		back.Status, err = 0, edge.Errorf(edge.Unavailable, "relay", "the answer could not be handed over")
	}
	back.Kind, back.Error = letterError, wrongOf(err)
	_ = t.deliver(ctx, l.From, back, nil) // who waits gives up by itself
}

// deliver posts what somebody waits for, again when the store did not take it.
func (t *shared) deliver(ctx context.Context, node string, l letter, body []byte) error {
	for wait := 50 * time.Millisecond; ; wait *= 2 {
		err := t.post(node, l, body)
		if err == nil || wait > 2*time.Second {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
	}
}

// toOther is the way back to a client at another edge.
type toOther struct {
	t    *shared
	node string
	head letter
}

// Send passes on a notification.
func (o toOther) Send(m *mcp.Message) error {
	l := o.head
	l.Kind = letterNote
	return o.t.post(o.node, l, m.Raw)
}

// Ask fails: a parked call puts its questions into its answer.
func (toOther) Ask(context.Context, map[string]edge.Question) (map[string]edge.Answer, error) {
	return nil, edge.Errorf(edge.NoMethod, "ask", "this client cannot be asked")
}

func wrongOf(err error) *wrong {
	w := &wrong{Kind: edge.KindOf(err), Text: "internal error"}
	var e *edge.Error
	if errors.As(err, &e) && w.Kind != edge.Internal {
		w.Text, w.After, w.Data = e.Err.Error(), e.After, e.Data
	}
	return w
}

func (w *wrong) err() error {
	if w == nil {
		return edge.Errorf(edge.Internal, "relay", "an error without a cause")
	}
	return &edge.Error{Kind: w.Kind, Op: "relay", After: w.After, Data: w.Data, Err: errors.New(w.Text)}
}
