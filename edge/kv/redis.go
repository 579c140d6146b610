package kv

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/weir-edge/weir/edge"
)

// Mode is how a Redis is laid out.
type Mode uint8

// The layouts of a Redis.
const (
	Standalone Mode = iota // one server
	Cluster                // the seeds of a cluster
	Sentinel               // sentinels, which know the master of a name
)

// Options say which Redis and how to use it. What is zero has its default.
type Options struct {
	Mode      Mode
	Addresses []string // host:port; one of a server, some of a cluster, or sentinels
	Master    string   // the name under which sentinels know the master

	User     string // of an access control list; "" for the default user
	Password edge.Secret
	DB       int // not in a cluster

	SentinelUser     string
	SentinelPassword edge.Secret

	// KeyPrefix stands before every key, and before the "weir:" that every key
	// has.
	KeyPrefix string

	TLS        bool   // also on when CA is given
	CA         []byte // PEM of the authorities that are trusted; nil for those of the system
	ServerName string // in the certificate; "" for the host of the address

	// Timeout bounds one call, with the wait for a connection; 50 ms. A store
	// that takes longer is as good as away.
	Timeout time.Duration

	// Dial bounds how long a new connection may take; 1 s. Calls do not wait
	// longer than Timeout for it.
	Dial time.Duration

	Pool     int // connections to one server; 64
	Failures int // in a row that open the breaker; 5
	Value    int // bytes of one value or message; 17 MiB
	Box      int // messages of one box; 1,024
	BoxBytes int // bytes of the messages of one box; 64 MiB

	Log *slog.Logger // of the store's coming and going; nil for none
}

// When the store is asked whether it is there.
const (
	probeFirst = 50 * time.Millisecond  // after the breaker opened
	probeLast  = 500 * time.Millisecond // the longest wait, to which the first one doubles
	probeIdle  = 5 * time.Second        // while nobody else asks
	probeWait  = time.Second            // for the answer, with a new connection
)

// slowest is how much longer than others a call may take that moves much.
const slowest = time.Second

// errAway is why a call is refused while the breaker is open. Why it opened is
// in State and in the log.
var errAway = errors.New("the store was away when it was last asked")

// RedisStore is a store that all replicas of an edge share. It connects when
// it is needed and finds a store again that was away.
type RedisStore struct {
	options Options
	prefix  string
	client  redis.UniversalClient
	scripts scripts
	breaker *breaker
	turns   turns
	ears    *ears

	calls, failures, timeouts, refused, busy atomic.Uint64
	corrupt, full, expired                   atomic.Uint64

	end  context.Context // over when the store is closed
	stop context.CancelFunc
	work sync.WaitGroup
}

// Redis returns a store in a Redis. It fails for options that no Redis could
// make right, such as an address without a port, and never because a Redis is
// away: Ready says whether it is there. Close ends its goroutines.
func Redis(o Options) (*RedisStore, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	o.Timeout, o.Dial = or(o.Timeout, 50*time.Millisecond), or(o.Dial, time.Second)
	o.Pool, o.Failures = or(o.Pool, 64), or(o.Failures, 5)
	o.Value, o.Box, o.BoxBytes = or(o.Value, defaultValueBytes), or(o.Box, defaultBoxMessages), or(o.BoxBytes, 64<<20)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	config, err := o.tls()
	if err != nil {
		return nil, err
	}
	// The library would write what goes wrong to stderr, line by line. The
	// store says it once, in the log of the edge.
	logging.Disable()
	s := &RedisStore{
		options: o,
		prefix:  o.KeyPrefix + "weir:",
		client:  o.client(config),
		scripts: newScripts(),
		breaker: newBreaker(o.Failures),
	}
	s.end, s.stop = context.WithCancel(context.Background())
	s.ears = newEars(s)
	s.work.Go(s.probe)
	return s, nil
}

