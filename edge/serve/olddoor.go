package serve

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"net/url"
	"strings"
	"sync"

	"github.com/valyala/fasthttp"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/door"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/session"
)

// The older transport, HTTP with SSE (2024-11-05): a client opens one stream
// with GET /sse, is told there where to POST, and gets every answer on the
// stream. The end of the stream ends the session. Where the server shares a store
// the POSTs may come to another edge than the stream.

// sseDoor is one client of the older transport.
type sseDoor struct {
	out     *session.Stream
	server  string // whose it is
	owner   string // principal that opened it
	holder  string // who has its session: see Edge.holder
	session string // id of its session in a store; "" where the server shares none
	mu      sync.Mutex
	s       *session.Session // nil until it has sent initialize
	over    bool
}

// sseDoors finds them by the id in the address that they POST to, and by the key
// that a store has for their sessions.
type sseDoors struct {
	mu    sync.Mutex
	byID  map[string]*sseDoor
	byKey map[string]*sseDoor
	calls map[string]int // that are served here or wait to be told, by the id of their session
}

// maxOlderCalls is how many calls of one stream are served, or wait for its client
// to read their answers, at a time.
const maxOlderCalls = 64

// begin counts a call of a session. It reports false when the session has most of
// them already.
func (t *sseDoors) begin(session string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.calls[session] >= maxOlderCalls {
		return false
	}
	if t.calls == nil {
		t.calls = make(map[string]int)
	}
	t.calls[session]++
	return true
}

// ended is the end of a call.
func (t *sseDoors) ended(session string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.calls[session]--; t.calls[session] == 0 {
		delete(t.calls, session)
	}
}

func (t *sseDoors) find(id string) *sseDoor {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byID[id]
}

// known returns the stream whose session a store has under a key, or will have.
func (t *sseDoors) known(key string) *sseDoor {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byKey[key]
}

func (t *sseDoors) add(id string, d *sseDoor) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byID == nil {
		t.byID, t.byKey = make(map[string]*sseDoor), make(map[string]*sseDoor)
	}
	t.byID[id] = d
	if d.session != "" {
		t.byKey[session.Key(d.session)] = d
	}
}

func (t *sseDoors) remove(id string, d *sseDoor) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byID, id)
	if d.session != "" {
		delete(t.byKey, session.Key(d.session))
	}
}

// openSSE opens the stream.
func (e *Edge) openSSE(ctx *fasthttp.RequestCtx, h *head, server *server) {
	switch string(ctx.Method()) {
	case "GET":
	case "OPTIONS":
		e.preflight(ctx, h)
		return
	default:
		e.notAllowed(ctx, h, "GET")
		return
	}
	if h.takes&(takesStream|takesAny) == 0 || !ctx.Request.Header.IsHTTP11() {
		e.refuse(ctx, h, mcp.Legacy, nil, errNoSuchStream())
		return
	}
	var raw [16]byte
	if _, err := rand.Read(raw[:]); err != nil {
		e.refuse(ctx, h, mcp.Legacy, nil, edge.Errorf(edge.Internal, "session id", "%w", err))
		return
	}
	place, err := e.sessions.Place(e.holder(h), server.Name, h.who)
	if err != nil {
		e.refuse(ctx, h, mcp.Legacy, nil, err)
		return
	}
	defer place.Release()
	if place.Lines, err = e.streamLines(ctx, h, server); err != nil {
		e.refuse(ctx, h, mcp.Legacy, nil, err)
		return
	}
	id := base64.RawURLEncoding.EncodeToString(raw[:])
	messages, _, _ := strings.Cut(string(ctx.Request.Header.RequestURI()), "?")
	messages = strings.TrimSuffix(messages, "/sse") + "/messages"
	d := &sseDoor{server: server.Name, owner: h.who.Principal(), holder: place.Holder()}
	if server.store != nil {
		id = e.relay.Node + "." + id
		d.session = oldSession(id)
	}
	e.done(ctx, h, server)
	place.TakeOver(ctx, nil, func(o *session.Stream) {
		d.out = o
		e.doors.add(id, d)
		_ = o.Write("endpoint", []byte(strings.TrimSuffix(e.settings.ExternalURL, "/")+messages+"?sessionId="+id))
	}, func(o *session.Stream) {
		e.doors.remove(id, d)
		d.mu.Lock()
		s := d.s
		d.over = true
		d.mu.Unlock()
		if s != nil {
			_ = e.sessions.EndShared(s) // what the store cannot be told ends with its lifetime
			e.sessions.End(s.ID)
			s.Shut(o)
		}
	})
}

