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

func (req *request) notAllowed(allow string) {
	req.ctx.Response.Header.Set("Allow", allow)
	req.refuse(headEra(req), nil, edge.Errorf(edge.MethodNotAllowed, "door", "this endpoint takes %s", allow))
}

// forbid refuses a request whose Host or Origin is not allowed.
func (e *Edge) forbid(req *request, err error) {
	e.knocked(req, err)
	req.write(edge.Fail(headEra(req), nil, err))
}

// refuse answers a request with an error before the hallway, and records it.
func (req *request) refuse(era mcp.Era, id []byte, err error) {
	req.turnedAway(era, err)
	req.write(edge.Fail(era, id, err))
}

func (req *request) write(f edge.Failure) {
	req.cors()
	req.ctx.SetStatusCode(f.Status)
	req.ctx.Response.Header.SetContentTypeBytes(jsonType)
	if f.After > 0 {
		req.ctx.Response.Header.Set("Retry-After", seconds(f.After))
	}
	if f.Challenge != "" {
		req.ctx.Response.Header.Set("WWW-Authenticate", req.challenge(f.Challenge))
	}
	if f.Close {
		req.ctx.SetConnectionClose()
	}
	req.ctx.Response.SetBodyRaw(f.Body)
}

// unreadable refuses a request that has no one reading, and closes the connection, since it
// is not certain where the next request begins.
func (e *Edge) unreadable(ctx *fasthttp.RequestCtx, status int, text string) {
	req := &request{ctx: ctx, conn: ctx.Conn().(*door.Conn), status: status}
	req.conn.Refused()
	kind := edge.Invalid
	if status == 413 {
		kind = edge.TooLarge
	}
	op := "door"
	if strings.EqualFold(text, "header Authorization is there twice") {
		op = "duplicate_credential"
	}
	e.knocked(req, edge.Errorf(kind, op, "%s", text))
	ctx.SetStatusCode(status)
	ctx.SetConnectionClose()
	ctx.Response.Header.SetContentTypeBytes(jsonType)
	ctx.Response.SetBodyRaw(mcp.AppendError(nil, nil, mcp.CodeInvalidRequest, text, nil))
}

// seconds formats a duration for Retry-After, rounded up.
func seconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}