// check refuses what no Redis could make right.
func (o *Options) check() error {
	if len(o.Addresses) == 0 {
		return errors.New("redis: an address is required")
	}
	for _, a := range o.Addresses {
		host, port, err := net.SplitHostPort(a)
		if err != nil {
			return fmt.Errorf("redis: address %q: must be host:port", a)
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || host == "" {
			return fmt.Errorf("redis: address %q: must be host:port, with a port from 1 to 65535", a)
		}
	}
	switch {
	case o.Mode == Standalone && len(o.Addresses) > 1:
		return errors.New("redis: one server has one address")
	case o.Mode == Sentinel && o.Master == "":
		return errors.New("redis: sentinels need the name of the master")
	case o.Mode == Cluster && o.DB != 0:
		return errors.New("redis: a cluster has no database but 0")
	case o.DB < 0:
		return errors.New("redis: the number of a database is not below 0")
	}
	if err := CheckKeyPrefix(o.KeyPrefix); err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	return nil
}

// CheckKeyPrefix refuses what cannot stand before every key.
func CheckKeyPrefix(prefix string) error {
	switch {
	case len(prefix) > 256:
		return errors.New("a key prefix has at most 256 bytes")
	case strings.ContainsAny(prefix, "{}"):
		return errors.New("a key prefix has no braces: they say where in a cluster a key lies")
	}
	return nil
}

func (o *Options) tls() (*tls.Config, error) {
	if !o.TLS && len(o.CA) == 0 {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: o.ServerName}
	if len(o.CA) > 0 {
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(o.CA) {
			return nil, errors.New("redis: the CA bundle has no certificate in PEM")
		}
	}
	return c, nil
}

// client makes the client. It connects to nothing yet. No call is retried by a
// client of one server: who calls has a deadline, and knows better.
func (o *Options) client(config *tls.Config) redis.UniversalClient {
	u := &redis.UniversalOptions{
		Addrs: o.Addresses, MasterName: o.Master, DB: o.DB,
		Username: o.User, Password: string(o.Password),
		SentinelUsername: o.SentinelUser, SentinelPassword: string(o.SentinelPassword),
		Protocol: 2, DisableIdentity: true,
		ContextTimeoutEnabled: true, MaxRetries: -1, MaxRedirects: 3,
		MinRetryBackoff: time.Millisecond, MaxRetryBackoff: 8 * time.Millisecond,
		DialTimeout: o.Dial, DialerRetries: 1,
		// Each call has a deadline of its own, which is earlier.
		ReadTimeout: o.Timeout + slowest, WriteTimeout: o.Timeout + slowest,
		// A call that finds no connection says so before its deadline says
		// that the store was silent.
		PoolTimeout: o.Timeout * 9 / 10, PoolSize: o.Pool, PipelinePoolSize: -1,
		ConnMaxIdleTime: 5 * time.Minute,
		ReadBufferSize:  4 << 10, WriteBufferSize: 4 << 10,
		TLSConfig: config,
	}
	switch o.Mode {
	case Cluster:
		return redis.NewClusterClient(u.Cluster())
	case Sentinel:
		return redis.NewFailoverClient(u.Failover())
	}
	return redis.NewClient(u.Simple())
}

// Close ends the store and what it does in the background.
func (s *RedisStore) Close() error {
	s.stop()
	s.ears.close()
	s.work.Wait()
	if err := s.client.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
		return fmt.Errorf("redis: close: %w", err)
	}
	return nil
}

// State is what a store knows of the Redis behind it.
type State struct {
	Ready bool
	Open  bool      // the breaker is open: calls fail at once
	Since time.Time // of the breaker's state
	Err   error     // what is wrong; nil when nothing is known to be
}

// State returns what the store knows.
func (s *RedisStore) State() State {
	open, since, cause := s.breaker.state()
	return State{Ready: !open && s.breaker.heard.Load() != 0, Open: open, Since: since, Err: cause}
}

// Away reports whether the Redis is known to be away: calls fail at once. It
// costs next to nothing.
func (s *RedisStore) Away() bool { return !s.breaker.allows() }

// Ready returns nil when the Redis has answered and is not known to be away,
// else what is wrong, for an operator: it names addresses and never a secret.
func (s *RedisStore) Ready() error {
	st := s.State()
	switch {
	case st.Ready:
		return nil
	case st.Err != nil:
		return fmt.Errorf("redis: %w", st.Err)
	}
	return errors.New("redis: has not answered yet")
}

// Counters returns what the store has counted.
func (s *RedisStore) Counters() Counters {
	return Counters{
		Calls: s.calls.Load(), Failures: s.failures.Load(), Timeouts: s.timeouts.Load(), Refused: s.refused.Load(),
		Busy: s.busy.Load(), Opened: s.breaker.opened.Load(), Corrupt: s.corrupt.Load(), Full: s.full.Load(), Expired: s.expired.Load(),
	}
}

// key is a key as the Redis has it.
func (s *RedisStore) key(k string) string { return s.prefix + k }

// do asks the store within its deadline, unless the breaker is open. What f
// returns says whether the store served the call; a value that is not there
// is served.
func (s *RedisStore) do(ctx context.Context, op string, f func(context.Context) error) error {
	return s.doFor(ctx, op, 0, f)
}

// perSecond is how many bytes of a large value go over the network in a second,
// at least.
const perSecond = 32 << 20

// doFor is do for a call that moves so many bytes, which takes its time.
func (s *RedisStore) doFor(ctx context.Context, op string, bytes int, f func(context.Context) error) error {
	if !s.breaker.allows() {
		s.refused.Add(1)
		return fail(op, errAway)
	}
	s.calls.Add(1)
	within, cancel := context.WithTimeout(ctx, s.options.Timeout+time.Duration(bytes)*time.Second/perSecond)
	defer cancel()
	err := f(within)
	if err == nil || errors.Is(err, redis.Nil) {
		s.breaker.answered()
		return nil
	}
	if over := ended(ctx); over != nil {
		return fail(op, over)
	}
	s.failures.Add(1)
	if errors.Is(err, redis.ErrPoolTimeout) {
		s.busy.Add(1)
		return fail(op, errors.New("no connection is free"))
	}
	if isTimeout(err) {
		s.timeouts.Add(1)
	}
	away := isAway(err)
	err = tell(err)
	if away {
		s.failed(err)
	}
	return fail(op, err)
}

