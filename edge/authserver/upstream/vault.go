package upstream

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
)

// Times of a vault.
const (
	seenAge    = 10 * time.Second       // for which a value is used without a look at the records
	refusedAge = time.Minute            // after a login, for which a backend's refusal says nothing of its token
	leaseLife  = 10 * time.Second       // for which one replica alone renews
	leaseSkew  = time.Minute            // by which the clocks of replicas may differ
	waitResult = 5 * time.Second        // for what another replica renews
	waitPoll   = 100 * time.Millisecond // between two looks meanwhile
	flightLife = 20 * time.Second       // of one look, with all that it needs
	keepTries  = 5                      // to keep new tokens, which are lost otherwise
	sweepSize  = 1024                   // values, above which old ones are swept
)

// VaultOptions say what a vault is for.
type VaultOptions struct {
	Issuer    string // of the edge's own tokens, whose claim tsid names a grant
	Providers []*Provider
	Records   Records
	Log       *slog.Logger     // nil for none
	Now       func() time.Time // nil for time.Now

	// Gone is told that a grant needs a new login at a provider, once the tokens are gone, or the
	// ID token alone; nil for nobody.
	Gone func(ctx context.Context, grant, provider string) error

	// Told hears of each attempt to renew, from several goroutines; nil for nobody.
	Told func(Renewal)
}

// Renewal is an attempt to renew tokens.
type Renewal struct {
	Grant, Provider string
	Outcome         string // renewed, gone or failed
	Reason          string // without a word of the provider's; "" for renewed
	Took            time.Duration
}

// Vault keeps what providers issued to users, by grant and provider, for all replicas of an
// edge, and renews it before it ends. It is an edge.Upstreams, and safe for concurrent use.
//
// One replica renews at a time: it takes a lease with a number, the fence, that is new for
// each. What it writes under an old fence is dropped. Others use what there is while it is
// good, and else wait. A replica takes a lease from another after it has seen it for its
// whole life by its own clock, so that clocks may differ.
type Vault struct {
	options   VaultOptions
	providers map[string]*Provider
	ctx       context.Context
	stop      context.CancelFunc
	running   sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	seen    map[spot]*seen
	flights map[spot]*flight
	leases  map[spot]sight
	refused map[spot]*Tokens // whose access token a backend refuses, which the look under way renews
	swept   time.Time
}

// spot is a grant and a provider.
type spot struct{ grant, provider string }

// key holds a digest of the grant's id, which whoever shows a token knows.
func (p spot) key() string {
	sum := sha256.Sum256([]byte(p.grant))
	return "up:" + hex.EncodeToString(sum[:]) + ":" + p.provider
}

// seen is what a look at the records found.
type seen struct {
	tokens *Tokens
	at     time.Time
	pause  time.Time // until when nobody tries to renew
}

// flight is a look at the records for all who need it.
type flight struct {
	early  chan struct{} // closed when first is known, if ever
	first  *Tokens       // good, and about to be renewed
	done   chan struct{}
	tokens *Tokens
	err    error
}

// sight is the first sight of a lease.
type sight struct {
	fence uint64
	since time.Time
}

// NewVault returns a vault. Close ends it.
func NewVault(o VaultOptions) *Vault {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	v := &Vault{options: o, providers: map[string]*Provider{}, seen: map[spot]*seen{}, flights: map[spot]*flight{}, leases: map[spot]sight{}, refused: map[spot]*Tokens{}}
	for _, p := range o.Providers {
		v.providers[p.Name()] = p
	}
	v.ctx, v.stop = context.WithCancel(context.Background())
	return v
}

// Close waits for what is under way, as long as a lease lives at most: an answer that nobody
// keeps would cost its user a login.
func (v *Vault) Close() {
	v.mu.Lock()
	v.closed = true
	v.mu.Unlock()
	end := time.AfterFunc(leaseLife, v.stop)
	v.running.Wait()
	end.Stop()
	v.stop()
}

// Keep keeps the tokens of a login until its grant ends.
func (v *Vault) Keep(ctx context.Context, grant, provider string, t *Tokens, until time.Time) error {
	r := &record{End: nanos(until)}
	if err := r.put(t); err != nil {
		return err
	}
	p := spot{grant, provider}
	defer v.forget(p)
	return v.options.Records.Update(ctx, p.key(), r.left(v.options.Now()), func(old []byte) ([]byte, error) {
		if before := readRecord(old); before != nil {
			r.Fence = before.Fence + 1
		}
		return json.Marshal(r)
	})
}

