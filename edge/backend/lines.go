package backend

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// lines is a stream to a local server, and the calls that are under way on it. All that
// the server says comes on it, and an answer is told from others by the number that its
// request was given.
type lines struct {
	b      *Backend
	stream edge.Stream
	hears  atomic.Pointer[hears]
	news   atomic.Bool // the edge listens on it for changes of lists

	followed  atomic.Uint64 // which version of the news it is subscribed to
	following sync.Mutex    // whoever has it subscribes
	pace      pace
	wishes    string // id of the subscription to resources; "" for none; following guards it

	served atomic.Bool // it has been used for others than the edge itself

	mu    sync.Mutex
	calls []*waiter
	lasts int   // how many of them have no end of their own
	over  error // of calls, since the stream has ended; nil before
	gone  chan struct{}
}

// hears is who hears what comes on a stream besides answers.
type hears struct {
	beside  func(*mcp.Message) // takes a message, and may keep it; called by one goroutine, but for acknowledgements of subscriptions
	ended   func()             // told of the end of the stream, but where close was called
	listens func() bool        // whether somebody hears what belongs to no call; nil for never
}

// openLines opens a stream to the local server. What is in h but for its functions says
// for whom.
func (b *Backend) openLines(ctx context.Context, l *lines, h edge.Owner) error {
	l.b, l.gone = b, make(chan struct{})
	h.Hear, h.Failed, h.Ended, h.Use = l.hear, l.failed, l.end, l.use
	stream, err := b.lined.Open(ctx, &h)
	if err != nil {
		return err
	}
	l.stream = stream
	return nil
}

func (l *lines) close() {
	l.end(errUnsent)
	l.stream.Close()
}

// waiter waits for the answer to one request.
type waiter struct {
	number uint64
	digits [20]byte
	id     []byte       // the number, JSON text
	m      *mcp.Message // takes the answer
	edits  [2]mcp.Edit
	wake   chan struct{} // holds a value when there is something to look at
	timer  *time.Timer
	home   *sync.Pool // of its backend

	call   *call       // of a legacy session, whose questions wait for the client; nil for none
	client edge.Client // that hears of a modern call; nil for none
	token  []byte      // of its progress, as the client knows it; nil for none
	tag    []byte      // of its subscription, likewise
	logs   bool        // it takes log messages
	lasts  bool        // it has no end of its own

	heard atomic.Int64 // when its last progress came, Unix nanoseconds

	// The mutex of its lines guards these.
	over bool // answered, or never to be
	err  error
}

// newWaiter returns a waiter whose answer goes to m. It is let go of by release.
func (b *Backend) newWaiter(m *mcp.Message) *waiter {
	w, ok := b.waiters.Get().(*waiter)
	if !ok {
		w = &waiter{wake: make(chan struct{}, 1), timer: time.NewTimer(time.Hour), home: &b.waiters}
		w.timer.Stop()
	}
	w.number = b.numbers.Add(1)
	w.id = strconv.AppendUint(w.digits[:0], w.number, 10)
	w.m = m
	return w
}

func (w *waiter) release() {
	select {
	case <-w.wake:
	default:
	}
	w.m, w.call, w.client, w.token, w.tag, w.err = nil, nil, nil, nil, nil, nil
	w.logs, w.lasts, w.over = false, false, false
	w.edits = [2]mcp.Edit{}
	w.heard.Store(0)
	w.home.Put(w)
}

// Close wakes it: the context of its call has ended, perhaps.
func (w *waiter) Close() error {
	select {
	case w.wake <- struct{}{}:
	default:
	}
	return nil
}

// numbered returns the edits that give a request the number of the waiter, as its id and
// as its token of progress.
func (w *waiter) numbered(m *mcp.Message) []mcp.Edit {
	w.edits[0] = m.WithID(w.id)
	if t := m.Meta("progressToken"); t.OK() {
		w.token = t.Of(m.Raw)
		w.edits[1] = mcp.Edit{Span: t, With: w.id}
		return w.edits[:2]
	}
	return w.edits[:1]
}

