// Package serve is the running edge: it takes the requests of clients, makes exchanges of
// them, and sends each through the hallway of its server. Read handle.go first.
package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/backend"
	"github.com/weir-edge/weir/edge/codemode"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/composite"
	"github.com/weir-edge/weir/edge/door"
	"github.com/weir-edge/weir/edge/kv"
	"github.com/weir-edge/weir/edge/mount"
	"github.com/weir-edge/weir/edge/oauth"
	"github.com/weir-edge/weir/edge/optimizer"
	"github.com/weir-edge/weir/edge/relay"
	"github.com/weir-edge/weir/edge/route"
	"github.com/weir-edge/weir/edge/secret"
	"github.com/weir-edge/weir/edge/session"
	"github.com/weir-edge/weir/edge/settings"
	"github.com/weir-edge/weir/filters/audit"
	"github.com/weir-edge/weir/filters/authz"
	"github.com/weir-edge/weir/filters/guest"
	"github.com/weir-edge/weir/filters/ratelimit"
	"github.com/weir-edge/weir/filters/telemetry"
	"github.com/weir-edge/weir/scripting/turns"
)

const (
	// introductionWait is how long an initialize waits for backends that have not
	// introduced themselves.
	introductionWait = 2 * time.Second
)

// Settings are the settings of the process.
type Settings = settings.Settings

// Defaults are the settings of a process without flags.
func Defaults() Settings { return settings.Defaults() }

// Edge is a process that serves a plan.
type Edge struct {
	settings Settings
	given    given // what options set
	log      *slog.Logger

	door   *door.Door
	front  *door.Entrance    // of the process's own door; nil where it has none
	admin  *admin            // the admin address; nil for none
	before *door.Predecessor // the process that this one stands in for; nil for none

	seal     seals           // what opens the states of parked calls
	world    world           // what the parts of servers may touch
	relay    *relay.Relay    // messages of replicas
	replicas *route.Replicas // parked calls, here and at replicas
	sessions *session.Sessions
	older    older // the older transport
	stays    stays // credentials of streams that last

	live     atomic.Pointer[live]
	reloads  reloads
	inflight atomic.Int64
	work     sync.WaitGroup // goroutines beside the connections
	end      chan struct{}  // closed at the end
}

// given is what options set.
type given struct {
	version string
	pprof   bool
	doors   bool // there are none but those of plans
	door    []func(*door.Options)
	issuers *oauth.Issuers // whose tokens are taken
	reload  func() error   // reads the configuration again; nil for never

	storePassword    edge.Secret // of stores that name none
	sentinelUser     string      // of sentinels before a store; "" for their default user
	sentinelPassword edge.Secret

	secrets secret.Options // where secrets are, beside the directory of the settings

	start func(Starting) (backend.Local, error)           // keeps the workloads of plans; nil for none
	login func(Login, edge.Env) (*edge.Credential, error) // sends servers the logins of users; nil for none

	embeddingKey edge.Secret // of embedding services; "" for none
	embedding    []func(*optimizer.ServiceOptions)

	scripts  codemode.Engine         // in place of the sandbox; nil for the sandbox
	notes    func(tool, text string) // about composite tools; nil for the log
	counting []edge.Collector        // rooms of the process that count for themselves
}

// world is what the parts of servers are made with. It outlives them.
type world struct {
	memory  *kv.MemoryStore // of servers that share no store
	cache   *kv.Cache       // --cache-memory
	http    *http.Client    // for requests to places that the operator named
	reach   edge.Reach      // of requests of the edge's own
	guests  *guest.Cache    // compiled programs of the filters
	secrets *secret.Secrets
	running mount.Running // mounted handlers

	// Open things that servers share with their successors.
	servers   kept[*server]
	backends  kept[*backend.Backend]
	workloads kept[backend.Local]
	shared    kept[*edge.Shared] // what the credentials of one server have in common
	measures  kept[*telemetry.Telemetry]
	records   kept[*audit.Log]
	policies  kept[*authz.Counters]
	limits    kept[*ratelimit.Part]
	scripts   kept[*codemode.Counters]
	logins    kept[*login]

	logged      kept[loginKept]   // what lasts of them, by issuer
	loginStores kept[*loginStore] // where they keep their records, when they share them

	composites kept[*composite.Counters]
	optimizers kept[*optimizer.Counters]
	embedders  kept[*optimizer.Service] // by their settings, for all servers
	library    *optimizer.Library       // what optimizers have read of tools

	scripting codemode.Process // runs scripts of clients
	places    *turns.Places    // where they and workflows compute
}

// Option changes how an edge is made.
type Option func(*given)

// WithVersion sets the version that the edge gives of itself.
func WithVersion(v string) Option { return func(g *given) { g.version = v } }

