package session

import (
	"context"
	"encoding/base64"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/relay"
)

// A session whose server shares a store lies there, so that every edge that
// shares it can go on with it. An edge asks the store for a session that it has
// at most once a second, and writes down that it is used at most four times in
// its lifetime: a call costs nothing of the store in between. Who ends a session
// tells the edges that have it.

const (
	// confirmEvery is for how long an edge takes the store's word for a session.
	confirmEvery = time.Second

	// maxNodes is how many edges a session may be at.
	maxNodes = 64
)

// stored is what the edges that share a store know of a session together.
type stored struct {
	key   string // in the store; "" for a session that is in none
	node  string // this edge; "" where no other can know of the session
	store atomic.Pointer[Store]
	seen  atomic.Int64 // when the store last had it, Unix milliseconds
	slid  atomic.Int64 // when its lifetime there was last renewed
	last  atomic.Pointer[storedSession]
	who   atomic.Pointer[edge.Identity] // who opened its stream here

	confirming sync.Mutex // one asks the store at a time
	following  sync.Mutex // guards subscribed
	subscribed map[string]bool

	roots atomic.Int64 // how often they have changed at another edge, and the backends do not know
}

// question makes the id of a question, JSON text. It leads an answer that comes
// to another edge back to this one.
func (c *stored) question(n uint64) string {
	if c.node == "" {
		return strconv.FormatUint(n, 10)
	}
	return `"` + c.node + "." + strconv.FormatUint(n, 10) + `"`
}

// IDBytes are the random bytes of a session id.
const IDBytes = 16

// Key is where a store has the session of an id; "" for an id that no edge
// made. Nothing that a client sent stands in a key as it is.
func Key(id string) string {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(id)
	if err != nil || len(raw) != IDBytes || len(id) != base64.RawURLEncoding.EncodedLen(IDBytes) {
		return ""
	}
	return "session:" + edge.Digest("session", id)
}

func ownerOf(id, principal string) string { return edge.Digest("owner", id, principal) }

// keepFor is how long a session stays in the store after its lifetime there began
// anew: what is used is not written down at once.
func (ss *Sessions) keepFor() time.Duration {
	longest := ss.o.TTL
	for _, h := range ss.o.Servers() { // a store may be of several
		longest = max(longest, h.TTL)
	}
	return longest + longest/4
}

// ttl is the lifetime of a session of a server.
func (ss *Sessions) ttl(server string) time.Duration {
	if h := ss.o.Servers()[server]; h != nil && h.TTL > 0 {
		return h.TTL
	}
	return ss.o.TTL
}

// ErrForeign refuses a client that comes with the session of another.
func ErrForeign() error {
	return edge.Errorf(edge.NoSession, "session_owner_mismatch", "Session not found")
}

// ErrNone says that there is no such session.
func ErrNone() error { return edge.Errorf(edge.NoSession, "door", "Session not found") }

// errEndedElsewhere says that the store no longer has a session.
var errEndedElsewhere = errors.New("the session has ended")

// enroll puts a new session into the store of its server. One whose id is not new
// may be there already, and is left as it is.
func (ss *Sessions) enroll(store *Store, s *Session, once bool) error {
	r := &storedSession{
		Server: s.Server, Owner: ownerOf(s.ID, s.Owner), Version: s.Version, Nodes: []string{ss.o.Relay.Node},
		said: said{Info: s.Info, Capabilities: s.Capabilities, Attributes: attributesOf(s)},
	}
	key := Key(s.ID)
	var err error
	if !once {
		err = store.Put(context.Background(), key, r.text(), ss.keepFor())
	} else {
		err = store.Update(context.Background(), key, ss.keepFor(), func(old []byte) ([]byte, error) {
			if readRecord(old) != nil {
				return nil, errThere
			}
			return r.text(), nil
		})
	}
	switch {
	case errors.Is(err, errThere):
		return ErrBegun()
	case err != nil:
		return relay.ErrAway()
	}
	ss.joined(store, s, key, r)
	return nil
}

// begun is ErrBegun where the store has a session of an id; nil where it has none, or cannot be
// asked.
func (ss *Sessions) begun(store *Store, id string) error {
	if text, err := store.Head(context.Background(), Key(id), headBytes); err == nil && readHead(text) != nil {
		return ErrBegun()
	}
	return nil
}

// ErrBegun refuses a second initialize.
func ErrBegun() error { return &edge.Error{Kind: edge.Invalid, Op: "door", Err: errBegun} }

var errBegun = errors.New("initialize was sent before")

