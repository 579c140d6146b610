package serve

import (
	"strings"
)

// corsLines returns the header lines that let the page of an allowed origin
// read an answer; nil for a client that is no page.
func (req *request) corsLines() []byte {
	if !req.originSet || req.origin == nil {
		return nil
	}
	b := append([]byte("Vary: Origin\r\nAccess-Control-Allow-Origin: "), req.origin...)
	return append(b, "\r\nAccess-Control-Expose-Headers: Mcp-Session-Id, WWW-Authenticate, Retry-After\r\n"...)
}

// cors puts the same lines into a plain answer.
func (req *request) cors() {
	if !req.originSet || req.origin == nil {
		return
	}
	req.ctx.Response.Header.Set("Vary", "Origin")
	req.ctx.Response.Header.SetBytesV("Access-Control-Allow-Origin", req.origin)
	req.ctx.Response.Header.Set("Access-Control-Expose-Headers", "Mcp-Session-Id, WWW-Authenticate, Retry-After")
}

// preflight answers a browser's question what a page may send. It needs no token.
func (req *request) preflight() {
	req.ctx.SetStatusCode(204)
	req.cors()
	req.ctx.Response.Header.Set("Access-Control-Allow-Methods", "POST, GET, DELETE")
	headers := "Content-Type, Accept, Authorization, Last-Event-ID"
	for name := range strings.SplitSeq(string(req.ctx.Request.Header.Peek("Access-Control-Request-Headers")), ",") {
		name = strings.ToLower(strings.TrimSpace(name))
		if strings.HasPrefix(name, "mcp-") && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == "" && len(name) <= 64 {
			headers += ", " + name
		}
	}
	req.ctx.Response.Header.Set("Access-Control-Allow-Headers", headers)
	req.ctx.Response.Header.Set("Access-Control-Max-Age", "600")
}
