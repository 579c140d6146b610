package serve

import (
	"context"
	"fmt"
	"os"

	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/kv"
	"github.com/weir-edge/weir/edge/session"
	"github.com/weir-edge/weir/edge/status"
)

// sharing is how to reach a store that servers share with those of other edges.
type sharing struct {
	address, digest string
	options         kv.Options
}

// id tells one store from another; "" for none.
func (s *sharing) id() string {
	if s == nil {
		return ""
	}
	return s.digest
}

// sharing reads how to reach the store of the server; nil stands for the memory of the
// process.
func (o *opening) sharing() (_ *sharing, err error) {
	e, p := o.edge, o.plan.Store
	if p == nil {
		return nil, nil
	}
	to := p.Options()
	to.Password, to.SentinelUser, to.SentinelPassword = e.given.storePassword, e.given.sentinelUser, e.given.sentinelPassword
	if key := p.Password; key != nil {
		if to.Password, err = o.secrets.Secret(context.Background(), key.Name, key.Key); err != nil {
			return nil, fmt.Errorf("passwordRef: %w", err)
		}
		to.Password = to.Password.Trimmed()
	}
	to.Timeout, to.Log = e.settings.StoreTimeout, e.log
	if size := relaySize(e.settings); size > 16<<20 { // what a store takes by itself is less
		to.Value, to.BoxBytes = size, max(4*size, 64<<20)
	}
	if to.TLS && e.settings.StoreCA != "" {
		if to.CA, err = os.ReadFile(e.settings.StoreCA); err != nil {
			return nil, fmt.Errorf("--store-ca: %w", err)
		}
	}
	to.Beside = e.world.reach.CAs
	digest := digestOf(struct {
		Store    compile.Store
		Password string
		CA       []byte
	}{*p, string(to.Password), to.CA})
	return &sharing{p.Address, digest, to}, nil
}

// share opens the store that a server shares, or finds it open.
func (o *opening) share(s *server) error {
	if o.store == nil {
		return nil
	}
	store, release, err := o.edge.sessions.OpenStore(o.plan.Name, o.store.digest, o.store.address, func() (session.Carrier, error) { return kv.Redis(o.store.options) })
	if err != nil {
		return err
	}
	s.store = store
	s.after.add(release)
	return nil
}

func (s *server) storeStatus() *status.Store {
	if s.store == nil {
		return nil
	}
	state, counted := s.store.State(), s.store.Counters()
	out := &status.Store{Address: s.store.Address, Connected: state.Ready, Calls: counted.Calls, Failed: counted.Failures + counted.Refused, Dropped: s.store.Signer.Dropped.Load()}
	if err := s.store.Ready(); err != nil {
		out.Message = err.Error()
	} else if state.Deaf != nil {
		out.Message = "does not tell of new messages, which are found a second late: " + state.Deaf.Error()
	}
	if state.Open {
		out.Since = moment(state.Since)
	}
	return out
}

func (s *server) limitStatus() *status.Limits {
	if s.limits == nil {
		return nil
	}
	c := s.limits.Counters()
	out := &status.Limits{Admitted: c.Admitted, Uncounted: c.StoreErrors, FailOpen: c.FailOpen}
	for _, n := range c.Limited {
		out.Limited += n
	}
	return out
}
