// Package backend is the back door: it talks to one MCP server, of either era
// and over any of the HTTP transports, and puts on the wire nothing but the
// call itself.
package backend

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/health"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/wire"
)

// Config is what a backend is told. Sizes are bytes.
type Config struct {
	Name    string
	Digest  string         // tells this configuration from another
	URL     string         // http or https; "" with OverLines
	Local   Local          // a server of this machine, which Close closes; nil for another
	SSE     bool           // the transport is HTTP with SSE (2024-11-05)
	Roots   *x509.CertPool // nil for those of the system
	Private bool           // the URL may stand for a private address

	MaxConns int // connections that may be open at a time; 0 for 1024

	// Credential is what requests carry whose exchange has no other (Exchange.Chosen);
	// nil for nothing.
	Credential *edge.Credential

	// Recovered is called when the backend has answered a call or a probe after
	// one that failed by its fault, not more often than once in a second. It must
	// return soon; nil for nobody.
	Recovered func()

	Done func() // called once, when the backend has been closed; nil for nothing

	// Opened is called when a legacy server has begun a session for a client's;
	// nil for nothing. The call that wanted it waits.
	Opened func(*edge.Session)

	// Over is called when the process of a local server has ended that a client's session
	// had for itself, unless the session or the backend was closed; nil for nothing. It must
	// return soon.
	Over func(*edge.Session)

	Health  health.Config   // Probe, Log and Breaker are the backend's own
	Breaker *health.Breaker // nil for none

	Rest       time.Duration // how long a session that the edge holds for clients without may go unused; 0 for 30 minutes
	Silence    time.Duration // how long the backend may keep silent during a call
	Patient    bool          // a client's call may be silent until Cap
	Cap        time.Duration // how long a call may take whatever happens
	MaxMessage int           // of one answer or event
	Info       []byte        // JSON text: the clientInfo that the edge gives of itself
	Agent      string        // the User-Agent
	Log        *slog.Logger
}

// Backend talks to one MCP server. It is safe for concurrent use.
type Backend struct {
	Config
	peer    *peer         // nil with lined
	lined   OverLines     // Local, where it is; nil else
	listing chan struct{} // has room for the list that a local server is asked for
	served  OverHTTP      // likewise
	monitor *health.Monitor

	bridge bridge
	strays atomic.Int64 // answers that came to others than who asked

	lanes   lanes         // to a local server
	ears    ears          // likewise
	news    news          // likewise
	waiters sync.Pool     // of *waiter, whose timers are of whoever made the backend (synctest)
	numbers atomic.Uint64 // of requests to a local server, and of those of the modern era whose ids would be rounded

	calls, failed atomic.Int64
	spent         atomic.Int64 // nanoseconds of all calls

	ailing    atomic.Bool  // the last that failed by its fault has not been followed by anything good yet
	recovered atomic.Int64 // when that was last told, Unix nanoseconds

	lacked, misread, unread, strayed, fails atomic.Int64 // when it was last logged that a request had no credential, an answer could not be read, what is no message was passed over, what is odd was, and a call to a backend elsewhere failed, Unix nanoseconds

	sureUntil [3]atomic.Int64 // Unix nanoseconds; until then an odd answer, for [1] one that is plainly of the legacy era, for [2] that it refuses a session, is no reason to ask what it speaks

	intro  atomic.Pointer[Introduction]
	away   atomic.Pointer[error] // why there is no introduction; nil when nobody has tried
	asking chan struct{}         // one place: whoever is in it finds the introduction out
	asker  atomic.Pointer[asker] // who that is; nil for nobody

	mu     sync.Mutex
	pool   sessions // for clients that have none
	params paramsOf // headers that tools want

	ownStreams atomic.Int64 // open at a time, of the edge's own sessions

	beside    *errands     // cancellations and answers
	farewells *errands     // the DELETE of sessions
	errand    atomic.Int64 // how many of either have ended

	life context.Context // ends with Close
	end  context.CancelFunc
	work sync.WaitGroup // the goroutines that end with life

	starting sync.Mutex // one that has begun to start one has done so
	closed   bool
}

