package serve

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/kv"
	"github.com/weir-edge/weir/edge/relay"
)

// stores are the stores that servers share with those of other edges: one for
// each way to reach one, opened with the first server that uses it and closed
// with the last.
type stores struct {
	mu   sync.Mutex
	open map[string]*shared // by digest
}

// carrier is what edges share: values, and boxes by which they write to each
// other.
type carrier interface {
	edge.Store
	Head(ctx context.Context, key string, most int) ([]byte, error)
	Away() bool
	State() kv.State
	Ready() error
	Counters() kv.Counters
	Close() error
}

// shared is one of them.
type shared struct {
	carrier
	relay.Link
	digest string
	uses   int         // servers; stores.mu guards it
	met    atomic.Bool // it has answered once
	keeper *keeper
	end    context.CancelFunc // of its Life
}

// share makes a store of what carries it. Nothing is read from it yet.
func (e *Edge) share(c carrier, address string, signer *relay.Signer) *shared {
	t := &shared{carrier: c, keeper: newKeeper()}
	t.Link = relay.Link{
		Relay: e.relay, Store: c, Since: func() time.Time { return c.State().Since }, Address: address, Signer: signer,
		Largest: e.settings.letterSize(), Cap: e.settings.CallCap, Handle: e.handlers(t),
	}
	t.Life, t.end = context.WithCancel(context.Background())
	return t
}

// id tells one store from another; "" for none.
func (s *shared) id() string {
	if s == nil {
		return ""
	}
	return s.digest
}

// use opens the store that a server of the plan asks for, or finds it open. It
// is given back when the server ends. nil stands for the memory of the process.
func (e *Edge) use(s *server, p *compile.Store) (*shared, error) {
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
	e.stores.mu.Lock()
	defer e.stores.mu.Unlock()
	one := e.stores.open[digest]
	if one == nil {
		redis, err := kv.Redis(o)
		if err != nil {
			return nil, err
		}
		one = e.share(redis, p.Address, e.signer)
		one.digest = digest
		one.Join(one.Life)
		one.Work.Go(func() {
			defer edge.Contain(e.log, "stream logs")
			one.keeper.run(one.Life, one)
		})
		if !e.sharedKey {
			e.log.Warn("a parked call can only be gone on with at this edge: edges that share a store need one key. What edges write to each other is not signed", "store", p.Address, "do", "give all of them the same --state-key-file, or the secret weir-state with the key key")
		}
		if e.stores.open == nil {
			e.stores.open = make(map[string]*shared)
		}
		e.stores.open[digest] = one
	}
	one.uses++
	var left atomic.Bool
	s.after = append(s.after, func() {
		if left.CompareAndSwap(false, true) {
			e.stores.leave(one)
		}
	})
	name := s.name
	one.Work.Go(func() { e.keepHome(one.Life, one, name, left.Load) })
	return one, nil
}

// hold keeps a store open until leave.
func (t *stores) hold(one *shared) {
	t.mu.Lock()
	defer t.mu.Unlock()
	one.uses++
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

// leave gives a store back. The last one closes it.
func (t *stores) leave(one *shared) {
	t.mu.Lock()
	one.uses--
	last := one.uses == 0
	if last {
		delete(t.open, one.digest)
	}
	t.mu.Unlock()
	if last {
		one.end()
		one.Work.Wait()
		_ = one.Close() // what it held open is gone in any case
	}
}

// list returns the stores that are open.
func (t *stores) list() []*shared {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]*shared, 0, len(t.open))
	for _, one := range t.open {
		all = append(all, one)
	}
	return all
}

// strangers reports whether a store has not answered yet, not once. One that
// goes away later leaves the edge ready: it serves what needs no store, and no
// other edge would fare better.
func (t *stores) strangers() bool {
	for _, one := range t.list() {
		if one.met.Load() {
			continue
		}
		if one.Ready() != nil {
			return true
		}
		one.met.Store(true)
	}
	return false
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
	if s.shared == nil {
		return nil
	}
	state, counted := s.shared.State(), s.shared.Counters()
	out := &storeStatus{Address: s.shared.Address, Connected: state.Ready, Calls: counted.Calls, Failed: counted.Failures + counted.Refused, Dropped: s.shared.Signer.Dropped.Load()}
	if err := s.shared.Ready(); err != nil {
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

// Collect is edge.Collector.Collect: what the store counts, and the letters in it.
func (t *shared) Collect(m edge.Emitter) {
	up := 0.0
	if t.Ready() == nil {
		up = 1
	}
	m.Gauge("weir_store_up", "1 while the shared store answers.", up)
	t.Counters().Collect(m)
	m.Counter("weir_store_letters_dropped", "Messages in the shared store that no replica with the same key wrote lately.", float64(t.Signer.Dropped.Load()))
}