// errUnsent says that a stream had ended before a message was sent.
var errUnsent = &edge.Error{Kind: edge.Unavailable, Op: "call", Err: &edge.Ended{How: "before it was sent anything"}}

// unsent is the error of a request that the server has certainly not been sent.
type unsent struct{ error }

func (e *unsent) Unwrap() error { return e.error }

// ask sends a request, and waits until its answer is in the waiter's message, under the
// number of the waiter. silence bounds how long the server may say nothing of it; 0 for
// ever. until is the end of the call whatever happens; zero for none. Errors are of kind
// Gone and Timeout, and then the server may still be at work; of other kinds where it is
// not, *unsent where it never was.
func (l *lines) ask(ctx context.Context, w *waiter, raw []byte, edits []mcp.Edit, silence time.Duration, until time.Time) error {
	l.mu.Lock()
	if l.over != nil {
		l.mu.Unlock()
		return &unsent{l.over}
	}
	l.calls = append(l.calls, w)
	if w.lasts {
		l.lasts++
	}
	l.mu.Unlock()
	cheap, ok := ctx.(canceler)
	var stop func() bool
	if ok {
		cheap.Heed(w)
	} else {
		stop = context.AfterFunc(ctx, func() { w.Close() })
	}
	err := l.send(ctx, w, raw, edits, silence, until)
	if ok {
		cheap.Ignore(w)
	} else {
		stop()
	}
	return err
}

// send is ask once the waiter is listed.
func (l *lines) send(ctx context.Context, w *waiter, raw []byte, edits []mcp.Edit, silence time.Duration, until time.Time) error {
	var err error
	if w.lasts {
		err = l.stream.Listen(raw, edits)
	} else {
		err = l.stream.Send(raw, edits)
	}
	if err != nil {
		l.forget(w)
		return &unsent{err}
	}
	began := time.Time{}
	if silence > 0 || !until.IsZero() {
		began = time.Now()
		w.timer.Reset(w.left(began, began, silence, until))
		defer w.timer.Stop()
	}
	return l.await(ctx, w, began, silence, until)
}

func (l *lines) await(ctx context.Context, w *waiter, began time.Time, silence time.Duration, until time.Time) error {
	for {
		select {
		case <-w.wake:
		case <-w.timer.C:
		}
		l.mu.Lock()
		over, err := w.over, w.err
		l.mu.Unlock()
		if over {
			return err
		}
		if ctx.Err() != nil {
			if !l.forget(w) {
				continue // the answer has come meanwhile
			}
			return edge.Errorf(edge.Gone, "call", "%w", context.Cause(ctx))
		}
		if began.IsZero() {
			continue
		}
		now := time.Now()
		left := w.left(began, now, silence, until)
		if left > 0 {
			w.timer.Reset(left)
			continue
		}
		if l.forget(w) {
			return edge.Errorf(edge.Timeout, "call", "%s without a word", now.Sub(began).Round(time.Millisecond))
		}
	}
}

// left returns for how long the server may say nothing more. While it waits for the
// client, the clock of its silence stands.
func (w *waiter) left(began, now time.Time, silence time.Duration, until time.Time) time.Duration {
	left := time.Duration(1 << 62)
	if silence > 0 {
		last, heard := began, w.heard.Load()
		if w.call != nil {
			heard = w.call.heard.Load()
		}
		if heard != 0 {
			last = time.Unix(0, heard)
		}
		if left = last.Add(silence).Sub(now); w.call != nil && w.call.waits() {
			left = silence
		}
	}
	if !until.IsZero() {
		left = min(left, until.Sub(now))
	}
	return left
}

// forget gives a request up, and reports false where it is over already.
func (l *lines) forget(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.drop(slices.Index(l.calls, w))
}