// Introduction is what a backend said of itself.
type Introduction struct {
	Era          mcp.Era
	SSE          bool   // legacy, over HTTP with SSE
	Version      string // the revision agreed on
	Capabilities []byte // JSON text
	Instructions []byte // JSON text of a string; nil for none
	Info         []byte // JSON text of serverInfo; nil when unknown

	at      time.Time // when it was said
	guessed bool      // modern for want of anything else: it has neither server/discover nor initialize
}

// Status is what is known of a backend at a moment.
type Status struct {
	health.Snapshot
	Name    string
	URL     string // without its query
	Era     string // "legacy", "modern" or "" while unknown
	Version string
}

// Open makes a backend and begins to find out what it speaks. It fails for
// what waiting does not cure; that a backend is down is no such thing.
func Open(c Config) (*Backend, error) {
	u, err := url.Parse(c.URL)
	lined, _ := c.Local.(OverLines)
	served, _ := c.Local.(OverHTTP)
	if lined == nil && (err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https")) {
		return nil, fmt.Errorf("backend %s: %q is not an http or https URL", c.Name, c.URL)
	}
	life, end := context.WithCancel(context.Background())
	b := &Backend{
		Config:  c,
		lined:   lined,
		listing: make(chan struct{}, 1),
		served:  served,
		asking:  make(chan struct{}, 1),
		life:    life,
		end:     end,
		pool:    sessions{sorts: make(map[sort]*sorted)},
	}
	b.Rest = cmp.Or(b.Rest, restDefault)
	if lined == nil {
		pool := wire.New(u, c.Roots, c.Private, c.MaxConns)
		if served != nil {
			pool.Via(b.dialServed)
		}
		b.peer = newPeer(u, pool, &c)
		b.peer.stray = b.stray
		b.peer.missed = func(err error) { b.odd(&b.unread, "what is no message on a stream; passed over", "error", err) }
		b.peer.credentials.taken = b.taken
	}
	b.numbers.Store(startOfNumbers(lined != nil))
	b.beside, b.farewells = newErrands(b, b.most()), newErrands(b, b.most())
	watch := c.Health
	watch.Log, watch.Breaker, watch.Bare = c.Log, c.Breaker, c.Credential == nil || c.Credential.Attach == nil
	watched := make(chan struct{})
	watch.Probe = func(ctx context.Context) error {
		<-watched // the first probe may come before there is a monitor to tell
		err := b.probe(ctx)
		if b.wantsUser(err) {
			err = nil
		}
		b.heard(health.Judge(err), err == nil)
		return err
	}
	b.monitor = health.Watch(watch)
	close(watched)
	b.spawn("introduce", func() {
		if _, err := b.Introduced(life, nil); err != nil && life.Err() == nil && !b.wantsUser(err) {
			b.Log.Warn("backend does not answer", "backend", b.Name, "error", err)
		}
	})
	return b, nil
}

// spawn runs f on a goroutine that Close waits for. What comes after Close is
// not begun; then it reports false.
func (b *Backend) spawn(what string, f func()) bool {
	b.starting.Lock()
	defer b.starting.Unlock()
	if b.closed {
		return false
	}
	b.work.Go(func() {
		defer edge.Contain(b.Log, what)
		f()
	})
	return true
}

// Close ends what the backend holds: its sessions get a DELETE, as many as a
// few seconds allow, and its connections are closed. Calls under way fail.
func (b *Backend) Close() error { return b.close(errandsEnd) }

// CloseNow is Close at the end of the process, which waits for a backend only
// while that answers.
func (b *Backend) CloseNow() error { return b.close(errandsRest) }

