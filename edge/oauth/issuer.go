package oauth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// IssuerOptions say whose keys are kept, and for how long.
type IssuerOptions struct {
	Issuer  string // exact
	JWKSURL string // named by the operator; discovered when empty

	// TokenFile holds a bearer token for discovery and keys; empty for none. It
	// is read for each fetch, and sent to the hosts of Issuer and JWKSURL alone.
	TokenFile string

	Client *Client
	Log    *slog.Logger

	Interval time.Duration // between fetches that unknown keys may ask for; 0 for 30 s
	Refresh  time.Duration // between fetches that nobody asks for; 0 for 5 min
	MaxStale time.Duration // how long keys serve without being seen again; 0 for 1 h
	Wait     time.Duration // how long a token may wait for its key; 0 for 2 s
}

// Bounds of an issuer that can be changed by nobody.
const (
	maxWaiting   = 256 // tokens that wait for a fetch at once
	rediscover   = time.Hour
	firstRetry   = 250 * time.Millisecond
	bareRetry    = 2 * time.Second  // the longest while there is no key at all
	servedRetry  = 30 * time.Second // the longest while the last good keys serve
	maxTokenFile = 64 << 10
)

// NoKeysError says that an issuer's keys are not known, or were last seen too
// long ago.
type NoKeysError struct {
	Issuer string
	Stale  bool // they were known once
}

func (e *NoKeysError) Error() string {
	if e.Stale {
		return "the keys of " + e.Issuer + " were not seen for too long"
	}
	return "the keys of " + e.Issuer + " are not known yet"
}

// UnknownKeyError says that a token names a key that its issuer does not have.
type UnknownKeyError struct{ Issuer string }

func (e *UnknownKeyError) Error() string { return "the token names no key of " + e.Issuer }

// Issuer keeps the keys of one issuer fresh. One goroutine fetches, on a clock
// of its own; tokens with unknown keys can make it fetch once in an Interval and
// no more often. While the issuer is away the last good keys serve up to
// MaxStale. It is safe for concurrent use.
type Issuer struct {
	options IssuerOptions
	held    atomic.Pointer[held]
	meta    atomic.Pointer[Metadata]
	asked   chan struct{} // holds one
	asking  atomic.Bool   // somebody has asked since the last fetch: one ask is as good as many, and wakes Run once
	waiting atomic.Int32
	fetches atomic.Uint64
	failed  atomic.Uint64

	telling sync.Mutex     // held while logs is used; taken after mu
	logs    []*slog.Logger // of all who ask for the issuer

	mu    sync.Mutex
	next  time.Time     // when the next fetch may be asked for
	busy  bool          // a fetch is under way
	tried chan struct{} // closed at the end of the next fetch
	last  error         // of the last fetch
	found time.Time     // when meta was
}

// held are keys and when they were last seen. The pointer is new for each
// fetch; Generation counts changes of the keys alone.
type held struct {
	keys       *KeySet
	seen       time.Time
	generation uint64
}

// NewIssuer returns an issuer that knows no keys until Run runs.
func NewIssuer(o IssuerOptions) *Issuer {
	for _, d := range []struct {
		to *time.Duration
		by time.Duration
	}{{&o.Interval, 30 * time.Second}, {&o.Refresh, 5 * time.Minute}, {&o.MaxStale, time.Hour}, {&o.Wait, 2 * time.Second}} {
		if *d.to <= 0 {
			*d.to = d.by
		}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Issuer{options: o, logs: []*slog.Logger{o.Log}, asked: make(chan struct{}, 1), tried: make(chan struct{})}
}

// alsoTell has one more log written into; nil for none.
func (i *Issuer) alsoTell(log *slog.Logger) {
	if log != nil {
		i.telling.Lock()
		defer i.telling.Unlock()
		i.logs = append(i.logs, log)
	}
}

// tellNoMore takes a log back, once.
func (i *Issuer) tellNoMore(log *slog.Logger) {
	i.telling.Lock()
	defer i.telling.Unlock()
	if at := slices.Index(i.logs, log); at >= 0 {
		i.logs = slices.Delete(i.logs, at, at+1)
	}
}

// tell writes into the logs.
func (i *Issuer) tell(level slog.Level, message string, args ...any) {
	i.telling.Lock()
	logs := slices.Clone(i.logs)
	i.telling.Unlock()
	for _, log := range logs {
		log.Log(context.Background(), level, message, append([]any{"issuer", i.options.Issuer}, args...)...)
	}
}

// Name is the issuer's name, as its tokens give it.
func (i *Issuer) Name() string { return i.options.Issuer }

// Run fetches until ctx ends.
func (i *Issuer) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	due := time.Now()
	at := func(when time.Time) {
		due = when
		timer.Reset(time.Until(when))
	}
	retry := firstRetry
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-i.asked:
			i.mu.Lock()
			next := i.next
			i.mu.Unlock()
			if time.Until(next) > 0 { // too early: what is due is not put off by it
				if next.Before(due) {
					at(next)
				}
				continue
			}
		}
		err := i.fetch(ctx)
		select {
		case <-i.asked: // before its end, and so answered by it
		default:
		}
		i.asking.Store(false) // after that, so that no ask is lost in between
		if err == nil {
			retry = firstRetry
			at(time.Now().Add(i.options.Refresh))
			continue
		}
		at(time.Now().Add(retry))
		limit := servedRetry
		if _, err := i.Keys(); err != nil {
			limit = bareRetry
		}
		retry = min(2*retry, limit)
	}
}

