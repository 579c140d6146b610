package backend

import (
	"context"
	"errors"
	"io"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/turn"
	"github.com/weir-edge/weir/edge/wire"
)

// peer is where HTTP requests to one backend go.
type peer struct {
	pool   *wire.Pool
	url    *url.URL
	served *atomic.Pointer[url.URL] // in place of url, once it is known where a local server listens
	target string                   // path and query of the endpoint
	agent  string
	limit  int // bytes of one message

	credentials *credentials
	stray       func()      // told of an answer to a request that is another's
	missed      func(error) // told of a notification or a question that cannot be read
}

func newPeer(u *url.URL, p *wire.Pool, c *Config) *peer {
	return &peer{
		pool: p, url: u, target: u.RequestURI(), agent: c.Agent, limit: c.MaxMessage, stray: func() {}, missed: func(error) {},
		credentials: &credentials{configured: c.Credential}, served: new(atomic.Pointer[url.URL]),
	}
}

// address is the URL of the endpoint, with the port that is listened on.
func (p *peer) address() *url.URL {
	if u := p.served.Load(); u != nil {
		return u
	}
	return p.url
}

// at returns the peer for another path of the same backend.
func (p *peer) at(u *url.URL) *peer {
	q := *p
	q.url, q.target, q.served = u, u.RequestURI(), new(atomic.Pointer[url.URL]) // u has the port already
	return &q
}

// outgoing is one HTTP request. The values of its headers have been checked:
// none has a control character.
type outgoing struct {
	method  string // POST, GET or DELETE
	session string
	version string // MCP-Protocol-Version
	rpc     string // Mcp-Method
	name    string // Mcp-Name, encoded
	last    string // Last-Event-ID
	params  []edge.Header
	x       *edge.Exchange // that it is sent for; nil for the edge's own
	forward []edge.Header  // of the client
	body    []byte
	silence time.Duration // how long the backend may keep silent; 0 for ever
	now     time.Time     // when it was made; zero for unknown
	until   time.Time     // the end of the call whatever happens; zero for none
	opens   bool          // it begins a session: its answer may refuse that under any status
	place   *place        // where reading the stream of the answer has come to; nil for nobody to know
	call    *call         // of a legacy session, whose clock is that of the answer; nil for none
	beside  bool          // it says something beside a call, which may be waiting for it
}

// place is where the reading of a stream has come to (2025-11-25,
// basic/transports, resumability).
type place struct {
	id    string        // of the last event that had one
	retry time.Duration // how long the backend wants to be left alone
	seen  []string      // ids of what came before the answer, the last of them
	again bool          // the stream has been taken up again
}

const (
	maxSeen   = 256     // ids of events that are remembered while a call is under way
	maxSeenID = 1 << 10 // bytes of one; what comes under a longer one is always news
)

// news reports whether an event has not come before: a server that is asked to
// go on after an event may send that one again, or all of them.
func (p *place) news(e *mcp.Event) bool {
	if !e.HasID || e.ID == "" || len(e.ID) > maxSeenID {
		return true
	}
	if p.again && slices.Contains(p.seen, e.ID) {
		return false
	}
	if len(p.seen) == maxSeen {
		p.seen = slices.Delete(p.seen, 0, maxSeen/2)
	}
	p.seen = append(p.seen, e.ID)
	return true
}

// reply is an HTTP answer whose body may still be on its way. Exactly one of
// its methods read and close has to be called in the end.
//
// A connection has one reply, which its next request uses again.
type reply struct {
	peer       *peer
	c          *wire.Conn
	ask        outgoing
	status     int
	sse        bool   // the body is a stream of events
	coded      bool   // the body is compressed, though nobody asked for it (RFC 9110 §12.5.3)
	length     int    // of the body; -1 chunked, -2 up to the end of the connection
	challenged bool   // it asks for a credential
	lines      []byte // of a credential that was refused, or may be; nil for none
	watch      canceler
	stop       func() bool // in place of watch
}

// used is what a connection keeps from one request to the next.
type used struct {
	reply  reply            // of the request that has the connection
	events *mcp.EventReader // of its streams; nil until the first
}

// usedOn returns what a connection keeps.
func usedOn(c *wire.Conn) *used {
	u, ok := c.Use.(*used)
	if !ok {
		u = &used{}
		c.Use = u
	}
	return u
}

// maxInterim is how many interim answers (1xx) may come before the answer.
const maxInterim = 20

