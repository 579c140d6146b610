// Package serve is the running edge: the door that clients knock at, the
// exchanges that come of it, and where each of them is sent.
package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/pprofhandler"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/kv"
	"github.com/weir-edge/weir/edge/oauth"
	"github.com/weir-edge/weir/edge/secret"
	"github.com/weir-edge/weir/filters/guest"
	"github.com/weir-edge/weir/filters/telemetry"
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

	storePassword edge.Secret // of stores that name none

	sentinelUser     string // of sentinels before a store; "" for their default user
	sentinelPassword edge.Secret

	front, admin     *fasthttp.Server
	frontLn, adminLn net.Listener
	bare             net.Listener // frontLn without TLS
	before           *predecessor // the process that this one stands in for; nil for none
	loopback         bool         // the door is on an address of this host only
	hosts, origins   allowed
	proxies          proxies

	sharedKey bool   // states are sealed with a key that other edges may have
	node      string // names this edge to those that share a store with it
	clock     *clock
	watcher   *watcher
	live      atomic.Pointer[live]
	lot       *lot            // calls that wait for a modern client's answers
	store     *kv.MemoryStore // of servers that share none
	stores    stores          // that replicas share
	threads   threads         // exchanges with other edges
	sliding   atomic.Bool     // lifetimes in stores are being begun anew
	guests    *guest.Keeper   // programs among the filters
	secrets   *secret.Secrets
	issuers   *oauth.Issuers // whose tokens are taken
	sessions  *sessions
	doors     sseDoors
	outlets   outletSet
	underway  underway
	crowd     crowd
	inflight  atomic.Int64
	bodies    atomic.Int64 // bytes of the large requests that are being read or served
	wide      atomic.Int64 // connections of which the kernel may hold more

	mostBodies int64
	arrival    time.Duration // how long a request may take to arrive
	ready      atomic.Bool
	leaving    atomic.Bool // every answer is the last on its connection

	reload     func() error // reads the configuration again; nil for never
	reloading  sync.Mutex
	closed     bool                   // nothing is opened any longer; reloading guards it
	badReload  atomic.Pointer[string] // why the last reload changed nothing; nil when it did
	reloads    atomic.Int64
	badReloads atomic.Int64
	counting   []telemetry.Collector // rooms of the process that count for themselves
	work       sync.WaitGroup        // exchanges that answer on a stream of their own
	end        chan struct{}
}

// Option changes how an edge is made.
type Option func(*Edge)

// WithVersion tells the version that the edge gives of itself.
func WithVersion(v string) Option { return func(e *Edge) { e.version = v } }

// WithReload tells how the plan is made anew; ReloadNow and POST /-/reload on
// the admin address call it. It ends in Reload or in an error, which is told.
func WithReload(f func() error) Option { return func(e *Edge) { e.reload = f } }

// WithStorePassword gives the password of shared stores whose sessionStorage
// names no secret.
func WithStorePassword(p edge.Secret) Option { return func(e *Edge) { e.storePassword = p } }

// WithSentinelUser gives the user, "" for the default one, and the password of
// the sentinels that know where a shared store is, when they want one. The store
// itself has its own.
func WithSentinelUser(user string, p edge.Secret) Option {
	return func(e *Edge) { e.sentinelUser, e.sentinelPassword = user, p }
}

// WithIssuers has the keys of issuers kept by other times than the product's.
// An edge has one set of issuers, which nobody else uses.
func WithIssuers(i *oauth.Issuers) Option { return func(e *Edge) { e.issuers = i } }

// WithPprof serves profiles on the admin address.
func WithPprof() Option { return func(e *Edge) { e.pprof = true } }

