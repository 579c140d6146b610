package backend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// call is a request on its way, for what comes back beside its answer.
type call struct {
	id     []byte // as the server knows it
	token  []byte // the client's progress token; nil for none
	known  []byte // the progress token as the server knows it
	method string
	level  bool // the client takes log messages
	alone  bool // the client hears of this call and of nothing else
	client edge.Client
	end    context.CancelCauseFunc // ends it where the server may ask; else nil
	place  place                   // where its stream has been read to
	answer chan *mcp.Message       // over HTTP with SSE
	heard  atomic.Int64            // when it was last heard of, Unix nanoseconds, where all comes on one stream
	came   atomic.Int64            // how often something of it came on its own stream

	telling sync.Mutex // held while the client is told of progress
	told    []byte     // the last progress that it was told of, JSON text
	from    *call      // on whose stream that came; nil for the session's own

	mu    sync.Mutex
	reply *reply // the stream that the call is read from; nil when it is not
	asks  int    // questions of the server that wait for the client
}

// lively are what a server says that is at work, beside progress.
var lively = map[string]bool{
	"ping": true, "notifications/message": true, "notifications/elicitation/complete": true, "notifications/tasks/status": true, "notifications/resources/updated": true,
	"notifications/tools/list_changed": true, "notifications/prompts/list_changed": true, "notifications/resources/list_changed": true,
}

// alive is heardOf where all comes on one stream: what is of no call is of the one that is under way.
func (s *session) alive() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.only(); c != nil {
		c.heard.Store(time.Now().UnixNano())
	}
}

// on tells where the call is read from; nil for nowhere.
func (c *call) on(r *reply) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reply = r; r != nil && c.asks > 0 { // its stream is taken up while a question waits
		r.pause()
	}
}

// ask counts questions that wait: while there are any, the clock of the call
// stands.
func (c *call) ask(n int) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asks += n; c.asks == 0 {
		c.heard.Store(time.Now().UnixNano()) // its clock begins anew, where that is none of a connection
	}
	switch {
	case c.reply == nil:
	case c.asks == 0:
		c.reply.wait()
	case c.asks == n:
		c.reply.pause()
	}
}

// heardOf restarts the clock of the backend's silence at a message of one call that came on the
// stream of c: its own, or for nil that of the session. A question that waits stops the clock, and
// what is dropped does not restart it.
func (c *call) heardOf(one *call) {
	if one == nil || c != nil && c != one {
		return
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.reply != nil && one.asks == 0 {
		one.reply.wait()
	}
}

func (c *call) waits() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asks > 0
}

// fresh reports whether progress is news. A server or a bridge may send a message
// on several streams, the call's and the session's own: what comes on another
// than the last has to tell more than that (2025-11-25, basic/utilities/progress:
// the value increases with each message). c.telling is held.
func (c *call) fresh(on *call, m *mcp.Message) bool {
	now := m.Get("progress").Of(m.Raw)
	if c.told != nil && on != c.from {
		before, err1 := strconv.ParseFloat(string(c.told), 64)
		after, err2 := strconv.ParseFloat(string(now), 64)
		if err1 == nil && err2 == nil && after <= before {
			return false
		}
	}
	c.told, c.from = now, on
	return true
}

// before takes what a server sends besides answers. on is the call whose stream
// it came on; nil when it came on a stream of no call. The error says that whoever
// hears what belongs to no call is gone.
//
// An error is the edge's answer to a question that cannot be read.
func (s *session) before(ctx context.Context, l *link, on *call, m *mcp.Message) error {
	if m.Kind == mcp.Failure {
		if !s.b.crosses() { // else the question may be another's
			s.b.background(func(ctx context.Context) { _ = s.post(ctx, l, m.Raw) })
		}
		return nil
	}
	if s.b.crosses() && !s.admits(l, m) {
		return nil
	}
	if m.Method == "notifications/cancelled" {
		s.withdrawn(m)
		return nil
	}
	if on == nil && lively[m.Method] {
		s.alive()
	} else if on != nil && m.Method != "ping" {
		on.came.Add(1)
	}
	c, client := s.addressee(on, m)
	if m.Kind == mcp.Request {
		if m.Method == "ping" {
			on.heardOf(on)
			body := mcp.AppendResult(nil, m.IDText(), []byte("{}"))
			s.b.background(func(ctx context.Context) { _ = s.post(ctx, l, body) })
			return nil
		}
		s.question(ctx, l, c, on != nil, client, m)
		return nil
	}
	if client == nil {
		return nil
	}
	switch m.Method {
	case "notifications/progress":
		if c == nil || c.token == nil {
			return nil // nobody asked for it, or it came too late
		}
		c.heard.Store(time.Now().UnixNano())
		c.telling.Lock()
		defer c.telling.Unlock()
		if !c.fresh(on, m) {
			return nil
		}
		on.heardOf(c)
		if &c.token[0] != &c.known[0] {
			n, err := mcp.Decode(mcp.Retokened(nil, m, c.token))
			if err != nil {
				return nil
			}
			m = n
		}
	case "notifications/message":
		if on.heardOf(on); c != nil && !c.level {
			return nil
		}
	case "notifications/elicitation/complete", "notifications/tasks/status":
		if on.heardOf(on); c != nil && c.alone {
			return nil // its revision has none
		}
	case "notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed", "notifications/resources/updated":
		if on.heardOf(on); c != nil && c.alone {
			return nil // a modern client hears of these where it listens for them
		}
	}
	err := client.Send(m)
	if c != nil {
		return nil
	}
	return err
}

