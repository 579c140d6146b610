package serve

import (
	"bytes"
	"errors"
	"net"
	"strconv"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/door"
	"github.com/weir-edge/weir/edge/mcp"
)

// maxLasting bounds the body of a request that lasts until somebody ends it, in bytes.
const maxLasting = 64 << 10

// body reads the body of a request into req.body. It reports false when it has refused the
// request.
func (e *Edge) body(req *request) bool {
	var whole bool
	if req.body, whole = req.conn.Whole(); whole {
		return true
	}
	from := door.Sender{Principal: req.who.Principal()}
	if req.who == nil || req.who.Token == "" {
		from = door.Stranger(req.client())
	}
	var err error
	if req.body, err = req.conn.Body(from); err == nil {
		return true
	}
	req.ctx.SetConnectionClose()
	var timeout net.Error
	switch {
	case errors.Is(err, door.ErrBusy):
		req.refuse(headEra(req), nil, edge.Errorf(edge.Overload, "door", "there is no room for so many large requests; send fewer at a time"))
	case errors.Is(err, door.ErrTooLarge):
		e.unreadable(req.ctx, 413, "the body is larger than "+strconv.Itoa(e.settings.MaxBody)+" bytes")
	case errors.Is(err, door.ErrTrailer):
		e.unreadable(req.ctx, 431, "the trailer is larger than "+strconv.Itoa(e.settings.MaxHeader)+" bytes")
	case errors.As(err, &timeout) && e.door.Closing():
		req.refuse(headEra(req), nil, &edge.Error{Kind: edge.Overload, Op: "door", After: time.Second, Err: errors.New("this edge ends, and the request did not arrive in time; send it again")})
	case errors.As(err, &timeout) && timeout.Timeout():
		e.unreadable(req.ctx, 408, "the request did not arrive in time")
	default:
		e.unreadable(req.ctx, 400, "the HTTP request cannot be read")
	}
	return false
}

// outlasts moves the body of a request that lasts until somebody ends it into memory of its
// own, and returns its share of the budget for large requests.
func outlasts(m *mcp.Message, req *request) error {
	if !req.conn.Holds() {
		return nil
	}
	if len(req.body) > maxLasting {
		return edge.Errorf(edge.Params, "door", "the body of %s has %d bytes: at most %d", m.Method, len(req.body), maxLasting)
	}
	req.body = bytes.Clone(req.body)
	if err := m.Decode(req.body); err != nil {
		return edge.Errorf(edge.Malformed, "door", "%w", err)
	}
	req.conn.Release()
	return nil
}
