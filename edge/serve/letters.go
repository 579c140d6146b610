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
	"github.com/weir-edge/weir/edge/relay"
	"github.com/weir-edge/weir/edge/route"
)

// Edges that share a store write to each other through it. A call in flight, a
// parked call and an open stream stay at the edge where they began; what a
// client sends about them to another edge is posted to the box of that one, and
// what comes of it is posted back.

const (
	// letterFor is how long a letter waits to be read: about as long as an edge
	// may be silent until it counts as gone.
	letterFor = 10 * time.Second

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

	// maxEach is how many exchanges, and what of those bytes, may be one
	// principal's: a quarter.
	maxEach = 4

	// letterHead is how many bytes a letter may have besides a message.
	letterHead = 1 << 20

	// smallLetter is how large a body may be that is posted without asking first
	// whether it is wanted, and without a share of what is under way.
	smallLetter = 16 << 10

	// maxPosting is how many bytes of larger ones are on their way from this edge
	// at a time, and of one principal's.
	maxPosting     = 32 << 20
	maxPostingEach = 8 << 20
	// maxAfter is the longest wait that an error may ask for: a bucket may take
	// a year to fill.
	maxAfter = 400 * 24 * time.Hour

	// letterSigned is how many of these the signature may have.
	letterSigned = 256
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
	letterAsk    = "ask"    // whether something is wanted; the body is the state of a parked call, or with a session the id of a question in it
	letterRetry  = "retry"  // a round of a parked call that was asked about; the body is the request
	letterFollow = "follow" // a client is back for a stream
	letterOpen   = "open"   // a stream of the older transport has its session; the body is what its client is told first
	letterSay    = "say"    // something for the client of such a stream; the body is the message
	letterLeave  = "leave"  // whoever waits for what comes of a letter has left

	letterNote   = "note"   // a notification for the client; the body is the message
	letterResult = "result" // the answer; the body is the message
	letterError  = "error"  // an error in place of the answer
	letterTaken  = "taken"  // what was asked about is wanted; the request has come; the stream is there, and its events follow
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
	Spent bool            `json:"s,omitempty"` // a requestState that will not be good again
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
	if !ok || len(head) > letterHead || json.Unmarshal(head, &l) != nil || !l.valid() {
		return letter{}, nil, false
	}
	return l, body, true
}

// valid reports whether a letter says what an edge may say.
func (l *letter) valid() bool {
	switch l.Kind {
	case letterAsk, letterRetry, letterFollow, letterOpen:
		if !isNode(l.From) || l.Thread == "" {
			return false
		}
	case letterError:
		if l.Error == nil {
			return false
		}
	}
	const longest = 256 // a name, a key or an id of an edge's
	if len(l.From) > longest || len(l.Thread) > longest || len(l.Session) > longest || len(l.Event) > longest {
		return false
	}
	if l.Status != 0 && (l.Status < 200 || l.Status > 599) {
		return false
	}
	w := l.Error
	return w == nil || w.Kind.Known() && w.After >= 0 && w.After <= maxAfter && (w.Data == nil || json.Valid(w.Data))
}

func boxOf(node string) string   { return "node:" + node }
func aliveOf(node string) string { return "alive:" + node }

// lastAlive is where the edge writes its name that was the last to say that it is
// alive and does not leave: one that leaves learns there whether it is alone.
const lastAlive = "alive"

// post writes to another edge.
func (t *shared) post(node string, l letter, body []byte) error {
	text, err := t.write(node, l, body)
	if err != nil {
		return err
	}
	return t.Post(context.Background(), boxOf(node), text, letterFor)
}