// close is Close that gives up what is left to tell the backend when it has
// taken none of it for rest.
func (b *Backend) close(rest time.Duration) error {
	b.closePool()
	b.lanes.close()
	b.starting.Lock()
	again := b.closed
	b.closed = true
	b.starting.Unlock()
	b.end()
	b.monitor.Close()
	told := make(chan struct{})
	go func() { // ends with what is waited for
		b.giveUp(told, rest)
		b.beside.end()
		b.farewells.end()
	}()
	b.work.Wait()
	close(told)
	b.beside.end()
	b.farewells.end()
	if b.peer != nil {
		b.peer.pool.Close()
	}
	if b.Local != nil {
		_ = b.Local.Close() // it says nothing that could be done
	}
	if b.Done != nil && !again {
		b.Done()
	}
	return nil
}

// giveUp waits until everything has been told, or errandsEnd is over, or nothing
// has been told for rest. The rest is counted in ticks that came: a machine that
// did not run this process for a while did not run its errands either.
func (b *Backend) giveUp(told <-chan struct{}, rest time.Duration) {
	const often = 10 * time.Millisecond
	tick := time.NewTicker(often)
	defer tick.Stop()
	began, last, silent := time.Now(), b.errand.Load(), time.Duration(0)
	for {
		select {
		case <-told:
			return
		case <-tick.C:
		}
		silent += often
		if at := b.errand.Load(); at != last {
			last, silent = at, 0
		}
		if silent > rest || time.Since(began) > errandsEnd {
			return
		}
	}
}

// Leave ends what a client's session has with the backend.
func (b *Backend) Leave(client *edge.Session) {
	for _, key := range []any{b, watchKey{b}, laneKey{b}} {
		if c := client.Attached(key); c != nil {
			client.Detach(key, c)
			c.Close()
		}
	}
}

// aWhile is how long an introduction counts as a sign of life.
const aWhile = 2 * time.Second

// probe asks the backend for a sign of life: what it speaks while that is not
// known, else the least that there is to ask. An error of the protocol is a
// sign of life, too.
func (b *Backend) probe(ctx context.Context) error {
	in := b.intro.Load()
	if in == nil {
		// Who has asked for longer than a check may take could wait for an answer that never comes.
		if at := b.asker.Load(); at != nil && b.Local == nil && time.Since(at.began) > b.monitor.Timeout {
			_, err := b.meet(ctx, nil)
			if err == nil {
				at.end()
			}
			return err
		}
		_, err := b.Introduced(ctx, nil)
		return err
	}
	if b.lined != nil {
		return b.lined.Well()
	}
	if b.served != nil { // it is asked when it can be
		if err := b.served.Well(); errors.Is(err, edge.ErrRests) {
			return nil
		} else if err != nil {
			return err
		}
	}
	if time.Since(in.at) < aWhile && !b.ailing.Load() { // else it may be the trial of a circuit
		return nil
	}
	if in.guessed {
		return b.confirm(ctx, in)
	}
	if in.Era == mcp.Modern {
		_, err := b.discover(ctx, nil)
		var r *refusal
		switch {
		case !errors.As(err, &r), r.status == 401, r.status == 403:
			return err
		case r.legacyAccent(), r.lacksMethod():
			return b.introduceAgain(ctx, in)
		case r.modern(), r.code != 0:
			return nil
		}
		return err
	}
	s, err := b.borrow(in, sort{})
	if err != nil {
		return err
	}
	defer b.giveBack(s, false)
	for try := 0; ; try++ {
		l, err := s.link(ctx)
		if err != nil {
			if err = lost(err); errors.Is(err, errEra) {
				return b.introduceAgain(ctx, in)
			}
			return err
		}
		_, _, err = s.roundTrip(ctx, l, "ping", nil)
		var r *refusal
		switch {
		case !errors.As(err, &r), r.status == 401, r.status == 403:
			return err
		case r.lostSession() && !r.modern() && try == 0:
			s.drop(l)
		case r.modern():
			s.odd.Store(true)
			return b.introduceAgain(ctx, in)
		case r.code != 0:
			return nil
		default:
			return err
		}
	}
}

// introduceAgain finds out anew what a backend speaks that does not answer as
// one of its era.
func (b *Backend) introduceAgain(ctx context.Context, in *Introduction) error {
	b.forget(in)
	_, err := b.Introduced(ctx, nil)
	return err
}

