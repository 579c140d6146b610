// Package serve is the running edge: the door that clients knock at, the
// exchanges that come of it, and where each of them is sent.
package serve

import (
	"context"
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
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/door"
	"github.com/weir-edge/weir/edge/kv"
	"github.com/weir-edge/weir/edge/oauth"
	"github.com/weir-edge/weir/edge/relay"
	"github.com/weir-edge/weir/edge/route"
	"github.com/weir-edge/weir/edge/secret"
	"github.com/weir-edge/weir/filters/guest"
)

const (
	// readWithin is how long a request may take to arrive.
	readWithin = 30 * time.Second

	// idleWithin is how long a client's connection may wait for its next request.
	idleWithin = 120 * time.Second

	// maxAdminBody is the most that a request to the admin address may have of a
	// body. Nothing there takes one.
	maxAdminBody = 4 << 10

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
	adminOwn         bool         // the admin door is
	adminHosts       []string     // what it may be called; nil for anything
	hosts, origins   door.Allowed
	proxies          door.Proxies

	signer    *relay.Signer
	sharedKey bool                    // states are sealed with a key that other edges may have
	keys      [][]byte                // that seal them: what a process that stands in for this one has to know
	mail      *shared                 // by which processes of this place write to each other; nil for none
	elders    elders                  // those before this one
	heir      atomic.Pointer[handing] // the one after it; nil for none
	paused    pausing                 // connections are left to that
	knockedAt atomic.Int64            // when the last request came after the edge began to leave, Unix nanoseconds
	clock     *door.Clock
	watcher   *watcher
	live      atomic.Pointer[live]
	parked    *route.Parked   // calls that wait for a modern client's answers
	store     *kv.MemoryStore // of servers that share none
	stores    stores          // that replicas share
	passages  passages        // servers that are between two stores
	relay     *relay.Relay    // what replicas say to each other
	spent     route.Spent     // states that other edges have refused
	sliding   atomic.Bool     // lifetimes in stores are being begun anew
	guests    *guest.Keeper   // programs among the filters
	secrets   *secret.Secrets
	issuers   *oauth.Issuers // whose tokens are taken
	sessions  *sessions
	doors     sseDoors
	outlets   outletSet
	stays     stays // who has streams that last
	underway  underway
	limiter   door.Limiter // of connections
	inflight  atomic.Int64
	budget    *budget      // of the bodies of large requests
	wide      atomic.Int64 // connections of which the kernel may hold more

	arrival time.Duration // how long a request may take to arrive
	ready   atomic.Bool
	leaving atomic.Bool // every answer is the last on its connection
	closing atomic.Bool // no further request is served

	reload     func() error // reads the configuration again; nil for never
	reloading  sync.Mutex
	closed     bool                   // nothing is opened any longer; reloading guards it
	badReload  atomic.Pointer[string] // why the last reload changed nothing; nil when it did
	reloads    atomic.Int64
	badReloads atomic.Int64
	counting   []edge.Collector // rooms of the process that count for themselves
	work       sync.WaitGroup   // exchanges that answer on a stream of their own
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
func New(s Settings, plan *compile.Plan, log *slog.Logger, options ...Option) (_ *Edge, err error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	e := &Edge{settings: s, log: log, version: "devel", clock: door.NewClock(), issuers: &oauth.Issuers{}, arrival: readWithin, end: make(chan struct{})}
	for _, o := range options {
		o(e)
	}
	e.relay = relay.New(relay.NewName(), log, e.leaving.Load)
	e.sessions = newSessions(s.MaxSessions, s.MaxSessionsPerPrincipal, s.SessionTTL)
	e.sessions.left = e.giveUp
	e.budget = newBudget(s.MaxBody, e.arrival)
	if s.HandOver != "" {
		e.sessions.node = e.relay.Node
	}
	if e.secrets, err = secret.New(secret.Options{Dir: s.SecretsDir}); err != nil {
		return nil, fmt.Errorf("--secrets-dir: %w", err)
	}
	keys, given, err := stateKeys(s.StateKeyFile, e.secrets.Draft(plan.Secrets))
	if err != nil {
		return nil, err
	}
	e.sharedKey, e.keys = given, keys
	seal, err := route.NewSealer(keys)
	if err != nil {
		return nil, err
	}
	e.parked = parkedFor(s, seal, e.relay)
	if !given {
		keys = nil // nobody else could look at what is signed with it
	}
	e.signer = relay.NewSigner(e.relay.Node, keys)
	e.store = kv.Memory(kv.Limits{})
	e.guests = guest.NewKeeper(s.FilterCache, log)
	defer func() {
		if err != nil {
			err = errors.Join(err, e.abandon())
		}
	}()
	if e.proxies, err = door.ParseProxies(s.TrustedProxies); err != nil {
		return nil, fmt.Errorf("--trusted-proxies: %w", err)
	}
	if e.watcher, err = newWatcher(); err != nil {
		return nil, fmt.Errorf("watch clients: %w", err)
	}
	if err := e.listen(); err != nil {
		return nil, err
	}
	if s.TLSCert != "" {
		if e.frontLn, err = door.WithTLS(e.frontLn, door.TLS{Cert: s.TLSCert, Key: s.TLSKey, ClientCA: s.TLSClientCA}, log); err != nil {
			return nil, err
		}
	}
	opened, err := e.open(plan, nil)
	if err != nil {
		return nil, err
	}
	e.live.Store(opened)
	opened.secrets.Adopt()
	e.rules()
	e.adminRules()
	e.front = &fasthttp.Server{
		HeaderReceived:               e.received,
		Handler:                      e.handle,
		ErrorHandler:                 e.malformed,
		Concurrency:                  s.MaxConnections,
		ReadBufferSize:               s.MaxHeader,
		MaxRequestBodySize:           1, // the door reads bodies
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
		HeaderReceived:        receivedAdmin,
		Handler:               e.administer,
		ReadBufferSize:        adminHeader,
		MaxRequestBodySize:    maxAdminBody,
		ReadTimeout:           readWithin,
		IdleTimeout:           idleWithin,
		NoDefaultServerHeader: true,
		CloseOnShutdown:       true,
		Logger:                quietLog{log},
	}
	return e, nil
}

// abandon gives back what an edge took that is not to serve.
func (e *Edge) abandon() error {
	if e.watcher != nil {
		e.watcher.close()
		e.watcher.run() // which ends at once, with what it holds
	}
	e.closeMail()
	for _, ln := range []net.Listener{e.frontLn, e.adminLn} {
		if ln != nil {
			ln.Close()
		}
	}
	e.store.Close()
	err := e.guests.Close()
	if e.before != nil {
		err = errors.Join(err, e.before.leave(false))
	}
	return err
}

// listen takes the addresses, from the process that has them where this one is
// to stand in for it.
func (e *Edge) listen() (err error) {
	s := e.settings
	if s.HandOver != "" {
		if e.frontLn, e.adminLn, e.before, err = takeOver(s.HandOver); err != nil {
			return fmt.Errorf("--hand-over: %s: %w", s.HandOver, err)
		}
		if err := e.openMail(s.HandOver); err != nil {
			return err
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
	e.clock.Tick(time.Now()) // what was opened may have taken longer than a client may
	if e.mail != nil {
		e.readMail()
	}
	if e.before != nil {
		e.before.inherit(e)
	}
	failed := make(chan error, 3)
	go func() { failed <- e.front.Serve(&listener{Listener: e.frontLn, edge: e, closed: make(chan struct{})}) }()
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
		// There is always somebody behind the name: the process before leaves when
		// this one is.
		if stop, err = e.giveWay(path, func() { close(replaced) }); err != nil {
			failed <- err
		}
		if e.before != nil {
			if err := e.before.leave(err == nil); err != nil {
				e.log.Warn("the process before this one was not told to leave", "error", err)
			}
		}
	}
	select {
	case err = <-failed:
	case <-ctx.Done():
	case <-replaced:
		e.log.Info("another process serves now; draining")
	}
	stop()
	e.leave(e.heir.Load() != nil)
	e.close()
	return err
}

// close ends what the edge holds.
func (e *Edge) close() {
	e.underway.each(func(x *exchange) { x.cancel() })
	e.underway.settle(time.Second)
	e.parked.Close()
	e.outlets.end()
	e.handLogs()
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
	e.live.Load().close()
	e.closeMail()
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
			e.clock.Tick(now)
		}
	}
}

// keepHouse sends heartbeats, ends what is old, and gives memory back, once a
// second. It ends with the edge.
func (e *Edge) keepHouse() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	memory, giving := newMemory(), make(chan struct{}, 1)
	for {
		select {
		case <-e.end:
			return
		case now := <-tick.C:
			e.beat(now)
			select {
			case giving <- struct{}{}:
				e.work.Go(func() { // a collection takes its time, and heartbeats are due
					defer func() { <-giving }()
					memory.look(now)
				})
			default:
			}
		}
	}
}

// beat sends the heartbeats that are due and ends the sessions that are old.
func (e *Edge) beat(now time.Time) {
	for _, w := range e.underway.since(now.Add(-heartbeat)) {
		go w.beat(now) // a client that does not read must not hold up the others
	}
	for _, o := range e.outlets.list() {
		if o.silent(now) {
			go o.beat(now)
		}
	}
	e.endStays()
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
