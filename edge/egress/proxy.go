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
	maxDialsEach = maxDials / 2     // of one sandbox, or one peer
	maxHead      = 16 << 10         // bytes of the head of a request
	maxUnread    = 1 << 20          // bytes that are read of the body of a refused one
	headTimeout  = 30 * time.Second // from its first byte on
	firstTimeout = 60 * time.Second // until it
	helloTimeout = 10 * time.Second // for a ClientHello
	idleTimeout  = 10 * time.Minute // of a connection on which nothing moves
	leaveTimeout = 30 * time.Second // the same, once the client of a request has nothing more to say
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
	Resolve  Resolver     // nil for that of this machine
	Upstream Upstream     // nil for what HTTPS_PROXY and NO_PROXY say
	LogAll   bool         // also what is let out is logged, once a minute for each destination
	Tell     func(Record) // is told of every decision, and does not wait; nil for nobody
}

// Record is one decision, as an audit log has it.
type Record struct {
	At       time.Time
	Workload string
	Profile  string
	Host     string
	Port     int
	Reason   Reason // Allowed, or why not
	Rule     string // the entry that allowed it
	More     string // in words
}

// times are the bounds of what is waited for.
type times struct{ dial, head, first, hello, idle, leaving time.Duration }

// Proxy serves the connections of all sandboxes of one workload. It is safe for concurrent
// use.
type Proxy struct {
	workload string
	rules    *Rules
	log      *slog.Logger
	resolve  Resolver
	upstream Upstream
	tell     func(Record)
	own      own
	times    times

	// connector connects, and listens says whether an edge listens at a port of this host.
	connector func(context.Context, netip.AddrPort) (net.Conn, error)
	listens   func(port int) (bool, error)

	server *fasthttp.Server
	dials  chan struct{}

	open    atomic.Int64 // connections out of sandboxes
	allowed atomic.Uint64
	denied  [reasons]atomic.Uint64
	said    told
	out     told // of what is let out
	asked   told // of names asked of DNS
	logAll  bool
}