// postSSE takes a message; its answer goes to the stream.
func (e *Edge) postSSE(ctx *fasthttp.RequestCtx, h *head, server *server) {
	switch string(ctx.Method()) {
	case "POST":
	case "OPTIONS":
		e.preflight(ctx, h)
		return
	default:
		e.notAllowed(ctx, h, "POST")
		return
	}
	if err := checkBody(h); err != nil {
		e.refuse(ctx, h, mcp.Legacy, nil, err)
		return
	}
	values, err := url.ParseQuery(string(h.query))
	id := values.Get("sessionId")
	d := e.doors.find(id)
	if node, away := e.doors.elsewhere(id, e.relay.Node); err == nil && d == nil && away && server.store != nil {
		e.postAway(ctx, h, server, node, id)
		return
	}
	if err != nil || d == nil || d.server != server.Name || d.owner != h.who.Principal() {
		e.refuse(ctx, h, mcp.Legacy, nil, edge.Errorf(edge.NoSession, "door", "Session not found"))
		return
	}
	x := e.newExchange(ctx, h, server)
	x.way.conn, x.way.able = d.out.Conn(), true // the answer goes there, and the call lasts no longer
	x.way.out = func(raw []byte) error { return d.out.Write("message", raw) }
	if !e.readOld(ctx, h, x) {
		return
	}
	d.mu.Lock()
	x.s = d.s
	d.mu.Unlock()
	if x.Request.Method == "initialize" && x.Request.Kind == mcp.Request {
		e.initializeSSE(ctx, h, d, x)
		return
	}
	if x.s == nil {
		e.refuse(ctx, h, mcp.Legacy, x.Request.IDText(), edge.Errorf(edge.Invalid, "door", "send initialize first"))
		return
	}
	e.serveOld(ctx, h, x, func() {})
}

// readOld reads the message of an exchange; false when it was refused.
func (e *Edge) readOld(ctx *fasthttp.RequestCtx, h *head, x *exchange) bool {
	if !e.body(ctx, h) {
		return false
	}
	err := x.Request.Decode(ctx.Conn().(*door.Conn).Own(h.body)) // a call goes on when its POST is over
	if err == nil {
		h.x = x
		err = x.Request.CheckID()
	}
	if err == nil {
		return true
	}
	kind := edge.Invalid
	var syntax *mcp.SyntaxError
	if errors.As(err, &syntax) {
		kind = edge.Malformed
	}
	e.refuse(ctx, h, mcp.Legacy, x.Request.IDText(), edge.Errorf(kind, "door", "%w", err))
	return false
}

// serveOld serves a message in its session; done is called when that is over.
func (e *Edge) serveOld(ctx *fasthttp.RequestCtx, h *head, x *exchange, done func()) {
	x.Session = &x.s.Session
	e.sessions.Touch(x.s, e.door.Clock.Now())
	if e.aside(x) {
		done()
	} else {
		session := x.s.ID
		if !e.doors.begin(session) {
			done()
			e.refuse(ctx, h, mcp.Legacy, x.Request.IDText(), edge.Errorf(edge.Overload, "door", "%d requests of this stream are served or wait to be read, which is the limit", maxOlderCalls))
			return
		}
		if e.inflight.Add(1) > int64(e.settings.MaxInflight) {
			e.inflight.Add(-1)
			e.doors.ended(session)
			done()
			e.refuse(ctx, h, mcp.Legacy, x.Request.IDText(), errFull())
			return
		}
		kept := ctx.Conn().(*door.Conn).Keep()
		e.work.Go(func() {
			defer edge.Contain(e.log, "older transport")
			defer e.doors.ended(session)
			if kept != nil {
				defer kept.Give()
			}
			defer done()
			e.answerSSE(x)
		})
	}
	e.cors(ctx, h)
	ctx.SetStatusCode(202)
}

// initializeSSE begins the session of a stream.
func (e *Edge) initializeSSE(ctx *fasthttp.RequestCtx, h *head, d *sseDoor, x *exchange) {
	if x.s != nil {
		e.refuse(ctx, h, mcp.Legacy, x.Request.IDText(), session.ErrBegun())
		return
	}
	var store *session.Store
	if d.session != "" {
		store = x.server.store
	}
	s, result, err := e.begin(x, store, d.session)
	if err != nil {
		f := edge.Fail(mcp.Legacy, x.Request.IDText(), err)
		if f.Status == 200 { // an answer like any other
			_ = d.out.Write("message", f.Body)
			e.cors(ctx, h)
			ctx.SetStatusCode(202)
			return
		}
		e.write(ctx, h, f)
		return
	}
	if err := e.attach(d, s); err != nil { // two at a time; what was observed is that it began
		e.write(ctx, h, edge.Fail(mcp.Legacy, x.Request.IDText(), err))
		return
	}
	_ = d.out.Write("message", result.Raw)
	e.cors(ctx, h)
	ctx.SetStatusCode(202)
}

// answerSSE runs an exchange whose answer goes to the stream.
func (e *Edge) answerSSE(x *exchange) {
	defer x.Cancel() // what still waits for the client, such as a question, ends here
	x.way.end(e.runSSE(x), false)
}

// runSSE runs an exchange and returns its answer; nil for none. Its room among the
// exchanges is free before the answer goes out, which may have to wait for a client
// that does not read.
func (e *Edge) runSSE(x *exchange) (answer []byte) {
	defer e.inflight.Add(-1)
	defer func() {
		if r := recover(); r != nil {
			e.log.Error("panic in an exchange", "panic", r)
			answer = edge.Fail(mcp.Legacy, x.Request.IDText(), edge.Errorf(edge.Internal, "handle", "%v", r)).Body
		}
	}()
	r, err := e.run(x)
	switch {
	case err != nil && x.Err() != nil:
		return nil
	case err != nil:
		return edge.Fail(mcp.Legacy, x.Request.IDText(), err).Body
	case r != nil:
		return r.Whole()
	}
	return nil
}
