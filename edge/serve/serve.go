// Package serve is the running edge: the door that clients knock at, the
// exchanges that come of it, and where each of them is sent.
package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
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
	"github.com/weir-edge/weir/edge/session"
	"github.com/weir-edge/weir/filters/guest"
)

const (
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
	changes  []func(*door.Options) // of WithDoor

	storePassword edge.Secret // of stores that name none

	sentinelUser     string // of sentinels before a store; "" for their default user
	sentinelPassword edge.Secret

	door       *door.Door
	admin      *fasthttp.Server
	adminLn    net.Listener
	adminOwn   bool              // the admin address is on this host only
	adminHosts []string          // what it may be called; nil for anything
	before     *door.Predecessor // the process that this one stands in for; nil for none

	signer    *relay.Signer
	sharedKey bool     // states are sealed with a key that other edges may have
	keys      [][]byte // that seal them: what a process that stands in for this one has to know
	live      atomic.Pointer[live]
	parked    *route.Parked   // calls that wait for a modern client's answers
	memory    *kv.MemoryStore // of servers that share no store
	relay     *relay.Relay    // what replicas say to each other
	replicas  *route.Replicas // that hold parked calls
	guests    *guest.Keeper   // programs among the filters
	secrets   *secret.Secrets
	issuers   *oauth.Issuers // whose tokens are taken
	sessions  *session.Sessions
	doors     sseDoors
	stays     stays // who has streams that last
	inflight  atomic.Int64
	ready     atomic.Bool

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

// WithDoor changes how the door is made, such as how long a request may take to
// arrive.
func WithDoor(change func(*door.Options)) Option {
	return func(e *Edge) { e.changes = append(e.changes, change) }
}

// WithPprof serves profiles on the admin address.
func WithPprof() Option { return func(e *Edge) { e.pprof = true } }

// New opens what a plan needs and the addresses to listen on. It fails for
// what waiting does not cure; backends that are down are no such thing.
func New(s Settings, plan *compile.Plan, log *slog.Logger, options ...Option) (_ *Edge, err error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	e := &Edge{settings: s, log: log, version: "devel", issuers: &oauth.Issuers{}, end: make(chan struct{})}
	for _, o := range options {
		o(e)
	}
	front := door.Options{
		MaxConnections: s.MaxConnections,
		MaxPerAddress:  s.MaxConnectionsPerAddress,
		MaxHeader:      s.MaxHeader,
		MaxBody:        s.MaxBody,
		Within:         door.Within,
		Hosts:          s.AllowedHosts,
		Origins:        s.AllowedOrigins,
		Proxies:        s.TrustedProxies,
		TLS:            door.TLS{Cert: s.TLSCert, Key: s.TLSKey, ClientCA: s.TLSClientCA},
		Log:            log,
		Handle:         e.handle,
		Unreadable:     e.unreadable,
	}
	for _, change := range e.changes {
		change(&front)
	}
	if e.door, err = door.New(front); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			e.door.Abandon()
		}
	}()
	e.relay = relay.New(relay.NewName(), log, e.door.Leaving)
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
	e.replicas = &route.Replicas{Parked: e.parked, Relay: e.relay, Log: log}
	if !given {
		keys = nil // nobody else could look at what is signed with it
	}
	e.signer = relay.NewSigner(e.relay.Node, keys)
	e.memory = kv.Memory(kv.Limits{})
	e.sessions = session.New(session.Options{
		Most: s.MaxSessions, Each: s.MaxSessionsPerPrincipal, Streams: s.MaxStreams, TTL: s.SessionTTL, CallCap: s.CallCap, Largest: s.letterSize(),
		ServeWithoutStore: s.StoreFailure == "open", SharedKey: given, HandOver: s.HandOver != "",
		Relay: e.relay, Signer: e.signer, Memory: e.memory, Clock: e.door.Clock, Log: log, Work: &e.work, End: e.end,
		Servers: e.hosts, Handlers: e.handlers, Wanted: e.replicas.Wanted, Keys: func() [][]byte { return e.keys }, TakeKeys: e.takeKeys,
	})
	e.guests = guest.NewKeeper(s.FilterCache, log)
	defer func() {
		if err != nil {
			err = errors.Join(err, e.abandon())
		}
	}()
	if err := e.listen(); err != nil {
		return nil, err
	}
	opened, err := e.open(plan, nil)
	if err != nil {
		return nil, err
	}
	e.live.Store(opened)
	opened.secrets.Adopt()
	e.adminRules()
	e.admin = &fasthttp.Server{
		HeaderReceived:        receivedAdmin,
		Handler:               e.administer,
		ReadBufferSize:        adminHeader,
		MaxRequestBodySize:    maxAdminBody,
		ReadTimeout:           door.Within,
		IdleTimeout:           door.IdleWithin,
		NoDefaultServerHeader: true,
		CloseOnShutdown:       true,
		Logger:                door.QuietLog{Log: log},
	}
	return e, nil
}

// abandon gives back what an edge took that is not to serve.
func (e *Edge) abandon() error {
	e.sessions.CloseMail()
	if e.adminLn != nil {
		e.adminLn.Close()
	}
	e.memory.Close()
	err := e.guests.Close()
	if e.before != nil {
		err = errors.Join(err, e.before.Leave(false))
	}
	return err
}

