package serve

import (
	"bytes"
	"slices"

	"github.com/valyala/fasthttp"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// maxBatch is how many messages a batch may have.
const maxBatch = 100

// batch takes several messages in one body, which only the revisions before
// 2025-06-18 have.
func (e *Edge) batch(ctx *fasthttp.RequestCtx, h *head, server *server) {
	if headEra(h) == mcp.Modern {
		e.refuse(ctx, h, mcp.Modern, nil, edge.Errorf(edge.Invalid, "door", "batches were removed in protocol revision 2025-06-18"))
		return
	}
	s, err := e.sessionOf(h, server)
	if err == nil && s.Version != mcp.V2503 && s.Version != mcp.V2024 {
		err = edge.Errorf(edge.Invalid, "door", "batches were removed in protocol revision 2025-06-18")
	}
	body := ctx.PostBody()
	var parts []mcp.Span
	if err == nil {
		if parts, err = mcp.Split(body, maxBatch); err != nil {
			err = edge.Errorf(edge.Invalid, "door", "%w", err)
		}
	}
	if err != nil {
		e.refuse(ctx, h, mcp.Legacy, nil, err)
		return
	}
	var answers [][]byte
	for _, part := range parts {
		x := e.newExchange(ctx, h, server)
		x.way.able = false // one body for all of them
		x.s, x.Session = s, &s.Session
		h.x = x
		err := x.Request.Decode(part.Of(body))
		switch {
		case err != nil:
			h.x, err = nil, edge.Errorf(edge.Invalid, "door", "%w", err)
		case x.Request.Method == "initialize":
			err = edge.Errorf(edge.Invalid, "door", "initialize is not allowed in a batch")
		}
		if err != nil {
			e.turnedAway(ctx, h, mcp.Legacy, err)
			answers = append(answers, fail(mcp.Legacy, x.Request.IDText(), err).body)
			continue
		}
		if e.aside(x) {
			continue
		}
		r, err := e.run(x)
		x.way.end(nil, false)
		switch {
		case err != nil && x.Err() != nil:
		case err != nil:
			answers = append(answers, fail(mcp.Legacy, x.Request.IDText(), err).body)
		case r != nil:
			answers = append(answers, r.Whole())
		}
	}
	e.cors(ctx, h)
	if len(answers) == 0 {
		ctx.SetStatusCode(202)
		return
	}
	ctx.Response.Header.SetContentTypeBytes(jsonType)
	ctx.Response.SetBodyRaw(slices.Concat([]byte{'['}, bytes.Join(answers, []byte{','}), []byte{']'}))
}
