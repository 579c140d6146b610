package serve

import (
	"bytes"
	"net"
	"net/netip"
	"runtime"
	"strings"

	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/pprofhandler"
	"github.com/weir-edge/weir/edge/door"
)

// The admin address asks nobody who they are. On an address of this host alone
// that is whoever may use the host; a page in a browser of the host is not, nor
// is one that has its own name stand for this host (DNS rebinding). On any other
// address nobody is known, and only what says nothing of the server is there.

// adminHeader is the most that a request to the admin address may have of a
// header.
const adminHeader = 16 << 10

// receivedAdmin looks at a request's header before its body is read: see lint.
func receivedAdmin(h *fasthttp.RequestHeader) fasthttp.RequestConfig {
	if f, _ := door.Lint(h, maxAdminBody); f.Status != 0 {
		f.Mark(h)
	}
	return fasthttp.RequestConfig{}
}

// administer serves the admin address.
func (e *Edge) administer(ctx *fasthttp.RequestCtx) {
	if f, bad := door.Refusal(&ctx.Request.Header); bad {
		plain(ctx, f.Status, f.Why+"\n")
		ctx.SetConnectionClose()
		return
	}
	if why := e.adminRefusal(&ctx.Request.Header); why != "" {
		plain(ctx, 403, why+"\n")
		return
	}
	path, _, _ := strings.Cut(string(ctx.Request.Header.RequestURI()), "?")
	serve, method := func(*fasthttp.RequestCtx) { plain(ctx, 404, "not found\n") }, ""
	switch {
	case path == "/health":
		serve, method = func(ctx *fasthttp.RequestCtx) { plain(ctx, 200, "ok\n") }, "GET"
	case path == "/readyz":
		serve, method = e.readyz, "GET"
	case path == "/metrics":
		serve, method = func(ctx *fasthttp.RequestCtx) { e.metrics(ctx, e.live.Load().metrics) }, "GET"
	case !e.adminOwn:
		plain(ctx, 403, "on an address that others can reach there are /health, /readyz and /metrics alone; set --admin-listen to an address of this host, such as 127.0.0.1:4484, for the rest\n")
		return
	case path == "/status":
		serve, method = func(ctx *fasthttp.RequestCtx) { e.status(ctx, e.live.Load().all()) }, "GET"
	case path == "/-/reload":
		serve, method = e.administerReload, "POST"
	case e.pprof && strings.HasPrefix(path, "/debug/pprof/"):
		serve, method = profile, "GET"
	}
	if method != "" && string(ctx.Method()) != method && (method != "GET" || !ctx.IsHead()) {
		ctx.Response.Header.Set("Allow", method)
		plain(ctx, 405, "only "+method+" is served here\n")
		return
	}
	serve(ctx)
}

// profile serves the profiles of the process.
func profile(ctx *fasthttp.RequestCtx) {
	runtime.SetBlockProfileRate(0)
	pprofhandler.PprofHandler(ctx)
}

// adminRefusal says why a request may not come to the admin address; "" when it
// may. What a browser tells of who asks is believed: no page can change it
// (Fetch §4.5, Fetch Metadata §2.4).
func (e *Edge) adminRefusal(h *fasthttp.RequestHeader) string {
	host := h.Peek("Host")
	if e.adminHosts != nil && !e.adminNamed(host) {
		return "this Host is not allowed here; ask for localhost, 127.0.0.1 or [::1]"
	}
	for name, value := range h.All() {
		switch {
		case bytes.EqualFold(name, []byte("Origin")) && !bytes.Equal(value, append([]byte("http://"), host...)):
			return "this Origin is not allowed here: no page of another place may use the admin address"
		case bytes.EqualFold(name, []byte("Sec-Fetch-Site")) && string(value) != "same-origin" && string(value) != "none":
			return "no page of another place may use the admin address"
		}
	}
	return ""
}

// adminNamed reports whether a Host is one of this host, with any port: ports
// are forwarded, and a name that somebody else has stand for this host is none of
// these.
func (e *Edge) adminNamed(host []byte) bool {
	name, port := string(host), ""
	if i := strings.LastIndexByte(name, ':'); i >= 0 && !strings.HasSuffix(name, "]") {
		if name, port = name[:i], name[i+1:]; port == "" || len(port) > 5 || strings.Trim(port, "0123456789") != "" {
			return false
		}
	}
	for _, one := range e.adminHosts {
		if strings.EqualFold(name, one) {
			return true
		}
	}
	return false
}

// adminRules derives who may use the admin address from what it is.
func (e *Edge) adminRules() {
	if e.adminLn == nil {
		return
	}
	switch addr := e.adminLn.Addr().(type) {
	case *net.UnixAddr: // which no browser reaches, and whose file says who may
		e.adminOwn = true
	case *net.TCPAddr:
		if e.adminOwn = addr.IP.IsLoopback(); e.adminOwn {
			e.adminHosts = []string{"localhost", "127.0.0.1", "[::1]"}
			if ip, ok := netip.AddrFromSlice(addr.IP); ok && ip.Unmap().Is4() {
				e.adminHosts = append(e.adminHosts, ip.Unmap().String()) // another of 127.0.0.0/8; no name
			}
		}
	}
	if !e.adminOwn {
		e.log.Warn("others can reach the admin address, and nobody is asked there who they are: it serves /health, /readyz and /metrics alone; set --admin-listen to an address of this host, such as 127.0.0.1:4484, for the rest", "admin-listen", e.AdminAddr())
	}
}
