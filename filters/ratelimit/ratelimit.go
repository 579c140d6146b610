// Package ratelimit limits the calls of tools with token buckets: for a server
// and for single tools, for everybody together and for each user.
//
// It stands last in the hallway, after authorization, so that a call that is
// denied costs nothing. It counts and changes nothing.
package ratelimit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// Spec describes the limits of one server.
type Spec struct {
	Namespace     string // "" outside a cluster
	Server        string
	Limits        v1beta1.RateLimiting
	Path          *field.Path // of Limits
	Authenticated bool        // every client of the server is somebody: its incomingAuth is not anonymous
	FailOpen      bool        // calls are admitted while the store is away; else they are refused
}

// Part is the limits of one server.
type Part struct {
	// Paid reports whether an exchange goes on with a call that was charged when
	// it began: a later round of a parked call whose state verifies. nil for
	// never. One that turns out not to (edge.ErrUnpaid) is charged after all. It is set
	// before Open.
	Paid func(context.Context, *edge.Exchange) bool

	open   bool
	server limits
	tools  map[string]limits

	admitted, failOpen, storeErrors, checks, nanoseconds atomic.Uint64
	limited                                              [kinds]atomic.Uint64
}

// limits are the buckets of a server or of a tool; a capacity of 0 is none. The
// key of perUser lacks the user at its end.
type limits struct{ shared, perUser edge.Bucket }

// Kind is a kind of bucket.
type Kind uint8

// The kinds of buckets, in the order in which they are asked.
const (
	SharedServer Kind = iota
	PerUserServer
	SharedTool
	PerUserTool
	kinds
)

// String returns the word that metrics and audit have for a kind.
func (k Kind) String() string {
	return [...]string{"shared_server", "per_user_server", "shared_tool", "per_user_tool"}[k]
}

// Counters are the counts of a server's limits since they were parsed.
type Counters struct {
	Admitted    uint64        // calls that had a token of every bucket
	Limited     [kinds]uint64 // calls that were refused, by the Kind of bucket that wanted the longest wait
	StoreErrors uint64        // calls that the store could not count
	FailOpen    uint64        // of those, the ones that were admitted
	Checks      uint64        // calls that asked the store
	Time        time.Duration // that they waited for it in all, made up from one in eight
}

// Collect is edge.Collector.Collect.
func (p *Part) Collect(m edge.Emitter) {
	const decisions, help = "weir_rate_limit_decisions", "Calls of tools that rate limits have decided over."
	c := p.Counters()
	m.With("decision", "admitted").With("rejected_by", "none").Counter(decisions, help, float64(c.Admitted))
	for kind, n := range c.Limited {
		m.With("decision", "limited").With("rejected_by", Kind(kind).String()).Counter(decisions, help, float64(n))
	}
	m.Counter("weir_rate_limit_store_errors", "Calls that the store could not count.", float64(c.StoreErrors))
	m.Counter("weir_rate_limit_fail_open", "Calls that were admitted although the store could not count them.", float64(c.FailOpen))
	m.Counter("weir_rate_limit_checks", "Calls that asked the store.", float64(c.Checks))
	m.Counter("weir_rate_limit_check_seconds", "Time that calls have waited for the store.", c.Time.Seconds())
}

// Counters returns what has been counted.
func (p *Part) Counters() Counters {
	c := Counters{
		Admitted: p.admitted.Load(), StoreErrors: p.storeErrors.Load(), FailOpen: p.failOpen.Load(),
		Checks: p.checks.Load(), Time: time.Duration(p.nanoseconds.Load()),
	}
	for k := range c.Limited {
		c.Limited[k] = p.limited[k].Load()
	}
	return c
}

