package serve

import (
	"bytes"
	"errors"
	"net"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/door"
	"github.com/weir-edge/weir/edge/mcp"
)

// maxLasting is the most bytes of the body of a request that lasts until somebody
// ends it.
const maxLasting = 64 << 10

// body reads the body of a request whose client may send one, into h. It reports
// false when that has been refused.
func (e *Edge) body(ctx *fasthttp.RequestCtx, h *head) bool {
	conn := ctx.Conn().(*door.Conn)
	var whole bool
	if h.body, whole = conn.Whole(); whole {
		return true
	}
	from := door.Sender{Principal: h.who.Principal()}
	if h.who == nil || h.who.Token == "" {
		from = door.Stranger(conn.Client(&ctx.Request.Header))
	}
	var err error
	if h.body, err = conn.Body(from); err == nil {
		return true
	}
	ctx.SetConnectionClose()
	var timeout net.Error
	switch {
	case errors.Is(err, door.ErrBusy):
		e.refuse(ctx, h, headEra(h), nil, edge.Errorf(edge.Overload, "door", "there is no room for so many large requests; send fewer at a time"))
	case errors.Is(err, door.ErrTooLarge):
		e.unreadable(ctx, 413, "the body is larger than "+strconv.Itoa(e.settings.MaxBody)+" bytes")
	case errors.Is(err, door.ErrTrailer):
		e.unreadable(ctx, 431, "the trailer is larger than "+strconv.Itoa(e.settings.MaxHeader)+" bytes")
	case errors.As(err, &timeout) && e.door.Closing():
		e.refuse(ctx, h, headEra(h), nil, &edge.Error{Kind: edge.Overload, Op: "door", After: time.Second, Err: errors.New("this edge ends, and the request did not arrive in time; send it again")})
	case errors.As(err, &timeout) && timeout.Timeout():
		e.unreadable(ctx, 408, "the request did not arrive in time")
	default:
		e.unreadable(ctx, 400, "the HTTP request cannot be read")
	}
	return false
}

// outlasts moves the body of a request that lasts until somebody ends it into memory
// of its own, so that it takes no room of the budget for so long.
func outlasts(conn *door.Conn, m *mcp.Message, h *head) error {
	if !conn.Holds() {
		return nil
	}
	if len(h.body) > maxLasting {
		return edge.Errorf(edge.Params, "door", "the body of %s has %d bytes: at most %d", m.Method, len(h.body), maxLasting)
	}
	h.body = bytes.Clone(h.body)
	if err := m.Decode(h.body); err != nil {
		return edge.Errorf(edge.Malformed, "door", "%w", err)
	}
	conn.Release()
	return nil
}
