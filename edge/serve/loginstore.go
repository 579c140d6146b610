package serve

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/authserver"
	"github.com/weir-edge/weir/edge/kv"
	"github.com/weir-edge/weir/edge/status"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// Bounds of the records of one issuer in memory.
const (
	loginRecords = 100_000
	loginBytes   = 64 << 20
)

// resolveWait is how long a service of sentinels is looked for by its name.
const resolveWait = 5 * time.Second

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

// loginStore reads how to reach the store of an authorization server; nil stands for the
// memory of the process.
func (o *opening) loginStore(s *v1beta1.KVStore) (_ *sharing, err error) {
	if s == nil {
		return nil, nil
	}
	read := func(name string, ref *v1beta1.SecretRef) edge.Secret {
		if ref == nil || err != nil {
			return ""
		}
		value, e := o.secrets.Secret(context.Background(), ref.Name, ref.Key)
		if e != nil {
			err = fmt.Errorf("%s: %w", name, e)
		}
		return value
	}
	to := kv.Options{Addresses: []string{s.Addr}, Dial: s.DialTimeout.Std(), Read: s.ReadTimeout.Std(), Write: s.WriteTimeout.Std(), Log: o.edge.log, Beside: o.edge.world.trusted(o.issuer.Trusts)}
	to.Timeout = max(to.Read, to.Write)
	if s.ClusterMode {
		to.Mode = kv.Cluster
	}
	address := s.Addr
	if c := s.SentinelConfig; c != nil {
		to.Mode, to.Master, to.DB, to.Addresses = kv.Sentinel, c.MasterName, int(c.DB), c.SentinelAddrs
		if c.SentinelService != nil {
			at, err := serviceAddress(c.SentinelService)
			if err != nil {
				return nil, fmt.Errorf("sentinelConfig.sentinelService: %w", err)
			}
			to.Addresses = []string{at}
		}
		address = c.MasterName
		to.Sentinels = &kv.TLS{}
	}
	if s.ACLUserConfig != nil {
		to.Password = read("aclUserConfig.passwordSecretRef", &s.ACLUserConfig.PasswordSecretRef)
		to.User = string(read("aclUserConfig.usernameSecretRef", s.ACLUserConfig.UsernameSecretRef))
	}
	if t := s.TLS; t != nil {
		to.TLS, to.Insecure = true, t.InsecureSkipVerify
		to.CA = []byte(read("tls.caCertSecretRef", t.CACertSecretRef))
	}
	if t := s.SentinelTLS; t != nil {
		to.Sentinels = &kv.TLS{On: true, CA: []byte(read("sentinelTls.caCertSecretRef", t.CACertSecretRef)), Insecure: t.InsecureSkipVerify}
	}
	if err != nil {
		return nil, err
	}
	digest := digestOf(struct {
		Store          *v1beta1.KVStore
		User, Password string
		CA, SentinelCA []byte
		Sentinels      []string
	}{s, to.User, string(to.Password), to.CA, sentinelCA(to.Sentinels), to.Addresses})
	return &sharing{address, digest, to}, nil
}

func sentinelCA(t *kv.TLS) []byte {
	if t == nil {
		return nil
	}
	return t.CA
}

// serviceAddress is where the service of sentinels is, by the first of its names that the
// system knows.
func serviceAddress(s *v1beta1.SentinelService) (string, error) {
	port := 26379
	if s.Port != nil {
		port = int(*s.Port)
	}
	names := []string{s.Name}
	if s.Namespace != "" {
		names = []string{s.Name + "." + s.Namespace + ".svc", s.Name + "." + s.Namespace}
	}
	ctx, cancel := context.WithTimeout(context.Background(), resolveWait)
	defer cancel()
	for _, name := range names {
		if _, err := net.DefaultResolver.LookupHost(ctx, name); err == nil {
			return net.JoinHostPort(name, strconv.Itoa(port)), nil
		}
	}
	return "", fmt.Errorf("only in a cluster: nobody knows the name %s here; write sentinelAddrs", names[0])
}