// WithReload sets how the plan is made again; ReloadNow and POST /-/reload on
// the admin address call it. It ends in Reload or in an error.
func WithReload(f func() error) Option { return func(g *given) { g.reload = f } }

// WithStorePassword sets the password of shared stores whose sessionStorage
// names no secret.
func WithStorePassword(p edge.Secret) Option { return func(g *given) { g.storePassword = p } }

// WithEmbeddingKey sets the key of embedding services that are spoken to as OpenAI's API is.
func WithEmbeddingKey(key edge.Secret) Option { return func(g *given) { g.embeddingKey = key } }

// WithEmbeddings changes how embedding services are opened, such as how long one that fails is
// left alone.
func WithEmbeddings(change func(*optimizer.ServiceOptions)) Option {
	return func(g *given) { g.embedding = append(g.embedding, change) }
}

// WithSentinelUser sets the user, "" for the default one, and the password of
// the sentinels that know where a shared store is, when they want one. The store
// itself has its own.
func WithSentinelUser(user string, p edge.Secret) Option {
	return func(g *given) { g.sentinelUser, g.sentinelPassword = user, p }
}

// WithSecrets sets where secrets are. The directory is that of the settings where they name
// one.
func WithSecrets(o secret.Options) Option { return func(g *given) { g.secrets = o } }

// WithIssuers sets the issuers whose tokens are taken, with other lifetimes of their
// keys than the product's. An edge has one set of issuers, which nobody else uses.
func WithIssuers(i *oauth.Issuers) Option { return func(g *given) { g.issuers = i } }

// WithDoor changes how the door is made, such as how long a request may take to
// arrive.
func WithDoor(change func(*door.Options)) Option {
	return func(g *given) { g.door = append(g.door, change) }
}

// WithPlannedDoors leaves the process without a door of its own: clients come in by the doors
// of plans alone, and a plan may have no server.
func WithPlannedDoors() Option { return func(g *given) { g.doors = true } }

// WithCollector has a room outside of the edge counted with it.
func WithCollector(c edge.Collector) Option {
	return func(g *given) { g.counting = append(g.counting, c) }
}

// WithNotes tells what composite tools print, and which properties of their results have no value
// and why, which else are logged. f is called from several goroutines, and must not block.
func WithNotes(f func(tool, text string)) Option { return func(g *given) { g.notes = f } }

// WithPprof serves profiles on the admin address.
func WithPprof() Option { return func(g *given) { g.pprof = true } }

// New opens a plan and the addresses to listen on. It fails for faults that waiting does
// not cure; a backend that is down is not one.
func New(s Settings, plan *compile.Plan, log *slog.Logger, options ...Option) (_ *Edge, err error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	e := &Edge{settings: s, log: log, given: given{version: "devel", issuers: &oauth.Issuers{}}, end: make(chan struct{})}
	e.older.edge, e.stays.edge = e, e
	for _, o := range options {
		o(&e.given)
	}
	front := door.Options{
		MaxConnections: s.MaxConnections,
		MaxPerAddress:  s.MaxConnectionsPerAddress,
		MaxHeader:      s.MaxHeader,
		MaxBody:        s.MaxBody,
		Within:         door.Within,
		TLS:            door.TLS{Cert: s.TLSCert, Key: s.TLSKey, ClientCA: s.TLSClientCA},
		Log:            log,
		Handle:         e.handle,
		Unreadable:     e.unreadable,
	}
	for _, change := range e.given.door {
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
	if s.SecretsDir != "" {
		e.given.secrets.Dir = s.SecretsDir
	}
	if e.world.secrets, err = secret.New(e.given.secrets); err != nil {
		return nil, fmt.Errorf("--secrets-dir: %w", err)
	}
	keys, given, err := stateKeys(s.StateKeyFile, e.world.secrets.Draft(plan.Secrets), log)
	if err != nil {
		return nil, err
	}
	e.seal = seals{shared: given, keys: keys}
	seal, err := route.NewSealer(keys)
	if err != nil {
		return nil, err
	}
	e.replicas = &route.Replicas{Parked: parkedFor(s, seal, e.relay), Relay: e.relay, Log: log}
	if !given {
		keys = nil // nobody else could verify a signature
	}
	e.seal.signer = relay.NewSigner(e.relay.Node, keys)
	if e.world.cache, err = kv.NewCache(int64(s.CacheMemory)); err != nil {
		return nil, fmt.Errorf("--cache-memory: %w", err)
	}
	e.given.counting = append(e.given.counting, e.world.cache)
	e.world.memory = kv.Memory(kv.Limits{Owner: guest.Owner})
	e.world.library = optimizer.NewLibrary()
	e.world.places = turns.New(turns.Most(), mostForValues())
	if e.world.reach, err = s.Reach(); err != nil {
		return nil, err
	}
	roots, err := edge.Roots(nil, e.world.reach.CAs)
	if err != nil {
		return nil, fmt.Errorf("--ca-bundle: %w", err)
	}
	if e.world.reach.DevLoopback {
		log.Warn("--dev-loopback: what strangers name may lead to this machine, unencrypted: for development alone")
	}
	e.world.http = edge.NewHTTP(&tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots})
	e.sessions = session.New(session.Options{
		Most: s.MaxSessions, Each: s.MaxSessionsPerPrincipal, Streams: s.MaxStreams, TTL: s.SessionTTL, CallCap: s.CallCap, Largest: relaySize(s),
		ServeWithoutStore: s.StoreFailure == "open", SharedKey: given, HandOver: s.HandOver != "",
		Relay: e.relay, Signer: e.seal.signer, Memory: e.world.memory, Clock: e.door.Clock, Log: log, Work: &e.work, End: e.end,
		Servers: e.hosts, Handlers: e.handlers, Wanted: e.replicas.Wanted, Keys: func() [][]byte { return e.seal.keys }, TakeKeys: e.takeKeys,
	})
	e.world.guests = guest.NewCache(s.FilterCache, log)
	e.world.guests.Reach(e.world.reach)
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
	return e, nil
}

