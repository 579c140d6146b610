package edge

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"
)

// Secret is text that nobody may read in a log, an error or an encoded value.
// Convert it to a string at the last line before the wire.
type Secret string

const redacted = "REDACTED"

// String returns REDACTED, or "" for no secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

// GoString is String, for %#v.
func (s Secret) GoString() string { return s.String() }

// MarshalText is String, for JSON and YAML.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue is String, for log/slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// Trimmed is the secret without one line break at its end, which editors leave in files and
// which is no part of it.
func (s Secret) Trimmed() Secret {
	return Secret(strings.TrimSuffix(strings.TrimSuffix(string(s), "\n"), "\r"))
}

// OneLine reports whether the secret can stand in a header.
func (s Secret) OneLine() bool {
	return !strings.ContainsFunc(string(s), func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f })
}

// ErrShare says that whoever keeps a value in a Store has kept as much there as it may: others go on.
var ErrShare = errors.New("its share of the store is full")

// Store keeps small values with a lifetime, for one edge or for all replicas
// of it. It is safe for concurrent use. An error says that the store could not
// be reached or did not answer in time, and never holds a value.
type Store interface {
	// Get returns the value under key, nil when there is none.
	Get(ctx context.Context, key string) ([]byte, error)

	// Put keeps a value for ttl.
	Put(ctx context.Context, key string, value []byte, ttl time.Duration) error

	// Delete removes what is under key, if anything.
	Delete(ctx context.Context, key string) error

	// Update replaces the value under key by what change makes of it, and
	// nobody sees or makes another in between. old is nil when there is none; a
	// nil result removes it. An error of change is returned as it is and
	// changes nothing. change may be called more than once.
	Update(ctx context.Context, key string, ttl time.Duration, change func(old []byte) ([]byte, error)) error

	// Take takes one token from every bucket, or none from any. It returns how
	// long to wait until all have one, 0 when they were taken, and which bucket
	// wants the longest wait, -1 for none.
	Take(ctx context.Context, buckets ...Bucket) (wait time.Duration, short int, err error)

	// Post leaves a message in a box for whoever listens to it, for ttl at most.
	Post(ctx context.Context, box string, message []byte, ttl time.Duration) error

	// Listen hands the messages of a box to each, in order, at least once,
	// until ctx ends. It returns when ctx ends, and survives a store that is
	// away for a while.
	Listen(ctx context.Context, box string, each func(message []byte)) error
}

// Bucket is a token bucket: it holds at most Capacity tokens, and fills from
// empty to full in Refill.
type Bucket struct {
	Key      string
	Capacity int32         // at least 1
	Refill   time.Duration // above 0
}

// Secrets finds the secrets that objects refer to.
type Secrets interface {
	// Secret returns the value of key of the secret called name. An error of
	// kind NotFound says that there is none.
	Secret(ctx context.Context, name, key string) (Secret, error)
}

// Upstreams finds what other identity providers issued to a user who signed in
// through the edge. It is safe for concurrent use.
type Upstreams interface {
	// Upstream returns the access token and the ID token, "" for none, that a provider,
	// by the name that the configuration has for it, issued to who: an access token that
	// is good now, renewed if it had to be. An error of kind Unauthenticated says that
	// who has not signed in with that provider, or that what was issued cannot be
	// renewed. What is of one principal is never returned for another, and who is not nil.
	Upstream(ctx context.Context, who *Identity, provider string) (access, id Secret, err error)

	// Refused tells that a token of Upstream was not taken, which may return another after that.
	// made says that this was not by a backend but by whoever makes credentials of it, who may
	// have reasons that are of one backend alone. An error of kind Unauthenticated says that
	// there will be no other until who signs in again.
	Refused(ctx context.Context, who *Identity, provider string, token Secret, made bool) error
}

// Nobody is Upstreams of which nobody has signed in: what credentials are judged with before
// they are used.
type Nobody struct{}

// ErrNobody is the cause of each error of Nobody.
var ErrNobody = errors.New("nobody has signed in here")

// Upstream is Upstreams.Upstream.
func (Nobody) Upstream(_ context.Context, _ *Identity, provider string) (access, id Secret, err error) {
	return "", "", &Error{Kind: Unauthenticated, Op: "upstream " + provider + ": what it issued to users is in an edge that runs, and nowhere else", Err: ErrNobody}
}

// Refused is Upstreams.Refused.
func (Nobody) Refused(context.Context, *Identity, string, Secret, bool) error { return nil }

// Env is the world that a part of a plan may touch once the plan goes live.
type Env struct {
	Log       *slog.Logger
	Secrets   Secrets
	Store     Store
	Cache     func(part string) Cache // opens a part of the process's cache, which ends when the plan retires; nil where there is none
	HTTP      *http.Client            // of NewHTTP, which parts share and do not change; nil where each makes its own
	Upstreams Upstreams               // nil where the edge has no authorization server
	Now       func() time.Time        // the time by which credentials are judged and records are dated; nil for time.Now
	Reach     Reach                   // of requests of the edge's own
	Defer     func(func())            // has a function called when the plan retires
	Shared    *Shared                 // what the parts of one server have in common; nil for nothing
	Made      func(Made)              // hears of each attempt to make a credential, from several goroutines; nil for nobody
}

// Clock returns Now, or time.Now where there is none.
func (e Env) Clock() func() time.Time {
	if e.Now == nil {
		return time.Now
	}
	return e.Now
}

// Part is a configured thing of a plan. Parse made it, without touching the
// world; Open touches it, and fails for what waiting does not cure. A peer that
// is down is no such thing.
type Part interface {
	Open(Env) (Filter, error)
}
