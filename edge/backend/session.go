package backend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/wire"
)

// session is one session with a legacy server. Each legacy client has its own;
// clients without sessions share a few. It opens when it is first needed, and
// once more when the server has lost it.
type session struct {
	b        *Backend
	sse      bool          // over HTTP with SSE
	client   *edge.Session // whose it is; nil for one of the edge's own
	alone    bool          // one client alone has it
	personal bool          // without a client's session, all that goes over it is of one principal all the same
	caps     []byte        // JSON text: what is declared to the server
	first    uint64        // before the numbers of its requests
	ids      atomic.Uint64 // the last of them

	opening chan struct{} // one place: whoever is in it opens the session
	live    atomic.Pointer[link]
	odd     atomic.Bool // the server has answered in it as one of another era

	own    bool               // its own stream is to be heard as long as it is open
	ownEnd context.CancelFunc // ends that; nil before it is heard; mu guards it

	mu     sync.Mutex
	calls  []*call       // under way
	told   int           // cancellations that are on their way
	quiet  chan struct{} // closed when there is neither; nil when nobody waits for it
	asking []*asking     // questions of the server that wait
	subs   subscriptions
	level  string      // log level set
	notice edge.Client // takes what belongs to no call; nil for nobody
	heard  string      // id of the last event of the session's own stream; "" for none
	handed string      // id of the session that another process goes on with; "" for none
	closed bool

	who       principal     // of a pooled session; the zero value for the edge itself
	ear       bool          // a client listens on it, and no calls go over it
	followed  atomic.Uint64 // which version of the news it is subscribed to
	following sync.Mutex    // whoever has it subscribes the session
	pace      pace

	early *lines      // a stream to a local server that is open before the session is; nil for none
	lost  atomic.Bool // the process that it had for itself has ended

	chosen atomic.Pointer[edge.Exchange] // stands for the exchange of what belongs to none: it has the credential that was chosen last, the user, and the header lines of a session's only client; nil for the configured credential, which is of nobody
}

// choose has what belongs to no exchange of the session's own go with the
// credential that x has, where that is not the same for all, and with the header
// lines that x forwards, where one client alone has the session.
func (s *session) choose(x *edge.Exchange) {
	is, lines := s.chosen.Load(), x.Forward
	if !s.alone {
		lines = nil
	}
	if x.Chosen == nil && !s.b.Personal() && len(lines) == 0 && (is == nil || len(is.Forward) == 0) {
		return
	}
	who := x.Identity
	if s.client == nil && !s.personal { // anybody's: what it does for itself it does for nobody
		who = nil
	}
	if is == nil || is.Chosen != x.Chosen || is.Identity != who || !slices.Equal(is.Forward, lines) {
		s.chosen.Store(&edge.Exchange{Server: x.Server, Era: x.Era, Identity: who, Chosen: x.Chosen, Forward: slices.Clone(lines)})
	}
}

func newSession(b *Backend, sse bool, client *edge.Session, caps []byte) *session {
	if caps == nil {
		caps = []byte("{}")
	}
	s := &session{b: b, sse: sse, client: client, caps: caps, first: startOfNumbers(false), opening: make(chan struct{}, 1)}
	s.alone = s.isClients() && !s.several()
	s.ids.Store(s.first)
	return s
}

// silence is how long the server may keep silent during a call of a client.
func (b *Backend) silence(client edge.Client) time.Duration {
	if _, own := client.(edge.NoClient); b.Patient && client != nil && !own {
		return b.Cap
	}
	return b.Silence
}

// errLost says that the server no longer has the session, and that it did not
// run what it was sent.
var errLost = errors.New("the backend has lost the session")

// post sends what needs no answer.
func (s *session) post(ctx context.Context, l *link, body []byte) error {
	switch {
	case l.sse != nil:
		return l.sse.post(ctx, s.chosen.Load(), body)
	case l.lines != nil:
		return l.lines.stream.Send(body, nil)
	}
	o := s.outgoing(l, body)
	o.beside = true
	_, err := s.b.peer.converse(ctx, &o, nil, nil, func(*mcp.Message, *reply) {})
	return err
}

func (s *session) outgoing(l *link, body []byte) outgoing {
	now := time.Now()
	o := outgoing{
		method: "POST", session: l.id, body: body, x: s.chosen.Load(),
		silence: s.b.Silence, now: now, until: now.Add(s.b.Cap),
	}
	if o.x != nil {
		o.forward = o.x.Forward
	}
	if l.version != mcp.V2503 && l.version != mcp.V2024 {
		o.version = l.version
	}
	return o
}

