package egress

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/edge"
)

// Bounds of a workload's connections.
const (
	maxTunnels   = 512
	maxDials     = 64
	maxHead      = 16 << 10         // bytes of the head of a request
	headTimeout  = 30 * time.Second // from its first byte on
	firstTimeout = 60 * time.Second // until it
	helloTimeout = 10 * time.Second // for a ClientHello
	idleTimeout  = 10 * time.Minute // of a connection on which nothing moves
	maxQuestions = 100              // on one connection of DNS
)

// Where a sandbox reaches the proxy and the answerer of DNS, on its own loopback.
const (
	ProxyPort = 3128
	DNSPort   = 53
)

// Config is what a Proxy is to be.
type Config struct {
	Workload string
	Rules    *Rules
	Log      *slog.Logger
	Resolve  Resolver // nil for that of this machine
}

// Proxy serves the connections of all sandboxes of one workload. It is safe for concurrent
// use.
type Proxy struct {
	workload string
	rules    *Rules
	log      *slog.Logger
	resolve  Resolver
	own      own
	server   *fasthttp.Server
	dials    chan struct{}

	open    atomic.Int64 // connections out of sandboxes
	allowed atomic.Uint64
	denied  [reasons]atomic.Uint64
	said    told
}

// New returns the proxy of a workload.
func New(c Config) *Proxy {
	p := &Proxy{workload: c.Workload, rules: c.Rules, log: c.Log, resolve: c.Resolve, dials: make(chan struct{}, maxDials)}
	if p.resolve == nil {
		p.resolve = system
	}
	p.server = &fasthttp.Server{
		Handler:                       p.handle,
		ErrorHandler:                  p.malformed,
		Concurrency:                   maxTunnels + 1, // this package counts
		ReadBufferSize:                maxHead,
		WriteBufferSize:               1 << 10,
		StreamRequestBody:             true,
		MaxRequestBodySize:            8 << 10, // that is read before it is passed on
		ReduceMemoryUsage:             true,
		LazyRequestTime:               true,
		NoDefaultServerHeader:         true,
		NoDefaultContentType:          true,
		NoDefaultDate:                 true,
		DisablePreParseMultipartForm:  true,
		DisableHeaderNamesNormalizing: true,
		Logger:                        quiet{},
	}
	return p
}

// quiet drops what the HTTP server says of strangers.
type quiet struct{}

func (quiet) Printf(string, ...any) {}

// Rules are those of the proxy.
func (p *Proxy) Rules() *Rules { return p.rules }

// Collect counts: weir_egress_denied by reason, weir_egress_allowed, weir_egress_connections.
func (p *Proxy) Collect(m edge.Emitter) {
	m = m.With("workload", p.workload)
	m.Gauge("weir_egress_connections", "Connections out of the sandboxes of a workload that are open.", float64(p.open.Load()))
	m.Counter("weir_egress_allowed", "Connections that were let out of the sandboxes of a workload.", float64(p.allowed.Load()))
	for r := Allowed + 1; r < reasons; r++ {
		if n := p.denied[r].Load(); n > 0 {
			m.With("reason", r.String()).Counter("weir_egress_denied", "Connections that were not let out of the sandboxes of a workload, by reason.", float64(n))
		}
	}
}

// refuse counts a refusal, and logs it once a minute for each destination.
func (p *Proxy) refuse(e *Refusal) {
	p.denied[e.Reason].Add(1)
	if p.log == nil || !p.said.first(e, time.Now()) {
		return
	}
	p.log.Warn("a server was not let out", "workload", p.workload, "profile", p.rules.name, "host", edge.Brief(e.Host), "port", e.Port, "reason", e.Reason.String(), "more", e.What)
}

// told knows what was logged lately.
type told struct {
	mu    sync.Mutex
	since time.Time
	seen  map[Refusal]bool
}

// maxTold is how many destinations are logged in a minute.
const maxTold = 200

func (t *told) first(e *Refusal, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Sub(t.since) >= time.Minute {
		t.since, t.seen = now, map[Refusal]bool{}
	}
	key := Refusal{Host: e.Host, Port: e.Port, Reason: e.Reason}
	if t.seen[key] || len(t.seen) >= maxTold {
		return false
	}
	t.seen[key] = true
	return true
}

// Gate is what one sandbox goes out by.
type Gate struct {
	p      *Proxy
	names  *names
	life   context.Context
	end    context.CancelFunc
	mu     sync.Mutex
	conns  map[net.Conn]bool
	closed bool
	work   sync.WaitGroup
}

// Open opens the gate of one sandbox.
func (p *Proxy) Open() *Gate {
	g := &Gate{p: p, names: newNames(time.Now), conns: map[net.Conn]bool{}}
	g.life, g.end = context.WithCancel(context.Background())
	return g
}