// write makes the text of a letter to another edge.
func (t *shared) write(node string, l letter, body []byte) ([]byte, error) {
	text := l.pack(body)
	if len(text) > t.letter-letterSigned {
		return nil, edge.Errorf(edge.TooLarge, "relay", "%d bytes are more than a letter between edges has (%d)", len(text), t.letter-letterSigned)
	}
	return t.signer.sign(boxOf(node), text), nil
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
		e.beatFor(ctx, t)
	})
	t.work.Go(func() {
		defer edge.Contain(e.log, "letters")
		_ = t.Listen(ctx, boxOf(e.node), func(text []byte) { e.receive(t, text) }) // it ends with ctx
	})
	t.work.Go(func() {
		defer edge.Contain(e.log, "stream logs")
		t.keeper.run(ctx, t)
	})
}

// receive takes what came in the edge's box, if one of the edges wrote it.
func (e *Edge) receive(t *shared, text []byte) {
	text, ok := t.signer.open(boxOf(e.node), text)
	if ok {
		ok = e.read(t, text)
	}
	if ok {
		t.signer.taken()
		return
	}
	if t.signer.drop() {
		e.log.Warn("a letter in the store is of no edge that has the key of this one, is late, or came before: it is dropped", "store", t.address,
			"dropped", t.signer.dropped.Load(), "do", "give all edges that share a store the same --state-key-file, or the secret weir-state with the key key, and keep others from writing to it")
	}
}

