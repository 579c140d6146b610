package serve

import (
	"sync"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/door"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/session"
)

// exchange is an edge.Exchange with the context under which it runs and the stream that
// its response may become.
type exchange struct {
	edge.Exchange
	door.Call
	way     stream
	number  uint64 // that the way has for it
	request mcp.Message
	id      idText // that the client gave the request
	server  *server
	s       *session.Session
	pooled  *session.Session // in place of one of the client's own, at a server without sessions
}

// newExchange returns an exchange for the pool, which serves one request after the other.
func newExchange() any {
	x := new(exchange)
	x.Owner = x
	return x
}

// endsWithClient reports whether the exchange ends when its client leaves: to
// close the response is to cancel the call (2026-07-28,
// basic/transports/streamable-http). In the legacy era that ends only scripts.
func (x *exchange) endsWithClient() bool {
	return x.Era == mcp.Modern || x.server.EndsWithClient(&x.Exchange)
}

// newExchange returns the exchange of a POST.
func (e *Edge) newExchange(req *request) *exchange {
	server := req.server
	x := exchanges.Get().(*exchange)
	x.Began = e.door.Clock.Now()
	x.server, x.Server, x.Identity = server, server.Name, req.who
	x.Head.Remote = req.client()
	x.Head.SSE, x.Head.Attributes = req.sse, req.attributes
	x.id.set(req.requestID)
	if len(server.entries) > 0 {
		req.tell(&x.Head, server)
		if server.record != nil {
			x.requestID()
		}
	}
	x.Request = &x.request
	if server.passes != nil {
		for name, value := range req.ctx.Request.Header.All() {
			x.Forward = server.passes.Take(x.Forward, name, value)
		}
	}
	if len(server.guest.Headers) > 0 {
		x.Heard = server.hear(&req.ctx.Request.Header)
	}
	w := &x.way
	w.mu.Lock()
	w.x, w.conn, w.able = x, req.conn, req.takes&takesStream != 0 && req.ctx.Request.Header.IsHTTP11()
	w.last, w.written = req.ctx.Request.Header.ConnectionClose() || req.conn.Leaving(), x.Began
	x.number = w.number
	x.Client = way{w, x.number}
	w.mu.Unlock()
	return x
}

// within puts the exchange into a session, of whose principal programs may have
// said something.
func (x *exchange) within(s *session.Session) {
	x.s, x.Session = s, &s.Session
	if x.server.personal {
		s.Note(x.Identity)
	}
	if x.server.guest.SessionStart != nil {
		x.Head.Attributes = s.Attributes(x.server.guest.Beginners).With(x.Head.Attributes)
	}
}

// exchanges holds exchanges for reuse.
var exchanges = sync.Pool{New: newExchange}

// recycle returns an exchange to the pool if its client was told and asked nothing before
// the answer. Any other is cancelled, which ends questions that still wait.
func (x *exchange) recycle() {
	if !x.Untouched() || !x.way.free() {
		x.Cancel()
		return
	}
	x.Reset()
	x.request.Forget()
	x.server, x.s, x.pooled = nil, nil, nil
	exchanges.Put(x)
}
