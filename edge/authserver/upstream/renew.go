package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/weir-edge/weir/edge"
)

// Outcomes of a renewal.
const (
	Renewed = "renewed"
	Ended   = "gone"
	Failed  = "failed"
)

// errFenced is a write under a lease that somebody else has taken.
var errFenced = errors.New("another replica has taken the lease")

// errChanged is a record that is another than was read.
var errChanged = errors.New("the record has changed")

// changed reports whether an error says that somebody else was there, so that a new look tells more.
func changed(err error) bool { return errors.Is(err, errFenced) || errors.Is(err, errChanged) }

// look finds the tokens of a grant and a provider, and renews them where they are due.
func (v *Vault) look(ctx context.Context, p spot, f *flight) (*Tokens, error) {
	op := "upstream " + p.provider
	patience := time.NewTimer(waitResult)
	defer patience.Stop()
	for {
		// 1. What there is.
		text, err := v.options.Records.Get(ctx, p.key())
		if err != nil {
			return nil, err
		}
		r, now := readRecord(text), v.options.Now()
		switch {
		case r == nil: // the provider is newer than the login: a refresh of the grant would lead here for ever
			v.forget(p)
			v.needsLogin(ctx, p)
			return nil, again(op, "there is no login with it")
		case r.Gone != "":
			v.forget(p)
			return nil, again(op, r.Gone)
		case v.providers[p.provider] == nil:
			v.needsLogin(ctx, p)
			return nil, again(op, "the edge has no such provider any longer")
		}

		// 2. Whether it is good.
		t := r.tokens()
		due, over := t.Due(now)
		refused := v.refuses(p, r)
		due, over = due || refused, over || r.Raw
		switch {
		case !due && !over, !over && r.Refresh == "":
			return v.saw(p, r), nil
		case r.pauses(now) && over:
			return nil, unavailable(op, errors.New("it did not renew the tokens a moment ago"))
		case r.pauses(now):
			return v.saw(p, r), nil
		case r.Refresh == "":
			err := v.end(ctx, p, r, &Gone{p.provider, "the access token has ended, and there is no refresh token"})
			if changed(err) {
				continue
			}
			return nil, err
		}

		// 3. Who renews it.
		held, err := v.lease(ctx, p, r)
		switch {
		case changed(err):
			continue
		case err != nil:
			return nil, err
		case held == nil && !over && !refused:
			return v.saw(p, r), nil
		}
		if !over && f.first == nil { // who waits has it before the provider is asked
			f.first = v.saw(p, r)
			close(f.early)
		}
		if held != nil {
			t, err := v.renew(ctx, p, held)
			if changed(err) {
				continue
			}
			return t, err
		}
		select { // somebody else does
		case <-time.After(waitPoll):
		case <-patience.C:
			if !over { // other backends may take it
				return v.saw(p, r), nil
			}
			return nil, unavailable(op, errors.New("another replica renews the tokens, and is not done"))
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// lease takes the lease on a record, and returns what it is then; nil while another has it.
func (v *Vault) lease(ctx context.Context, p spot, r *record) (*record, error) {
	now := v.options.Now()
	if r.Lease != 0 && !v.dead(p, r, now) {
		return nil, nil
	}
	mine := *r
	mine.Fence, mine.Lease = r.Fence+1, nanos(now.Add(leaseLife))
	return &mine, v.write(ctx, p, r, func(old *record) (*record, error) {
		if old.Fence != r.Fence || old.Lease != r.Lease {
			return nil, errChanged
		}
		return &mine, nil
	})
}

// dead reports whether whoever has a lease has gone: this replica has seen it for its whole
// life, or it ended so long ago that no difference of clocks explains it.
func (v *Vault) dead(p spot, r *record, now time.Time) bool {
	if now.After(at(r.Lease).Add(leaseSkew)) {
		return true
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	first := v.leases[p]
	if first.fence != r.Fence || first.since.IsZero() {
		v.leases[p] = sight{r.Fence, now}
		return false
	}
	return now.Sub(first.since) >= leaseLife
}

// write makes a record of what change makes of the one that is there; with an end that
// moved, it is tried anew. base is what was read.
func (v *Vault) write(ctx context.Context, p spot, base *record, change func(old *record) (*record, error)) error {
	end := base.End
	errEnd := errors.New("the end has moved")
	for {
		err := v.options.Records.Update(ctx, p.key(), (&record{End: end}).left(v.options.Now()), func(text []byte) ([]byte, error) {
			old := readRecord(text)
			if old == nil {
				return nil, errChanged
			}
			if old.End != end {
				end = old.End
				return nil, errEnd
			}
			made, err := change(old)
			if err != nil {
				return nil, err
			}
			made.End = end
			return json.Marshal(made)
		})
		if !errors.Is(err, errEnd) {
			return err
		}
	}
}

// renew asks the provider, for whoever has the lease on a record.
func (v *Vault) renew(ctx context.Context, p spot, r *record) (*Tokens, error) {
	began := v.options.Now()
	tell := func(outcome string, err error) {
		if v.options.Told != nil {
			one := Renewal{Grant: p.grant, Provider: p.provider, Outcome: outcome, Took: v.options.Now().Sub(began)}
			if err != nil {
				one.Reason = err.Error()
			}
			v.options.Told(one)
		}
	}
	mine := func(change func(old *record) *record) error {
		return v.write(ctx, p, r, func(old *record) (*record, error) {
			if old.Fence != r.Fence || old.Lease == 0 {
				return nil, errFenced
			}
			return change(old), nil
		})
	}

	// 1. The provider is asked; without an answer once more: it may have done it, and at worst
	// wants a new login. What it issues is kept before it is judged.
	provider, before := v.providers[p.provider], r.tokens()
	kept := func(t *Tokens) error {
		raw := *t
		raw.ID, raw.Claims = before.ID, before.Claims // which stay where the next answer has no others
		var err error
		for range keepTries {
			if err = mine(func(old *record) *record {
				next := *old
				if next.put(&raw) != nil { // its claims were JSON before
					return old
				}
				next.Raw = true
				return &next
			}); err == nil || changed(err) || ctx.Err() != nil {
				return err
			}
			time.Sleep(waitPoll)
		}
		return err
	}
	asking, done := context.WithTimeout(ctx, leaseLife-time.Second) // nobody asks for whom the lease is over
	defer done()
	t, err := provider.Refresh(asking, before, kept)
	if err != nil && Silent(err) && asking.Err() == nil {
		t, err = provider.Refresh(asking, before, kept)
	}

	// 2. What became of it.
	var over *Gone
	switch {
	case err == nil:
		next := &record{Fence: r.Fence}
		if err := next.put(t); err != nil {
			return nil, err
		}
		if err := mine(func(*record) *record { return next }); err != nil {
			return nil, err
		}
		tell(Renewed, nil)
		next.End = r.End
		return v.saw(p, next), nil
	case changed(err):
		return nil, err
	case errors.As(err, &over):
		err := v.end(ctx, p, r, over)
		tell(Ended, over)
		return nil, err
	}
	v.options.Log.Warn("tokens of a provider are not renewed", "upstream", p.provider, "error", err)
	tell(Failed, err)
	now := v.options.Now()
	free := *r
	if lost := mine(func(old *record) *record {
		free = *old
		free.Lease, free.Pause = 0, nanos(now.Add(retryPause))
		return &free
	}); lost != nil {
		return nil, lost
	}
	if _, ended := before.Due(now); !ended && !free.Raw {
		return v.saw(p, &free), nil
	}
	if edge.KindOf(err) == edge.Internal {
		err = unavailable("upstream "+p.provider, err)
	}
	return nil, err
}

// end drops tokens that cannot be renewed, and tells the grant. The error is for the user.
func (v *Vault) end(ctx context.Context, p spot, r *record, why *Gone) error {
	err := v.write(ctx, p, r, func(old *record) (*record, error) {
		if old.Fence != r.Fence {
			return nil, errFenced
		}
		return &record{Gone: why.Reason, Fence: old.Fence}, nil
	})
	v.forget(p)
	if err != nil {
		return err
	}
	v.needsLogin(ctx, p)
	return again("upstream "+p.provider, why.Reason)
}

// needsLogin tells the grant that it needs a new login at the provider.
func (v *Vault) needsLogin(ctx context.Context, p spot) {
	if v.options.Gone == nil {
		return
	}
	if err := v.options.Gone(ctx, p.grant, p.provider); err != nil {
		v.options.Log.Warn("a grant does not know yet that it needs a new login", "upstream", p.provider, "error", err)
	}
}