// New opens what a plan needs and the addresses to listen on. It fails for
// what waiting does not cure; backends that are down are no such thing.
func New(s Settings, plan *compile.Plan, log *slog.Logger, options ...Option) (*Edge, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	e := &Edge{settings: s, log: log, version: "devel", clock: newClock(), issuers: &oauth.Issuers{}, arrival: readWithin, end: make(chan struct{})}
	for _, o := range options {
		o(e)
	}
	e.node = newName()
	e.sessions = newSessions(s.MaxSessions, s.SessionTTL)
	e.sessions.left = e.giveUp
	e.mostBodies = roomForBodies()
	var err error
	if e.secrets, err = secret.New(secret.Options{Dir: s.SecretsDir}); err != nil {
		return nil, fmt.Errorf("--secrets-dir: %w", err)
	}
	keys, given, err := stateKeys(s.StateKeyFile, e.secrets.Draft(plan.Secrets))
	if err != nil {
		return nil, err
	}
	e.sharedKey = given
	seal, err := newSealer(keys)
	if err != nil {
		return nil, err
	}
	e.lot = newLot(s, seal, e.node)
	e.store = kv.Memory(kv.Limits{})
	e.guests = guest.NewKeeper(s.FilterCache, log)
	if e.proxies, err = parseProxies(s.TrustedProxies); err != nil {
		return nil, fmt.Errorf("--trusted-proxies: %w", err)
	}
	if e.watcher, err = newWatcher(); err != nil {
		return nil, fmt.Errorf("watch clients: %w", err)
	}
	if err := e.listen(); err != nil {
		return nil, err
	}
	opened, err := e.open(plan, nil)
	if err != nil {
		err = errors.Join(err, e.guests.Close())
		e.store.Close()
		e.watcher.close()
		e.frontLn.Close()
		if e.adminLn != nil {
			e.adminLn.Close()
		}
		return nil, err
	}
	e.live.Store(opened)
	opened.secrets.Adopt()
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
		KeepHijackedConns:            true, // streams close theirs
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

// roomForBodies is how many bytes of large requests the edge holds at a time. A
// request is held several times over on its way; where the memory of the
// process is limited (GOMEMLIMIT) a sixteenth of it is what is safe.
func roomForBodies() int64 {
	const most = 1 << 30
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		return min(most, limit/16)
	}
	return most
}

// listen takes the addresses, from the process that has them where this one is
// to stand in for it.
func (e *Edge) listen() (err error) {
	s := e.settings
	if s.HandOver != "" {
		if e.frontLn, e.adminLn, e.before, err = takeOver(s.HandOver); err != nil {
			return fmt.Errorf("--hand-over: %s: %w", s.HandOver, err)
		}
	}
	if e.frontLn == nil {
		if e.frontLn, err = listen("listen", s.Listen); err != nil {
			return err
		}
	}
	e.bare = e.frontLn
	switch {
	case s.AdminListen == "" && e.adminLn != nil:
		e.adminLn.Close()
		e.adminLn = nil
	case s.AdminListen != "" && e.adminLn == nil:
		if e.adminLn, err = listen("admin-listen", s.AdminListen); err != nil {
			return errors.Join(err, e.frontLn.Close())
		}
	}
	return nil
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
	e.clock.tick(time.Now()) // what was opened may have taken longer than a client may
	failed := make(chan error, 3)
	go func() { failed <- e.front.Serve(&listener{Listener: e.frontLn, edge: e}) }()
	if e.adminLn != nil {
		go func() { failed <- e.admin.Serve(e.adminLn) }()
	}
	e.work.Go(e.keepTime)
	e.work.Go(e.keepHouse)
	e.work.Go(e.watcher.run)
	e.ready.Store(true)
	e.log.Info("serving", "address", e.Addr(), "admin", e.AdminAddr(), "servers", e.live.Load().names())
	var err error
	replaced, stop := make(chan struct{}), func() {}
	if path := e.settings.HandOver; path != "" {
		if e.before != nil {
			if err := e.before.leave(); err != nil {
				e.log.Warn("the process before this one was not told to leave", "error", err)
			}
		}
		if stop, err = e.giveWay(path, func() { close(replaced) }); err != nil {
			failed <- err
		}
	}
	select {
	case err = <-failed:
	case <-ctx.Done():
	case <-replaced:
		e.log.Info("another process serves now; draining")
	}
	stop()
	drain, cancel := context.WithTimeout(context.Background(), e.settings.DrainTimeout)
	defer cancel()
	e.turnAway(drain)
	for _, o := range e.outlets.list() {
		o.close()
	}
	e.underway.endLasting()
	if e.front.ShutdownWithContext(drain) != nil {
		e.log.Warn("calls still under way at the end of the drain timeout are cut", "calls", e.inflight.Load())
	}
	e.frontLn.Close() // a server that is told to end before it began leaves it open
	if e.adminLn != nil {
		_ = e.admin.ShutdownWithContext(drain)
		e.adminLn.Close()
	}
	e.close()
	return err
}

