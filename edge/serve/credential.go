package serve

import (
	"context"
	"log/slog"
	"slices"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/outgoing"
)

// attached is what the requests to a backend are sent with, open.
type attached struct {
	to     outgoing.Attach                   // nil for nothing
	own    func(string) bool                 // not nil with to
	ownFor func(*edge.Exchange, string) bool // in place of own where programs choose; else nil
	done   func()                            // ends what it holds
}

// openCredential opens what a backend is sent besides its calls. A secret that
// is not there, or cannot stand in a header, is an error, also for a backend
// that is open already: a set is served with sound secrets or not at all.
// Where programs may choose another credential, theirs goes in its place.
func openCredential(log *slog.Logger, b compile.Backend, secrets edge.Secrets, choice bool) (attached, error) {
	var after []func()
	a := attached{done: func() {
		for _, f := range slices.Backward(after) {
			f()
		}
	}}
	fail := func(err error) (attached, error) {
		a.done()
		return attached{}, err
	}
	env := edge.Env{Log: log, Secrets: secrets, Defer: func(f func()) { after = append(after, f) }}
	var err error
	if a.to, a.own, err = b.Outgoing.Open(env); err != nil {
		return fail(err)
	}
	if choice {
		beside, besides, err := b.Outgoing.Beside().Open(env)
		if err != nil {
			return fail(err)
		}
		a.choose(beside, besides)
	}
	return a, nil
}

// choose has the credential that a program chose for an exchange go in place of
// the configured one. beside are lines that go in any case.
func (a *attached) choose(beside outgoing.Attach, besides func(string) bool) {
	to, own := a.to, a.own
	a.to = func(ctx context.Context, x *edge.Exchange, set func(string, edge.Secret)) error {
		if x == nil || x.Chosen == nil {
			if to == nil {
				return nil
			}
			return to(ctx, x, set)
		}
		c := x.Chosen
		if beside != nil {
			err := beside(ctx, x, func(name string, value edge.Secret) {
				if c.Attach == nil || !c.Own(name) {
					set(name, value)
				}
			})
			if err != nil {
				return err
			}
		}
		if c.Attach == nil {
			return nil
		}
		return c.Attach(ctx, x, set)
	}
	a.ownFor = func(x *edge.Exchange, name string) bool {
		if x == nil || x.Chosen == nil {
			return own != nil && own(name)
		}
		c := x.Chosen
		return c.Attach != nil && c.Own(name) || besides != nil && besides(name)
	}
}

// choosing reports whether programs of a server may choose credentials.
func choosing(p compile.Server) bool {
	for _, f := range p.Filters {
		if len(f.Credentials) > 0 {
			return true
		}
	}
	return false
}