// goesOnWithin is how long a call may say nothing whose question was answered where nobody knows its
// session: its server may have given the question up.
const goesOnWithin = 2 * time.Second

// addressee returns the call that a message of the server belongs to, and the
// client that it goes to.
func (s *session) addressee(on *call, m *mcp.Message) (*call, edge.Client) {
	if m.Method == "notifications/progress" {
		token := m.Get("progressToken").Of(m.Raw)
		if on != nil && mcp.SameID(on.known, token) {
			return on, on.client
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, c := range s.calls {
			if c.known != nil && mcp.SameID(c.known, token) {
				return c, c.client
			}
		}
		return nil, nil
	}
	if on != nil {
		return on, on.client
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.b.lined != nil && (m.Kind == mcp.Request || m.Method == "notifications/message") {
		if c := s.only(); c != nil { // in order with what else is said of it
			return c, c.client
		}
	}
	if s.notice != nil {
		return nil, s.notice
	}
	if s.several() || s.client == nil && s.level == "" && mcp.Askable(s.caps) == nil {
		return nil, nil // the clients that share a session must not hear what is another's
	}
	for _, c := range s.calls { // over HTTP with SSE nothing says whose it is: any call of this client will do
		if c.client != nil {
			return c, c.client
		}
	}
	return nil, nil
}

const (
	maxAsking      = 100     // questions of a server that may wait in one session
	maxAskingBytes = 1 << 20 // of them together; one may be larger if it waits alone
)

// asking is a question of a server that waits for its answer.
type asking struct {
	id    []byte  // as the server knows it
	token []byte  // by which the client may tell of its progress, JSON text; nil for none
	calls []*call // it waits for as long as one of these is under way; nil for as long as the session
	bytes int     // of it
	end   context.CancelCauseFunc
}

// asks begins a question of an id, a progress token and so many bytes. Its context ends with the calls that it may belong
// to: on is the one whose stream it came on, else all that are under way for
// the same client; without any it ends with the session. It returns nil where no
// further question can wait.
func (s *session) asks(ctx context.Context, on *call, known bool, id, token []byte, bytes int) (context.Context, *asking) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.asking) >= maxAsking {
		return nil, nil
	}
	all := bytes
	for _, other := range s.asking {
		all += other.bytes
	}
	if len(s.asking) > 0 && all > maxAskingBytes {
		return nil, nil
	}
	a := &asking{id: id, token: token, bytes: bytes}
	if on != nil {
		a.calls = []*call{on}
		if !known {
			a.calls = slices.Clone(s.calls)
		}
		if len(a.calls) == 0 { // what it was of has ended meanwhile
			return nil, nil
		}
	}
	ctx, a.end = context.WithCancelCause(ctx)
	s.asking = append(s.asking, a)
	return ctx, a
}

// asked ends a question.
func (s *session) asked(a *asking) {
	a.end(nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.asking, a); i >= 0 {
		s.asking = slices.Delete(s.asking, i, i+1)
	}
}

// AsksWith reports whether a question of the backend waits for a legacy client, whose progress it
// wants to be told by a token, JSON text.
func (b *Backend) AsksWith(client *edge.Session, token []byte) bool {
	s, ok := client.Attached(b).(*session)
	if !ok {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.asking, func(a *asking) bool { return a.token != nil && mcp.SameID(a.token, token) })
}

// withdrawn ends the question that a server's notifications/cancelled names: the client is
// told, and the clock of the call goes on.
func (s *session) withdrawn(n *mcp.Message) {
	id := n.Get("requestId").Of(n.Raw)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.asking {
		if mcp.SameID(a.id, id) {
			a.end(&edge.Withdrawn{Reason: n.Text("reason")})
		}
	}
}