// lingers is how long a door that closes still takes what was on its way to it.
const lingers = time.Second

// turnAway has clients go elsewhere before the door closes: it is no longer
// ready, and every answer is the last on its connection. It ends when no
// connection is left, or after a moment.
func (e *Edge) turnAway(ctx context.Context) {
	e.ready.Store(false)
	e.leaving.Store(true)
	ctx, cancel := context.WithTimeout(ctx, lingers)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for e.underway.connections() > e.outlets.len() {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// close ends what the edge holds.
func (e *Edge) close() {
	for _, x := range e.underway.since(time.Now().Add(time.Hour)) {
		x.cancel()
	}
	e.underway.settle(time.Second)
	e.lot.close()
	e.outlets.end()
	for _, t := range e.stores.list() {
		t.keeper.write(t) // what streams carried that were cut
	}
	e.sessions.endAll(func(s *session) bool {
		s.common.store.Store(nil) // other edges go on with it
		return true
	})
	close(e.end)
	e.watcher.close()
	e.work.Wait()
	e.reloading.Lock()
	defer e.reloading.Unlock()
	e.closed = true
	e.live.Load().closeBut(nil)
	if err := e.guests.Close(); err != nil {
		e.log.Warn("the cache of filters cannot be closed", "error", err)
	}
	e.store.Close()
}

// keepTime keeps the coarse clock. Nothing else is done here: deadlines depend
// on it. It ends with the edge.
func (e *Edge) keepTime() {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-e.end:
			return
		case now := <-tick.C:
			e.clock.tick(now)
		}
	}
}

// keepHouse sends heartbeats and ends what is old, once a second. It ends with
// the edge.
func (e *Edge) keepHouse() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-e.end:
			return
		case now := <-tick.C:
			e.beat(now)
		}
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
	e.slide(now)
	for _, s := range e.live.Load().servers {
		e.reportStatus(s, now)
	}
}

// listener returns what begins to hear the backends for a session.
func (e *Edge) listener(s *session) func(context.Context, edge.Client) {
	return func(ctx context.Context, out edge.Client) {
		served := e.live.Load().servers[s.server]
		if served == nil {
			return
		}
		if served.only == nil {
			out = ofOthers{out}
		}
		for _, b := range served.backends {
			e.work.Go(func() {
				defer edge.Contain(e.log, "listener")
				if err := b.Attend(ctx, &s.Session, out); err != nil && ctx.Err() == nil {
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
		e.status(ctx, e.live.Load().all())
	case path == "/metrics":
		e.metrics(ctx, e.live.Load().metrics)
	case path == "/-/reload":
		e.administerReload(ctx)
	case e.pprof && len(path) >= len("/debug/pprof/") && path[:len("/debug/pprof/")] == "/debug/pprof/":
		runtime.SetBlockProfileRate(0)
		pprofhandler.PprofHandler(ctx)
	default:
		plain(ctx, 404, "not found\n")
	}
}

// quietLog is the HTTP server's log: what strangers do wrong is not news. The
// server's errors quote what was sent, which may be a credential: only what
// stands before that is kept.
type quietLog struct{ log *slog.Logger }

func (l quietLog) Printf(format string, args ...any) {
	for i, a := range args {
		if err, ok := a.(error); ok {
			said, _, _ := strings.Cut(err.Error(), `"`)
			args[i] = strings.TrimRight(said, ": ")
		}
	}
	l.log.Debug("http", "message", fmt.Sprintf(format, args...))
}
