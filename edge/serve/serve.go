// Package serve is the running edge: the door that clients knock at, the
// exchanges that come of it, and where each of them is sent.
package serve

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/pprofhandler"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/backend"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/filters"
)

const (
	// readWithin is how long a request may take to arrive.
	readWithin = 30 * time.Second

	// idleWithin is how long a client's connection may wait for its next request.
	idleWithin = 120 * time.Second

	// introductionWait is how long an initialize waits for a backend that has
	// not said yet what it can do.
	introductionWait = 2 * time.Second
)

// Edge is a process that serves a plan.
type Edge struct {
	settings Settings
	log      *slog.Logger
	version  string
	pprof    bool

	front, admin     *fasthttp.Server
	frontLn, adminLn net.Listener
	loopback         bool // the door is on an address of this host only
	hosts, origins   allowed

	clock    *clock
	watcher  *watcher
	server   *server
	sessions *sessions
	doors    sseDoors
	outlets  outletSet
	underway underway
	inflight atomic.Int64
	arrival  time.Duration // how long a request may take to arrive
	ready    atomic.Bool
	work     sync.WaitGroup // exchanges that answer on a stream of their own
	end      chan struct{}
}

// Option changes how an edge is made.
type Option func(*Edge)

// WithVersion tells the version that the edge gives of itself.
func WithVersion(v string) Option { return func(e *Edge) { e.version = v } }

// WithPprof serves profiles on the admin address.
func WithPprof() Option { return func(e *Edge) { e.pprof = true } }

// New opens what a plan needs and the addresses to listen on. It fails for
// what waiting does not cure; backends that are down are no such thing.
func New(s Settings, plan *compile.Plan, log *slog.Logger, options ...Option) (*Edge, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	if len(plan.Servers) != 1 {
		return nil, fmt.Errorf("a plan of %d servers cannot be served: one is needed", len(plan.Servers))
	}
	e := &Edge{settings: s, log: log, version: "devel", clock: newClock(), arrival: readWithin, end: make(chan struct{})}
	for _, o := range options {
		o(e)
	}
	e.sessions = newSessions(s.MaxSessions, s.SessionTTL)
	var err error
	if e.watcher, err = newWatcher(); err != nil {
		return nil, fmt.Errorf("watch clients: %w", err)
	}
	if e.frontLn, err = listen("listen", s.Listen); err != nil {
		return nil, err
	}
	if s.AdminListen != "" {
		if e.adminLn, err = listen("admin-listen", s.AdminListen); err != nil {
			return nil, errors.Join(err, e.frontLn.Close())
		}
	}
	if err := e.open(plan.Servers[0]); err != nil {
		e.frontLn.Close()
		if e.adminLn != nil {
			e.adminLn.Close()
		}
		return nil, err
	}
	e.rules()
	if s.TLSCert != "" {
		if e.frontLn, err = withTLS(e.frontLn, s, log); err != nil {
			e.close()
			return nil, err
		}
	}
	e.front = &fasthttp.Server{
		HeaderReceived:               e.received,
		Handler:                      e.handle,
		ErrorHandler:                 e.malformed,
		Concurrency:                  s.MaxConnections,
		ReadBufferSize:               s.MaxHeader,
		MaxRequestBodySize:           s.MaxBody,
		LazyRequestTime:              true,
		ReduceMemoryUsage:            true, // flush every answer, and hold no buffers between requests
		NoDefaultServerHeader:        true,
		NoDefaultContentType:         true,
		DisablePreParseMultipartForm: true,
		CloseOnShutdown:              true,
		TCPKeepalive:                 true,
		Logger:                       quietLog{log},
	}
	e.admin = &fasthttp.Server{
		Handler:               e.administer,
		ReadTimeout:           readWithin,
		IdleTimeout:           idleWithin,
		NoDefaultServerHeader: true,
		CloseOnShutdown:       true,
		Logger:                quietLog{log},
	}
	return e, nil
}

func listen(flag, address string) (net.Listener, error) {
	ln, err := net.Listen("tcp", address)
	if err == nil {
		return ln, nil
	}
	hint := "choose another address"
	var op *net.OpError
	if errors.As(err, &op) && isInUse(op.Err) {
		hint = "another process listens there: stop it, or choose another port (0 lets the system choose)"
	}
	return nil, fmt.Errorf("--%s: %w: %s", flag, err, hint)
}

// open makes the parts of a server.
func (e *Edge) open(p compile.Server) error {
	info := mcp.AppendString([]byte(`{"name":`), p.Title)
	info = append(mcp.AppendString(append(info, `,"version":`...), e.version), '}')
	client := mcp.AppendString([]byte(`{"name":"weir","version":`), e.version)
	seal, err := newSealer(e.settings.StateKeyFile)
	if err != nil {
		return err
	}
	s := &server{name: p.Name, info: info, lot: newLot(e.settings, seal)}
	for _, b := range p.Backends {
		roots, err := rootsOf(b)
		if err != nil {
			return err
		}
		one, err := backend.Open(backend.Config{
			Name:       b.Name,
			URL:        b.URL,
			SSE:        b.Transport == compile.SSE,
			Roots:      roots,
			Silence:    b.Timeout,
			Cap:        e.settings.CallCap,
			MaxMessage: e.settings.MaxMessage,
			Info:       append(client, '}'),
			Agent:      "weir/" + e.version,
			Log:        e.log,
		})
		if err != nil {
			return err
		}
		s.backends = append(s.backends, one)
		s.targets = append(s.targets, &edge.Target{Backend: b.Name})
	}
	s.chain = filters.Chain(nil, edge.HandlerFunc(s.route))
	e.server = s
	return nil
}

