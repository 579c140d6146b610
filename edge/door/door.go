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

// Door is where clients come in, at one address or at several. Its connections are its
// own; a request that it lets pass is served by Options.Handle.
type Door struct {
	Clock *Clock

	o      Options
	server *fasthttp.Server

	mu        sync.Mutex
	entrances []*Entrance // that are not closed

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

// New makes a door without an entrance.
func New(o Options) (d *Door, err error) {
	if o.MaxWide == 0 {
		o.MaxWide = mostWide
	}
	d = &Door{Clock: NewClock(), o: o, budget: newBudget(o), end: make(chan struct{})}
	if d.watcher, err = newWatcher(); err != nil {
		return nil, fmt.Errorf("watch clients: %w", err)
	}
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
	return d, nil
}

// Watch ends the calls of clients that leave. It returns when the door has ended.
func (d *Door) Watch() { d.watcher.run() }

// End ends what Watch and Serve wait for. It may be called more than once.
func (d *Door) End() { d.ended.Do(func() { close(d.end); d.watcher.close() }) }

// Abandon gives back what a door took that is not to serve.
func (d *Door) Abandon() {
	d.End()
	d.watcher.run() // which returns at once, and closes what it holds
	for _, en := range d.open() {
		en.Close()
	}
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
	if ctx.IsGet() {
		ctx.Request.Header.SetMethod(RefusedMethod) // GET is also what stands for a line that was not read
	}
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