// over ends the questions that waited for the end of a call; s.mu is held.
func (s *session) over(c *call) {
	for _, a := range s.asking {
		if i := slices.Index(a.calls, c); i >= 0 {
			if a.calls = slices.Delete(a.calls, i, i+1); len(a.calls) == 0 {
				a.end(nil)
			}
		}
	}
}

// refuse answers a question of the server with an error.
func (s *session) refuse(l *link, id []byte, code int, why string) {
	body := mcp.AppendError(nil, id, code, why, nil)
	s.b.background(func(ctx context.Context) { _ = s.post(ctx, l, body) })
}

// answerWithin bounds how long it may take to send an answer to a question.
const answerWithin = 5 * time.Second

// question puts a server's request to the client, and posts the answer when it
// comes. c is the call that it is of, known to be when its stream is. The clock
// of the call stands meanwhile: it is the server that waits.
func (s *session) question(ctx context.Context, l *link, c *call, known bool, client edge.Client, m *mcp.Message) {
	id := slices.Clone(m.IDText())
	refuse := func(code int, why string) { s.refuse(l, id, code, why) }
	params := m.Params.Of(m.Raw)
	switch {
	case mcp.OpensPage(m.Method, params) && !mcp.SafePage(params):
		refuse(mcp.CodeInvalidParams, "url is no page that a client may be sent to")
		return
	case client == nil || !mcp.Can(s.caps, m.Method, params): // the server was told what this client can be asked
		if c, ok := client.(interface{ Unanswered() }); ok {
			c.Unanswered()
		}
		why := "nobody is there to answer"
		if client != nil {
			why = "the client takes no " + edge.Printable(m.Method) + ", or none like this"
		}
		refuse(mcp.CodeMethodNotFound, why)
		return
	}
	ctx, waits := s.asks(ctx, c, known, id, slices.Clone(mcp.Lookup(params, "_meta", "progressToken")), len(m.Raw))
	if waits == nil {
		refuse(mcp.CodeInternal, "no further question can wait for an answer")
		return
	}
	clocks := []*call{c} // that stand: of all calls that it may be of, where nothing says of which it is
	if !known {
		s.mu.Lock()
		clocks = slices.DeleteFunc(slices.Clone(s.calls), func(c *call) bool { return c.client == nil })
		s.mu.Unlock()
	}
	for _, one := range clocks {
		one.ask(+1)
	}
	sent := make(chan struct{})
	over := sync.OnceFunc(func() { close(sent) })
	begun := s.b.spawn("question", func() {
		defer over()
		answers, err := client.Ask(ctx, map[string]edge.Question{"q": {Method: m.Method, Params: params, Sent: over}})
		over()
		s.asked(waits)
		for _, one := range clocks {
			one.ask(-1)
		}
		var body []byte
		switch a := answers["q"]; {
		case errors.As(context.Cause(ctx), new(*edge.Withdrawn)):
			return // no answer is wanted (2025-11-25, basic/utilities/cancellation)
		case err != nil:
			code, why := mcp.CodeInternal, "the question did not reach the client"
			switch e := (*edge.Error)(nil); {
			case !errors.As(err, &e) || e.Kind == edge.Internal:
			case e.Kind == edge.Gone:
				why = "the client has left, or its call has ended"
			default: // its own text, without what was being done
				if why = e.Err.Error(); e.Kind == edge.NoMethod {
					code = mcp.CodeMethodNotFound
				}
			}
			refuse(code, why)
			return
		case a.Error != nil:
			body = append(append(append([]byte(`{"jsonrpc":"2.0","id":`), id...), `,"error":`...), a.Error...)
			body = append(body, '}')
		default:
			body = mcp.AppendResult(nil, id, a.Result)
		}
		ctx, cancel := context.WithTimeout(s.b.beside.life, answerWithin)
		defer cancel()
		var r *refusal
		if err := anyway(ctx, func() error { return s.post(ctx, l, body) }); known && c != nil && c.end != nil && errors.As(err, &r) && r.lostSession() {
			came := c.came.Load()
			time.AfterFunc(goesOnWithin, func() {
				if c.came.Load() == came && !c.waits() { // it would wait on
					c.end(fmt.Errorf("the backend did not take the answer to its question: HTTP %d", r.status))
				}
			})
		}
	})
	if !begun {
		s.asked(waits)
		return
	}
	<-sent // what comes next on the stream must not overtake it
}
