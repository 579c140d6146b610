package serve

import (
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/door"
	"github.com/weir-edge/weir/edge/mcp"
)

func (e *Edge) notAllowed(ctx *fasthttp.RequestCtx, h *head, allow string) {
	ctx.Response.Header.Set("Allow", allow)
	e.refuse(ctx, h, headEra(h), nil, edge.Errorf(edge.MethodNotAllowed, "door", "this endpoint takes %s", allow))
}

// forbid answers one who may not knock at all.
func (e *Edge) forbid(ctx *fasthttp.RequestCtx, h *head, err error) {
	e.knocked(ctx, h, err)
	e.write(ctx, h, edge.Fail(headEra(h), nil, err))
}

// refuse answers with an error what has not come to the hallway.
func (e *Edge) refuse(ctx *fasthttp.RequestCtx, h *head, era mcp.Era, id []byte, err error) {
	if h != nil {
		e.turnedAway(ctx, h, era, err)
	}
	e.write(ctx, h, edge.Fail(era, id, err))
}

func (e *Edge) write(ctx *fasthttp.RequestCtx, h *head, f edge.Failure) {
	if h != nil {
		e.cors(ctx, h)
	}
	ctx.SetStatusCode(f.Status)
	ctx.Response.Header.SetContentTypeBytes(jsonType)
	if f.After > 0 {
		ctx.Response.Header.Set("Retry-After", seconds(f.After))
	}
	if f.Challenge != "" {
		ctx.Response.Header.Set("WWW-Authenticate", f.Challenge)
	}
	if f.Close {
		ctx.SetConnectionClose()
	}
	ctx.Response.SetBodyRaw(f.Body)
}

// unreadable answers what is no request that the edge acts on, and closes the
// connection: where its next request would begin is not certain.
func (e *Edge) unreadable(ctx *fasthttp.RequestCtx, status int, text string) {
	if conn, ok := ctx.Conn().(*door.Conn); ok {
		conn.Refused()
	}
	kind := edge.Invalid
	if status == 413 {
		kind = edge.TooLarge
	}
	op := "door"
	if strings.EqualFold(text, "header Authorization is there twice") {
		op = "duplicate_credential"
	}
	e.knocked(ctx, &head{}, edge.Errorf(kind, op, "%s", text))
	ctx.SetStatusCode(status)
	ctx.SetConnectionClose()
	ctx.Response.Header.SetContentTypeBytes(jsonType)
	ctx.Response.SetBodyRaw(mcp.AppendError(nil, nil, mcp.CodeInvalidRequest, text, nil))
}

// plain answers with a line of text.
func plain(ctx *fasthttp.RequestCtx, status int, text string) {
	ctx.SetStatusCode(status)
	ctx.Response.Header.SetContentType("text/plain; charset=utf-8")
	ctx.Response.SetBodyString(text)
}

// seconds is a duration as Retry-After gives it, rounded up.
func seconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}