// fetch fetches the keys once and keeps what it learns.
func (i *Issuer) fetch(ctx context.Context) error {
	i.mu.Lock()
	i.busy = true
	i.next = time.Now().Add(i.options.Interval)
	i.mu.Unlock()

	keys, err := i.get(ctx)
	if err == nil {
		now, old := &held{keys: keys, seen: time.Now()}, i.held.Load()
		if old != nil {
			now.generation = old.generation
			if !old.keys.Same(keys) {
				now.generation++
			}
		}
		i.held.Store(now)
		if len(keys.Ignored) > 0 && (old == nil || !slices.Equal(old.keys.Ignored, keys.Ignored)) {
			i.tell(slog.LevelInfo, "keys of issuer left out", "why", strings.Join(keys.Ignored, "; "))
		}
	} else if ctx.Err() == nil {
		i.failed.Add(1)
		i.tell(slog.LevelWarn, "keys of issuer not fetched", "error", err)
	}

	i.mu.Lock()
	defer i.mu.Unlock()
	recovered := i.last != nil && err == nil
	i.busy, i.last = false, err
	close(i.tried)
	i.tried = make(chan struct{})
	if recovered {
		i.tell(slog.LevelInfo, "keys of issuer fetched again")
	}
	return err
}

// get asks where the keys are, when nobody said it, and gets them. A fault of
// what reads a stranger's document costs one fetch.
func (i *Issuer) get(ctx context.Context) (keys *KeySet, err error) {
	defer func() {
		if r := recover(); r != nil {
			keys, err = nil, fmt.Errorf("panic: %v", r)
		}
	}()
	where, err := i.place(ctx)
	if err != nil {
		return nil, err
	}
	header, err := i.header(where)
	if err != nil {
		return nil, err
	}
	header.Set("Accept", keysMediaType)
	i.fetches.Add(1)
	// Private addresses are allowed by a flag, whoever names the URL
	// (MCPOIDCConfig jwksAllowPrivateIP).
	answer, err := i.options.Client.Do(ctx, Request{URL: where, Trust: Learned, Header: header, Redirects: 3})
	switch {
	case err != nil:
		return nil, err
	case answer.Status != http.StatusOK:
		return nil, fmt.Errorf("GET %s: status %d", place(where), answer.Status)
	}
	if keys, err = ParseKeys(answer.Body); err != nil {
		return nil, fmt.Errorf("GET %s: %w", place(where), err)
	}
	return keys, nil
}

// place is where the keys are. Metadata are fetched anew after a failure and
// now and then, since issuers move.
func (i *Issuer) place(ctx context.Context) (string, error) {
	if i.options.JWKSURL != "" {
		return i.options.JWKSURL, nil
	}
	m := i.meta.Load()
	i.mu.Lock()
	fresh := m != nil && i.last == nil && time.Since(i.found) < rediscover
	i.mu.Unlock()
	if !fresh {
		header, err := i.header(i.options.Issuer)
		if err != nil {
			return "", err
		}
		if m, err = i.options.Client.Discover(ctx, i.options.Issuer, Learned, header); err != nil {
			return "", err
		}
		i.meta.Store(m)
		i.mu.Lock()
		i.found = time.Now()
		i.mu.Unlock()
	}
	if m.JWKSURI == "" {
		return "", errors.New("the issuer's metadata name no jwks_uri")
	}
	return m.JWKSURI, nil
}

