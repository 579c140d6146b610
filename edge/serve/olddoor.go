package serve

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"net/url"
	"strings"
	"sync"

	"github.com/valyala/fasthttp"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// The older transport, HTTP with SSE (2024-11-05): a client opens one stream
// with GET /sse, is told there where to POST, and gets every answer on the
// stream. The end of the stream ends the session.

// sseDoor is one client of the older transport.
type sseDoor struct {
	out    *outlet
	server string // whose it is
	owner  string // principal that opened it
	mu     sync.Mutex
	s      *session // nil until it has sent initialize
}

// sseDoors finds them by the id in the address that they POST to.
type sseDoors struct {
	mu   sync.Mutex
	byID map[string]*sseDoor
}

func (t *sseDoors) find(id string) *sseDoor {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byID[id]
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
	err := e.roomForStream(ctx)
	var lines []byte
	if err == nil {
		lines, err = e.streamLines(ctx, h, server)
	}
	if err != nil {
		e.refuse(ctx, h, mcp.Legacy, nil, err)
		return
	}
	var raw [16]byte
	if _, err := rand.Read(raw[:]); err != nil {
		e.refuse(ctx, h, mcp.Legacy, nil, edge.Errorf(edge.Internal, "session id", "%w", err))
		return
	}
	id := base64.RawURLEncoding.EncodeToString(raw[:])
	messages, _, _ := strings.Cut(string(ctx.Request.Header.RequestURI()), "?")
	messages = strings.TrimSuffix(messages, "/sse") + "/messages"
	d := &sseDoor{server: server.name, owner: h.who.Principal()}
	e.done(ctx, h, server)
	e.takeOver(ctx, nil, lines, func(o *outlet) {
		d.out = o
		e.doors.mu.Lock()
		if e.doors.byID == nil {
			e.doors.byID = make(map[string]*sseDoor)
		}
		e.doors.byID[id] = d
		e.doors.mu.Unlock()
		_ = o.write("endpoint", []byte(strings.TrimSuffix(e.settings.ExternalURL, "/")+messages+"?sessionId="+id))
	}, func(o *outlet) {
		e.doors.mu.Lock()
		delete(e.doors.byID, id)
		e.doors.mu.Unlock()
		d.mu.Lock()
		s := d.s
		d.mu.Unlock()
		if s != nil {
			e.sessions.end(s.ID)
			s.shut(o)
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
	d := e.doors.find(values.Get("sessionId"))
	if err != nil || d == nil || d.server != server.name || d.owner != h.who.Principal() {
		e.refuse(ctx, h, mcp.Legacy, nil, edge.Errorf(edge.NoSession, "door", "Session not found"))
		return
	}
	x := e.newExchange(ctx, h, server)
	x.way.conn, x.way.able = d.out.conn, true // the answer goes there, and the call lasts no longer
	x.way.out = func(raw []byte) error { return d.out.write("message", raw) }
	if err := x.Request.Decode(bytes.Clone(ctx.PostBody())); err != nil {
		kind := edge.Invalid
		var syntax *mcp.SyntaxError
		if errors.As(err, &syntax) {
			kind = edge.Malformed
		}
		e.refuse(ctx, h, mcp.Legacy, x.Request.IDText(), edge.Errorf(kind, "door", "%w", err))
		return
	}
	h.x = x
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
	x.Session = &x.s.Session
	x.s.used.Store(e.clock.now().UnixMilli())
	if !e.aside(x) {
		if e.inflight.Add(1) > int64(e.settings.MaxInflight) {
			e.inflight.Add(-1)
			e.refuse(ctx, h, mcp.Legacy, x.Request.IDText(), edge.Errorf(edge.Overload, "door", "too many requests at a time"))
			return
		}
		e.work.Go(func() {
			defer e.inflight.Add(-1)
			e.answerSSE(x)
		})
	}
	e.cors(ctx, h)
	ctx.SetStatusCode(202)
}

// initializeSSE begins the session of a stream.
func (e *Edge) initializeSSE(ctx *fasthttp.RequestCtx, h *head, d *sseDoor, x *exchange) {
	if x.s != nil {
		e.refuse(ctx, h, mcp.Legacy, x.Request.IDText(), edge.Errorf(edge.Invalid, "door", "initialize was sent before"))
		return
	}
	s, result, err := e.begin(x, nil) // it ends with its stream
	if err != nil {
		f := fail(mcp.Legacy, x.Request.IDText(), err)
		if f.status == 200 { // an answer like any other
			_ = d.out.write("message", f.body)
			e.cors(ctx, h)
			ctx.SetStatusCode(202)
			return
		}
		e.write(ctx, h, f)
		return
	}
	d.mu.Lock()
	again := d.s != nil
	if !again {
		d.s = s
	}
	d.mu.Unlock()
	if again { // two at a time; what was observed is that it began
		e.sessions.end(s.ID)
		e.write(ctx, h, fail(mcp.Legacy, x.Request.IDText(), edge.Errorf(edge.Invalid, "door", "initialize was sent before")))
		return
	}
	d.out.join(s)
	s.open(d.out, e.listener(s))
	_ = d.out.write("message", result.Raw)
	e.cors(ctx, h)
	ctx.SetStatusCode(202)
}

// answerSSE runs an exchange whose answer goes to the stream.
func (e *Edge) answerSSE(x *exchange) {
	defer x.cancel() // what still waits for the client, such as a question, ends here
	defer func() {
		if r := recover(); r != nil {
			e.log.Error("panic in an exchange", "panic", r)
			x.way.end(fail(mcp.Legacy, x.Request.IDText(), edge.Errorf(edge.Internal, "handle", "%v", r)).body, false)
		}
	}()
	r, err := e.run(x)
	switch {
	case err != nil && x.Err() != nil:
		x.way.end(nil, false)
	case err != nil:
		x.way.end(fail(mcp.Legacy, x.Request.IDText(), err).body, false)
	case r != nil:
		x.way.end(r.Whole(), false)
	}
}

// join gives a stream the session that its client began.
func (o *outlet) join(s *session) {
	o.mu.Lock()
	o.s = s
	o.mu.Unlock()
}
