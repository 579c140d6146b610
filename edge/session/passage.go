package session

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/relay"
)

// A server moves to another store with a reload, and the edges that share its
// store reload one after the other. While one of them is still at the old store,
// those that have moved keep that open: a session is moved when the old store has
// it, and never over one that is in the new store already; and an end, wherever
// its client came with it, holds in both.

const (
	// homeEvery is how often an edge writes down that a server of its is at a
	// store, and homeFor for how long that holds.
	homeEvery = 2 * time.Second
	homeFor   = 30 * time.Second

	// passageEvery is how often it is looked whether anybody is still at the old
	// store, and lostAfter how long an old store may be away until its sessions
	// are given up.
	passageEvery = 500 * time.Millisecond
	lostAfter    = 10 * time.Second

	// movers is how many sessions are moved at a time.
	movers = 8
)

// passages are the servers that are between two stores.
type passages struct {
	mu sync.Mutex
	of map[string]*passage
}

// passage is one of them.
type passage struct {
	server string
	from   *Store
	to     *Store        // nil for the memory of the process
	by     time.Time     // when it ends: what is in the old store then has been used by nobody
	stop   chan struct{} // closed when another passage begins
}

// get returns the passage of a server; nil for none.
func (p *passages) get(server string) *passage {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of[server]
}

func homeKey(server string) string { return "home:" + edge.Digest("home", server) }

// keepHome writes down that a server is at a store, until ctx ends or over says
// that whoever opened it there needs it no longer.
func (ss *Sessions) keepHome(ctx context.Context, t *Store, server string, over func() bool) {
	defer edge.Contain(ss.o.Log, "home")
	tick := time.NewTicker(homeEvery)
	defer tick.Stop()
	for {
		ends := over()
		if here := ss.isAt(server, t, !ends); here != ends { // else another one says so
			_ = ss.changeHome(t, server, here) // it is tried again, or is forgotten soon
		}
		if ends {
			return
		}
		select {
		case <-ctx.Done():
			return // what is left behind has no heartbeat
		case <-tick.C:
		}
	}
}

// isAt reports whether a server is at a store; otherwise for one that is not
// served, or not yet.
func (ss *Sessions) isAt(server string, t *Store, otherwise bool) bool {
	host := ss.o.Servers()[server]
	if host == nil {
		return otherwise
	}
	return host.Store == t
}

func (ss *Sessions) changeHome(t *Store, server string, here bool) error {
	return t.Update(context.Background(), homeKey(server), homeFor, func(old []byte) ([]byte, error) {
		var nodes []string
		if json.Unmarshal(old, &nodes) != nil || len(nodes) > relay.MaxPeers {
			nodes = nil
		}
		nodes = slices.DeleteFunc(nodes, func(n string) bool { return n == ss.o.Relay.Node || !relay.IsNode(n) || t.Gone(n) })
		if here {
			nodes = append(nodes, ss.o.Relay.Node)
		}
		if len(nodes) == 0 {
			return nil, nil
		}
		return json.Marshal(nodes)
	})
}

// deserted reports whether no other edge has a server at a store.
func (ss *Sessions) deserted(t *Store, server string) bool {
	text, err := t.Get(context.Background(), homeKey(server))
	if err != nil {
		return false
	}
	var nodes []string
	_ = json.Unmarshal(text, &nodes) // what is no list has nobody
	return !slices.ContainsFunc(nodes, func(n string) bool { return n != ss.o.Relay.Node && relay.IsNode(n) && t.Alive(n) })
}