// Personal reports whether the backend's credential depends on the user.
func (b *Backend) Personal() bool { return b.Credential != nil && b.Credential.Personal }

// wantsUser reports whether an error of a request of the edge's own says no more than
// that the backend answers to users alone: it lives, then.
func (b *Backend) wantsUser(err error) bool {
	var r *refusal
	return b.Personal() && errors.As(err, &r) && (r.status == 401 || r.status == 403)
}

// on returns the exchange that stands for requests to the backend that belong to none,
// and are for a user; nil for the edge itself.
func (b *Backend) on(who *edge.Identity) *edge.Exchange {
	if who == nil || !b.Personal() {
		return nil
	}
	return &edge.Exchange{Identity: who}
}

// Renew asks the backend anew what it speaks. A local server is started for that where none
// of its processes runs.
func (b *Backend) Renew(ctx context.Context) error {
	b.forget(b.intro.Load())
	_, err := b.Introduced(ctx, nil)
	return err
}

// introduced is told when a backend has said what it speaks.
func (b *Backend) introduced(in *Introduction) {
	b.away.Store(nil)
	b.monitor.Again()
	b.Log.Info("backend introduced itself", "backend", b.Name, "era", in.Era.String(), "version", in.Version, "sse", in.SSE)
}

// Calls returns how many calls there have been, how many of them failed by the
// backend's fault, and how long they took on average.
func (b *Backend) Calls() (all, failed int64, mean time.Duration) {
	all = b.calls.Load()
	if measured := (all + sampled - 1) / sampled; measured > 0 {
		mean = time.Duration(b.spent.Load() / measured)
	}
	return all, b.failed.Load(), mean
}

// Known returns the introduction if there has been one; else nil.
func (b *Backend) Known() *Introduction { return b.intro.Load() }

// forget drops an introduction that a call has proved wrong.
func (b *Backend) forget(in *Introduction) { b.intro.CompareAndSwap(in, nil) }

// Status returns what is known now.
func (b *Backend) Status() Status {
	address, _, _ := strings.Cut(b.URL, "?") // a query may hold a secret
	s := Status{Name: b.Name, URL: address, Snapshot: b.monitor.Snapshot()}
	if b.lined != nil {
		s.URL = "stdio"
	}
	if in := b.intro.Load(); in != nil {
		s.Era, s.Version = in.Era.String(), in.Version
	} else if why := b.away.Load(); why != nil {
		s.Message = b.told(*why) // says more than the health check does
	}
	return s
}

// told is what a status says of an introduction that failed. The text of a local server's error
// has no address of the network.
func (b *Backend) told(err error) string {
	if b.Local != nil {
		return err.Error()
	}
	return health.Told(err)
}

// Collect is edge.Collector.Collect.
func (b *Backend) Collect(m edge.Emitter) {
	now := b.Status()
	up := 0.0
	if is := now.Is(); is == health.Ready || is == health.Degraded {
		up = 1
	}
	m.Gauge("weir_backend_up", "1 while the backend answers.", up)
	m.Gauge("weir_backend_failed_checks", "Health checks that failed in a row.", float64(now.Failures))
	open := 0.0
	switch now.Circuit {
	case health.Open:
		open = 1
	case health.HalfOpen:
		open = 0.5
	}
	m.Gauge("weir_backend_circuit_open", "1 while the circuit is open, 0.5 while it is half open.", open)
	calls, failed, mean := b.Calls()
	m.Counter("weir_backend_calls", "Calls to the backend.", float64(calls))
	m.Counter("weir_backend_calls_failed", "Calls that failed by the backend's fault.", float64(failed))
	m.Counter("weir_backend_stray_answers", "Answers that came to others than who asked.", float64(b.strays.Load()))
	m.Gauge("weir_backend_latency_seconds", "Time that calls took on average.", mean.Seconds())
	if b.Local != nil {
		b.Local.Collect(m)
	}
}

// errEra says that the backend is not of the era that it was taken for, and
// that it did not run what it was sent.
var errEra = errors.New("the backend speaks another era of the protocol")

