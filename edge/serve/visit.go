package serve

import (
	"context"

	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/door"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/outgoing"
)

// What programs are asked about an HTTP request before anything is known of who
// sends it, and about the answer before its head goes out.

// visit takes a request to one of a server's doors: programs may have their say first,
// then it is found out who the client is, and then the door has it.
func (e *Edge) visit(ctx *fasthttp.RequestCtx, h *head, s *server, door string) {
	h.server, h.sse = s, door != "/mcp"
	if e.heed(ctx, h, s) && e.admit(ctx, h, s) {
		switch door {
		case "/mcp":
			e.endpoint(ctx, h, s)
		case "/sse":
			e.openSSE(ctx, h, s)
		case "/messages":
			e.postSSE(ctx, h, s)
		}
	}
	if s.guest.HTTPResponse != nil {
		e.finish(ctx, h, s)
	}
}

// judged reports whether programs are asked about a request: not about what a
// browser asks beforehand, nor about methods that the edge does not have.
func judged(ctx *fasthttp.RequestCtx) bool { return ctx.IsPost() || ctx.IsGet() || ctx.IsDelete() }

// heed lets programs change the header lines of a request, answer it or turn it
// away. It reports false when it has been answered.
func (e *Edge) heed(ctx *fasthttp.RequestCtx, h *head, s *server) bool {
	if s.guest.HTTPRequest == nil || !judged(ctx) {
		return true
	}
	lines, result, err := s.guest.HTTPRequest(context.Background(), s.asked(ctx))
	if err != nil {
		e.turnedAway(ctx, h, headEra(h), err)
		e.write(ctx, h, edge.Fail(mcp.Modern, nil, err)) // by its status: no message has been read that an error could answer
		return false
	}
	if len(lines.Set)+len(lines.Drop) > 0 {
		drop(&ctx.Request.Header, lines)
		for _, l := range lines.Set {
			ctx.Request.Header.Set(l.Name, l.Value)
		}
		h.again(&ctx.Request.Header)
	}
	if result != nil {
		e.respond(ctx, h, s, result)
		return false
	}
	return true
}

// asked is what programs are told of a request.
func (s *server) asked(ctx *fasthttp.RequestCtx) *edge.HTTP {
	path := ctx.Request.Header.RequestURI()
	for i, c := range path {
		if c == '?' {
			path = path[:i]
			break
		}
	}
	return &edge.HTTP{Method: string(ctx.Method()), Path: string(path), Heard: s.hear(&ctx.Request.Header)}
}

// drop takes lines out of a request's header, by every name that may be taken
// for theirs.
func drop(r *fasthttp.RequestHeader, lines edge.Lines) {
	var gone []string
	for name := range r.All() {
		for _, l := range lines.Set {
			if outgoing.SameName(l.Name, string(name)) {
				gone = append(gone, string(name))
			}
		}
		for _, d := range lines.Drop {
			if outgoing.SameName(d, string(name)) {
				gone = append(gone, string(name))
			}
		}
	}
	for _, name := range gone {
		r.Del(name)
	}
}

// again reads a header anew that has changed.
func (h *head) again(r *fasthttp.RequestHeader) {
	next := head{ctx: h.ctx, server: h.server, sse: h.sse, query: h.query}
	next.read(r)
	*h = next
}

// respond answers a request with what a program has at hand: as the result of
// the request in a POST, or as the whole body where there is none.
func (e *Edge) respond(ctx *fasthttp.RequestCtx, h *head, s *server, result []byte) {
	message := ctx.IsPost() && !h.sse
	if message && !e.body(ctx, h) {
		return
	}
	e.done(ctx, h, s)
	e.cors(ctx, h)
	var m mcp.Message
	if message && m.Decode(h.body) == nil {
		if m.Kind != mcp.Request {
			ctx.SetStatusCode(202) // no answer is wanted
			return
		}
		if era(&m, h) == mcp.Modern && mcp.Lookup(result, "resultType") == nil {
			result = mcp.Change(result, nil, mcp.With("resultType", `"complete"`))
		}
		result = mcp.AppendResult(nil, m.IDText(), result)
	}
	ctx.SetStatusCode(200)
	ctx.Response.Header.SetContentTypeBytes(jsonType)
	ctx.Response.SetBodyRaw(result)
}

// finish lets programs change the header lines of an answer that the HTTP server
// is about to send. Those of streams have been asked about when they began.
func (e *Edge) finish(ctx *fasthttp.RequestCtx, h *head, s *server) {
	conn := ctx.Conn().(*door.Conn)
	if !judged(ctx) || ctx.Hijacked() || conn.Swallows() {
		return
	}
	q := s.asked(ctx)
	q.Status = ctx.Response.StatusCode()
	lines, err := s.guest.HTTPResponse(context.Background(), q)
	if err != nil {
		conn.DropPieces()
		ctx.Response.Reset()
		e.write(ctx, h, edge.Fail(mcp.Modern, nil, err))
		return
	}
	for _, name := range lines.Drop {
		ctx.Response.Header.Del(name)
	}
	for _, l := range lines.Set {
		ctx.Response.Header.Set(l.Name, l.Value)
	}
}

// streamLines returns the lines of the edge's own that go into the head of a
// stream, and those that programs put there.
func (e *Edge) streamLines(ctx *fasthttp.RequestCtx, h *head, s *server) ([]byte, error) {
	lines := e.corsLines(h)
	if s.guest.HTTPResponse == nil {
		return lines, nil
	}
	more, err := s.beginning(s.asked(ctx))
	return append(lines, more...), err
}

// beginning asks programs about the head of a stream.
func (s *server) beginning(q *edge.HTTP) ([]byte, error) {
	q.Status = 200
	lines, err := s.guest.HTTPResponse(context.Background(), q)
	if err != nil {
		return nil, err
	}
	var b []byte
	for _, l := range lines.Set {
		b = append(append(append(append(b, l.Name...), ": "...), l.Value...), "\r\n"...)
	}
	return b, nil
}
