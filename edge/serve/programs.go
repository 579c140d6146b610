package serve

import (
	"context"

	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// Hooks for HTTP requests before authentication, and for answers before their head is sent.

// judged reports whether programs are asked about a request: not about preflight requests,
// nor about methods that the edge does not have.
func judged(ctx *fasthttp.RequestCtx) bool { return ctx.IsPost() || ctx.IsGet() || ctx.IsDelete() }

// askPrograms lets programs change the header lines of a request, answer it or deny it. It
// reports false when it has been answered.
func (e *Edge) askPrograms(req *request) bool {
	s := req.server
	if s.guest.HTTPRequest == nil || !judged(req.ctx) {
		return true
	}
	q := s.asked(req)
	lines, result, err := s.guest.HTTPRequest(context.Background(), q)
	req.attributes = q.Attributes
	if err != nil {
		req.turnedAway(headEra(req), err)
		req.write(edge.Fail(mcp.Modern, nil, err)) // as a status, since no message has been read that a JSON-RPC error could answer
		return false
	}
	if len(lines.Set)+len(lines.Drop) > 0 {
		drop(&req.ctx.Request.Header, lines)
		for _, l := range lines.Set {
			req.ctx.Request.Header.Set(l.Name, l.Value)
		}
		req.again(&req.ctx.Request.Header)
	}
	if result != nil {
		e.respond(req, result)
		return false
	}
	return true
}

// asked returns a request as programs see it.
func (s *server) asked(req *request) *edge.HTTP {
	ctx := req.ctx
	path := ctx.Request.Header.RequestURI()
	for i, c := range path {
		if c == '?' {
			path = path[:i]
			break
		}
	}
	return &edge.HTTP{
		Method: string(ctx.Method()), Path: string(path), Remote: req.client(), Heard: s.hear(&ctx.Request.Header), Attributes: req.attributes,
	}
}

// drop removes lines from a request's header, under every name that may be taken for
// theirs.
func drop(r *fasthttp.RequestHeader, lines edge.Lines) {
	var gone []string
	for name := range r.All() {
		for _, l := range lines.Set {
			if edge.SameHeader(l.Name, string(name)) {
				gone = append(gone, string(name))
			}
		}
		for _, d := range lines.Drop {
			if edge.SameHeader(d, string(name)) {
				gone = append(gone, string(name))
			}
		}
	}
	for _, name := range gone {
		r.Del(name)
	}
}

// again reads a header that has changed.
func (req *request) again(r *fasthttp.RequestHeader) {
	next := request{ctx: req.ctx, conn: req.conn, at: req.at, server: req.server, sse: req.sse, query: req.query, attributes: req.attributes}
	next.read(r)
	*req = next
}

// respond answers a request with a program's own result: of the JSON-RPC request in a POST,
// else as the whole body.
func (e *Edge) respond(req *request, result []byte) {
	message := req.ctx.IsPost() && !req.sse
	if message && !e.body(req) {
		return
	}
	req.done()
	req.cors()
	var m mcp.Message
	if message && m.Decode(req.body) == nil {
		if m.Kind != mcp.Request {
			req.ctx.SetStatusCode(202) // no answer is wanted
			return
		}
		if era(&m, req) == mcp.Modern && mcp.Lookup(result, "resultType") == nil {
			result = mcp.Change(result, nil, mcp.With("resultType", `"complete"`))
		}
		result = mcp.AppendResult(nil, m.IDText(), result)
	}
	req.ctx.SetStatusCode(200)
	req.ctx.Response.Header.SetContentTypeBytes(jsonType)
	req.ctx.Response.SetBodyRaw(result)
}

// finish lets programs change the header lines of an answer that the HTTP server is about
// to send. For streams they did so at the beginning.
func (req *request) finish() {
	s, conn := req.server, req.conn
	if !judged(req.ctx) || req.ctx.Hijacked() || conn.Swallows() {
		return
	}
	q := s.asked(req)
	q.Status = req.ctx.Response.StatusCode()
	lines, err := s.guest.HTTPResponse(context.Background(), q)
	if err != nil {
		conn.DropPieces()
		req.ctx.Response.Reset()
		req.write(edge.Fail(mcp.Modern, nil, err))
		return
	}
	for _, name := range lines.Drop {
		req.ctx.Response.Header.Del(name)
	}
	for _, l := range lines.Set {
		req.ctx.Response.Header.Set(l.Name, l.Value)
	}
}

// streamLines returns the header lines of the edge and of programs for the head of a
// stream.
func (req *request) streamLines() ([]byte, error) {
	s, lines := req.server, req.corsLines()
	if s.guest.HTTPResponse == nil {
		return lines, nil
	}
	more, err := s.beginning(s.asked(req))
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