// Close ends all connections, and returns when they have ended.
func (g *Gate) Close() {
	g.end()
	g.mu.Lock()
	g.closed = true
	for c := range g.conns {
		_ = c.Close()
	}
	g.mu.Unlock()
	g.work.Wait()
}

// hold has a connection be closed with the gate. false: the gate is closed, and so is it.
func (g *Gate) hold(c net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		_ = c.Close()
		return false
	}
	g.conns[c] = true
	return true
}

func (g *Gate) drop(c net.Conn) {
	_ = c.Close()
	g.mu.Lock()
	delete(g.conns, c)
	g.mu.Unlock()
}

// Answer answers a query of DNS; nil for what has no answer.
func (g *Gate) Answer(query []byte) []byte {
	return g.names.answer(g.p.rules, query, func() {
		g.p.refuse(&Refusal{Host: "", Reason: TooMany, What: "all addresses for names are taken"})
	})
}

// Serve serves a connection that a server made inside of its sandbox, until its end. Where it
// was meant to go its own end says: to the proxy, to the answerer, or to the address of a name.
func (g *Gate) Serve(conn net.Conn) {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		_ = conn.Close()
		return
	}
	g.work.Add(1)
	g.mu.Unlock()
	defer g.work.Done()
	if g.p.open.Add(1) > maxTunnels {
		g.p.open.Add(-1)
		g.p.refuse(&Refusal{Reason: TooMany})
		_ = conn.Close()
		return
	}
	c := &inner{Conn: conn, gate: g, ended: make(chan struct{})}
	if !g.hold(c) {
		return
	}
	to := netip.AddrPort{}
	if a, ok := conn.LocalAddr().(*net.TCPAddr); ok {
		to = a.AddrPort()
	}
	loopback := to.Addr().Unmap() == netip.AddrFrom4([4]byte{127, 0, 0, 1})
	switch {
	case loopback && to.Port() == ProxyPort:
		g.proxy(c)
	case loopback && to.Port() == DNSPort:
		g.questions(c)
		_ = c.Close()
	default:
		g.direct(c, to)
		_ = c.Close()
	}
	<-c.ended
}

// inner is a connection out of the sandbox. What it waits for has an end.
type inner struct {
	net.Conn
	gate  *Gate
	begun time.Time   // when the head began to come
	pass  atomic.Bool // a request is under way: only what stands still ends it
	once  sync.Once
	ended chan struct{} // closed with it
}

func (c *inner) Read(b []byte) (int, error) {
	switch {
	case c.pass.Load():
		_ = c.Conn.SetReadDeadline(time.Now().Add(idleTimeout))
	case c.begun.IsZero():
		_ = c.Conn.SetReadDeadline(time.Now().Add(firstTimeout))
	default:
		_ = c.Conn.SetReadDeadline(c.begun.Add(headTimeout))
	}
	n, err := c.Conn.Read(b)
	if c.begun.IsZero() && n > 0 {
		c.begun = time.Now()
	}
	return n, err
}

func (c *inner) Write(b []byte) (int, error) {
	_ = c.Conn.SetWriteDeadline(time.Now().Add(idleTimeout))
	return c.Conn.Write(b)
}

func (c *inner) Close() (err error) {
	c.once.Do(func() {
		err = c.Conn.Close()
		close(c.ended)
		c.gate.p.open.Add(-1)
		// Not under the lock of a gate that closes all.
		go func() {
			c.gate.mu.Lock()
			delete(c.gate.conns, c)
			c.gate.mu.Unlock()
		}()
	})
	return err
}

// CloseWrite says that nothing more comes.
func (c *inner) CloseWrite() error { return closeWrite(c.Conn) }

func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

// questions answers DNS over TCP (RFC 1035 §4.2.2).
func (g *Gate) questions(c *inner) {
	for range maxQuestions {
		c.begun = time.Time{}
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		q := make([]byte, int(size[0])<<8|int(size[1]))
		if len(q) > maxQuery {
			return
		}
		if _, err := io.ReadFull(c, q); err != nil {
			return
		}
		answer := g.Answer(q)
		if answer == nil {
			return
		}
		if _, err := c.Write(append([]byte{byte(len(answer) >> 8), byte(len(answer))}, answer...)); err != nil {
			return
		}
	}
}

// direct serves a program that ignores proxies, and has connected to the address of a name.
func (g *Gate) direct(c *inner, to netip.AddrPort) {
	h, done, ok := g.names.use(to.Addr().Unmap())
	if !ok {
		g.p.refuse(&Refusal{Host: to.Addr().String(), Port: int(to.Port()), Reason: UnknownAddress})
		return
	}
	defer done()
	out, d, err := g.p.dial(g.life, h, int(to.Port()))
	if err != nil {
		g.p.refusedWith(err)
		return
	}
	g.tunnel(c, c, out, d, h, int(to.Port()))
}

