package serve

import (
	"strings"

	"github.com/valyala/fasthttp"
)

// corsLines returns the header lines that let the page of an allowed origin
// read an answer; nil for a client that is no page.
func (e *Edge) corsLines(h *head) []byte {
	if h == nil || !h.originSet || h.origin == nil {
		return nil
	}
	b := append([]byte("Vary: Origin\r\nAccess-Control-Allow-Origin: "), h.origin...)
	return append(b, "\r\nAccess-Control-Expose-Headers: Mcp-Session-Id, WWW-Authenticate, Retry-After\r\n"...)
}

// cors puts the same lines into a plain answer.
func (e *Edge) cors(ctx *fasthttp.RequestCtx, h *head) {
	if h == nil || !h.originSet || h.origin == nil {
		return
	}
	ctx.Response.Header.Set("Vary", "Origin")
	ctx.Response.Header.SetBytesV("Access-Control-Allow-Origin", h.origin)
	ctx.Response.Header.Set("Access-Control-Expose-Headers", "Mcp-Session-Id, WWW-Authenticate, Retry-After")
}

// preflight tells a browser what a page may send. It needs no token: it is the
// browser that asks.
func (e *Edge) preflight(ctx *fasthttp.RequestCtx, h *head) {
	ctx.SetStatusCode(204)
	e.cors(ctx, h)
	ctx.Response.Header.Set("Access-Control-Allow-Methods", "POST, GET, DELETE")
	headers := "Content-Type, Accept, Authorization, Last-Event-ID"
	for name := range strings.SplitSeq(string(ctx.Request.Header.Peek("Access-Control-Request-Headers")), ",") {
		name = strings.ToLower(strings.TrimSpace(name))
		if strings.HasPrefix(name, "mcp-") && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == "" && len(name) <= 64 {
			headers += ", " + name
		}
	}
	ctx.Response.Header.Set("Access-Control-Allow-Headers", headers)
	ctx.Response.Header.Set("Access-Control-Max-Age", "600")
}