// Parse makes the limits of a server, or says everything that is wrong with
// them (rateLimiting of the virtual server document).
func Parse(s Spec) (*Part, field.ErrorList) {
	ns := s.Namespace
	if ns == "" {
		ns = "local"
	}
	// The part in braces is the hash tag of a Redis Cluster: all buckets of a
	// server share a slot, so that one call can take from all of them.
	r := reader{prefix: "rl:{" + word(ns) + ":" + word(s.Server) + "}", authenticated: s.Authenticated}
	p := &Part{open: s.FailOpen, tools: make(map[string]limits, len(s.Limits.Tools))}
	if s.Limits.Shared == nil && s.Limits.PerUser == nil && len(s.Limits.Tools) == 0 {
		r.errs = append(r.errs, field.Required(s.Path, "one of shared, perUser and tools must be set"))
	}
	p.server = r.limits(s.Path, s.Limits.Shared, s.Limits.PerUser, "shared", "user:")
	for i, t := range s.Limits.Tools {
		path := s.Path.Child("tools").Index(i)
		_, twice := p.tools[t.Name]
		switch {
		case t.Name == "":
			r.errs = append(r.errs, field.Required(path.Child("name"), "the name of a tool, as clients see it"))
		case twice:
			r.errs = append(r.errs, field.Duplicate(path.Child("name"), t.Name))
		}
		if t.Shared == nil && t.PerUser == nil {
			r.errs = append(r.errs, field.Required(path, "one of shared and perUser must be set"))
		}
		p.tools[t.Name] = r.limits(path, t.Shared, t.PerUser, "shared:tool:"+word(t.Name), "user-tool:"+word(t.Name)+":")
	}
	if len(r.errs) > 0 {
		return nil, r.errs
	}
	return p, nil
}

// reader reads buckets and collects what is wrong with them.
type reader struct {
	prefix        string
	authenticated bool
	errs          field.ErrorList
}

func (r *reader) limits(path *field.Path, shared, perUser *v1beta1.RateBucket, sharedKey, userKey string) limits {
	if perUser != nil && !r.authenticated {
		r.errs = append(r.errs, field.Forbidden(path.Child("perUser"), "needs authentication: nobody can be told apart"))
	}
	return limits{
		shared:  r.bucket(path.Child("shared"), shared, sharedKey),
		perUser: r.bucket(path.Child("perUser"), perUser, userKey),
	}
}

func (r *reader) bucket(path *field.Path, b *v1beta1.RateBucket, key string) edge.Bucket {
	if b == nil {
		return edge.Bucket{}
	}
	if b.MaxTokens < 1 {
		r.errs = append(r.errs, field.Invalid(path.Child("maxTokens"), b.MaxTokens, "must be at least 1"))
	}
	refill, err := b.RefillPeriod.Parse()
	switch {
	case err != nil:
		r.errs = append(r.errs, field.Invalid(path.Child("refillPeriod"), string(b.RefillPeriod), err.Error()))
	case refill <= 0:
		r.errs = append(r.errs, field.Invalid(path.Child("refillPeriod"), string(b.RefillPeriod), "must be above 0"))
	}
	return edge.Bucket{Key: r.prefix + ":" + key, Capacity: b.MaxTokens, Refill: refill}
}

// word is a name as a part of a key. A name that is long, or that has characters
// with a meaning in keys, becomes a hash that no name looks like.
func word(name string) string {
	plain := name != "" && len(name) <= 128
	for i := 0; i < len(name) && plain; i++ {
		c := name[i]
		plain = 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.'
	}
	if plain {
		return name
	}
	return "~" + digest(name)
}

// digest returns a hash of text that must not be readable in the store.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// Open returns the filter. It counts in env.Store: the store of all replicas, or
// one in this process.
func (p *Part) Open(env edge.Env) (edge.Filter, error) {
	if env.Store == nil {
		return nil, errors.New("ratelimit: open: no store to count in")
	}
	return func(next edge.Handler) edge.Handler {
		return edge.HandlerFunc(func(ctx context.Context, x *edge.Exchange) (*edge.Response, error) {
			paid, err := p.charge(ctx, env.Store, x, p.Paid)
			if err != nil {
				return nil, err
			}
			r, err := next.Handle(ctx, x)
			if paid && errors.Is(err, edge.ErrUnpaid) {
				if _, short := p.charge(ctx, env.Store, x, nil); short != nil {
					err = short
				}
			}
			return r, err
		})
	}, nil
}

