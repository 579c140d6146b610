// Package mount serves handlers of net/http beside MCP, on the connections of a door.
//
// A handler runs on a goroutine of its own, of which there are not many; the goroutine of
// the connection sends what it writes, and leaves it behind when the client has left.
package mount

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/valyala/fasthttp"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/door"
)

const (
	// maxHandlers is how many mounted handlers run at a time, and maxHandlersEach how
	// many of them for one client address.
	maxHandlers     = 64
	maxHandlersEach = maxHandlers / 4

	// Ignored is how many bytes a body may have that a handler does not look at.
	Ignored = 4 << 10
)

// Table is the handlers that are mounted at one address.
type Table struct {
	Log     *slog.Logger
	Running *Running

	byPrefix map[string]edge.Mount
}

// Running counts the handlers that run, by the addresses of their clients. The zero value
// is ready; it is safe for concurrent use.
type Running struct {
	mu  sync.Mutex
	all int
	of  map[string]int
}

// begin reports whether another handler may run for a client.
func (r *Running) begin(client string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all >= maxHandlers || r.of[client] >= maxHandlersEach {
		return false
	}
	if r.of == nil {
		r.of = make(map[string]int)
	}
	r.all++
	r.of[client]++
	return true
}

func (r *Running) end(client string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all--
	if r.of[client]--; r.of[client] == 0 {
		delete(r.of, client)
	}
}

// Add mounts a handler.
func (t *Table) Add(one edge.Mount) {
	if t.byPrefix == nil {
		t.byPrefix = make(map[string]edge.Mount)
	}
	t.byPrefix[one.Prefix] = one
}

// Find returns the mount of a path; false for none.
func (t *Table) Find(path string) (edge.Mount, bool) {
	one, ok := t.byPrefix[path]
	for !ok && path != "" {
		path = path[:strings.LastIndexByte(path[:len(path)-1], '/')+1]
		one, ok = t.byPrefix[path]
	}
	return one, ok
}

// Serve answers a request by a mounted handler.
func (t *Table) Serve(ctx *fasthttp.RequestCtx, conn *door.Conn, to edge.Mount) {
	req := &request{ctx, conn}
	text, status := req.bodyOf(to.MaxBody)
	if status != 0 {
		req.ctx.SetConnectionClose()
		door.Plain(req.ctx, status, http.StatusText(status)+"\n")
		return
	}
	client := door.Stranger(req.client()).Address // of IPv6 a network of 64 bits
	if !t.Running.begin(client) {
		req.ctx.Response.Header.Set("Retry-After", "1")
		door.Plain(req.ctx, 503, "too many requests of this kind at a time\n")
		return
	}
	kept := req.conn.Keep() // the handler may outlast the connection
	a := newAnswer()
	r, err := req.translated(a, text)
	if err == nil && !req.conn.Enter(&a.Call, true) {
		err = errors.New("the client left")
	}
	if err != nil {
		kept.Give()
		t.Running.end(client)
		door.Plain(req.ctx, 400, "the request cannot be served: "+err.Error()+"\n")
		return
	}
	defer req.conn.Leave(&a.Call)
	go func() {
		defer t.Running.end(client)
		defer kept.Give()
		defer a.finish()
		defer func() {
			if p := recover(); p != nil {
				if a.fail(p) {
					t.Log.Error("panic in a handler", "path", r.URL.Path, "request", r.Header.Get("X-Request-Id"), "panic", p, "stack", string(debug.Stack()))
				}
			}
		}()
		to.Handler.ServeHTTP(a, r)
	}()
	a.pass(req)
}

// request is an HTTP request of a client, and the connection that it came on.
type request struct {
	ctx  *fasthttp.RequestCtx
	conn *door.Conn
}

// client is the address of the client, without a port; "unknown" where it is doubted.
func (req *request) client() string { return req.conn.Certain(&req.ctx.Request.Header) }

// bodyOf reads the body of a request, which may have most bytes, and returns the status
// to refuse it with; 0 for none.
func (req *request) bodyOf(most int) (text []byte, status int) {
	req.conn.Bound(most)
	text, whole := req.conn.Whole()
	if !whole {
		var err error
		if text, err = req.conn.Body(door.Stranger(req.client())); err != nil {
			switch {
			case errors.Is(err, door.ErrTooLarge):
				return nil, 413
			case errors.Is(err, door.ErrBusy):
				return nil, 503
			}
			return nil, 400
		}
	}
	return req.conn.Own(text), 0
}

// translated is the request as net/http has it. It shares no memory with the connection.
func (req *request) translated(a *answer, body []byte) (*http.Request, error) {
	from := &req.ctx.Request.Header
	target := string(from.RequestURI())
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return nil, errors.New("its path cannot be read")
	}
	r := &http.Request{
		Method: string(from.Method()), URL: u, RequestURI: target, Host: string(from.Host()), RemoteAddr: req.client(),
		Proto: string(from.Protocol()), ProtoMajor: 1, Header: make(http.Header), Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}
	if from.IsHTTP11() {
		r.ProtoMinor = 1
	}
	for name, value := range from.All() {
		if n := string(name); n != "Host" {
			r.Header.Add(n, string(value))
		}
	}
	if id := r.Header.Get("X-Request-Id"); !door.SoundID([]byte(id)) {
		r.Header.Set("X-Request-Id", door.NewRequestID())
	}
	a.bodyless, a.chunks, a.last = from.IsHead(), from.IsHTTP11(), from.ConnectionClose() || !from.IsHTTP11()
	if said := req.conn.Client(from); said != r.RemoteAddr {
		return r.WithContext(edge.WithSource(&a.Call, said)), nil
	}
	return r.WithContext(&a.Call), nil
}