// failed says what it means that a call got no answer of its own.
func (s *session) failed(ctx context.Context, l *link, c *call, x *edge.Exchange, err error) (*edge.Response, error) {
	var r *refusal
	m := x.Request
	switch {
	case errors.As(err, &r) && r.lostSession() && !r.modern() && (l.id != "" || r.status != 404):
		return nil, errLost
	case errors.As(err, &r) && (r.modern() || r.status == 405 || r.status == 404):
		// A modern server says so, and a bridge for a legacy one; 404 is of no session where there was none.
		return nil, doubted(m.IDText(), r)
	case errors.As(err, &r) && r.code != 0 && !r.apart():
		return refused(c.id, r), nil
	case errors.As(err, &r) && r.status == 400 && !mcp.MethodOf(m.Method).Known:
		return nil, edge.Errorf(edge.NoMethod, "call", "method not found: %s", m.Method)
	case errors.As(err, &r):
		return nil, r.verdict()
	case ctx.Err() != nil:
		s.cancelled(l, c, context.Cause(ctx))
	case edge.KindOf(err) == edge.Timeout:
		s.cancelled(l, c, errors.New("timed out")) // 2025-11-25, basic/lifecycle, timeouts
	}
	return nil, err
}

// call sends a client's request and returns the answer, under the id that the
// server knows.
func (s *session) call(ctx context.Context, x *edge.Exchange) (*edge.Response, error) {
	s.choose(x)
	for try := 0; ; try++ {
		l, err := s.link(ctx)
		if err != nil {
			return nil, lost(err)
		}
		r, err := s.once(ctx, l, x)
		if errors.Is(err, errLost) {
			s.drop(l)
			if try == 0 {
				continue
			}
			return nil, edge.Errorf(edge.Unavailable, "call", "%w", errLost)
		}
		return r, err
	}
}

// lost is what it means when a session cannot be opened: a server that refuses
// initialize is not what it was taken for.
func lost(err error) error {
	var r *refusal
	if errors.As(err, &r) {
		if !r.introduced && (r.status == 400 || r.status == 404 || r.status == 405) {
			return fmt.Errorf("%w: %w", errEra, r.verdict())
		}
		return r.verdict()
	}
	return err
}

// drop forgets a link that the server no longer knows.
func (s *session) drop(l *link) {
	if !s.live.CompareAndSwap(l, nil) {
		return
	}
	switch {
	case l.sse != nil:
		l.sse.close()
	case l.lines != nil:
		l.lines.close()
	}
}

// once sends a client's request over a link.
func (s *session) once(ctx context.Context, l *link, x *edge.Exchange) (*edge.Response, error) {
	m := x.Request
	if l.lines != nil {
		return s.onceOver(ctx, l, x)
	}
	c := &call{id: m.IDText(), method: m.Method, client: x.Client, level: true}
	if t := m.Meta("progressToken"); t.OK() {
		c.token = t.Of(m.Raw)
		c.known = c.token
	}
	if len(s.caps) > len("{}") && mcp.MethodOf(m.Method).Interactive {
		ctx, c.end = context.WithCancelCause(ctx)
		defer c.end(nil)
	}
	body := m.Raw
	switch {
	case x.Era == mcp.Modern:
		// Clients that share a session must not meet in an id or a token.
		c.id = s.number(nil)
		c.known = c.id
		c.level = m.Meta(mcp.MetaLogLevel).OK()
		c.alone = true
		body = mcp.ToLegacy(nil, m, c.id, c.id)
	case l.sse != nil || s.several() || s.b.crosses() || !mcp.Kept(c.id) || !mcp.Kept(c.token):
		// Where answers are told apart by their ids alone, those of two clients
		// must not be the same: behind a bridge all of them may be one server's,
		// and within a session a server finds the stream of an answer by its id.
		// And an answer under a number that was rounded would be nobody's.
		c.id = s.number(nil)
		edits := append(make([]mcp.Edit, 0, 2), m.WithID(c.id))
		if c.token != nil {
			c.known = c.id
			edits = append(edits, mcp.Edit{Span: m.Meta("progressToken"), With: c.id})
		}
		body = mcp.Splice(nil, m.Raw, edits...)
	}
	answer := x.Answer()
	answer.Status = 200
	if l.sse != nil {
		one, err := s.overSSE(ctx, l, c, x, body)
		if err != nil {
			return nil, err
		}
		answer.Message = *one
		return answer, nil
	}
	s.add(c)
	defer s.remove(c)
	o := s.outgoing(l, body)
	o.call, o.place, o.x, o.forward, o.silence = c, &c.place, x, x.Forward, s.b.silence(x.Client)
	status, err := s.b.peer.converse(ctx, &o, c.id, &answer.Message, func(n *mcp.Message, _ *reply) { _ = s.before(ctx, l, c, n) })
	if err != nil {
		if errors.Is(err, errCut) && c.place.id != "" {
			err = s.resume(ctx, l, c, x, o.until, &answer.Message)
		}
		if err != nil {
			return s.failed(ctx, l, c, x, err)
		}
	}
	switch code := answer.Code(); {
	case status < 400:
	case code == mcp.CodeHeaderMismatch || code == mcp.CodeMissingCapability || code == mcp.CodeVersion:
		m, err := mcp.Decode(mcp.Splice(nil, answer.Raw, answer.WithID(x.Request.IDText())))
		if err != nil {
			return nil, nonsense(err)
		}
		return nil, &doubt{answer: &edge.Response{Message: *m, Status: status}, unrun: true}
	case status == 404 && l.id != "" && code != mcp.CodeMethodNotFound:
		return nil, errLost // said under the id of the request, which it did not run
	}
	return answer, nil
}