// charge takes a token for an exchange from every bucket that applies to it, or
// says why it may not go on. One that was paid for before, as paidFor says, costs
// nothing.
func (p *Part) charge(ctx context.Context, store edge.Store, x *edge.Exchange, paidFor func(context.Context, *edge.Exchange) bool) (paid bool, err error) {
	purse := purses.Get().(*purse)
	defer purses.Put(purse)
	is := &purse.is
	buckets, err := p.applying(purse.buckets[:0], is[:0], x)
	if err != nil || len(buckets) == 0 {
		return false, err
	}
	if paidFor != nil && paidFor(ctx, x) {
		return true, nil
	}
	wait, short, err := p.take(ctx, store, buckets)
	switch {
	case err == nil && wait == 0:
		p.admitted.Add(1)
		return false, nil
	case err == nil:
		if short >= 0 && short < len(buckets) {
			p.limited[is[short]].Add(1)
		}
		return false, limited(wait)
	case ctx.Err() != nil:
		return false, &edge.Error{Kind: edge.Gone, Op: "ratelimit", Err: ctx.Err()}
	}
	p.storeErrors.Add(1)
	if p.open {
		p.failOpen.Add(1)
		return false, nil
	}
	return false, &edge.Error{Kind: edge.Overload, Op: "ratelimit", After: time.Second, Err: &uncounted{err}}
}

// take asks the store. One time in so many it is measured: to read the clock
// twice takes as long as a bucket of this process does.
func (p *Part) take(ctx context.Context, store edge.Store, buckets []edge.Bucket) (wait time.Duration, short int, err error) {
	const oneIn = 8
	if p.checks.Add(1)%oneIn != 1 {
		return store.Take(ctx, buckets...)
	}
	began := time.Now()
	wait, short, err = store.Take(ctx, buckets...)
	p.nanoseconds.Add(oneIn * uint64(time.Since(began)))
	return wait, short, err
}

// purse holds the buckets of one call, to keep them off the heap.
type purse struct {
	buckets [kinds]edge.Bucket
	is      [kinds]Kind
}

var purses = sync.Pool{New: func() any { return new(purse) }}

// applying are the buckets that apply to an exchange, and in is the kind of
// each. What the edge answers itself has only the limits of its own name: what
// it calls in turn comes by as exchanges of their own.
func (p *Part) applying(buckets []edge.Bucket, is []Kind, x *edge.Exchange) ([]edge.Bucket, error) {
	if x.Request == nil || x.Request.Method != "tools/call" || x.Target == nil {
		return nil, nil // no call, or a call of a tool that is not there
	}
	name := x.Target.Name
	if name == "" { // of a backend whose tools nobody has listed
		name = x.Request.Text("name")
	}
	add := func(b edge.Bucket, k Kind) { buckets, is = append(buckets, b), append(is, k) }
	var user string
	each := func(l limits, shared, perUser Kind) error {
		if l.shared.Capacity > 0 {
			add(l.shared, shared)
		}
		if l.perUser.Capacity == 0 {
			return nil
		}
		if user == "" {
			who := principal(x)
			if who == "" {
				return edge.Errorf(edge.Denied, "ratelimit", "a limit for each user, and nobody to count for")
			}
			user = digest(who)
		}
		l.perUser.Key += user
		add(l.perUser, perUser)
		return nil
	}
	if x.Target.Backend != "" {
		if err := each(p.server, SharedServer, PerUserServer); err != nil {
			return nil, err
		}
	}
	if t, ok := p.tools[name]; ok {
		if err := each(t, SharedTool, PerUserTool); err != nil {
			return nil, err
		}
	}
	return buckets, nil
}

// principal names the client for whom an exchange is made, itself or by what
// the edge calls for it.
func principal(x *edge.Exchange) string {
	for ; x != nil; x = x.Parent {
		if x.Identity != nil {
			return x.Identity.Principal()
		}
	}
	return ""
}

// limited is the answer to a call that finds no token: when the next one comes,
// in whole seconds as Retry-After has them (RFC 9110 §10.2.3).
func limited(wait time.Duration) error {
	seconds := int64((wait + time.Second - 1) / time.Second)
	return &edge.Error{
		Kind: edge.Limited, Op: "ratelimit", After: wait,
		Data: fmt.Appendf(nil, `{"retryAfterSeconds":%d}`, seconds),
		Err:  exceeded{},
	}
}

// exceeded is the text that a client reads, in words that clients know.
type exceeded struct{}

func (exceeded) Error() string { return "Rate limit exceeded" }

// uncounted is a call that the store could not count. Its text may reach a
// client, so that the cause is only unwrapped.
type uncounted struct{ cause error }

func (*uncounted) Error() string   { return "rate limit store unavailable" }
func (e *uncounted) Unwrap() error { return e.cause }
