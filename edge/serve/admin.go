package serve

import (
	"bytes"
	"errors"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/door"
	"github.com/weir-edge/weir/edge/mount"
)

// The admin address authenticates nobody. On a loopback address whoever may use the host
// may use it, but no page in a browser of the host, also when the page's own name resolves
// to this host (DNS rebinding). On any other address only health and metrics are served.

const (
	// adminHeader and adminBody bound the header and the body of a request to the admin
	// address, in bytes. Nothing there takes a body.
	adminHeader = 16 << 10
	adminBody   = 4 << 10

	// adminConnections is how many connections the admin address takes.
	adminConnections = 1024
)

// admin is the admin address.
type admin struct {
	edge     *Edge
	door     *door.Door
	entrance *door.Entrance
	own      bool     // it is on this host only
	hosts    []string // allowed names in Host; nil for any
	mounts   mount.Table
}

// newAdmin makes the admin address.
func newAdmin(e *Edge, ln net.Listener) (a *admin, err error) {
	a = &admin{edge: e, mounts: mount.Table{Log: e.log, Running: new(mount.Running)}} // strangers at a door take none of its places
	if a.door, err = door.New(door.Options{
		MaxConnections: adminConnections, MaxHeader: adminHeader, MaxBody: adminBody, Within: door.Within, Log: e.log, Handle: a.handle, Unreadable: a.unreadable,
	}); err != nil {
		return nil, err
	}
	if a.entrance, err = a.door.Open(ln, door.Rules{}); err != nil {
		return nil, err
	}
	switch addr := ln.Addr().(type) {
	case *net.UnixAddr: // which no browser reaches, and whose file says who may
		a.own = true
	case *net.TCPAddr:
		if a.own = addr.IP.IsLoopback(); a.own {
			a.hosts = []string{"localhost", "127.0.0.1", "[::1]"}
			if ip, ok := netip.AddrFromSlice(addr.IP); ok && ip.Unmap().Is4() {
				a.hosts = append(a.hosts, ip.Unmap().String()) // another of 127.0.0.0/8; no name
			}
		}
	}
	if !a.own {
		e.log.Warn("others can reach the admin address, and nobody is asked there who they are: it serves /health, /readyz and /metrics alone; set --admin-listen to an address of this host, such as 127.0.0.1:4484, for the rest", "admin-listen", a.entrance.Addr())
	}
	a.mounts.Add(edge.Mount{Prefix: "/metrics", Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { e.live.Load().metrics.ServeHTTP(w, r) }), MaxBody: mount.Ignored})
	if a.own && e.given.pprof {
		a.mounts.Add(edge.Mount{Prefix: "/debug/pprof/", Handler: profiles(), MaxBody: mount.Ignored})
	}
	return a, nil
}

// profiles serves the profiles of the process.
func profiles() http.Handler {
	runtime.SetBlockProfileRate(0)
	named := map[string]http.HandlerFunc{"cmdline": pprof.Cmdline, "profile": pprof.Profile, "symbol": pprof.Symbol, "trace": pprof.Trace}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		serve := named[strings.TrimPrefix(r.URL.Path, "/debug/pprof/")]
		switch {
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET")
			http.Error(w, "only GET is served here", http.StatusMethodNotAllowed)
		case serve != nil:
			serve(w, r)
		default:
			pprof.Index(w, r)
		}
	})
}

// handle serves a request to the admin address.
func (a *admin) handle(ctx *fasthttp.RequestCtx) {
	req := request{ctx: ctx, conn: ctx.Conn().(*door.Conn)}
	req.conn.Arrived(&ctx.Request.Header)
	defer func() {
		if r := recover(); r != nil {
			a.edge.log.Error("panic in a request to the admin address", "panic", r, "stack", string(debug.Stack()))
			door.Plain(ctx, 500, "internal error\n")
			ctx.SetConnectionClose()
		}
		if !req.conn.Served() {
			ctx.SetConnectionClose()
		}
	}()
	if f, bad := door.Refusal(&ctx.Request.Header); bad {
		a.unreadable(ctx, f.Status, f.Why)
		return
	}
	if why := a.refusal(&ctx.Request.Header); why != "" {
		door.Plain(ctx, 403, why+"\n")
		return
	}
	e := a.edge
	path, _, _ := strings.Cut(string(ctx.Request.Header.RequestURI()), "?")
	serve, method := func(*fasthttp.RequestCtx) { door.Plain(ctx, 404, "not found\n") }, ""
	one, mounted := a.mounts.Find(path)
	switch {
	case path == "/health":
		serve, method = func(ctx *fasthttp.RequestCtx) { door.Plain(ctx, 200, "ok\n") }, "GET"
	case path == "/readyz":
		serve, method = e.readyz, "GET"
	case !a.own && path != "/metrics":
		door.Plain(ctx, 403, "on an address that others can reach there are /health, /readyz and /metrics alone; set --admin-listen to an address of this host, such as 127.0.0.1:4484, for the rest\n")
		return
	case mounted:
		a.mounts.Serve(req.ctx, req.conn, one)
		return
	case path == "/status":
		serve, method = func(ctx *fasthttp.RequestCtx) { writeStatus(ctx, e.live.Load().all()) }, "GET"
	case path == "/-/reload":
		serve, method = a.reload, "POST"
	}
	if method != "" && string(ctx.Method()) != method && (method != "GET" || !ctx.IsHead()) {
		ctx.Response.Header.Set("Allow", method)
		door.Plain(ctx, 405, "only "+method+" is served here\n")
		return
	}
	serve(ctx)
}

// unreadable refuses a request that has no one reading, and closes the connection.
func (a *admin) unreadable(ctx *fasthttp.RequestCtx, status int, why string) {
	ctx.Conn().(*door.Conn).Refused()
	door.Plain(ctx, status, why+"\n")
	ctx.SetConnectionClose()
}

// reload answers POST /-/reload.
func (a *admin) reload(ctx *fasthttp.RequestCtx) {
	switch err := a.edge.ReloadNow(); {
	case errors.Is(err, errNoReload):
		door.Plain(ctx, 409, err.Error()+"\n")
	case err != nil:
		door.Plain(ctx, 422, err.Error()+"\n")
	default:
		door.Plain(ctx, 200, "reloaded\n")
	}
}

// refusal returns why a request may not use the admin address; "" if it may. Origin and
// Sec-Fetch-Site are set by the browser, and no page can change them (Fetch §4.5, Fetch
// Metadata §2.4).
func (a *admin) refusal(h *fasthttp.RequestHeader) string {
	host := h.Peek("Host")
	if a.hosts != nil && !a.named(host) {
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

// named reports whether a Host names this host, with any port, since ports are
// forwarded. A name that somebody else has resolve to this host does not.
func (a *admin) named(host []byte) bool {
	name, port := string(host), ""
	if i := strings.LastIndexByte(name, ':'); i >= 0 && !strings.HasSuffix(name, "]") {
		if name, port = name[:i], name[i+1:]; port == "" || len(port) > 5 || strings.Trim(port, "0123456789") != "" {
			return false
		}
	}
	for _, one := range a.hosts {
		if strings.EqualFold(name, one) {
			return true
		}
	}
	return false
}

// leave closes the admin address. Whoever is in the middle of asking may ask again.
func (a *admin) leave() {
	if a == nil {
		return
	}
	a.door.Leave()
	end := a.door.Shut()
	a.door.EndLasting()
	for by := time.Now().Add(quiet); a.door.Served() > 0 && time.Now().Before(by); {
		time.Sleep(looks)
	}
	a.door.Settle(quiet)
	end()
	a.door.End()
}