// abandon closes an edge that was not made to its end.
func (e *Edge) abandon() error {
	e.sessions.CloseMail()
	if e.admin != nil {
		e.admin.door.Abandon()
	}
	e.world.scripting.Close()
	e.world.memory.Close()
	e.world.cache.Close()
	e.world.http.CloseIdleConnections()
	err := e.world.guests.Close()
	if e.before != nil {
		err = errors.Join(err, e.before.Leave(false))
	}
	return err
}

// listen opens the addresses, or takes them over from the process that this one replaces.
func (e *Edge) listen() (err error) {
	s := e.settings
	var front, beside net.Listener
	defer func() {
		for _, ln := range []net.Listener{front, beside} {
			if err != nil && ln != nil {
				ln.Close()
			}
		}
	}()
	if s.HandOver != "" {
		if e.given.doors {
			return errors.New("--hand-over: a process without a door of its own hands none over")
		}
		if front, beside, e.before, err = door.TakeOver(s.HandOver); err != nil {
			return fmt.Errorf("--hand-over: %s: %w", s.HandOver, err)
		}
		if err := e.sessions.OpenMail(s.HandOver); err != nil {
			return err
		}
	}
	if front == nil && !e.given.doors {
		if front, err = listen("listen", s.Listen); err != nil {
			return err
		}
	}
	if front != nil {
		if e.front, err = e.door.Open(front, door.Rules{Hosts: s.AllowedHosts, Origins: s.AllowedOrigins, Proxies: s.TrustedProxies}); err != nil {
			return err
		}
		if !e.front.Loopback() && len(s.AllowedOrigins) == 0 {
			e.log.Warn("no page in a browser may use this edge: --allowed-origins names none", "listen", e.Addr())
		}
	}
	switch {
	case s.AdminListen == "" && beside != nil:
		beside.Close()
	case s.AdminListen == "":
		return nil
	case beside == nil:
		if beside, err = listen("admin-listen", s.AdminListen); err != nil {
			return err
		}
	}
	e.admin, err = newAdmin(e, beside)
	return err
}

func listen(flag, address string) (net.Listener, error) {
	ln, err := listenAt(address)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", flag, err)
	}
	return ln, nil
}

// listenAt opens an address.
func listenAt(address string) (net.Listener, error) {
	ln, err := net.Listen("tcp", address)
	if err == nil {
		return ln, nil
	}
	hint := "choose another address"
	if door.InUse(err) {
		hint = "another process listens there: stop it, or choose another port (0 lets the system choose)"
	}
	return nil, fmt.Errorf("%w: %s", err, hint)
}

// Addr returns host:port of the process's own door; "" if there is none.
func (e *Edge) Addr() string {
	if e.front == nil {
		return ""
	}
	return e.front.Addr()
}

// AdminAddr returns host:port of the admin address; "" if there is none.
func (e *Edge) AdminAddr() string {
	if e.admin == nil {
		return ""
	}
	return e.admin.entrance.Addr()
}

