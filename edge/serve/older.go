package serve

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"net/url"
	"strings"
	"sync"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/session"
)

// The older transport, HTTP with SSE (2024-11-05): a client opens one stream
// with GET /sse, is told there where to POST, and gets every answer on the
// stream. The end of the stream ends the session. Where the server shares a store
// the POSTs may come to another edge than the stream.

// olderStream is one client of the older transport.
type olderStream struct {
	out     *session.Stream
	server  string // whose it is
	owner   string // principal that opened it
	holder  string // who has its session: see request.holder
	session string // id of its session in a store; "" where the server shares none
	mu      sync.Mutex
	s       *session.Session // nil until it has sent initialize
	over    bool
}

// older serves the clients of the older transport. It finds their streams by the id in the
// address that they POST to, and by the key of their session in a store.
type older struct {
	edge *Edge

	mu    sync.Mutex
	byID  map[string]*olderStream
	byKey map[string]*olderStream
	calls map[string]int // served here or waiting to be sent, by the id of their session
}

// maxOlderCalls is how many calls of one stream are served, or wait for its client
// to read their answers, at a time.
const maxOlderCalls = 64

// begin counts a call of a session. It reports false when the session has as many as it
// may.
func (old *older) begin(session string) bool {
	old.mu.Lock()
	defer old.mu.Unlock()
	if old.calls[session] >= maxOlderCalls {
		return false
	}
	if old.calls == nil {
		old.calls = make(map[string]int)
	}
	old.calls[session]++
	return true
}

// ended ends begin.
func (old *older) ended(session string) {
	old.mu.Lock()
	defer old.mu.Unlock()
	if old.calls[session]--; old.calls[session] == 0 {
		delete(old.calls, session)
	}
}

func (old *older) find(id string) *olderStream {
	old.mu.Lock()
	defer old.mu.Unlock()
	return old.byID[id]
}

// known returns the stream whose session a store has under a key, or will have.
func (old *older) known(key string) *olderStream {
	old.mu.Lock()
	defer old.mu.Unlock()
	return old.byKey[key]
}

func (old *older) add(id string, d *olderStream) {
	old.mu.Lock()
	defer old.mu.Unlock()
	if old.byID == nil {
		old.byID, old.byKey = make(map[string]*olderStream), make(map[string]*olderStream)
	}
	old.byID[id] = d
	if d.session != "" {
		old.byKey[session.Key(d.session)] = d
	}
}

func (old *older) remove(id string, d *olderStream) {
	old.mu.Lock()
	defer old.mu.Unlock()
	delete(old.byID, id)
	if d.session != "" {
		delete(old.byKey, session.Key(d.session))
	}
}

// open opens the stream.
func (old *older) open(req *request) {
	switch string(req.ctx.Method()) {
	case "GET":
	case "OPTIONS":
		req.preflight()
		return
	default:
		req.notAllowed("GET")
		return
	}
	if req.takes&(takesStream|takesAny) == 0 || !req.ctx.Request.Header.IsHTTP11() {
		req.refuse(mcp.Legacy, nil, errNoSuchStream())
		return
	}
	var raw [16]byte
	if _, err := rand.Read(raw[:]); err != nil {
		req.refuse(mcp.Legacy, nil, edge.Errorf(edge.Internal, "session id", "%w", err))
		return
	}
	place, err := old.edge.sessions.Place(req.holder(), req.server.Name, req.who)
	if err != nil {
		req.refuse(mcp.Legacy, nil, err)
		return
	}
	defer place.Release()
	if place.Lines, err = req.streamLines(); err != nil {
		req.refuse(mcp.Legacy, nil, err)
		return
	}
	id := base64.RawURLEncoding.EncodeToString(raw[:])
	messages, _, _ := strings.Cut(string(req.ctx.Request.Header.RequestURI()), "?")
	messages = strings.TrimSuffix(messages, "/sse") + "/messages"
	d := &olderStream{server: req.server.Name, owner: req.who.Principal(), holder: place.Holder()}
	if req.server.store != nil {
		id = old.edge.relay.Node + "." + id
		d.session = oldSession(id)
	}
	req.done()
	base := req.posts()
	place.TakeOver(req.ctx, nil, func(o *session.Stream) {
		d.out = o
		old.add(id, d)
		_ = o.Write("endpoint", []byte(base+messages+"?sessionId="+id))
	}, func(o *session.Stream) {
		old.remove(id, d)
		d.mu.Lock()
		s := d.s
		d.over = true
		d.mu.Unlock()
		if s != nil {
			_ = old.edge.sessions.EndShared(s) // what the store cannot be told ends with its lifetime
			old.edge.sessions.End(s.ID)
			s.Shut(o)
		}
	})
}