// refusedWith counts an error of dial.
func (p *Proxy) refusedWith(err error) {
	var e *Refusal
	if errors.As(err, &e) {
		p.refuse(e)
	}
}

// tunnel carries bytes between a connection out of the sandbox and one to its host, until
// both have ended. in is what is read of c.
func (g *Gate) tunnel(c *inner, in io.Reader, out net.Conn, d Decision, h Host, port int) {
	if !g.hold(out) {
		return
	}
	defer g.drop(out)
	c.pass.Store(true)
	pair := &pair{c: c, out: out}
	pair.moved()
	back := make(chan struct{})
	judged := make(chan struct{}) // closed when bytes of the host may pass
	go func() {
		defer edge.Contain(g.p.log, "egress")
		defer close(back)
		select {
		case <-judged:
		case <-c.ended:
			return
		}
		pair.carry(c, out)
		_ = c.CloseWrite()
	}()
	ok := true
	switch {
	case d.Kind == KindAll: // no list named the host
		close(judged)
	case port == 443:
		if ok = g.greet(c, in, out, nil, h, port); ok {
			close(judged)
		}
	default: // the host may be the first to speak
		close(judged)
		ok = g.first(c, in, out, h, port)
	}
	if !ok {
		pair.abort()
		<-back
		return
	}
	g.p.allowed.Add(1)
	pair.carry(out, in)
	_ = closeWrite(out)
	<-back
}

// first passes on the first bytes of a client on another port than 443. Those of TLS are
// judged.
func (g *Gate) first(c *inner, in io.Reader, out net.Conn, h Host, port int) bool {
	b := make([]byte, 4<<10)
	n, err := in.Read(b[:1])
	if n == 1 && b[0] == 22 { // a handshake of TLS, or a byte that begins so
		n, err = readByte(in, b)
		if n == 2 && b[1] == 3 {
			return g.greet(c, in, out, b[:2], h, port)
		}
	}
	if n > 0 {
		if _, failed := out.Write(b[:n]); failed != nil {
			return false
		}
	}
	return err == nil || errors.Is(err, io.EOF)
}

// readByte reads a second byte.
func readByte(in io.Reader, b []byte) (int, error) {
	n, err := io.ReadFull(in, b[1:2])
	return 1 + n, err
}

// greet reads the ClientHello, and passes it on when it asks for the host.
func (g *Gate) greet(c *inner, in io.Reader, out net.Conn, begun []byte, h Host, port int) bool {
	late := time.AfterFunc(helloTimeout, func() { _ = c.Conn.SetReadDeadline(time.Unix(1, 0)); _ = c.Close() })
	hello, err := readHello(in, begun)
	if !late.Stop() {
		return false
	}
	if err != nil || !hello.asksFor(h) {
		what := "it asks for no name"
		switch {
		case err != nil:
			what = errHello.Error()
		case hello.name != "":
			what = "it asks for " + edge.Brief(edge.Clean(hello.name))
		}
		g.p.refuse(&Refusal{Host: h.String(), Port: port, Reason: WrongName, What: what})
		return false
	}
	_, err = out.Write(hello.raw)
	return err == nil
}

// pair are the two ends of a tunnel.
type pair struct {
	c    *inner
	out  net.Conn
	last atomic.Int64 // when a byte moved, in nanoseconds
}

func (p *pair) moved() { p.last.Store(time.Now().UnixNano()) }

// Buffers of a tunnel, in bytes: that of one on which little moves, and that of one on which
// much does.
const (
	smallBuffer = 2 << 10
	largeBuffer = 32 << 10
)

// carry carries bytes until there are no more. It ends with an error on either side, and when
// nothing has moved in either direction for idleTimeout.
func (p *pair) carry(to io.Writer, from io.Reader) {
	b := make([]byte, smallBuffer)
	for {
		_ = p.out.SetWriteDeadline(time.Now().Add(idleTimeout))
		if from == io.Reader(p.out) {
			_ = p.out.SetReadDeadline(time.Now().Add(idleTimeout))
		}
		n, err := from.Read(b)
		if n > 0 {
			p.moved()
			if _, failed := to.Write(b[:n]); failed != nil {
				p.abort()
				return
			}
			p.moved()
		}
		switch {
		case err == nil:
		case isTimeout(err) && time.Since(time.Unix(0, p.last.Load())) < idleTimeout:
			continue
		case errors.Is(err, io.EOF):
			return
		default:
			p.abort()
			return
		}
		switch { // what is idle holds little
		case n == len(b) && n < largeBuffer:
			b = make([]byte, largeBuffer)
		case n < smallBuffer && len(b) > smallBuffer:
			b = make([]byte, smallBuffer)
		}
	}
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

// abort ends both sides.
func (p *pair) abort() {
	_ = p.c.Close()
	_ = p.out.Close()
}