// Serve serves until ctx ends, then drains: calls under way may take until the
// drain timeout, streams end at once.
func (e *Edge) Serve(ctx context.Context) error {
	e.tick(time.Now()) // to open the plan may have taken longer than a request may
	e.sessions.ReadMail()
	if e.before != nil {
		waiting, done := e.before.While(ctx) // who else would serve
		e.live.Load().awaitLocals(waiting, e.log)
		if done(); ctx.Err() != nil { // the process before goes on
			return retreat(e)
		}
		e.inherit()
		e.tick(time.Now()) // this may have taken long, too
	}
	failed := make(chan error, 3)
	if e.front != nil {
		go func() { failed <- e.front.Serve() }()
	}
	var beside net.Listener
	if e.admin != nil {
		beside = e.admin.entrance.Socket()
		go func() { failed <- e.admin.entrance.Serve() }()
		e.work.Go(e.admin.door.Watch)
	}
	e.work.Go(e.keepTime)
	e.work.Go(e.keepHouse)
	e.work.Go(e.door.Watch)
	e.reloads.mu.Lock()
	e.reloads.begun = true
	e.startDoors(e.live.Load(), nil)
	e.reloads.mu.Unlock()
	e.log.Info("serving", "address", e.Addr(), "admin", e.AdminAddr(), "servers", e.live.Load().names())
	var err error
	replaced, stop := make(chan struct{}), func() {}
	if path := e.settings.HandOver; path != "" {
		// Somebody always listens at the path: the process before leaves when this one
		// does.
		hand := func(rw io.ReadWriter) error {
			e.live.Load().tellSignIns(e.log)
			return e.sessions.HandOver(rw)
		}
		if stop, err = e.door.GiveWay(door.Succession{
			Path: path, Front: e.front, Admin: beside, Hand: hand, Back: e.sessions.TakeBack, Left: func() { close(replaced) }, Work: &e.work,
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

// retreat ends an edge that is not to take the place of the process before it after all.
func retreat(e *Edge) error {
	e.door.Abandon()
	if e.admin != nil {
		e.admin.door.Abandon()
	}
	e.close()
	return e.before.Leave(false)
}

// inherit takes over the sessions of the process before this one. Without them this
// one serves all the same: clients begin new sessions.
func (e *Edge) inherit() {
	if !e.before.HandsSessions() {
		e.log.Warn("the process before this one is of a version that hands over no sessions: clients have to begin new ones")
		return
	}
	if err := e.before.Inherit(e.relay.Node, e.sessions.TakeOver); err != nil {
		e.log.Warn("the sessions of the process before this one were not taken over: clients have to begin new ones", "error", err)
	}
}

// close closes everything that the edge holds.
func (e *Edge) close() {
	e.door.Settle(time.Second)
	e.replicas.Parked.Close()
	e.sessions.Streams.End()
	e.sessions.HandLogs()
	e.sessions.Leave()
	close(e.end)
	e.door.End()
	e.work.Wait()
	e.reloads.mu.Lock()
	defer e.reloads.mu.Unlock()
	e.reloads.over = true
	e.live.Load().close()
	e.world.scripting.Close()
	e.sessions.CloseMail()
	if err := e.world.guests.Close(); err != nil {
		e.log.Warn("the cache of filters cannot be closed", "error", err)
	}
	e.world.memory.Close()
	e.world.cache.Close()
	e.world.http.CloseIdleConnections()
}

// keepTime sets the coarse clocks, and does nothing else, since deadlines depend on them.
// It returns when the edge ends.
func (e *Edge) keepTime() {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-e.end:
			return
		case now := <-tick.C:
			e.tick(now)
		}
	}
}

// tick sets the coarse clocks.
func (e *Edge) tick(now time.Time) {
	e.door.Clock.Tick(now)
	if e.admin != nil {
		e.admin.door.Clock.Tick(now)
	}
}

// keepHouse sends heartbeats, ends old sessions and returns memory, once a second. It
// returns when the edge ends.
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
				e.work.Go(func() { // not here, where heartbeats are due
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
	for _, w := range e.since(now.Add(-session.Heartbeat)) {
		go w.beat(now) // a client that does not read must not hold up the others
	}
	for _, o := range e.sessions.Streams.List() {
		if o.Silent(now) {
			go o.Beat(now)
		}
	}
	e.stays.end()
	e.sessions.Sweep(now)
	e.sessions.Slide(now)
	for _, s := range e.live.Load().servers {
		s.report(now)
	}
}

// hosts returns the servers that are served now, as their sessions see them.
func (e *Edge) hosts() map[string]*session.Host {
	if live := e.live.Load(); live != nil {
		return live.hosts
	}
	return nil
}

// each calls f with every exchange under way; see door.Door.Each.
func (e *Edge) each(f func(*exchange)) {
	e.door.Each(func(c *door.Call) {
		if x, ok := c.Owner.(*exchange); ok { // no mounted handler
			f(x)
		}
	})
}

// since returns the clients of the calls that began before a moment.
func (e *Edge) since(before time.Time) []way {
	var out []way
	e.each(func(x *exchange) {
		if x.Began.Before(before) {
			out = append(out, way{&x.way, x.number})
		}
	})
	return out
}