// header holds the bearer token for a URL, when there is one and the URL is of
// a host that the operator named.
func (i *Issuer) header(where string) (http.Header, error) {
	h := http.Header{}
	if i.options.TokenFile == "" {
		return h, nil
	}
	named := i.options.JWKSURL
	if named == "" {
		named = i.options.Issuer
	}
	if !SameOrigin(where, named) {
		return h, nil
	}
	token, err := readToken(i.options.TokenFile)
	if err != nil {
		return nil, err
	}
	h.Set("Authorization", "Bearer "+token)
	return h, nil
}

// SameOrigin reports whether two URLs have one scheme, host and port (RFC 6454 §4).
func SameOrigin(a, b string) bool {
	u, errA := ParseURL(a, true)
	v, errB := ParseURL(b, true)
	return errA == nil && errB == nil && u.Scheme == v.Scheme && strings.EqualFold(u.Hostname(), v.Hostname()) && portOf(u) == portOf(v)
}

// portOf is the port that a URL leads to.
func portOf(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	if u.Scheme == "https" {
		return "443"
	}
	return "80"
}

func readToken(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("bearer token file: %w", err)
	}
	if info.Size() > maxTokenFile {
		return "", errors.New("bearer token file: it is too large")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("bearer token file: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if !IsBearer(token) {
		return "", errors.New("bearer token file: it holds no token")
	}
	return token, nil
}

// IsBearer reports whether text can be a bearer token (b64token, RFC 6750 §2.1).
func IsBearer(text string) bool {
	body := strings.TrimRight(text, "=")
	if body == "" {
		return false
	}
	for i := range len(body) {
		switch c := body[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '-', c == '.', c == '_', c == '~', c == '+', c == '/':
		default:
			return false
		}
	}
	return true
}

// Snapshot is what is known of an issuer's keys at one moment.
type Snapshot struct {
	Keys       *KeySet
	Generation uint64 // differs when keys were added, taken away or changed
}

// Keys returns the keys that are known and not stale. The error is a
// *NoKeysError. It never waits.
func (i *Issuer) Keys() (Snapshot, error) {
	h := i.held.Load()
	if h == nil {
		return Snapshot{}, &NoKeysError{Issuer: i.options.Issuer}
	}
	if time.Since(h.seen) > i.options.MaxStale {
		return Snapshot{}, &NoKeysError{Issuer: i.options.Issuer, Stale: true}
	}
	return Snapshot{h.keys, h.generation}, nil
}

// Key returns the key that a kid names and the generation that it is of. For an
// unknown one it asks for a fetch and waits for it, when one is due or under
// way and the last one did not fail. The error is a *NoKeysError, an *UnknownKeyError or that of ctx.
func (i *Issuer) Key(ctx context.Context, id string) (*Key, uint64, error) {
	key, generation, err := i.find(id)
	if err == nil {
		return key, generation, nil
	}
	i.mu.Lock()
	tried, soon := i.tried, i.last == nil && (i.busy || time.Until(i.next) <= 0)
	i.mu.Unlock()
	if !i.asking.Load() && i.asking.CompareAndSwap(false, true) {
		select {
		case i.asked <- struct{}{}:
		default:
		}
	}
	if !soon {
		return i.find(id) // the keys may have come since
	}
	if i.waiting.Add(1) > maxWaiting {
		i.waiting.Add(-1)
		return nil, 0, err
	}
	defer i.waiting.Add(-1)
	patience := time.NewTimer(i.options.Wait)
	defer patience.Stop()
	select {
	case <-tried:
		return i.find(id)
	case <-patience.C:
		return nil, 0, err
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
}

func (i *Issuer) find(id string) (*Key, uint64, error) {
	s, err := i.Keys()
	if err != nil {
		return nil, 0, err
	}
	if key := s.Keys.Find(id); key != nil {
		return key, s.Generation, nil
	}
	return nil, 0, &UnknownKeyError{i.options.Issuer}
}

// Metadata returns what was discovered; nil when nothing was, or was looked for.
func (i *Issuer) Metadata() *Metadata { return i.meta.Load() }

// Ready returns nil when tokens can be judged, and else why not.
func (i *Issuer) Ready() error {
	_, err := i.Keys()
	if err == nil {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.last != nil {
		return fmt.Errorf("%w: %w", err, i.last)
	}
	return err
}

// Fetches is how many times the keys were asked for, and how many attempts to
// learn them failed.
func (i *Issuer) Fetches() (asked, failed uint64) { return i.fetches.Load(), i.failed.Load() }
