// Package door lies between a socket and a request that has one reading: who may
// connect, what a header may say, how a body is read, who the client is behind
// proxies, and which calls end because their client has left.
package door

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
	"github.com/weir-edge/weir/edge"
)

const (
	// Within is how long a request may take to arrive.
	Within = 30 * time.Second

	// IdleWithin is how long a connection may wait for its next request.
	IdleWithin = 120 * time.Second
)

// Options say how a door is made.
type Options struct {
	MaxConnections int
	MaxPerAddress  int           // connections of one client address; 0 for no limit
	MaxHeader      int           // bytes of a header
	MaxBody        int           // bytes of a body
	Within         time.Duration // for a request to arrive
	Hosts          []string      // allowed values of Host, besides those of a loopback address
	Origins        []string      // allowed values of Origin, besides those of a loopback address
	Proxies        []string      // networks whose proxies are believed
	TLS            TLS           // without a Cert clients connect in plain
	Log            *slog.Logger

	// BodyBytes bounds the memory of the bodies of large requests, and BodyShare what
	// one client may have of it; 0 for what the memory of the process allows, and a
	// quarter of that. Grace is over what time it is measured how fast a body
	// arrives; 0 for half a second.
	BodyBytes, BodyShare int64
	Grace                time.Duration

	// MaxWide is how many connections may have more room in the kernel for large
	// answers; 0 for the default, and less for none.
	MaxWide int

	// Handle serves each request, on the goroutine of its connection.
	Handle fasthttp.RequestHandler

	// Unreadable answers a request that has no reading.
	Unreadable func(ctx *fasthttp.RequestCtx, status int, why string)
}

// Door is where the clients of one address come in. Its connections are its own;
// a request that it lets pass is served by Options.Handle.
type Door struct {
	Clock *Clock

	o              Options
	server         *fasthttp.Server
	ln             net.Listener
	bare           net.Listener // ln without TLS
	loopback       bool         // only this host can reach it
	hosts, origins Allowed
	proxies        Proxies

	watcher  *watcher
	underway underway
	limiter  Limiter
	budget   *budget      // of the bodies of large requests
	wide     atomic.Int64 // connections of which the kernel may hold more
	paused   pausing
	leaving  atomic.Bool  // every answer is the last on its connection
	closing  atomic.Bool  // no further request is served
	knocked  atomic.Int64 // when the last request came after leaving was set, Unix nanoseconds
	end      chan struct{}
	ended    sync.Once
}

// New makes a door that is shut. Its errors name the flag that is wrong.
func New(o Options) (d *Door, err error) {
	if o.MaxWide == 0 {
		o.MaxWide = mostWide
	}
	d = &Door{Clock: NewClock(), o: o, budget: newBudget(o), end: make(chan struct{})}
	if d.proxies, err = ParseProxies(o.Proxies); err != nil {
		return nil, fmt.Errorf("--trusted-proxies: %w", err)
	}
	if d.watcher, err = newWatcher(); err != nil {
		return nil, fmt.Errorf("watch clients: %w", err)
	}
	return d, nil
}

// Open gives the door its listener, which it closes in the end. It fails when the
// certificate cannot be used.
func (d *Door) Open(ln net.Listener) (err error) {
	d.ln, d.bare = ln, ln
	if d.o.TLS.Cert != "" {
		if d.ln, err = WithTLS(ln, d.o.TLS, d.o.Log); err != nil {
			d.ln = ln
			return err
		}
	}
	d.allow()
	d.server = &fasthttp.Server{
		HeaderReceived:               d.received,
		Handler:                      d.o.Handle,
		ErrorHandler:                 d.malformed,
		Concurrency:                  d.o.MaxConnections,
		ReadBufferSize:               d.o.MaxHeader,
		MaxRequestBodySize:           1, // the door reads bodies
		LazyRequestTime:              true,
		ReduceMemoryUsage:            true, // flush every answer, and hold no buffers between requests
		NoDefaultServerHeader:        true,
		NoDefaultContentType:         true,
		DisablePreParseMultipartForm: true,
		CloseOnShutdown:              true,
		KeepHijackedConns:            true, // streams close theirs
		TCPKeepalive:                 true,
		Logger:                       QuietLog{d.o.Log},
	}
	return nil
}

// Serve takes connections until the door is shut.
func (d *Door) Serve() error {
	return d.server.Serve(&listener{Listener: d.ln, door: d, closed: make(chan struct{})})
}

// Watch ends the calls of clients that leave. It returns when the door has ended.
func (d *Door) Watch() { d.watcher.run() }

// End ends what Watch and Serve wait for. It may be called more than once.
func (d *Door) End() { d.ended.Do(func() { close(d.end); d.watcher.close() }) }

// Abandon gives back what a door took that is not to serve.
func (d *Door) Abandon() {
	d.End()
	d.watcher.run() // which returns at once, and closes what it holds
	if d.ln != nil {
		d.ln.Close()
	}
}

// Socket returns the listener below TLS.
func (d *Door) Socket() net.Listener { return d.bare }

// Addr returns host:port.
func (d *Door) Addr() string { return d.ln.Addr().String() }