// New returns the proxy of a workload.
func New(c Config) *Proxy {
	p := &Proxy{
		workload: c.Workload, rules: c.Rules, log: c.Log, resolve: c.Resolve, upstream: c.Upstream, logAll: c.LogAll, tell: c.Tell, dials: make(chan struct{}, maxDials),
		times:     times{dialTimeout, headTimeout, firstTimeout, helloTimeout, idleTimeout, leaveTimeout},
		connector: connectTCP, listens: edgeListens,
	}
	if p.resolve == nil {
		p.resolve = system
	}
	if p.upstream == nil {
		p.upstream = environment
	}
	p.server = &fasthttp.Server{
		HeaderReceived:                received,
		Handler:                       p.handle,
		ErrorHandler:                  p.malformed,
		Concurrency:                   maxTunnels + 1, // this package counts
		ReadBufferSize:                maxHead,
		WriteBufferSize:               1 << 10,
		StreamRequestBody:             true,
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
	if p.tell != nil {
		p.tell(Record{time.Now(), p.workload, p.rules.name, edge.Clean(edge.Brief(e.Host)), e.Port, e.Reason, "", e.What})
	}
	if p.log == nil || !p.said.first(e, time.Now()) {
		return
	}
	p.log.Warn("a server was not let out", "workload", p.workload, "profile", p.rules.name, "host", edge.Brief(e.Host), "port", e.Port, "reason", e.Reason.String(), "more", e.What)
}

// allow counts a connection that is let out.
func (p *Proxy) allow(h Host, port int, d Decision) {
	p.allowed.Add(1)
	if p.logAll && p.log != nil && p.out.first(&Refusal{Host: h.String(), Port: port}, time.Now()) {
		p.log.Info("let out", "workload", p.workload, "profile", p.rules.name, "host", h.String(), "port", port, "rule", d.Rule)
	}
	if p.tell != nil {
		p.tell(Record{time.Now(), p.workload, p.rules.name, h.String(), port, Allowed, d.Rule, ""})
	}
}

// told knows what was logged lately.
type told struct {
	mu    sync.Mutex
	since time.Time
	seen  map[Refusal]bool
}

// maxTold is how many destinations are logged in a minute, and names asked of DNS told.
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

// Passage is what one sandbox goes out by.
type Passage struct {
	p      *Proxy
	names  *names
	life   context.Context
	end    context.CancelFunc
	mu     sync.Mutex
	conns  map[net.Conn]bool
	closed bool
	work   sync.WaitGroup
	dials  atomic.Int64 // under way
}

// Open opens the passage of one sandbox.
func (p *Proxy) Open() *Passage {
	g := &Passage{p: p, names: newNames(time.Now), conns: map[net.Conn]bool{}}
	g.life, g.end = context.WithCancel(context.Background())
	return g
}

// Close ends all connections, and returns when they have ended.
func (g *Passage) Close() {
	g.end()
	g.mu.Lock()
	g.closed = true
	all := g.conns
	g.conns = map[net.Conn]bool{}
	g.mu.Unlock()
	for c := range all {
		_ = c.Close()
	}
	g.work.Wait()
}

// hold has a connection be closed with the passage. false: the passage is closed, and so is it.
func (g *Passage) hold(c net.Conn) bool {
	g.mu.Lock()
	closed := g.closed
	if !closed {
		g.conns[c] = true
	}
	g.mu.Unlock()
	if closed {
		_ = c.Close()
	}
	return !closed
}

func (g *Passage) drop(c net.Conn) {
	_ = c.Close()
	g.mu.Lock()
	delete(g.conns, c)
	g.mu.Unlock()
}

// Answer answers a query of DNS; nil for what has no answer. A name that is not let out is
// told as a connection to it would be, since a program that ignores proxies goes no further;
// but once a minute, since questions are asked far faster than connections are made.
func (g *Passage) Answer(query []byte) []byte {
	answer := g.names.answer(g.p.rules, query, func() {
		g.p.refuse(&Refusal{Host: "", Reason: TooMany, What: "all addresses for names are taken"})
	})
	if len(answer) > 3 && answer[3]&0x0f == codeNoName {
		if e := unnamed(g.p.rules, query); g.p.asked.first(e, time.Now()) {
			g.p.refuse(e)
		} else {
			g.p.denied[e.Reason].Add(1)
		}
	}
	return answer
}

// Serve serves a connection that a server made inside of its sandbox, until its end. Where it
// was meant to go its own end says: to the proxy, to the answerer, or to the address of a name.
func (g *Passage) Serve(conn net.Conn) {
	to := netip.AddrPort{}
	if a, ok := conn.LocalAddr().(*net.TCPAddr); ok {
		to = a.AddrPort()
	}
	loopback := to.Addr().Unmap() == netip.AddrFrom4([4]byte{127, 0, 0, 1})
	switch {
	case loopback && to.Port() == ProxyPort:
		g.serve(conn, g.proxy)
	case loopback && to.Port() == DNSPort:
		g.serve(conn, func(c *inner) {
			g.questions(c)
			_ = c.Close()
		})
	default:
		g.serve(conn, func(c *inner) {
			g.direct(c, to)
			_ = c.Close()
		})
	}
}

// ServeProxy serves a connection to the proxy, until its end.
func (g *Passage) ServeProxy(conn net.Conn) { g.serve(conn, g.proxy) }

// serve has a connection served until its end, where there may be another one.
func (g *Passage) serve(conn net.Conn, as func(*inner)) {
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
	c := &inner{Conn: conn, passage: g, ended: make(chan struct{})}
	if !g.hold(c) {
		return
	}
	as(c)
	<-c.ended
}

// inner is a connection out of the sandbox. What it waits for has an end.
type inner struct {
	net.Conn
	passage *Passage
	begun   time.Time   // when the head began to come
	pass    atomic.Bool // a request is under way: what it waits for is bounded by who serves it
	once    sync.Once
	ended   chan struct{} // closed with it
}

// busy says that a request is under way.
func (c *inner) busy() {
	c.pass.Store(true)
	_ = c.Conn.SetReadDeadline(time.Time{})
	select {
	case <-c.ended:
		c.stopReading()
	default:
	}
}

// stopReading ends what reads the connection. To close it is not enough: a stream of the link
// that this end has closed is read until the other end closes it.
func (c *inner) stopReading() { _ = c.Conn.SetReadDeadline(time.Unix(1, 0)) }

func (c *inner) Read(b []byte) (int, error) {
	if !c.pass.Load() {
		end := c.begun.Add(c.passage.p.times.head)
		if c.begun.IsZero() {
			end = time.Now().Add(c.passage.p.times.first)
		}
		_ = c.Conn.SetReadDeadline(end)
	}
	n, err := c.Conn.Read(b)
	if c.begun.IsZero() && n > 0 {
		c.begun = time.Now()
	}
	return n, err
}

func (c *inner) Write(b []byte) (int, error) {
	_ = c.Conn.SetWriteDeadline(time.Now().Add(c.passage.p.times.idle))
	return c.Conn.Write(b)
}

func (c *inner) Close() (err error) {
	c.once.Do(func() {
		err = c.Conn.Close()
		c.passage.p.open.Add(-1)
		c.passage.mu.Lock()
		delete(c.passage.conns, c)
		c.passage.mu.Unlock()
		close(c.ended)
		c.stopReading() // last: busy looks whether it has ended
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
func (g *Passage) questions(c *inner) {
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
func (g *Passage) direct(c *inner, to netip.AddrPort) {
	h, done, ok := g.names.use(to.Addr().Unmap())
	if !ok {
		g.p.refuse(&Refusal{Host: to.Addr().String(), Port: int(to.Port()), Reason: UnknownAddress})
		return
	}
	defer done()
	out, d, err := g.dial(h, int(to.Port()))
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