// post takes a message; its answer goes to the stream.
func (old *older) post(req *request) {
	switch string(req.ctx.Method()) {
	case "POST":
	case "OPTIONS":
		req.preflight()
		return
	default:
		req.notAllowed("POST")
		return
	}
	if err := checkBody(req); err != nil {
		req.refuse(mcp.Legacy, nil, err)
		return
	}
	values, err := url.ParseQuery(string(req.query))
	id := values.Get("sessionId")
	d := old.find(id)
	if node, away := old.elsewhere(id, old.edge.relay.Node); err == nil && d == nil && away && req.server.store != nil {
		old.postElsewhere(req, node, id)
		return
	}
	if err != nil || d == nil || d.server != req.server.Name || d.owner != req.who.Principal() {
		req.refuse(mcp.Legacy, nil, edge.Errorf(edge.NoSession, "door", "Session not found"))
		return
	}
	x := old.edge.newExchange(req)
	x.way.conn, x.way.able = d.out.Conn(), true // the answer goes there, and the call lasts no longer
	x.way.out = func(raw []byte) error { return d.out.Write("message", raw) }
	if !old.read(req, x) {
		return
	}
	done, open := d.out.Owe()
	if !open && x.Request.Kind == mcp.Request { // its client begins anew; calls under way are still answered and cancelled
		req.refuse(mcp.Legacy, x.Request.IDText(), session.ErrNone())
		return
	}
	d.mu.Lock()
	x.s = d.s
	d.mu.Unlock()
	if x.Request.Method == "initialize" && x.Request.Kind == mcp.Request {
		defer done()
		old.initialize(req, d, x)
		return
	}
	if x.s == nil {
		done()
		req.refuse(mcp.Legacy, x.Request.IDText(), edge.Errorf(edge.Invalid, "door", "send initialize first"))
		return
	}
	old.serve(req, x, done)
}

// read reads the message of an exchange; false when it was refused.
func (old *older) read(req *request, x *exchange) bool {
	if !old.edge.body(req) {
		return false
	}
	err := x.Request.Decode(req.conn.Own(req.body)) // a call goes on when its POST is over
	if err == nil {
		req.x = x
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
	req.refuse(mcp.Legacy, x.Request.IDText(), edge.Errorf(kind, "door", "%w", err))
	return false
}

// serve serves a message in its session; done is called when that is over.
func (old *older) serve(req *request, x *exchange, done func()) {
	x.within(x.s)
	old.edge.sessions.Touch(x.s, old.edge.door.Clock.Now())
	if old.edge.aside(x) {
		done()
	} else {
		session := x.s.ID
		if !old.begin(session) {
			done()
			req.refuse(mcp.Legacy, x.Request.IDText(), edge.Errorf(edge.Overload, "door", "%d requests of this stream are served or wait to be read, which is the limit", maxOlderCalls))
			return
		}
		if old.edge.inflight.Add(1) > int64(old.edge.settings.MaxInflight) {
			old.edge.inflight.Add(-1)
			old.ended(session)
			done()
			req.refuse(mcp.Legacy, x.Request.IDText(), errFull())
			return
		}
		kept := req.conn.Keep()
		comes := &request{server: x.server, comes: true} // the POST may be over before its call is listed
		x.server.coming.Add(1)
		old.edge.work.Go(func() {
			defer comes.came()
			defer edge.Contain(old.edge.log, "older transport")
			defer old.ended(session)
			defer kept.Give()
			defer done()
			old.answer(x, comes)
		})
	}
	req.cors()
	req.ctx.SetStatusCode(202)
}

// initialize begins the session of a stream.
func (old *older) initialize(req *request, d *olderStream, x *exchange) {
	if x.s != nil {
		req.refuse(mcp.Legacy, x.Request.IDText(), session.ErrBegun())
		return
	}
	var store *session.Store
	if d.session != "" {
		store = x.server.store
	}
	s, result, err := old.edge.begin(x, store, d.session)
	if err != nil {
		f := edge.Fail(mcp.Legacy, x.Request.IDText(), err)
		if f.Status == 200 { // an answer like any other
			_ = d.out.Write("message", f.Body)
			req.cors()
			req.ctx.SetStatusCode(202)
			return
		}
		req.write(f)
		return
	}
	if err := old.attach(d, s); err != nil { // two at a time; what was observed is that it began
		req.write(edge.Fail(mcp.Legacy, x.Request.IDText(), err))
		return
	}
	_ = d.out.Write("message", result.Raw)
	req.cors()
	req.ctx.SetStatusCode(202)
}

// answer runs an exchange whose answer goes to the stream.
func (old *older) answer(x *exchange, comes *request) {
	defer x.Cancel() // what still waits for the client, such as a question, ends here
	x.way.end(old.run(x, comes), false)
}

// run runs an exchange and returns its answer; nil for none. Its room among the
// exchanges is free before the answer goes out, which may have to wait for a client
// that does not read.
func (old *older) run(x *exchange, comes *request) (answer []byte) {
	defer old.edge.inflight.Add(-1)
	defer func() {
		if r := recover(); r != nil {
			old.edge.log.Error("panic in an exchange", "panic", r)
			answer = edge.Fail(mcp.Legacy, x.Request.IDText(), edge.Errorf(edge.Internal, "handle", "%v", r)).Body
		}
	}()
	r, err := old.edge.run(comes, x)
	switch {
	case err != nil:
		return edge.Fail(mcp.Legacy, x.Request.IDText(), err).Body
	case r != nil:
		return r.Whole()
	}
	return nil
}