// Loopback reports whether only this host can reach the door.
func (d *Door) Loopback() bool { return d.loopback }

// AllowsHost reports whether a value of Host passes.
func (d *Door) AllowsHost(host []byte) bool { return d.hosts.Allow(host) }

// AllowsOrigin reports whether a value of Origin passes.
func (d *Door) AllowsOrigin(origin []byte) bool { return d.origins.Allow(origin) }

// allow derives which values of Host and Origin pass. On a loopback address both
// are checked, so that a page in a browser of this host cannot reach the edge
// under a name of its own (DNS rebinding).
func (d *Door) allow() {
	addr, _ := d.ln.Addr().(*net.TCPAddr)
	d.loopback = addr != nil && addr.IP.IsLoopback()
	d.origins.Add(d.o.Origins...)
	d.hosts.Add(d.o.Hosts...)
	d.hosts.Any = !d.loopback && len(d.o.Hosts) == 0
	if !d.loopback {
		return
	}
	scheme, usual := "http", 80
	if d.o.TLS.Cert != "" {
		scheme, usual = "https", 443
	}
	_, port, _ := net.SplitHostPort(d.Addr())
	for _, name := range []string{"localhost", "127.0.0.1", "[::1]"} {
		d.hosts.Add(name + ":" + port)
		d.origins.Add(scheme + "://" + name + ":" + port)
		if addr.Port == usual {
			d.hosts.Add(name)
			d.origins.Add(scheme + "://" + name)
		}
	}
}

// ClientOf is the address of the client of a request, without a port.
func (d *Door) ClientOf(ctx *fasthttp.RequestCtx) string {
	conn := ctx.Conn()
	if c, ok := conn.(*Conn); ok {
		return c.Client(&ctx.Request.Header)
	}
	host, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
	return d.proxies.ClientOf(host, &ctx.Request.Header)
}

// BodyBytes returns how many bytes of large requests are held.
func (d *Door) BodyBytes() int64 { return d.budget.taken.Load() }

// Senders returns how many clients hold some of the budget of large requests.
func (d *Door) Senders() int {
	d.budget.mu.Lock()
	defer d.budget.mu.Unlock()
	return len(d.budget.accounts)
}

// Wide returns how many connections have more room in the kernel.
func (d *Door) Wide() int { return int(d.wide.Load()) }

// Arriving returns how many connections wait for more of a request.
func (d *Door) Arriving() (n int) {
	d.underway.mu.Lock()
	defer d.underway.mu.Unlock()
	for c := range d.underway.conns {
		if c.place.Load() == arrives {
			n++
		}
	}
	return n
}

// Collect emits the numbers of the door.
func (d *Door) Collect(m edge.Emitter) {
	m.Gauge("weir_connections", "Open connections of clients.", float64(d.Connections()))
	m.Gauge("weir_body_bytes", "Bytes of large requests that are held.", float64(d.BodyBytes()))
	m.Gauge("weir_body_bytes_limit", "How many bytes of large requests may be held.", float64(d.budget.most))
}

// received looks at a request's header. The HTTP server takes every request for
// one without a body: the body of one that passes is read by Conn.Body, and the
// connection of one that is refused is closed.
func (d *Door) received(h *fasthttp.RequestHeader) fasthttp.RequestConfig {
	f, body := Lint(h, d.o.MaxBody)
	switch {
	case f.Status != 0:
		f.Mark(h)
	case body.Size != 0:
		Announce(h, body)
	case body.Expects:
		h.Del("Expect")
	}
	return fasthttp.RequestConfig{}
}

// malformed answers what the HTTP server itself could not read.
func (d *Door) malformed(ctx *fasthttp.RequestCtx, err error) {
	var small *fasthttp.ErrSmallBuffer
	var timeout net.Error
	Announced(&ctx.Request.Header) // which gives the header its words back
	status, why := 400, "the HTTP request cannot be read"
	switch {
	case errors.As(err, &small):
		status, why = 431, fmt.Sprintf("the header is larger than %d bytes", d.o.MaxHeader)
	case errors.As(err, &timeout) && timeout.Timeout():
		status, why = 408, "the request did not arrive in time"
	}
	d.o.Unreadable(ctx, status, why)
}

// Plain answers with a line of text.
func Plain(ctx *fasthttp.RequestCtx, status int, text string) {
	ctx.SetStatusCode(status)
	ctx.Response.Header.SetContentType("text/plain; charset=utf-8")
	ctx.Response.SetBodyString(text)
}

// QuietLog is the log of an HTTP server: what strangers do wrong is not news. The
// server's errors quote what was sent, which may be a credential: only what stands
// before the quotation is kept.
type QuietLog struct{ Log *slog.Logger }

// Printf logs a line of the server.
func (l QuietLog) Printf(format string, args ...any) {
	for i, a := range args {
		if err, ok := a.(error); ok {
			said, _, _ := strings.Cut(err.Error(), `"`)
			args[i] = strings.TrimRight(said, ": ")
		}
	}
	l.Log.Debug("http", "message", fmt.Sprintf(format, args...))
}