const (
	// resumeWait is how long a server whose stream ended early is left alone
	// when it does not say.
	resumeWait = time.Second

	// resumes is how often a stream may end without a new event, or not be taken
	// up at all, before its call is given up.
	resumes = 5
)

// resume reads on where the stream of a call ended before its answer: the
// server may close a connection and be asked again (2025-11-25,
// basic/transports, sending messages, item 6), and a stream whose connection
// broke is taken up in the same way (resumability and redelivery). The call ends
// at until, however often that is.
func (s *session) resume(ctx context.Context, l *link, c *call, x *edge.Exchange, until time.Time, answer *mcp.Message) error {
	at := &c.place
	for left := resumes; ; left-- {
		wait := resumeWait
		if at.retry > 0 {
			wait = at.retry
		}
		if time.Until(until) < wait {
			return edge.Errorf(edge.Timeout, "resume", "%w", errCut)
		}
		select {
		case <-ctx.Done():
			return edge.Errorf(edge.Gone, "resume", "%w", context.Cause(ctx))
		case <-time.After(wait):
		}
		before := at.id
		at.again = true
		o := s.outgoing(l, nil)
		o.method, o.last, o.place, o.until, o.silence = "GET", at.id, at, until, s.b.silence(c.client)
		o.call, o.x, o.forward = c, x, x.Forward
		r, _, err := s.b.peer.send(ctx, &o)
		switch {
		case err == nil:
		case (edge.KindOf(err) == edge.Unavailable || edge.KindOf(err) == edge.Overload) && left > 0:
			continue // what broke the stream may not be over
		default:
			return err
		}
		if r.status != 200 || !r.sse {
			status := r.status
			if r.close(); left > 0 && (status == 409 || status == 429 || status >= 500 && status != 501) {
				continue // it has not noticed the end of the last one, or fails for now: neither says anything of the call
			}
			return edge.Errorf(edge.Unavailable, "resume", "%w, and answered with HTTP %d to resume it", errCut, status)
		}
		err = r.events(ctx, c.id, answer, func(n *mcp.Message, _ *reply) { _ = s.before(ctx, l, c, n) })
		if at.id != before {
			left = resumes
		}
		if !errors.Is(err, errCut) || left == 0 {
			return err
		}
	}
}

// cancelled tells the server that nobody waits for a call any longer. It must
// not be told so of initialize (2025-11-25, basic/utilities/cancellation).
func (s *session) cancelled(l *link, c *call, why error) {
	if c.method == "initialize" {
		return
	}
	if l.lines != nil { // before the stream may be closed
		l.lines.cancel(c.id, wire.Reason(why))
		return
	}
	params := append([]byte(`{"requestId":`), c.id...)
	params = mcp.AppendString(append(params, `,"reason":`...), wire.Reason(why))
	body := mcp.AppendRequest(nil, nil, "notifications/cancelled", append(params, '}'))
	s.mu.Lock()
	s.told++
	s.mu.Unlock()
	over := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.told--
		s.settle()
	}
	if !s.b.beside.run(func(ctx context.Context) {
		defer over()
		_ = anyway(ctx, func() error { return s.post(ctx, l, body) })
	}) {
		over()
	}
}