// rootsOf returns the certificates that a backend's are checked against; nil
// for those of the system.
func rootsOf(b compile.Backend) (*x509.CertPool, error) {
	pem := []byte(b.CABundle)
	if b.CABundlePath != "" {
		var err error
		if pem, err = os.ReadFile(b.CABundlePath); err != nil {
			return nil, fmt.Errorf("backend %s: CA bundle: %w", b.Name, err)
		}
	}
	if len(pem) == 0 {
		return nil, nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("backend %s: CA bundle: no certificate in PEM form", b.Name)
	}
	return pool, nil
}

// Addr returns host:port of the door.
func (e *Edge) Addr() string { return e.frontLn.Addr().String() }

// AdminAddr returns host:port of the admin door; "" when there is none.
func (e *Edge) AdminAddr() string {
	if e.adminLn == nil {
		return ""
	}
	return e.adminLn.Addr().String()
}

// Serve serves until ctx ends, then drains: calls under way may take until the
// drain timeout, streams end at once.
func (e *Edge) Serve(ctx context.Context) error {
	failed := make(chan error, 2)
	go func() { failed <- e.front.Serve(&listener{Listener: e.frontLn, edge: e}) }()
	if e.adminLn != nil {
		go func() { failed <- e.admin.Serve(e.adminLn) }()
	}
	e.work.Go(e.keepTime)
	e.work.Go(e.watcher.run)
	e.ready.Store(true)
	e.log.Info("serving", "address", e.Addr(), "admin", e.AdminAddr(), "server", e.server.name)
	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	e.ready.Store(false)
	drain, cancel := context.WithTimeout(context.Background(), e.settings.DrainTimeout)
	defer cancel()
	for _, o := range e.outlets.list() {
		o.close()
	}
	e.underway.endLasting()
	if e.front.ShutdownWithContext(drain) != nil {
		e.log.Warn("calls still under way at the end of the drain timeout are cut", "calls", e.inflight.Load())
	}
	if e.adminLn != nil {
		_ = e.admin.ShutdownWithContext(drain)
	}
	e.close()
	return err
}

// close ends what the edge holds.
func (e *Edge) close() {
	for _, x := range e.underway.since(time.Now().Add(time.Hour)) {
		x.cancel()
	}
	e.underway.settle(time.Second)
	e.server.lot.close()
	e.outlets.end()
	e.sessions.closeAll()
	close(e.end)
	e.watcher.close()
	e.work.Wait()
	for _, b := range e.server.backends {
		b.Close()
	}
}

// keepTime keeps the coarse clock, sends heartbeats and ends what is old. It
// ends with the edge.
func (e *Edge) keepTime() {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	beat := time.Now()
	for {
		var now time.Time
		select {
		case <-e.end:
			return
		case now = <-tick.C:
		}
		e.clock.tick(now)
		if now.Sub(beat) < time.Second {
			continue
		}
		beat = now
		e.beat(now)
	}
}

// beat sends the heartbeats that are due and ends the sessions that are old.
func (e *Edge) beat(now time.Time) {
	for _, x := range e.underway.since(now.Add(-heartbeat)) {
		go x.way.beat(now) // a client that does not read must not hold up the others
	}
	for _, o := range e.outlets.list() {
		if o.silent(now) {
			go o.beat(now)
		}
	}
	e.sessions.sweep(now)
}

// listener returns what begins to hear the backends for a session.
func (e *Edge) listener(s *session) func(context.Context, edge.Client) {
	return func(ctx context.Context, out edge.Client) {
		for _, b := range e.server.backends {
			e.work.Go(func() {
				defer edge.Contain(e.log, "listener")
				if err := b.Listen(ctx, &s.Session, out); err != nil && ctx.Err() == nil {
					e.log.Debug("backend is not heard", "backend", b.Name, "error", err)
				}
			})
		}
	}
}

// administer serves the admin address.
func (e *Edge) administer(ctx *fasthttp.RequestCtx) {
	switch path := string(ctx.Path()); {
	case path == "/health":
		plain(ctx, 200, "ok\n")
	case path == "/readyz":
		e.readyz(ctx)
	case path == "/status":
		e.status(ctx)
	case e.pprof && len(path) >= len("/debug/pprof/") && path[:len("/debug/pprof/")] == "/debug/pprof/":
		runtime.SetBlockProfileRate(0)
		pprofhandler.PprofHandler(ctx)
	default:
		plain(ctx, 404, "not found\n")
	}
}

// quietLog is the HTTP server's log: what strangers do wrong is not news.
type quietLog struct{ log *slog.Logger }

func (l quietLog) Printf(format string, args ...any) {
	l.log.Debug("http", "message", fmt.Sprintf(format, args...))
}