// drop takes a waiter out; l.mu is held.
func (l *lines) drop(i int) bool {
	if i < 0 {
		return false
	}
	if l.calls[i].lasts {
		l.lasts--
	}
	last := len(l.calls) - 1
	l.calls[i], l.calls[last] = l.calls[last], nil
	l.calls = l.calls[:last]
	return true
}

// find returns where the waiter of an id or a token is; -1 for nowhere. A server that
// makes a string of a number is understood. l.mu is held.
func (l *lines) find(id []byte) int {
	if len(id) > 2 && id[0] == '"' {
		id = id[1 : len(id)-1]
	}
	n, err := strconv.ParseUint(string(id), 10, 64)
	if err != nil {
		return -1
	}
	for i, w := range l.calls {
		if w.number == n {
			return i
		}
	}
	return -1
}

// hear takes a message of the server. Answers that nobody waits for are dropped: they come
// too late, or twice, or were made up.
func (l *lines) hear(m *mcp.Message) {
	if m.Kind != mcp.Result && m.Kind != mcp.Failure {
		one := *m
		l.hears.Load().beside(&one)
		return
	}
	id := m.IDText()
	l.mu.Lock()
	defer l.mu.Unlock()
	i := -1
	if id != nil {
		i = l.find(id)
	} else if len(l.calls) == 1 { // an error whose sender could not read the id
		i = 0
		if err := withID(m, l.calls[0].id); err != nil {
			return
		}
	}
	if i < 0 {
		return
	}
	w := l.calls[i]
	*w.m = *m
	w.over = true
	l.drop(i)
	w.Close()
}

// failed is edge.Owner.Failed.
func (l *lines) failed(id []byte, why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := l.find(id); i >= 0 {
		w := l.calls[i]
		w.over, w.err = true, why
		l.drop(i)
		w.Close()
	}
}

// end ends all calls with an error.
func (l *lines) end(err error) {
	l.mu.Lock()
	if l.over != nil {
		l.mu.Unlock()
		return
	}
	l.over = err
	for _, w := range l.calls {
		w.over, w.err = true, err
		w.Close()
	}
	l.calls, l.lasts = nil, 0
	close(l.gone)
	l.mu.Unlock()
	if err != error(errUnsent) {
		l.hears.Load().ended()
	}
}

// dead reports whether the stream has ended.
func (l *lines) dead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over != nil
}

// under returns how many calls are under way that end by themselves, and whether there are
// others.
func (l *lines) under() (calls int, lasts bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.calls) - l.lasts, l.lasts > 0
}

// use is edge.Owner.Use.
func (l *lines) use() edge.Use {
	l.mu.Lock()
	u := edge.Use{Calls: len(l.calls) - l.lasts, Listens: l.lasts > 0, Own: !l.served.Load()}
	l.mu.Unlock()
	if h := l.hears.Load(); h.listens != nil {
		u.Listens = u.Listens || h.listens()
	}
	return u
}

// request sends a request of the edge's own and waits for the answer.
func (l *lines) request(ctx context.Context, method string, params []byte, until time.Time) (*mcp.Message, error) {
	m := new(mcp.Message)
	w := l.b.newWaiter(m)
	defer w.release()
	err := l.ask(ctx, w, mcp.AppendRequest(nil, w.id, method, params), nil, 0, until)
	if err == nil {
		return m, nil
	}
	var u *unsent
	if errors.As(err, &u) {
		err = u.error
	}
	return nil, err
}

// cancel tells the server that nobody waits for a request any longer.
func (l *lines) cancel(id []byte, why string) {
	params := append([]byte(`{"requestId":`), id...)
	params = append(mcp.AppendString(append(params, `,"reason":`...), why), '}')
	_ = l.stream.Send(mcp.AppendRequest(nil, nil, "notifications/cancelled", params), nil) // one that has ended needs no word
}