// send writes the request and reads the head of the answer. When ctx ends, the
// connection is closed. The second result says whether anything of the request
// may have reached the backend.
func (p *peer) send(ctx context.Context, o *outgoing) (*reply, bool, error) {
	if c := p.credentials.of(o.x); c != nil {
		return p.sendWith(ctx, o, c)
	}
	r, wrote, err := p.once(ctx, o, nil)
	if err == nil && r.status == 401 {
		p.credentials.refused.Store(true) // a credential that is chosen for another request may be taken
	}
	return r, wrote, err
}

// once is send with what is on a pad; nil for no credential.
func (p *peer) once(ctx context.Context, o *outgoing, with *pad) (*reply, bool, error) {
	now := o.now
	if now.IsZero() {
		now = time.Now()
	}
	for {
		c, err := p.pool.Get(ctx, now, o.until.IsZero(), o.beside)
		if err != nil {
			return nil, false, err
		}
		if with != nil && with.at != p.address() {
			p.pool.Drop(c)
			return nil, false, errMoved
		}
		r, wrote, err := p.over(ctx, c, o, with, now)
		if err != turn.ErrStale {
			return r, wrote, err
		}
		usedOn(c).reply.ignore()
		p.pool.Drop(c)
	}
}

// over is once over a connection. Its error is turn.ErrStale when the backend
// has closed that one before.
func (p *peer) over(ctx context.Context, c *wire.Conn, o *outgoing, with *pad, now time.Time) (*reply, bool, error) {
	if with != nil {
		c.Out = append(append(c.Out[:0], with.head...), with.lines...)
	} else {
		c.Out = p.head(c.Out[:0], o, nil)
	}
	c.Out = append(append(c.Out, "\r\n\r\n"...), o.body...)
	r := &usedOn(c).reply
	*r = reply{peer: p, c: c, ask: *o}
	r.ask.body, r.ask.x = nil, nil
	r.closeAtEndOf(ctx)
	c.ReadBy(r.ask.deadline(now), now)
	r.ask.call.on(r)
	if err := c.Ask(c.Out); err != nil {
		return nil, true, r.failed(ctx, err)
	}
	for interim := 0; ; interim++ {
		err := c.ReadHead()
		if err == turn.ErrStale {
			return nil, false, err
		}
		if err == nil && interim > maxInterim {
			err = wire.ErrHead
		}
		if err != nil {
			if !wire.TimedOut(err) && ctx.Err() == nil && !errors.Is(err, io.EOF) && !wire.Closed(err) {
				err = wire.ErrHead
			}
			return nil, true, r.failed(ctx, err)
		}
		if c.Head.Status >= 200 {
			break
		}
	}
	r.status, r.length, r.coded, r.challenged = c.Head.Status, c.Head.Length, c.Head.Coded, c.Head.Challenged()
	r.sse = c.Head.SSE && !r.coded
	return r, true, nil
}

func (o *outgoing) deadline(now time.Time) time.Time {
	if o.silence == 0 {
		return o.until
	}
	d := now.Add(o.silence)
	if !o.until.IsZero() && o.until.Before(d) {
		return o.until
	}
	return d
}

// head writes the request's head, up to what a credential sets. The edge frames every
// request itself: nothing of a client's framing goes on.
func (p *peer) head(b []byte, o *outgoing, one *edge.Credential) []byte {
	b = append(append(append(b, o.method...), ' '), p.target...)
	b = append(append(b, " HTTP/1.1\r\nHost: "...), p.address().Host...)
	b = append(append(b, "\r\nUser-Agent: "...), p.agent...)
	if o.method == "POST" {
		b = append(b, "\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: "...)
		b = strconv.AppendInt(b, int64(len(o.body)), 10)
	} else {
		b = append(b, "\r\nAccept: text/event-stream"...)
	}
	line := func(name, value string) {
		if value != "" {
			b = append(append(append(append(b, "\r\n"...), name...), ": "...), value...)
		}
	}
	line(mcp.HeaderVersion, o.version)
	line(mcp.HeaderSession, o.session)
	line(mcp.HeaderMethod, o.rpc)
	line(mcp.HeaderName, o.name)
	line(mcp.HeaderLastEventID, o.last)
	for _, h := range o.params { // an empty one says something, too
		b = append(append(append(append(b, "\r\n"...), h.Name...), ": "...), h.Value...)
	}
	for _, h := range o.forward {
		if one.Sets(h.Name) {
			continue
		}
		b = append(append(append(append(b, "\r\n"...), h.Name...), ": "...), h.Value...)
	}
	return b
}

