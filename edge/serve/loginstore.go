package serve

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/authserver"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/kv"
	"github.com/weir-edge/weir/edge/status"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// Bounds of the records of one issuer in memory.
const (
	loginRecords = 100_000
	loginBytes   = 64 << 20
)

// loginKept is what lasts of an issuer in this process.
type loginKept struct {
	*authserver.Lasting
	memory *kv.MemoryStore
}

// loginStore is a store that authorization servers of several edges share.
type loginStore struct {
	*kv.RedisStore
	address string
	met     atomic.Bool // it has answered once
}

// openRecords opens where an authorization server keeps its records. What it opens is given
// back by after.
func (o *opening) openRecords(after *releases) (edge.Store, *authserver.Lasting, *loginStore, error) {
	w, i := &o.edge.world, o.issuer
	kept, release, err := w.logged.Get(i.Spec.Issuer, func() (loginKept, func(), error) {
		lasting, err := authserver.NewLasting()
		m := kv.Memory(kv.Limits{Values: loginRecords, Bytes: loginBytes})
		return loginKept{lasting, m}, func() { _ = m.Close() }, err
	})
	if err != nil {
		return nil, nil, nil, err
	}
	after.add(release)
	if i.store == nil {
		return kept.memory, kept.Lasting, nil, nil
	}
	shared, release, err := w.loginStores.Get(i.Store, func() (*loginStore, func(), error) {
		s, err := kv.Redis(i.store.options)
		if err != nil {
			return nil, nil, fmt.Errorf("authorization server: storage.kvstore: %w", err)
		}
		return &loginStore{RedisStore: s, address: i.store.address}, func() { _ = s.Close() }, nil
	})
	if err != nil {
		return nil, nil, nil, err
	}
	after.add(release)
	return shared, kept.Lasting, shared, nil
}

// status is what /status says of the store; nil for none.
func (s *loginStore) status() *status.Store {
	if s == nil {
		return nil
	}
	state, counted := s.State(), s.Counters()
	out := &status.Store{Address: s.address, Connected: state.Ready, Calls: counted.Calls, Failed: counted.Failures + counted.Refused}
	if err := s.Ready(); err != nil {
		out.Message = err.Error()
	}
	if state.Open {
		out.Since = moment(state.Since)
	}
	return out
}

// loginStrangers reports whether a store of authorization servers has not answered yet, not
// once.
func (e *Edge) loginStrangers() bool {
	for _, s := range e.live.Load().servers {
		if s.login == nil || s.login.store == nil || s.login.store.met.Load() {
			continue
		}
		if s.login.store.Ready() != nil {
			return true
		}
		s.login.store.met.Store(true)
	}
	return false
}

// tellSignIns logs how many sign-ins in memory end with this process: another cannot go on with them.
func (l *live) tellSignIns(log *slog.Logger) {
	for _, s := range l.servers {
		if s.issues && s.login != nil && s.login.memory != nil {
			n := s.login.memory.Count(func(key string) bool { return strings.Contains(key, ":grant:") })
			log.Warn("sign-ins in memory are not handed over, and their users sign in again: storage.type kvstore keeps them", "server", s.Name, "signIns", n)
		}
	}
}

// loginStore reads how to reach the store of an authorization server; nil stands for the
// memory of the process.
func (o *opening) loginStore(s *v1beta1.KVStore) (*sharing, error) {
	if s == nil {
		return nil, nil
	}
	address, to, err := compile.KVStore(context.Background(), s, o.secrets)
	if err != nil {
		return nil, err
	}
	to.Log, to.Beside = o.edge.log, o.edge.world.trusted(o.issuer.Trusts)
	return &sharing{address, digestOf(struct {
		Store          *v1beta1.KVStore
		Addresses      []string
		User, Password string
		CA             []byte
		Sentinels      *kv.TLS
	}{s, to.Addresses, to.User, string(to.Password), to.CA, to.Sentinels}), to}, nil
}