// read takes a letter, and reports whether it is one. What takes time goes on by
// itself: letters are read one after the other.
func (e *Edge) read(t *shared, text []byte) bool {
	l, body, ok := unpack(text)
	if !ok {
		return false // no edge wrote it
	}
	if len(text) > t.letter {
		e.tooLarge(t, l)
		return true
	}
	if t == e.mail && e.readFromMail(t, l, body, len(text)) {
		return true
	}
	switch l.Kind {
	case letterEnd:
		if s := e.sessions.known(l.Session); s != nil {
			t.work.Go(func() { // its streams may take a moment
				defer edge.Contain(e.log, "session")
				e.endedAt(t, s)
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
			return err == nil
		}
		if l.Kind == letterAnswer {
			s.answered(m)
		} else {
			s.cancelCall(m)
		}
	case letterAsk:
		back := e.asked(l, body) // before who asks may leave
		t.work.Go(func() {
			defer edge.Contain(e.log, "relay")
			_ = t.post(l.From, back, nil) // who waits gives up by itself
		})
	case letterRetry:
		if who, ok := e.parked.Claims.Of(l.From + l.Thread); ok { // else nobody asked whether it may come
			e.serveThread(t, l, len(text), who, func(ctx context.Context) { e.retried(ctx, t, l, who, body) })
		}
	case letterFollow:
		e.serveThread(t, l, len(text), l.Session, func(ctx context.Context) { e.followed(ctx, t, l) })
	case letterOpen:
		e.serveThread(t, l, len(text), l.Session, func(context.Context) { e.opened(t, l, body) })
	case letterLeave:
		e.parked.Claims.Leave(l.From + l.Thread)
		e.threads.leave(l.From + l.Thread)
	default:
		e.threads.give(l.Thread, l, body)
	}
	return true
}

// tooLarge is what comes of a letter that is larger than any of this edge's may
// be, as one of an edge of other settings: whoever waits for it, or for what
// comes of it, is told.
func (e *Edge) tooLarge(t *shared, l letter) {
	switch l.Kind {
	case letterAsk, letterRetry, letterFollow, letterOpen:
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

	// What of it is whose.
	waitingOf, servingOf map[string]portion
}

// portion is what of it is one principal's.
type portion struct{ number, bytes int }

// add adds to the portion of somebody.
func add(all *map[string]portion, who string, number, bytes int) {
	if *all == nil {
		*all = make(map[string]portion)
	}
	is := (*all)[who]
	is.number, is.bytes = is.number+number, is.bytes+bytes
	if is == (portion{}) {
		delete(*all, who)
		return
	}
	(*all)[who] = is
}

// served is an exchange of another edge's that goes on here.
type served struct {
	cancel context.CancelFunc
	who    string
	bytes  int
}

func errThreads() error {
	return edge.Errorf(edge.Overload, "relay", "as much goes on with other edges as may")
}

// thread is what comes back for a letter.
type thread struct {
	name string
	who  string        // for whom it is
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

// open begins to wait for what comes back under a name, for somebody.
func (t *threads) open(name, who string) (*thread, error) {
	one := &thread{name: name, who: who, wake: make(chan struct{}, 1)}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiting) >= maxThreads || t.waitingOf[who].number >= maxThreads/maxEach {
		return nil, errThreads()
	}
	add(&t.waitingOf, who, 1, 0)
	if t.waiting == nil {
		t.waiting = make(map[string]*thread)
	}
	t.waiting[name] = one
	return one, nil
}

func (t *threads) close(one *thread) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waiting[one.name] != one {
		return
	}
	delete(t.waiting, one.name)
	t.bytes -= one.bytes
	add(&t.waitingOf, one.who, -1, -one.bytes)
	one.queue, one.bytes = nil, 0
}

// give hands on a letter to whoever waits for it, if anybody does.
func (t *threads) give(name string, l letter, body []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	one := t.waiting[name]
	if one == nil {
		return
	}
	whole := t.waitingOf[one.who].bytes
	if one.over || len(one.queue) >= maxWaiting || one.bytes >= waitingBytes || t.bytes+len(body) > maxWaitingBytes || whole > 0 && whole+len(body) > maxWaitingBytes/maxEach {
		one.over = true // what comes after what is missing is of no use either
	} else {
		one.queue = append(one.queue, delivered{l, body})
		one.bytes += len(body)
		t.bytes += len(body)
		add(&t.waitingOf, one.who, 0, len(body))
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
	add(&t.waitingOf, one.who, 0, -len(d.body))
	return d, true, one.over
}

// serve notes that something goes on here for another edge. It reports false
// when it does already; full says that there is no room.
func (t *threads) serve(name, who string, bytes int, cancel context.CancelFunc) (begins, full bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, there := t.serving[name]; there {
		return false, false
	}
	is := t.servingOf[who]
	if len(t.serving) >= maxThreads || t.held+bytes > maxHeld || is.number >= maxThreads/maxEach || is.bytes > 0 && is.bytes+bytes > maxHeld/maxEach {
		return false, true
	}
	if t.serving == nil {
		t.serving = make(map[string]served)
	}
	t.serving[name] = served{cancel, who, bytes}
	t.held += bytes
	add(&t.servingOf, who, 1, bytes)
	return true, false
}

func (t *threads) done(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one, there := t.serving[name]; there {
		delete(t.serving, name)
		t.held -= one.bytes
		add(&t.servingOf, one.who, -1, -one.bytes)
	}
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
func (e *Edge) serveThread(t *shared, l letter, bytes int, who string, do func(context.Context)) {
	ctx, cancel := context.WithCancel(t.life)
	name := l.From + l.Thread
	begins, full := e.threads.serve(name, who, bytes, cancel)
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

// next waits for what comes back from an edge. The error is errHolderGone when
// that is no longer there, as gone says.
func (e *Edge) next(ctx context.Context, t *shared, one *thread, node string, gone func(string) bool) (delivered, error) {
	tick := time.NewTicker(beatEvery)
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
			if gone(node) {
				return d, errHolderGone()
			}
		}
	}
}

// relay has a round of a parked call served by the edge that holds the call. That
// edge is asked whether the state is still good before it is sent the request,
// which may be large.
func (e *Edge) relay(ctx context.Context, t *shared, x *edge.Exchange, at route.State) (*edge.Response, error) {
	text := x.Request.Text("requestState")
	switch {
	case !isNode(at.Node):
		return nil, route.ErrState()
	case t.gone(at.Node):
		return nil, errHolderGone()
	}
	ctx, cancel := context.WithTimeoutCause(ctx, t.cap, errors.New("the call took too long"))
	defer cancel()
	one, err := e.threads.open(newName(), whoOf(x))
	if err != nil {
		return nil, err
	}
	defer e.threads.close(one)
	if err := e.want(ctx, t, one, at.Node, letter{Kind: letterAsk}, []byte(text)); err != nil {
		return nil, err
	}
	give, err := e.posting.take(ctx, one.who, len(x.Request.Raw))
	if err != nil {
		e.leaveThere(t, one, at.Node)
		return nil, err
	}
	defer give()
	if err := t.post(at.Node, letter{Kind: letterRetry, From: e.node, Thread: one.name}, x.Request.Raw); err != nil {
		e.leaveThere(t, one, at.Node)
		return nil, errAway()
	}
	for {
		d, err := e.next(ctx, t, one, at.Node, t.gone)
		if err != nil {
			e.leaveThere(t, one, at.Node)
			return nil, err
		}
		switch d.Kind {
		case letterTaken:
			give()
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

// want asks an edge whether something is wanted there, which keeps the place for
// it until it comes or leaveThere says that it will not. The error says why not:
// errHolderGone when nobody is there.
func (e *Edge) want(ctx context.Context, t *shared, one *thread, node string, l letter, body []byte) error {
	l.From, l.Thread = e.node, one.name
	if err := t.post(node, l, body); err != nil {
		e.leaveThere(t, one, node) // it may have come all the same
		return errAway()
	}
	d, err := e.first(ctx, t, one, node)
	if err != nil && d.Kind != letterError {
		e.leaveThere(t, one, node)
	}
	return err
}

// leaveThere tells an edge that nobody waits any more for what comes of letters to
// it, and that no more will come.
func (e *Edge) leaveThere(t *shared, one *thread, node string) {
	_ = t.post(node, letter{Kind: letterLeave, From: e.node, Thread: one.name}, nil) // it notices by itself, only later
}

// first waits for what an edge that was asked says first, which is that it takes
// what comes, or why not. The error is errHolderGone when it is there no longer.
func (e *Edge) first(ctx context.Context, t *shared, one *thread, node string) (delivered, error) {
	within, cancel := context.WithTimeout(ctx, aliveFor)
	defer cancel()
	d, err := e.next(within, t, one, node, t.silent)
	switch {
	case err == nil && d.Kind != letterTaken:
		err = d.Error.err()
	case err != nil && within.Err() != nil && ctx.Err() == nil:
		err = &edge.Error{Kind: edge.Overload, Op: "relay", After: time.Second, Err: errors.New("the edge that has this call does not answer")}
	}
	return d, err
}

// asked says whether something that is at another edge is wanted here, and keeps
// the place for it then.
func (e *Edge) asked(l letter, body []byte) (back letter) {
	back = letter{Kind: letterTaken, From: e.node, Thread: l.Thread}
	if err := e.wanted(l, body); err != nil {
		back.Kind, back.Error = letterError, wrongOf(err)
	}
	return back
}

func (e *Edge) wanted(l letter, body []byte) error {
	if l.Session != "" {
		s := e.sessions.known(l.Session)
		if s == nil || !s.waitsFor(body) {
			return edge.Errorf(edge.Invalid, "relay", "nobody waits for this answer")
		}
		if !e.parked.Claims.Take(time.Now(), l.Session+" "+string(body), l.From+l.Thread, "session "+l.Session) {
			return relay.ErrClaimed()
		}
		return nil
	}
	at, ok := e.parked.Sealer().Open(string(body))
	switch {
	case !ok:
		return route.ErrState()
	case !e.parked.Holds(at):
		return route.ErrSpent()
	case !e.parked.Claims.Take(time.Now(), at.Key(), l.From+l.Thread, whoIs(at.Principal, "edge "+l.From)):
		return relay.ErrClaimed()
	}
	return nil
}

// retried serves a round of a parked call for a client at another edge.
func (e *Edge) retried(ctx context.Context, t *shared, l letter, who string, body []byte) {
	back := letter{From: e.node, Thread: l.Thread}
	back.Kind = letterTaken
	_ = t.post(l.From, back, nil) // who waits has the next one then
	r, err := func() (*edge.Response, error) {
		m, err := mcp.Decode(body)
		if err != nil {
			return nil, edge.Errorf(edge.Invalid, "relay", "%w", err)
		}
		// What the request is of, and whose it is, is in its state, which the
		// other edge has compared with both.
		at, ok := e.parked.Sealer().Open(m.Text("requestState"))
		if !ok {
			return nil, route.ErrState()
		}
		x := &edge.Exchange{
			Server: at.Server, Era: mcp.Modern, Request: m, Target: &edge.Target{Backend: at.Backend},
			Client: toOther{e: e, t: t, node: l.From, head: back, who: who},
		}
		if issuer, subject, ok := strings.Cut(at.Principal, "\x00"); ok {
			x.Identity = &edge.Identity{Issuer: issuer, Subject: subject}
		}
		return e.parked.Resume(ctx, x, l.From+l.Thread)
	}()
	if ctx.Err() != nil {
		return // nobody waits
	}
	if err == nil {
		back.Kind, back.Status = letterResult, r.Status
		if err = e.deliver(ctx, t, l.From, who, back, r.Whole()); err == nil {
			return
		}
		e.log.Warn("an answer did not reach the edge that waits for it", "error", err)
		back.Status, err = 0, edge.Errorf(edge.Unavailable, "relay", "the answer could not be handed over")
	}
	back.Kind, back.Error = letterError, wrongOf(err)
	_ = e.deliver(ctx, t, l.From, who, back, nil) // who waits gives up by itself
}

// postFor posts something of a principal's, which waits for its share when it is
// large.
func (e *Edge) postFor(ctx context.Context, t *shared, node, who string, l letter, body []byte) error {
	if len(body) > smallLetter {
		give, err := e.posting.take(ctx, who, len(body))
		if err != nil {
			return err
		}
		defer give()
	}
	return t.post(node, l, body)
}

// deliver posts what somebody waits for, again when the store did not take it. A
// letter is signed when it goes: one that had waited would come late.
func (e *Edge) deliver(ctx context.Context, t *shared, node, who string, l letter, body []byte) error {
	if len(body) > smallLetter {
		give, err := e.posting.take(ctx, who, len(body))
		if err != nil {
			return err
		}
		defer give()
	}
	text, err := t.write(node, l, body)
	if err != nil {
		return err
	}
	for wait := 50 * time.Millisecond; ; wait *= 2 {
		// It is the same letter each time: one that comes twice counts once.
		err := t.Post(ctx, boxOf(node), text, letterFor)
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
	edge.NoClient // a parked call puts its questions into its answer
	e             *Edge
	t             *shared
	node          string
	head          letter
	who           string
}

// Send passes on a notification.
func (o toOther) Send(m *mcp.Message) error {
	l := o.head
	l.Kind = letterNote
	return o.e.postFor(o.t.life, o.t, o.node, o.who, l, m.Raw)
}

func wrongOf(err error) *wrong {
	w := &wrong{Kind: edge.KindOf(err), Text: "internal error"}
	var e *edge.Error
	if errors.As(err, &e) && w.Kind != edge.Internal {
		w.Text, w.After, w.Data = e.Err.Error(), e.After, e.Data
		_, w.Spent = e.Err.(*route.SpentState)
	}
	return w
}

func (w *wrong) err() error {
	if w == nil {
		return edge.Errorf(edge.Internal, "relay", "an error without a cause")
	}
	if w.Spent {
		return route.ErrSpent()
	}
	return &edge.Error{Kind: w.Kind, Op: "relay", After: w.After, Data: w.Data, Err: errors.New(w.Text)}
}
