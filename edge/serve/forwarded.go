package serve

import (
	"net"

	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/edge"
)

// clientOf is the address of the client of a request, without a port: see
// door.Proxies.
func (e *Edge) clientOf(conn net.Conn, r *fasthttp.RequestHeader) string {
	if c, ok := conn.(*clientConn); ok {
		return e.proxies.ClientOf(c.from, r)
	}
	host, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
	return e.proxies.ClientOf(host, r)
}

// holder returns whom the things of the client of a request are counted for: see
// edge.Holder. Behind proxies that are believed its address is the one that they
// tell.
func (e *Edge) holder(h *head) string {
	if !h.who.Anonymous() {
		return h.who.Principal()
	}
	return edge.Holder(h.who, e.clientOf(h.ctx.Conn(), &h.ctx.Request.Header))
}