// Extend keeps what there is of a grant until its new end.
func (v *Vault) Extend(ctx context.Context, grant string, until time.Time) error {
	for name := range v.providers {
		p := spot{grant, name}
		err := v.options.Records.Update(ctx, p.key(), max(until.Sub(v.options.Now()), time.Second), func(old []byte) ([]byte, error) {
			r := readRecord(old)
			if r == nil {
				return nil, nil
			}
			r.End = nanos(until)
			return json.Marshal(r)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Drop forgets all that was issued for a grant.
func (v *Vault) Drop(ctx context.Context, grant string) error {
	var all error
	for name := range v.providers {
		p := spot{grant, name}
		err := v.options.Records.Update(ctx, p.key(), time.Second, func([]byte) ([]byte, error) { return nil, nil })
		v.forget(p)
		all = errors.Join(all, err)
	}
	return all
}

func (v *Vault) forget(p spot) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.seen, p)
	delete(v.leases, p)
}

// Upstream implements edge.Upstreams: the grant is that which the identity's own token names.
func (v *Vault) Upstream(ctx context.Context, who *edge.Identity, provider string) (access, id edge.Secret, err error) {
	grant, _ := who.Claims["tsid"].(string)
	if grant == "" || who.Issuer != v.options.Issuer {
		return "", "", again("upstream "+provider, "the token is of no login here")
	}
	t, err := v.Tokens(ctx, grant, provider)
	if err != nil {
		return "", "", err
	}
	return t.Access, t.ID, nil
}

// Refused implements edge.Upstreams: nobody else would say that a provider has revoked a token.
// One that can be renewed is renewed, and stays in use where the provider does not answer: another
// backend may take it. One that cannot is given up, as one that has ended, but for whoever makes
// credentials of it: that would be for all backends. One that was issued just
// now is neither: the next would be another like it, and no end; but for an ID token that has ended
// since. Where no other ID token is to be had, the access token stays: the user signs in again.
func (v *Vault) Refused(ctx context.Context, who *edge.Identity, provider string, token edge.Secret, made bool) error {
	grant, _ := who.Claims["tsid"].(string)
	p := spot{grant, provider}
	t, err := v.Tokens(ctx, grant, provider)
	if err != nil || t.Access != token && t.ID != token {
		return err
	}
	isID, now := t.Access != token, v.options.Now()
	if age := now.Sub(t.Issued); 0 <= age && age < refusedAge && !(isID && t.idEnded(now)) { // not where the clock was set back
		return nil
	}
	if t.Refresh != "" {
		err := v.renewRefused(ctx, p, t)
		if err != nil || !isID {
			return err
		}
		after, err := v.Tokens(ctx, grant, provider)
		if err != nil || after.ID != token || after.Issued.Equal(t.Issued) { // the provider has not answered
			return err
		}
	}
	if isID {
		v.needsLogin(ctx, p)
		return again("upstream "+provider, "the ID token is refused, and no other comes without a login")
	}
	if made {
		return nil
	}
	text, err := v.options.Records.Get(ctx, p.key())
	r := readRecord(text)
	if err != nil || r == nil || r.Access != string(token) || r.Refresh != "" {
		return err
	}
	err = v.end(ctx, p, r, &Gone{provider, "a backend refuses the access token, and there is no refresh token"})
	if changed(err) {
		return nil
	}
	return err
}

// renewRefused has an access token renewed before it is due, and waits for that. A look that was
// under way may have come too early to see that it is refused.
func (v *Vault) renewRefused(ctx context.Context, p spot, t *Tokens) error {
	for range 2 {
		v.mu.Lock()
		v.refused[p] = t
		f := v.fly(p)
		v.mu.Unlock()
		select {
		case <-f.done:
		case <-ctx.Done():
			return ctx.Err()
		}
		if f.err != nil || f.tokens.Access != t.Access || !f.tokens.Issued.Equal(t.Issued) { // some issue the same again
			return f.err
		}
	}
	return nil
}

// refuses reports whether a backend refuses the access token of a record.
func (v *Vault) refuses(p spot, r *record) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	t := v.refused[p]
	return t != nil && string(t.Access) == r.Access && t.Issued.Equal(at(r.Issued)) // some issue the same again
}

// again is the error of somebody who has to sign in with a provider again.
func again(op, why string) error {
	return &edge.Error{Kind: edge.Unauthenticated, Op: op + ": " + why, Err: errors.New("sign in again")}
}

// Tokens returns what a provider issued for a grant, good now. The value is shared, and the
// same pointer while it has not changed. The error is of kind Unauthenticated for somebody
// who has to sign in, Unavailable for a provider that does not answer, and else the store's.
func (v *Vault) Tokens(ctx context.Context, grant, provider string) (*Tokens, error) {
	p := spot{grant, provider}
	now := v.options.Now()
	v.mu.Lock()
	s := v.seen[p]
	fresh := s != nil && now.Sub(s.at) < seenAge
	due, over := false, false
	if fresh {
		due, over = s.tokens.Due(now)
		due = due && s.tokens.Refresh != ""
	}
	if fresh && !due && !over || fresh && !over && now.Before(s.pause) {
		v.mu.Unlock()
		return s.tokens, nil
	}
	f := v.fly(p)
	v.mu.Unlock()
	if fresh && !over {
		return s.tokens, nil // it is renewed beside
	}
	for early := f.early; ; early = nil {
		select {
		case <-early:
			if _, over := f.first.Due(v.options.Now()); !over {
				return f.first, nil
			}
		case <-f.done:
			return f.tokens, f.err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Peek returns what there is of a grant and a provider now, and renews nothing; nil for nothing
// that can be used. Of tokens that nobody has judged yet there are the claims of those before them
// alone: the user is who it was until a refresh says otherwise. It asks the records each time.
func (v *Vault) Peek(ctx context.Context, grant, provider string) (*Tokens, error) {
	p := spot{grant, provider}
	text, err := v.options.Records.Get(ctx, p.key())
	if err != nil {
		return nil, err
	}
	switch r := readRecord(text); {
	case r == nil || r.Gone != "" || r.Raw && r.Claims == nil:
		return nil, nil
	case r.Raw:
		return &Tokens{Claims: ParseClaims(r.Claims)}, nil
	default:
		return v.saw(p, r), nil
	}
}

// fly joins the look that is under way, or starts one. The caller holds the lock.
func (v *Vault) fly(p spot) *flight {
	if f := v.flights[p]; f != nil {
		return f
	}
	f := &flight{early: make(chan struct{}), done: make(chan struct{})}
	if v.closed {
		f.err = unavailable("upstream "+p.provider, errors.New("the edge has other plans by now"))
		delete(v.refused, p)
		close(f.done)
		return f
	}
	v.flights[p] = f
	v.running.Add(1)
	go func() { // ends within flightLife, and with the vault
		defer v.running.Done()
		ctx, cancel := context.WithTimeout(v.ctx, flightLife)
		defer cancel()
		f.err = unavailable("upstream "+p.provider, errors.New("a fault of the edge"))
		defer func() {
			v.mu.Lock()
			delete(v.flights, p)
			delete(v.refused, p)
			v.mu.Unlock()
			close(f.done)
		}()
		defer edge.Contain(v.options.Log, "the tokens of a provider")
		f.tokens, f.err = v.look(ctx, p, f)
	}()
	return f
}

// saw remembers what a record says, and returns its tokens: those of before where they are
// the same.
func (v *Vault) saw(p spot, r *record) *Tokens {
	now := v.options.Now()
	s := &seen{tokens: r.tokens(), at: now, pause: at(r.Pause)}
	v.mu.Lock()
	defer v.mu.Unlock()
	if old := v.seen[p]; old != nil && old.tokens.Access == s.tokens.Access && old.tokens.Issued.Equal(s.tokens.Issued) && old.tokens.ID == s.tokens.ID {
		s.tokens = old.tokens
	}
	if len(v.seen)+len(v.leases) > sweepSize && now.Sub(v.swept) > seenAge {
		v.swept = now
		for q, one := range v.seen {
			if now.Sub(one.at) > seenAge {
				delete(v.seen, q)
			}
		}
		for q, one := range v.leases {
			if now.Sub(one.since) > 2*leaseSkew {
				delete(v.leases, q)
			}
		}
	}
	v.seen[p] = s
	return s.tokens
}