// settle tells who waits that no call is under way, and no cancellation of one; s.mu is held.
func (s *session) settle() {
	if s.quiet != nil && len(s.calls) == 0 && s.told == 0 {
		close(s.quiet)
		s.quiet = nil
	}
}

// settledWithin is how long the end of a session waits for the cancellations of its calls.
const settledWithin = time.Second

// settled waits until the server has been told of all calls that were cancelled, but not for
// long: a server that ends its session first may not know what they are of.
func (s *session) settled(ctx context.Context) {
	s.mu.Lock()
	if s.quiet == nil {
		s.quiet = make(chan struct{})
	}
	quiet := s.quiet
	s.settle()
	s.mu.Unlock()
	timer := time.NewTimer(settledWithin)
	defer timer.Stop()
	select {
	case <-quiet:
	case <-ctx.Done():
	case <-timer.C:
	}
}

func (s *session) add(c *call) {
	s.mu.Lock()
	s.calls = append(s.calls, c)
	s.mu.Unlock()
}

func (s *session) remove(c *call) {
	s.mu.Lock()
	if i := slices.Index(s.calls, c); i >= 0 {
		last := len(s.calls) - 1
		s.calls[i], s.calls[last] = s.calls[last], nil
		s.calls = s.calls[:last]
	}
	s.over(c)
	s.settle()
	s.mu.Unlock()
}

// callOf returns the call of a number; s.mu is held. A server that makes a
// string of it is understood.
func (s *session) callOf(id []byte) *call {
	if len(id) > 2 && id[0] == '"' {
		id = id[1 : len(id)-1]
	}
	for _, c := range s.calls {
		if string(c.id) == string(id) {
			return c
		}
	}
	return nil
}

// notify sends a client's notification.
func (s *session) notify(ctx context.Context, m *mcp.Message) error {
	l := s.live.Load()
	if l == nil {
		return nil // a server that has not met the client needs no news of it
	}
	err := s.post(ctx, l, m.Raw)
	var r *refusal
	if errors.As(err, &r) {
		if r.lostSession() {
			s.drop(l)
			return nil
		}
		return r.verdict()
	}
	return err
}

// remember keeps what a reopened session has to set up again.
func (s *session) remember(m *mcp.Message) {
	switch m.Method {
	case "logging/setLevel":
		s.mu.Lock()
		s.level = m.Text("level")
		s.mu.Unlock()
	case "resources/unsubscribe":
		s.forget(m.Text("uri"))
	}
}

// subscribe makes room for a resources/subscribe before it is sent. What is
// returned gives the room back, for a call that comes to nothing.
func (s *session) subscribe(ctx context.Context, uri string) (undo func(), err error) {
	if _, err := s.link(ctx); err != nil { // a session that is opened later would subscribe twice
		return nil, lost(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	fresh, err := s.subs.add(s.client, uri)
	if !fresh {
		return func() {}, err
	}
	return func() { s.forget(uri) }, nil
}

func (s *session) forget(uri string) {
	s.mu.Lock()
	s.subs.drop(uri)
	s.mu.Unlock()
}

// Close ends the session: the server gets a DELETE.
func (s *session) Close() error {
	s.mu.Lock()
	s.closed = true
	for _, a := range s.asking {
		a.end(nil)
	}
	if s.ownEnd != nil {
		s.ownEnd()
	}
	s.mu.Unlock()
	s.b.bridge.leave(s)
	if l := s.live.Swap(nil); l != nil {
		s.leave(l)
	}
	return nil
}

func (s *session) leave(l *link) {
	switch {
	case l.sse != nil:
		l.sse.close()
		return
	case l.lines != nil && !l.early:
		l.lines.close()
		return
	case l.lines != nil:
		return
	}
	s.mu.Lock()
	handed := s.handed
	s.mu.Unlock()
	if l.id == "" || l.id == handed {
		return
	}
	s.b.farewell(func(ctx context.Context) {
		s.settled(ctx)
		_ = anyway(ctx, func() error {
			o := s.outgoing(l, nil)
			o.method, o.until = "DELETE", o.now.Add(errandTime)
			r, _, err := s.b.peer.send(ctx, &o)
			if err == nil {
				_, err = r.read(ctx)
			}
			return err
		})
	})
}

var _ io.Closer = (*session)(nil)