// Depart begins the passage of a server to another store.
func (ss *Sessions) Depart(server string, from, to *Store) {
	p := &passage{server: server, from: from, to: to, by: time.Now().Add(ss.keepFor()), stop: make(chan struct{})}
	ss.Stores.hold(from)
	t := &ss.passages
	t.mu.Lock()
	if t.of == nil {
		t.of = make(map[string]*passage)
	}
	if before := t.of[server]; before != nil {
		close(before.stop)
	}
	t.of[server] = p
	t.mu.Unlock()
	ss.o.Work.Go(func() {
		defer ss.Stores.leave(from)
		defer func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			if t.of[server] == p {
				delete(t.of, server)
			}
		}()
		defer edge.Contain(ss.o.Log, "passage")
		ss.pass(p)
	})
}

// pass moves the sessions of a server and keeps the old store until nobody is
// there any more, and none of them: the new store may be away for a while.
func (ss *Sessions) pass(p *passage) {
	ss.moveAll(p, ss.Of(p.server))
	tick := time.NewTicker(passageEvery)
	defer tick.Stop()
	for quiet := 0; quiet < 2 && time.Now().Before(p.by); {
		select {
		case <-ss.o.End:
			return
		case <-p.stop:
			return
		case <-tick.C:
		}
		if st := p.from.State(); st.Open && time.Since(st.Since) > lostAfter {
			ss.o.Log.Warn("the store that a server has left is away: its sessions that were not moved have ended", "server", p.server, "store", p.from.Address)
			break
		}
		behind := ss.behind(p)
		if len(behind) > 0 && !p.to.Away() {
			ss.moveAll(p, behind)
		}
		if quiet++; len(behind) > 0 || !ss.deserted(p.from, p.server) {
			quiet = 0
		}
	}
	ss.moveAll(p, ss.Of(p.server)) // what was ended there last is known here
	if p.to == nil {
		for _, s := range ss.Of(p.server) {
			s.stored.store.CompareAndSwap(p.from, nil)
		}
	}
}

// behind returns the sessions that are to be moved yet; in the memory of the
// process they are by themselves.
func (ss *Sessions) behind(p *passage) []*Session {
	if p.to == nil {
		return nil
	}
	return slices.DeleteFunc(ss.Of(p.server), func(s *Session) bool { return s.stored.store.Load() != p.from })
}

// moveAll moves sessions of a server that this edge has, and ends those that have
// ended.
func (ss *Sessions) moveAll(p *passage, all []*Session) {
	var work sync.WaitGroup
	todo := make(chan *Session)
	for range movers {
		work.Go(func() {
			defer edge.Contain(ss.o.Log, "passage")
			for s := range todo {
				if ss.left(p, s) {
					ss.End(s.ID)
				}
			}
		})
	}
	for _, s := range all {
		if s.stored.key != "" {
			todo <- s
		}
	}
	close(todo)
	work.Wait()
}

// left moves a session, or looks at one that was moved; it reports whether the
// session has ended. What cannot be said now is said to whoever asks for it next.
func (ss *Sessions) left(p *passage, s *Session) bool {
	s.stored.confirming.Lock()
	defer s.stored.confirming.Unlock()
	var err error
	switch {
	case p.to == nil:
		err = ss.stillAt(p, s.stored.key, true)
	case s.stored.store.Load() == p.from:
		err = ss.move(p.to, s)
	default:
		err = ss.stillThere(p.to, s, false)
	}
	return errors.Is(err, errEndedElsewhere)
}

// stillAt asks the store that a server has left whether it has a session, and
// begins the session's lifetime there anew for slide. The error is errEndedElsewhere
// when it has not, unless its lifetime may have ended there by itself.
func (ss *Sessions) stillAt(p *passage, key string, slide bool) (err error) {
	if slide {
		_, err = ss.change(p.from, key, func(*storedSession) {})
	} else {
		var text []byte
		if text, err = p.from.Head(context.Background(), key, headBytes); err == nil && readHead(text) == nil {
			err = errEndedElsewhere
		}
	}
	if time.Now().After(p.by) {
		return nil
	}
	return err
}

