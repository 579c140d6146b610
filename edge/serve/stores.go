package serve

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/kv"
	"github.com/weir-edge/weir/edge/session"
)

// use opens the store that a server of the plan asks for, or finds it open. It
// is given back when the server ends. nil stands for the memory of the process.
func (e *Edge) use(s *server, name string, p *compile.Store) (*session.Store, error) {
	if p == nil {
		return nil, nil
	}
	password := e.storePassword
	if p.Password != nil {
		var err error
		if password, err = e.password(s, p.Password); err != nil {
			return nil, err
		}
	}
	o := p.Options()
	o.Password, o.SentinelUser, o.SentinelPassword = password, e.sentinelUser, e.sentinelPassword
	o.Timeout, o.Log = e.settings.StoreTimeout, e.log
	if size := e.settings.letterSize(); size > 16<<20 { // what a store takes by itself is less
		o.Value, o.BoxBytes = size, max(4*size, 64<<20)
	}
	if o.TLS && e.settings.StoreCA != "" {
		var err error
		if o.CA, err = os.ReadFile(e.settings.StoreCA); err != nil {
			return nil, fmt.Errorf("--store-ca: %w", err)
		}
	}
	digest := digestOf(struct {
		Store    compile.Store
		Password string
		CA       []byte
	}{*p, string(password), o.CA})
	one, release, err := e.sessions.OpenStore(name, digest, p.Address, func() (session.Carrier, error) { return kv.Redis(o) })
	if err != nil {
		return nil, err
	}
	s.after = append(s.after, release)
	return one, nil
}

// password finds the password that a sessionStorage refers to.
func (e *Edge) password(s *server, key *compile.SecretKey) (edge.Secret, error) {
	secrets := e.env(s).Secrets
	if secrets == nil {
		return "", fmt.Errorf("passwordRef: secret %s has nowhere to be looked for", key.Name)
	}
	password, err := secrets.Secret(context.Background(), key.Name, key.Key)
	if err != nil {
		return "", fmt.Errorf("passwordRef: %w", err)
	}
	return password, nil
}

// storeStatus is what /status says of the store that a server shares.
type storeStatus struct {
	Address   string     `json:"address"`
	Connected bool       `json:"connected"`
	Message   string     `json:"message,omitempty"` // what is wrong
	Since     *time.Time `json:"since,omitempty"`   // when it went away
	Calls     uint64     `json:"calls"`
	Failed    uint64     `json:"failed"`
	Dropped   uint64     `json:"droppedLetters,omitempty"` // that no edge with this one's key wrote lately
}

func (s *server) storeStatus() *storeStatus {
	if s.store == nil {
		return nil
	}
	state, counted := s.store.State(), s.store.Counters()
	out := &storeStatus{Address: s.store.Address, Connected: state.Ready, Calls: counted.Calls, Failed: counted.Failures + counted.Refused, Dropped: s.store.Signer.Dropped.Load()}
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

// limitStatus is what /status says of the rate limits of a server.
type limitStatus struct {
	Admitted  uint64 `json:"admitted"`
	Limited   uint64 `json:"limited"`
	Uncounted uint64 `json:"uncounted"` // calls that the store could not count
	FailOpen  uint64 `json:"failOpen"`  // of those, the ones that were admitted
}

func (s *server) limitStatus() *limitStatus {
	if s.limits == nil {
		return nil
	}
	c := s.limits.Counters()
	out := &limitStatus{Admitted: c.Admitted, Uncounted: c.StoreErrors, FailOpen: c.FailOpen}
	for _, n := range c.Limited {
		out.Limited += n
	}
	return out
}