// errThere says that the store has a session of an id already.
var errThere = errors.New("the session is there already")

// joined notes that a session lies in the store.
func (ss *Sessions) joined(store *Store, s *Session, key string, r *storedSession) {
	now := ss.o.Clock.Now().UnixMilli()
	s.stored.key, s.stored.node = key, ss.o.Relay.Node
	s.stored.store.Store(store)
	s.stored.last.Store(r)
	s.stored.seen.Store(now)
	s.stored.slid.Store(now)
}

// ErrNotHere says that a session may be in the store, and that Restore looks there.
var ErrNotHere = errors.New("the session is not at this edge")

// Find returns the session of an id for the client of a principal at a server, whose
// sessions lie in a store; nil for the memory of the process. The error is ErrNotHere
// when the store has to be asked first whether there is one.
func (ss *Sessions) Find(server string, store *Store, id, principal string) (*Session, error) {
	s := ss.Here(id, ss.o.Clock.Now())
	// Somebody else's session is as unknown as one that is not there.
	switch {
	case s != nil && s.Server != server:
		return nil, ErrNone()
	case s != nil && s.Owner != principal:
		return nil, ErrForeign()
	case s == nil && (store == nil || Key(id) == ""):
		return nil, ErrNone()
	case s == nil && store.Away():
		return nil, relay.ErrAway()
	case s == nil:
		return nil, ErrNotHere
	case store == nil || s.stored.key == "" || s.stored.store.Load() == nil: // it began before the server shared a store, or went on without
		return s, nil
	case store.Away():
		return ss.unconfirmed(s)
	case s.stored.store.Load() == store && !passed(ss.o.Clock.Now().UnixMilli(), s.stored.seen.Load(), confirmEvery):
		return s, nil
	}
	return ss.confirm(store, s)
}

// unconfirmed is what becomes of a session that the store cannot be asked for.
func (ss *Sessions) unconfirmed(s *Session) (*Session, error) {
	if ss.o.ServeWithoutStore {
		return s, nil
	}
	return nil, relay.ErrAway()
}

// confirm asks the store whether it still has a session, and begins the
// session's lifetime there again when that is due.
func (ss *Sessions) confirm(store *Store, s *Session) (*Session, error) {
	c := &s.stored
	c.confirming.Lock()
	defer c.confirming.Unlock()
	now := ss.o.Clock.Now().UnixMilli()
	if c.store.Load() != store { // the server has moved to another one
		switch err := ss.move(store, s); {
		case errors.Is(err, errEndedElsewhere):
			ss.End(s.ID)
			return nil, ErrNone()
		case err != nil:
			return ss.unconfirmed(s)
		}
		return s, nil
	}
	if !passed(now, c.seen.Load(), confirmEvery) {
		return s, nil // somebody else has asked meanwhile
	}
	var r *storedSession
	var err error
	slide := passed(now, c.slid.Load(), ss.ttl(s.Server)/4)
	if slide {
		if r, err = ss.change(store, c.key, func(*storedSession) {}); err == nil {
			c.slid.Store(now)
		}
	} else {
		var text []byte
		if text, err = store.Head(context.Background(), c.key, headBytes); err == nil {
			if r = readHead(text); r == nil {
				err = errEndedElsewhere
			}
		}
	}
	if err == nil {
		ss.learn(store, s, r)
		err = ss.stillThere(store, s, slide)
	}
	switch {
	case errors.Is(err, errEndedElsewhere):
		ss.End(s.ID)
		return nil, ErrNone()
	case err != nil:
		return ss.unconfirmed(s)
	}
	c.seen.Store(now)
	return s, nil
}

// change changes a session in the store, and begins its lifetime anew. The error
// is errEndedElsewhere when the store does not have it.
func (ss *Sessions) change(store *Store, key string, change func(*storedSession)) (*storedSession, error) {
	var r *storedSession
	err := store.Update(context.Background(), key, ss.keepFor(), func(old []byte) ([]byte, error) {
		if r = readRecord(old); r == nil {
			return nil, errEndedElsewhere
		}
		change(r)
		if !slices.Contains(r.Nodes, ss.o.Relay.Node) {
			if len(r.Nodes) == maxNodes {
				r.Nodes = r.Nodes[1:]
			}
			r.Nodes = append(r.Nodes, ss.o.Relay.Node)
		}
		return r.text(), nil
	})
	return r, err
}