// failed ends the exchange and says what went wrong.
func (r *reply) failed(ctx context.Context, err error) error {
	r.ignore()
	r.peer.pool.Drop(r.c)
	switch {
	case ctx.Err() != nil:
		return &edge.Error{Kind: edge.Gone, Op: "call", Err: context.Cause(ctx)}
	case wire.TimedOut(err):
		return &edge.Error{Kind: edge.Timeout, Op: "call", Err: err}
	case errors.Is(err, mcp.ErrEventTooLarge):
		return edge.Errorf(edge.Unavailable, "call", "sent a message above %d bytes", r.peer.limit)
	}
	return &edge.Error{Kind: edge.Unavailable, Op: "call", Err: err}
}

// atOnce is the length up to which a body has its memory before it has come, and
// growth how many times larger the memory of a longer one gets when it is full:
// what a backend announces costs memory when it comes.
const (
	atOnce = 16 << 10
	growth = 8
)

// read returns the whole body and gives the connection back.
func (r *reply) read(ctx context.Context) ([]byte, error) {
	limit := r.peer.limit
	var body []byte
	var err error
	switch {
	case r.length > limit:
		return nil, r.failed(ctx, mcp.ErrEventTooLarge)
	case r.length > atOnce:
		body = make([]byte, 0, atOnce)
		for err == nil && len(body) < r.length {
			if len(body) == cap(body) {
				body = append(make([]byte, 0, min(growth*len(body), r.length)), body...)
			}
			n := 0
			n, err = io.ReadFull(r.c.Reader, body[len(body):cap(body)])
			body = body[:len(body)+n]
		}
	case r.length >= 0:
		body = make([]byte, r.length)
		_, err = io.ReadFull(r.c.Reader, body)
	default:
		body, err = io.ReadAll(io.LimitReader(r.stream(), int64(limit)+1))
		if err == nil && len(body) > limit {
			err = mcp.ErrEventTooLarge
		}
	}
	if err != nil {
		return nil, r.failed(ctx, err)
	}
	r.release()
	return body, nil
}

// release gives the connection back after the body's end.
func (r *reply) release() {
	ok := r.ignore()
	if r.length == -1 && !lastCRLF(r.c) {
		ok = false
	}
	if !ok || r.length == -2 {
		r.peer.pool.Drop(r.c)
		return
	}
	r.peer.pool.Put(r.c, time.Now())
}

// lastCRLF reads the line that ends a chunked body; a trailer is not waited for.
func lastCRLF(c *wire.Conn) bool {
	b, err := c.Reader.Peek(2)
	if err != nil || string(b) != "\r\n" {
		return false
	}
	c.Reader.Discard(2)
	return true
}

// close gives up on the body.
func (r *reply) close() {
	r.ignore()
	r.peer.pool.Drop(r.c)
}

// stream returns the body as it comes.
func (r *reply) stream() io.Reader {
	if r.sse && r.ask.until.IsZero() {
		r.c.Slim()
	}
	switch r.length {
	case -1:
		return httputil.NewChunkedReader(r.c.Reader)
	case -2:
		return r.c.Reader
	}
	return io.LimitReader(r.c.Reader, int64(r.length))
}

// wait restarts the clock of the backend's silence.
func (r *reply) wait() { now := time.Now(); r.c.ReadBy(r.ask.deadline(now), now) }

// pause stops the clock: it is the backend that waits.
func (r *reply) pause() { r.c.ReadBy(r.ask.until, time.Now()) }

// quiet has the call that is read from here set the clock no longer: the connection may soon be
// another's.
func (r *reply) quiet() {
	r.ask.call.on(nil)
	r.ask.call = nil
}

// canceler is a context that closes something at its end, at less cost than
// context.AfterFunc has.
type canceler interface {
	Heed(io.Closer)
	Ignore(io.Closer) bool // false when the context has ended
}

// closeAtEndOf closes the connection when ctx ends, until ignore is called.
func (r *reply) closeAtEndOf(ctx context.Context) {
	if c, ok := ctx.(canceler); ok {
		r.watch = c
		c.Heed(r.c)
		return
	}
	c := r.c
	r.stop = context.AfterFunc(ctx, func() { c.Close() })
}

// ignore ends closeAtEndOf, and reports whether the connection is still open.
func (r *reply) ignore() bool {
	r.quiet()
	if r.watch != nil {
		return r.watch.Ignore(r.c)
	}
	return r.stop()
}
