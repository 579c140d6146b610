package session

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/kv"
	"github.com/weir-edge/weir/edge/relay"
)

// Stores are the stores that servers share with those of other edges: one for
// each way to reach one, opened with the first server that uses it and closed
// with the last.
type Stores struct {
	mu   sync.Mutex
	open map[string]*Store // by Digest
}

// Carrier is what edges share: values, and boxes by which they write to each
// other.
type Carrier interface {
	edge.Store
	Head(ctx context.Context, key string, most int) ([]byte, error)
	Away() bool
	State() kv.State
	Ready() error
	Counters() kv.Counters
	Close() error
}

// Store is one of them.
type Store struct {
	Carrier
	relay.Link
	Digest string      // of how it is reached, which tells it from another
	uses   int         // servers; Stores.mu guards it
	met    atomic.Bool // it has answered once
	writer *logWriter
	end    context.CancelFunc // of its Life
}

// Share makes a store of what carries it. Nothing is read from it yet.
func (ss *Sessions) Share(c Carrier, address string) *Store { return ss.share(c, address, ss.o.Signer) }

func (ss *Sessions) share(c Carrier, address string, signer *relay.Signer) *Store {
	t := &Store{Carrier: c, writer: newLogWriter()}
	t.Link = relay.Link{
		Relay: ss.o.Relay, Store: c, Since: func() time.Time { return c.State().Since }, Address: address, Signer: signer,
		Largest: ss.o.Largest, Cap: ss.o.CallCap, Handle: ss.handlers(t),
	}
	t.Life, t.end = context.WithCancel(context.Background())
	return t
}

// ID tells one store from another; "" for none.
func (s *Store) ID() string {
	if s == nil {
		return ""
	}
	return s.Digest
}

// OpenStore opens the store of a digest for a server, or finds it open. It is given
// back by release, which may be called more than once.
func (ss *Sessions) OpenStore(server, digest, address string, open func() (Carrier, error)) (_ *Store, release func(), err error) {
	t := &ss.Stores
	t.mu.Lock()
	defer t.mu.Unlock()
	one := t.open[digest]
	if one == nil {
		c, err := open()
		if err != nil {
			return nil, nil, err
		}
		one = ss.share(c, address, ss.o.Signer)
		one.Digest = digest
		one.Join(one.Life)
		one.Work.Go(func() {
			defer edge.Contain(ss.o.Log, "stream logs")
			one.writer.run(one.Life, one)
		})
		if !ss.o.SharedKey {
			ss.o.Log.Warn("a parked call can only be gone on with at this edge: edges that share a store need one key. What edges write to each other is not signed", "store", address, "do", "give all of them the same --state-key-file, or the secret weir-state with the key key")
		}
		if t.open == nil {
			t.open = make(map[string]*Store)
		}
		t.open[digest] = one
	}
	one.uses++
	var left atomic.Bool
	one.Work.Go(func() { ss.keepHome(one.Life, one, server, left.Load) })
	return one, func() {
		if left.CompareAndSwap(false, true) {
			t.leave(one)
		}
	}, nil
}

// hold keeps a store open until leave.
func (t *Stores) hold(one *Store) {
	t.mu.Lock()
	defer t.mu.Unlock()
	one.uses++
}

// leave gives a store back. The last one closes it.
func (t *Stores) leave(one *Store) {
	t.mu.Lock()
	one.uses--
	last := one.uses == 0
	if last {
		delete(t.open, one.Digest)
	}
	t.mu.Unlock()
	if last {
		one.end()
		one.Work.Wait()
		_ = one.Close() // what it held open is gone in any case
	}
}

// List returns the stores that are open.
func (t *Stores) List() []*Store {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]*Store, 0, len(t.open))
	for _, one := range t.open {
		all = append(all, one)
	}
	return all
}

// Strangers reports whether a store has not answered yet, not once, or does not know
// yet that this edge is alive: until then no other edge passes on messages to it. A
// store that goes away later leaves the edge ready: it serves what needs no store,
// and no other edge would fare better.
func (t *Stores) Strangers() bool {
	for _, one := range t.List() {
		if one.met.Load() {
			continue
		}
		if one.Ready() != nil || !one.Lease.Begun() {
			return true
		}
		one.met.Store(true)
	}
	return false
}

// Collect is edge.Collector.Collect: what the store counts, and the messages in it.
func (t *Store) Collect(m edge.Emitter) {
	up := 0.0
	if t.Ready() == nil {
		up = 1
	}
	m.Gauge("weir_store_up", "1 while the shared store answers.", up)
	t.Counters().Collect(m)
	m.Counter("weir_store_messages_dropped", "Messages in the shared store that no replica with the same key wrote lately.", float64(t.Signer.Dropped.Load()))
}
