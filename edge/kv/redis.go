package kv

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
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
	Beside     []byte // PEM of more that are trusted, where there is TLS; nil for none
	ServerName string // in the certificate; "" for the host of the address
	Insecure   bool   // with TLS any certificate is taken: whoever is in between can read and change everything

	// Sentinels is how sentinels are spoken to; nil for as the servers are.
	Sentinels *TLS

	// Timeout bounds one call, with the wait for a connection; 50 ms. A store
	// that takes longer is as good as away.
	Timeout time.Duration

	// Dial bounds how long a new connection may take; 1 s. Calls do not wait
	// longer than Timeout for it.
	Dial time.Duration

	// Read and Write bound one read of an answer, and one write of a call; 0 for
	// the time of the call and a second.
	Read, Write time.Duration

	Pool     int // connections to one server; 64
	Failures int // in a row that open the breaker; 5
	Value    int // bytes of one value or message; 17 MiB
	Box      int // messages of one box; 1,024
	BoxBytes int // bytes of the messages of one box; 64 MiB

	Log *slog.Logger // of the store's coming and going; nil for none
}

// TLS is how one kind of peers is spoken to.
type TLS struct {
	On       bool   // else in plain text
	CA       []byte // PEM of the authorities that are trusted; nil for those of the system
	Insecure bool   // any certificate is taken
}

// When the store is asked whether it is there.
const (
	probeFirst = 50 * time.Millisecond  // after the breaker opened
	probeLast  = 500 * time.Millisecond // the longest wait, to which the first one doubles
	probeIdle  = 5 * time.Second        // while it is there
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
	door    *door
	scripts scripts
	breaker *breaker
	turns   turns
	ears    *ears
	large   chan struct{} // holds one for each call under way that moves much
	takings takings

	calls, failures, timeouts, refused, busy atomic.Uint64
	corrupt, full, expired                   atomic.Uint64
	lastVouched                              atomic.Int64 // Unix nanoseconds

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
	config, err := (&TLS{o.TLS || len(o.CA) > 0, o.CA, o.Insecure}).config(&o)
	if err != nil {
		return nil, err
	}
	sentinels := config
	if o.Sentinels != nil {
		if sentinels, err = o.Sentinels.config(&o); err != nil {
			return nil, fmt.Errorf("sentinels: %w", err)
		}
	}
	// The library would write what goes wrong to stderr, line by line. The
	// store says it once, in the log of the edge.
	logging.Disable()
	s := &RedisStore{
		options: o,
		prefix:  o.KeyPrefix + "weir:",
		scripts: newScripts(),
		breaker: newBreaker(o.Failures),
		large:   make(chan struct{}, max(1, o.Pool/8)),
	}
	s.door = newDoor(&s.options, config, sentinels)
	s.client = s.door.client()
	s.takings.begin()
	s.end, s.stop = context.WithCancel(context.Background())
	s.ears = newEars(s)
	s.work.Go(s.probe)
	s.work.Go(s.settle)
	if o.Mode == Sentinel {
		s.work.Go(func() {
			defer edge.Contain(o.Log, "store sentinels")
			s.door.follow(s.end)
		})
	}
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

// config is the configuration of TLS; nil for none.
func (t *TLS) config(o *Options) (*tls.Config, error) {
	if !t.On {
		return nil, nil
	}
	roots, err := edge.Roots(t.CA, o.Beside)
	if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, ServerName: o.ServerName, RootCAs: roots, InsecureSkipVerify: t.Insecure}, nil
}

// Close ends the store and what it does in the background.
func (s *RedisStore) Close() error {
	s.stop()
	s.ears.close()
	s.work.Wait()
	defer s.door.close()
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
	Deaf  error     // why messages are only found by looking; nil when they are not
}

// State returns what the store knows.
func (s *RedisStore) State() State {
	open, since, cause := s.breaker.state()
	return State{Ready: !open && s.breaker.heard.Load() != 0, Open: open, Since: since, Err: cause, Deaf: s.ears.deafness()}
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

// largeBytes is how much a call moves at most without being a large one.
const largeBytes = 64 << 10

// doLarge is doFor for what others choose the size of: of large calls a few are
// under way at a time, so that small ones find a connection.
func (s *RedisStore) doLarge(ctx context.Context, op string, bytes int, f func(context.Context) error) error {
	if bytes <= largeBytes {
		return s.doFor(ctx, op, bytes, f)
	}
	if !s.breaker.allows() {
		s.refused.Add(1)
		return fail(op, errAway)
	}
	timer := time.NewTimer(s.within(bytes))
	defer timer.Stop()
	select {
	case s.large <- struct{}{}:
		defer func() { <-s.large }()
	case <-ctx.Done():
		return fail(op, ctx.Err())
	case <-timer.C:
		s.busy.Add(1)
		return fail(op, errors.New("as many large calls are under way as may"))
	}
	return s.doFor(ctx, op, bytes, f)
}

// within is the time of a call that moves so many bytes.
func (s *RedisStore) within(bytes int) time.Duration {
	return s.options.Timeout + time.Duration(bytes)*time.Second/perSecond
}

// doFor is do for a call that moves so many bytes, which takes its time. That a
// large one took longer says nothing about the store.
func (s *RedisStore) doFor(ctx context.Context, op string, bytes int, f func(context.Context) error) error {
	if !s.breaker.allows() {
		s.refused.Add(1)
		return fail(op, errAway)
	}
	s.calls.Add(1)
	within, cancel := context.WithTimeout(ctx, s.within(bytes))
	defer cancel()
	err := contained(within, f)
	if err == nil {
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
	if errors.Is(err, errCrowded) {
		s.busy.Add(1)
		return fail(op, errCrowded)
	}
	if isTimeout(err) {
		s.timeouts.Add(1)
	}
	lasts, slow := isLasting(err), bytes > largeBytes && isTimeout(err)
	if err = tell(err); !slow {
		s.failed(err, lasts)
	}
	return fail(op, err)
}

// contained asks the store, and takes a panic of the client library, which
// answers of a strange shape may cause, for such an answer. Nil is no answer to
// anything that the store is asked.
func contained(ctx context.Context, f func(context.Context) error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = errReply
		}
	}()
	if err = f(ctx); errors.Is(err, redis.Nil) {
		err = errReply
	}
	return err
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

// failed notes a call that the store did not serve. What lasts opens the
// breaker at once.
func (s *RedisStore) failed(err error, lasts bool) {
	if s.breaker.failed(err, lasts) {
		s.options.Log.Warn("the store is away", "addresses", s.options.Addresses, "err", err)
	}
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