// ended returns why a caller does not wait any more, nil when he does. His
// connection may notice that his time is over before his context does.
func ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if by, ok := ctx.Deadline(); ok && !time.Now().Before(by) {
		return context.DeadlineExceeded
	}
	return nil
}

func (s *RedisStore) failed(err error) {
	if s.breaker.failed(err) {
		s.options.Log.Warn("the store is away", "addresses", s.options.Addresses, "err", err)
	}
}

// probe asks the store whether it is there: at the start, while the breaker is
// open, and now and then while nobody else asks. It ends with the store.
func (s *RedisStore) probe() {
	defer edge.Contain(s.options.Log, "store probe")
	wait, timer := time.Duration(0), time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-s.end.Done():
			return
		case <-s.breaker.tripped:
			wait = probeFirst
			timer.Reset(wait)
			continue
		case <-timer.C:
		}
		quiet := time.Since(time.Unix(0, s.breaker.heard.Load()))
		if s.breaker.allows() && quiet < probeIdle {
			timer.Reset(probeIdle - quiet)
			continue
		}
		if err := s.knock(); err != nil {
			if s.end.Err() == nil {
				s.failed(err)
			}
			// Not all at once: every replica asks.
			wait = min(max(2*wait, probeFirst), probeLast)
			timer.Reset(wait - rand.N(wait/4))
			continue
		}
		if was := s.breaker.mend(); was > 0 {
			s.options.Log.Info("the store is back", "addresses", s.options.Addresses, "away", was.Round(time.Millisecond))
		}
		wait = 0
		timer.Reset(probeIdle)
	}
}

// knock asks the store for what calls need: an answer on a connection that may
// be new, and then that it takes a value as fast as a call needs it.
func (s *RedisStore) knock() error {
	key := s.key("probe:" + strconv.Itoa(rand.IntN(16)))
	for _, within := range []time.Duration{max(probeWait, s.options.Timeout), s.options.Timeout} {
		ctx, cancel := context.WithTimeout(s.end, within)
		err := s.client.Set(ctx, key, "1", 10*time.Second).Err()
		cancel()
		if err != nil {
			return tell(err)
		}
	}
	return nil
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &n) && n.Timeout()
}

// tell makes an error for an operator. What the Redis itself said is cut to its
// first word, since some of its errors repeat what they were sent.
func tell(err error) error {
	var said redis.Error
	switch {
	case isTimeout(err):
		return errors.New("no answer in time")
	case errors.Is(err, io.EOF):
		return errors.New("the connection was closed")
	case !errors.As(err, &said):
		return err
	}
	word, _, _ := strings.Cut(said.Error(), " ")
	if strings.HasPrefix(word, "redis:") { // of the library
		return err
	}
	return fmt.Errorf("%s: %s", word, meaning(word))
}

// isAway reports whether an error says that the Redis serves nobody, and not
// only that it did not do this.
func isAway(err error) bool {
	var said redis.Error
	if !errors.As(err, &said) {
		return !errors.Is(err, errReply)
	}
	word, _, _ := strings.Cut(said.Error(), " ")
	return meaning(word) != refused || strings.HasPrefix(said.Error(), "ERR max number of clients")
}

// refused is the meaning of what has none of its own.
const refused = "refused"

// meaning says what to do about what a Redis says.
func meaning(word string) string {
	switch word {
	case "WRONGPASS":
		return "the user or the password is wrong"
	case "NOAUTH":
		return "a password is needed"
	case "NOPERM":
		return "the user may not do what Weir needs: the keys and channels that begin with the prefix, and the commands of the README"
	case "READONLY":
		return "a replica that takes no values"
	case "OOM":
		return "out of memory"
	case "LOADING":
		return "still loading its data"
	case "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN":
		return "no master to ask"
	case "MOVED", "ASK", "CROSSSLOT":
		return "part of a cluster, and asked like one server"
	case "MISCONF":
		return "cannot save to its disk"
	case "BUSY":
		return "busy with a script"
	}
	return refused
}

// turns lets one caller at a time change a key, so that callers of one edge do
// not fight each other for it, only those of different edges do.
type turns struct {
	mu   sync.Mutex
	keys map[string]*turn
}

type turn struct {
	busy    chan struct{} // holds one
	waiting int
}

// wait waits for the turn of a key; pass passes it on.
func (t *turns) wait(ctx context.Context, key string) (pass func(), err error) {
	t.mu.Lock()
	if t.keys == nil {
		t.keys = map[string]*turn{}
	}
	k := t.keys[key]
	if k == nil {
		k = &turn{busy: make(chan struct{}, 1)}
		t.keys[key] = k
	}
	k.waiting++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if k.waiting--; k.waiting == 0 {
			delete(t.keys, key)
		}
	}
	select {
	case k.busy <- struct{}{}:
		return func() { <-k.busy; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