// closeIf closes a listener that is there.
func closeIf(ln net.Listener) error {
	if ln == nil {
		return nil
	}
	return ln.Close()
}

// listen takes the addresses, from the process that has them where this one is
// to stand in for it.
func (e *Edge) listen() (err error) {
	s := e.settings
	var front net.Listener
	if s.HandOver != "" {
		if front, e.adminLn, e.before, err = door.TakeOver(s.HandOver); err != nil {
			return fmt.Errorf("--hand-over: %s: %w", s.HandOver, err)
		}
		if err := e.sessions.OpenMail(s.HandOver); err != nil {
			return errors.Join(err, closeIf(front))
		}
	}
	if front == nil {
		if front, err = listen("listen", s.Listen); err != nil {
			return err
		}
	}
	if err := e.door.Open(front); err != nil {
		return err
	}
	switch {
	case s.AdminListen == "" && e.adminLn != nil:
		e.adminLn.Close()
		e.adminLn = nil
	case s.AdminListen != "" && e.adminLn == nil:
		if e.adminLn, err = listen("admin-listen", s.AdminListen); err != nil {
			return err
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
func (e *Edge) Addr() string { return e.door.Addr() }

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
	e.door.Clock.Tick(time.Now()) // what was opened may have taken longer than a client may
	e.sessions.ReadMail()
	if e.before != nil {
		e.inherit()
	}
	failed := make(chan error, 3)
	go func() { failed <- e.door.Serve() }()
	if e.adminLn != nil {
		go func() { failed <- e.admin.Serve(e.adminLn) }()
	}
	e.work.Go(e.keepTime)
	e.work.Go(e.keepHouse)
	e.work.Go(e.door.Watch)
	e.ready.Store(true)
	e.log.Info("serving", "address", e.Addr(), "admin", e.AdminAddr(), "servers", e.live.Load().names())
	var err error
	replaced, stop := make(chan struct{}), func() {}
	if path := e.settings.HandOver; path != "" {
		// There is always somebody behind the name: the process before leaves when
		// this one is.
		if stop, err = e.door.GiveWay(door.Succession{
			Path: path, Admin: e.adminLn, Hand: e.sessions.HandOver, Back: e.sessions.TakeBack, Left: func() { close(replaced) }, Work: &e.work,
		}); err != nil {
			failed <- err
		}
		if e.before != nil {
			if err := e.before.Leave(err == nil); err != nil {
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
	e.leave(e.sessions.Replaced())
	e.close()
	return err
}

// inherit takes over the sessions of the process before this one. Without them this
// one serves all the same: clients begin their sessions anew.
func (e *Edge) inherit() {
	if !e.before.HandsSessions() {
		e.log.Warn("the process before this one is of a version that hands over no sessions: clients begin theirs anew")
		return
	}
	if err := e.before.Inherit(e.relay.Node, e.sessions.TakeOver); err != nil {
		e.log.Warn("the sessions of the process before this one were not taken over: clients begin theirs anew", "error", err)
	}
}

// close ends what the edge holds.
func (e *Edge) close() {
	e.door.Settle(time.Second)
	e.parked.Close()
	e.sessions.Streams.End()
	e.sessions.HandLogs()
	e.sessions.Leave()
	close(e.end)
	e.door.End()
	e.work.Wait()
	e.reloading.Lock()
	defer e.reloading.Unlock()
	e.closed = true
	e.live.Load().close()
	e.sessions.CloseMail()
	if err := e.guests.Close(); err != nil {
		e.log.Warn("the cache of filters cannot be closed", "error", err)
	}
	e.memory.Close()
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
			e.door.Clock.Tick(now)
		}
	}
}

// keepHouse sends session.Heartbeats, ends what is old, and gives memory back, once a
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
				e.work.Go(func() { // a collection takes its time, and session.Heartbeats are due
					defer func() { <-giving }()
					memory.look(now)
				})
			default:
			}
		}
	}
}

// beat sends the session.Heartbeats that are due and ends the sessions that are old.
func (e *Edge) beat(now time.Time) {
	for _, w := range e.since(now.Add(-session.Heartbeat)) {
		go w.beat(now) // a client that does not read must not hold up the others
	}
	for _, o := range e.sessions.Streams.List() {
		if o.Silent(now) {
			go o.Beat(now)
		}
	}
	e.endStays()
	e.sessions.Sweep(now)
	e.sessions.Slide(now)
	for _, s := range e.live.Load().servers {
		e.reportStatus(s, now)
	}
}

// hosts are the servers that are served now, as their sessions need them.
func (e *Edge) hosts() map[string]*session.Host {
	if live := e.live.Load(); live != nil {
		return live.hosts
	}
	return nil
}

// each calls f with every call under way; see door.Door.Each.
func (e *Edge) each(f func(*exchange)) {
	e.door.Each(func(c *door.Call) { f(c.Owner.(*exchange)) })
}

// since returns the ways back of the calls that began before a moment.
func (e *Edge) since(before time.Time) []way {
	var out []way
	e.each(func(x *exchange) {
		if x.Began.Before(before) {
			out = append(out, way{&x.way, x.number})
		}
	})
	return out
}