// sampled is how many calls one stands for whose time is taken.
const sampled = 8

// Handle sends the message of x to the backend and returns the answer in the
// era of the client. The backend's questions and notifications go to x.Client.
func (b *Backend) Handle(ctx context.Context, x *edge.Exchange) (*edge.Response, error) {
	pass, err := b.allow(x)
	if err != nil {
		return nil, err
	}
	// To ask for the time costs as much as parsing a header: one call of several
	// stands for the others.
	var began time.Time
	if measured := b.calls.Add(1)%sampled == 1; measured {
		began = time.Now()
	}
	if b.served != nil {
		defer b.served.Call()()
	}
	r, err := b.handle(ctx, x)
	outcome := health.Judge(err)
	if outcome == health.Failure {
		b.failed.Add(1)
		if b.lined != nil && !b.lined.Shared() && ownerOf(x.Identity) != "" && b.lined.Well() == nil {
			outcome = health.Neutral // what this principal alone has failed: nobody else's calls are to be refused for that
		}
	}
	pass.Done(outcome)
	if !began.IsZero() {
		b.spent.Add(int64(time.Since(began)))
	}
	if outcome == health.Failure || b.ailing.Load() {
		b.heard(outcome, false)
	}
	if err != nil {
		return nil, b.named(err, true)
	}
	return r, nil
}

// recoveredEvery is the least time between two tellings that the backend is well
// again: one that fails now and then must not be asked for everything each time.
const recoveredEvery = time.Second

// WantsUser reports whether an error of Introduced says no more than that the backend answers to
// users alone.
func (b *Backend) WantsUser(err error) bool { return b.wantsUser(err) }

// heard notes how a call or a probe ended. The first that is good after one that
// was not is worth a look at everything that was given up meanwhile; checked says
// that it was such a look.
func (b *Backend) heard(outcome health.Outcome, checked bool) {
	switch outcome {
	case health.Failure:
		b.ailing.Store(true)
	case health.Success:
		if !b.ailing.Load() {
			return
		}
		if !due(&b.recovered, recoveredEvery) {
			return // the next good one tells
		}
		b.ailing.Store(false)
		if !checked {
			b.monitor.Again()
		}
		if b.Recovered != nil {
			b.Recovered()
		}
	}
}

// due reports whether so long has passed since the moment at, Unix nanoseconds, which is now from
// here on; also where the clock was set back.
func due(at *atomic.Int64, every time.Duration) bool {
	last, now := at.Load(), time.Now().UnixNano()
	return (now < last || now-last >= int64(every)) && at.CompareAndSwap(last, now)
}

// odd logs what a backend sent that it should not: now and then, since it may be very much.
func (b *Backend) odd(at *atomic.Int64, what, key string, value any) {
	if due(at, time.Minute) {
		b.Log.Warn("backend sent "+what, "backend", b.Name, key, value)
	}
}

func (b *Backend) handle(ctx context.Context, x *edge.Exchange) (*edge.Response, error) {
	for try := 0; ; try++ {
		in, err := b.Introduced(ctx, x.Identity)
		if err != nil {
			return nil, err
		}
		var r *edge.Response
		if in.Era == mcp.Modern {
			r, err = b.toModern(ctx, x, in)
		} else {
			r, err = b.toLegacy(ctx, x, in)
		}
		switch {
		case err == nil && r != nil && r.Kind == mcp.Failure && !mcp.SafePages(&r.Message):
			return nil, edge.Errorf(edge.Unavailable, "call", "the backend asks to open a URL that is not a web page")
		case err == nil:
			return r, nil
		case errors.Is(err, errEra) && b.asksAnew(try):
			b.forget(in)
			continue
		}
		odd := doubtOf(err)
		if odd == nil {
			return r, err
		}
		if try == 0 && b.changed(ctx, x.Identity, in, odd.plain) && odd.unrun {
			continue
		}
		if odd.answer != nil && x.Era == mcp.Legacy {
			odd.answer.Status = 200
		}
		return odd.answer, odd.err
	}
}