// stillThere asks the store that a session was moved from whether it has ended
// there, at an edge that knows of no other store, and ends it here then. Where
// that store is no more there is nobody who could end it. With slide the session's
// lifetime has begun anew here, and does there: else it would end there in use.
func (ss *Sessions) stillThere(store *Store, s *Session, slide bool) error {
	p := ss.passages.get(s.Server)
	if p == nil || p.to != store {
		return nil
	}
	if r := s.stored.last.Load(); r == nil || !r.Moved {
		return nil
	}
	err := ss.stillAt(p, s.stored.key, slide)
	if errors.Is(err, errEndedElsewhere) {
		_ = ss.entomb(store, s.stored.key) // the store that it was moved from says so, too
		return err
	}
	return nil // who ends it tells this store, too, if he knows it
}

// move puts a session into another store than the one that had it, when that
// still has it. One that is there already is newer. The error is
// errEndedElsewhere for a session that has ended in either, and for one that
// nobody can confirm any more, because its store is closed.
func (ss *Sessions) move(store *Store, s *Session) error {
	from := s.stored.store.Load()
	if from == nil || from.Life.Err() != nil {
		return errEndedElsewhere
	}
	key := s.stored.key
	r, err := ss.change(from, key, func(*storedSession) {})
	if errors.Is(err, errEndedElsewhere) {
		_ = ss.entomb(store, key) // the old store says so, too
	}
	if err != nil {
		return err
	}
	if r, err = ss.adopt(store, key, r); err != nil {
		if errors.Is(err, errEndedElsewhere) {
			_ = ss.forget(from, key) // the new store says so, too
		}
		return err
	}
	now := ss.o.Clock.Now().UnixMilli()
	s.stored.store.Store(store)
	ss.learn(store, s, r)
	s.stored.seen.Store(now)
	s.stored.slid.Store(now)
	return nil
}

// adopt puts a record into a store that it was not in, and returns what is there.
func (ss *Sessions) adopt(store *Store, key string, was *storedSession) (*storedSession, error) {
	r := *was
	err := store.Update(context.Background(), key, ss.keepFor(), func(old []byte) ([]byte, error) {
		r = *was
		r.Moved, r.Nodes = true, nil
		switch there := readRecord(old); {
		case there != nil && there.Set >= was.Set:
			r = *there
		case there != nil: // the session left this store before, and has changed since
			r.Nodes = there.Nodes
		case ended(old):
			return nil, errEndedElsewhere
		}
		if !slices.Contains(r.Nodes, ss.o.Relay.Node) && len(r.Nodes) < maxNodes {
			r.Nodes = append(slices.Clone(r.Nodes), ss.o.Relay.Node)
		}
		return r.text(), nil
	})
	return &r, err
}

// entomb has a store remember that a session has ended, for as long as somebody
// may come to move it there.
func (ss *Sessions) entomb(store *Store, key string) error {
	gone := storedSession{Ended: true}
	var r *storedSession
	err := store.Update(context.Background(), key, ss.keepFor(), func(old []byte) ([]byte, error) {
		r = readHead(old)
		return gone.text(), nil
	})
	if err == nil && r != nil {
		ss.tellOthers(store, r, relay.Message{Kind: relay.KindEnd, Session: key}, nil)
	}
	return err
}

// forget ends a session in a store, and at the other edges that have it there.
func (ss *Sessions) forget(store *Store, key string) error {
	var r *storedSession
	err := store.Update(context.Background(), key, ss.keepFor(), func(old []byte) ([]byte, error) {
		r = readHead(old)
		return nil, nil
	})
	if err == nil && r != nil {
		ss.tellOthers(store, r, relay.Message{Kind: relay.KindEnd, Session: key}, nil)
	}
	return err
}

// endedAt has the other store know of an end that came from one of two.
func (ss *Sessions) endedAt(t *Store, s *Session) {
	if p := ss.passages.get(s.Server); p != nil && p.from == t && p.to != nil {
		_ = ss.entomb(p.to, s.stored.key) // the old store says so, too
	}
}