// Restore makes a session here of what the store has of it, for the client of a
// principal whom holder counts.
func (ss *Sessions) Restore(store *Store, server, id, principal, holder string) (*Session, error) {
	key := Key(id)
	text, err := store.Get(context.Background(), key)
	if err != nil {
		return nil, relay.ErrAway()
	}
	r := readRecord(text)
	if p := ss.passages.get(server); r == nil && !ended(text) && p != nil && p.to == store {
		// The edge that has it has not moved yet, or has not moved it.
		text, err := p.from.Get(context.Background(), key)
		if err != nil {
			return nil, relay.ErrAway()
		}
		if r = readRecord(text); r != nil && r.Server == server && r.Owner == ownerOf(id, principal) {
			// It is used here from now on, which the old store knows before another
			// edge gives it up there.
			if r, err = ss.change(p.from, key, func(*storedSession) {}); err == nil {
				r, err = ss.adopt(store, key, r)
			}
			if err != nil && !errors.Is(err, errEndedElsewhere) {
				return nil, relay.ErrAway()
			}
			if err != nil {
				r = nil
			}
		}
	}
	// Somebody else's session is as unknown as one that is not there.
	switch {
	case r == nil || r.Server != server:
		return nil, ErrNone()
	case r.Owner != ownerOf(id, principal):
		return nil, ErrForeign()
	}
	place, err := ss.place(ss.o.Clock.Now(), holder)
	if err != nil {
		return nil, err
	}
	s := ss.make(ss.o.Clock.Now(), id, server, principal, r.Version, r.said.Info, r.said.Capabilities)
	if r.Level != "" {
		s.SetLogLevel(r.Level)
	}
	s.said(r.said.Attributes)
	ss.joined(store, s, key, r)
	// It is in the table before the store knows that it is here: whoever gives
	// one up looks there first.
	s = ss.add(s, place)
	switch r, err = ss.change(store, key, func(*storedSession) {}); {
	case errors.Is(err, errEndedElsewhere):
		ss.End(id)
		return nil, ErrNone()
	case err != nil:
		ss.End(id)
		return nil, relay.ErrAway()
	}
	s.stored.last.Store(r)
	return s, nil
}

// EndShared ends a session in its store, and at the other edges; in both stores
// while its server is between two.
func (ss *Sessions) EndShared(s *Session) error {
	store := s.stored.store.Load()
	if store == nil {
		return nil
	}
	var err error
	last := s.stored.last.Load()
	switch p := ss.passages.get(s.Server); {
	case p != nil && (p.from == store || p.to == store):
		if p.to != nil {
			err = ss.entomb(p.to, s.stored.key)
		}
		if !p.from.Away() { // else nobody can go on with it there either
			err = errors.Join(err, ss.forget(p.from, s.stored.key))
		}
	case last != nil && last.Moved: // another edge may be between the stores yet
		err = ss.entomb(store, s.stored.key)
	default:
		err = ss.forget(store, s.stored.key)
	}
	if err != nil {
		return relay.ErrAway()
	}
	return nil
}

// giveUp takes this edge off a session that it no longer keeps. One that no edge
// keeps ends.
func (ss *Sessions) giveUp(s *Session) {
	store := s.stored.store.Load()
	if store == nil {
		return
	}
	ss.o.Work.Go(func() {
		defer edge.Contain(ss.o.Log, "session")
		_ = store.Update(context.Background(), s.stored.key, ss.keepFor(), func(old []byte) ([]byte, error) {
			r := readRecord(old)
			if r == nil {
				return nil, nil
			}
			if ss.known(s.stored.key) != nil {
				return old, nil // it is back
			}
			r.Nodes = slices.DeleteFunc(r.Nodes, func(n string) bool { return n == ss.o.Relay.Node })
			if len(r.Nodes) == 0 {
				return nil, nil
			}
			return r.text(), nil
		}) // what cannot be written down now ends with its lifetime
	})
}

// Slide begins the lifetimes anew of the sessions that are busy and have sent
// nothing for long, such as those that only listen.
func (ss *Sessions) Slide(now time.Time) {
	var late []*Session
	ss.mu.RLock()
	for _, s := range ss.byKey {
		if passed(now.UnixMilli(), s.stored.slid.Load(), ss.ttl(s.Server)/4) && s.busy() {
			late = append(late, s)
		}
	}
	ss.mu.RUnlock()
	if len(late) == 0 || !ss.sliding.CompareAndSwap(false, true) {
		return
	}
	ss.o.Work.Go(func() {
		defer ss.sliding.Store(false)
		defer edge.Contain(ss.o.Log, "session")
		for _, s := range late {
			if store := s.stored.store.Load(); store != nil {
				_, _ = ss.confirm(store, s) // one that has ended ends here, too
			}
		}
	})
}
