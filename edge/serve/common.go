package serve

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
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

// common is what the edges that share a store know of a session together.
type common struct {
	key   string // in the store; "" for a session that is in none
	node  string // this edge; "" where no other can know of the session
	store atomic.Pointer[shared]
	seen  atomic.Int64 // when the store last had it, Unix milliseconds
	slid  atomic.Int64 // when its lifetime there last began anew
	last  atomic.Pointer[record]
	who   atomic.Pointer[edge.Identity] // who opened its stream here

	confirming sync.Mutex // one asks the store at a time
	following  sync.Mutex // guards subscribed
	subscribed map[string]bool
}

// question makes the id of a question, JSON text. It leads an answer that comes
// to another edge back to this one.
func (c *common) question(n uint64) string {
	if c.node == "" {
		return strconv.FormatUint(n, 10)
	}
	return `"` + c.node + "." + strconv.FormatUint(n, 10) + `"`
}

// idBytes are the random bytes of a session id.
const idBytes = 16

// keyOf is where a store has the session of an id; "" for an id that no edge
// made. Nothing that a client sent stands in a key as it is.
func keyOf(id string) string {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(id)
	if err != nil || len(raw) != idBytes || len(id) != base64.RawURLEncoding.EncodedLen(idBytes) {
		return ""
	}
	return "session:" + digestText("session", id)
}

func digestText(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write([]byte(strconv.Itoa(len(p)) + ":" + p))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

func ownerOf(id, principal string) string { return digestText("owner", id, principal) }

// keepFor is how long a session stays in the store after its lifetime there began
// anew: what is used is not written down at once.
func (e *Edge) keepFor() time.Duration { return e.settings.SessionTTL + e.settings.SessionTTL/4 }

func errForeignSession() error {
	return edge.Errorf(edge.NoSession, "session_owner_mismatch", "Session not found")
}

func errNoSession() error { return edge.Errorf(edge.NoSession, "door", "Session not found") }

// errEndedElsewhere says that the store no longer has a session.
var errEndedElsewhere = errors.New("the session has ended")

// enroll puts a new session into the store of its server. One whose id is not new
// may be there already, and is left as it is.
func (e *Edge) enroll(store *shared, s *session, once bool) error {
	r := &record{
		Server: s.server, Owner: ownerOf(s.ID, s.Owner), Version: s.Version, Nodes: []string{e.relay.Node},
		said: said{Info: s.Info, Capabilities: s.Capabilities},
	}
	key := keyOf(s.ID)
	var err error
	if !once {
		err = store.Put(context.Background(), key, r.text(), e.keepFor())
	} else {
		err = store.Update(context.Background(), key, e.keepFor(), func(old []byte) ([]byte, error) {
			if readRecord(old) != nil {
				return nil, errThere
			}
			return r.text(), nil
		})
	}
	switch {
	case errors.Is(err, errThere):
		return errBegunBefore()
	case err != nil:
		return relay.ErrAway()
	}
	e.joined(store, s, key, r)
	return nil
}

// errThere says that the store has a session of an id already.
var errThere = errors.New("the session is there already")

// joined notes that a session lies in the store.
func (e *Edge) joined(store *shared, s *session, key string, r *record) {
	now := e.door.Clock.Now().UnixMilli()
	s.common.key, s.common.node = key, e.relay.Node
	s.common.store.Store(store)
	s.common.last.Store(r)
	s.common.seen.Store(now)
	s.common.slid.Store(now)
}

// commonSession finds the session of a request to a server that shares a store.
// s is the session of that id that this edge has; nil for none.
func (e *Edge) commonSession(h *head, server *server, s *session, id string) (*session, error) {
	store := server.shared
	switch {
	case s == nil && keyOf(id) == "":
		return nil, errNoSession()
	case s == nil && store.Away():
		return nil, relay.ErrAway()
	case s == nil:
		return e.restore(store, server, id, h.who.Principal(), e.holder(h))
	case s.common.key == "" || s.common.store.Load() == nil: // it began before the server shared a store, or went on without
		return s, nil
	case store.Away():
		return e.unconfirmed(s)
	case s.common.store.Load() == store && e.door.Clock.Now().UnixMilli()-s.common.seen.Load() < confirmEvery.Milliseconds():
		return s, nil
	}
	return e.confirm(store, s)
}

// unconfirmed is what becomes of a session that the store cannot be asked for.
func (e *Edge) unconfirmed(s *session) (*session, error) {
	if e.settings.StoreFailure == "open" {
		return s, nil
	}
	return nil, relay.ErrAway()
}

// confirm asks the store whether it still has a session, and begins the
// session's lifetime there anew when that is due.
func (e *Edge) confirm(store *shared, s *session) (*session, error) {
	c := &s.common
	c.confirming.Lock()
	defer c.confirming.Unlock()
	now := e.door.Clock.Now().UnixMilli()
	if c.store.Load() != store { // the server has moved to another one
		switch err := e.move(store, s); {
		case errors.Is(err, errEndedElsewhere):
			e.sessions.end(s.ID)
			return nil, errNoSession()
		case err != nil:
			return e.unconfirmed(s)
		}
		return s, nil
	}
	if now-c.seen.Load() < confirmEvery.Milliseconds() {
		return s, nil // somebody else has asked meanwhile
	}
	var r *record
	var err error
	slide := now-c.slid.Load() >= e.settings.SessionTTL.Milliseconds()/4
	if slide {
		if r, err = e.change(store, c.key, func(*record) {}); err == nil {
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
		e.learn(store, s, r)
		err = e.stillThere(store, s, slide)
	}
	switch {
	case errors.Is(err, errEndedElsewhere):
		e.sessions.end(s.ID)
		return nil, errNoSession()
	case err != nil:
		return e.unconfirmed(s)
	}
	c.seen.Store(now)
	return s, nil
}

// change changes a session in the store, and begins its lifetime anew. The error
// is errEndedElsewhere when the store does not have it.
func (e *Edge) change(store *shared, key string, change func(*record)) (*record, error) {
	var r *record
	err := store.Update(context.Background(), key, e.keepFor(), func(old []byte) ([]byte, error) {
		if r = readRecord(old); r == nil {
			return nil, errEndedElsewhere
		}
		change(r)
		if !slices.Contains(r.Nodes, e.relay.Node) {
			if len(r.Nodes) == maxNodes {
				r.Nodes = r.Nodes[1:]
			}
			r.Nodes = append(r.Nodes, e.relay.Node)
		}
		return r.text(), nil
	})
	return r, err
}

// restore makes a session here of what the store has of it, for the client of a
// principal whom holder counts.
func (e *Edge) restore(store *shared, server *server, id, principal, holder string) (*session, error) {
	key := keyOf(id)
	text, err := store.Get(context.Background(), key)
	if err != nil {
		return nil, relay.ErrAway()
	}
	r := readRecord(text)
	if p := e.passages.get(server.name); r == nil && !ended(text) && p != nil && p.to == store {
		// The edge that has it has not moved yet, or has not moved it.
		text, err := p.from.Get(context.Background(), key)
		if err != nil {
			return nil, relay.ErrAway()
		}
		if r = readRecord(text); r != nil && r.Server == server.name && r.Owner == ownerOf(id, principal) {
			// It is used here from now on, which the old store knows before another
			// edge gives it up there.
			if r, err = e.change(p.from, key, func(*record) {}); err == nil {
				r, err = e.adopt(store, key, r)
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
	case r == nil || r.Server != server.name:
		return nil, errNoSession()
	case r.Owner != ownerOf(id, principal):
		return nil, errForeignSession()
	}
	place, err := e.sessions.place(e.door.Clock.Now(), holder)
	if err != nil {
		return nil, err
	}
	s := e.sessions.make(e.door.Clock.Now(), id, server.name, principal, r.Version, r.said.Info, r.said.Capabilities)
	if r.Level != "" {
		s.SetLogLevel(r.Level)
	}
	e.joined(store, s, key, r)
	// It is in the table before the store knows that it is here: whoever gives
	// one up looks there first.
	s = e.sessions.add(s, place)
	switch r, err = e.change(store, key, func(*record) {}); {
	case errors.Is(err, errEndedElsewhere):
		e.sessions.end(id)
		return nil, errNoSession()
	case err != nil:
		e.sessions.end(id)
		return nil, relay.ErrAway()
	}
	s.common.last.Store(r)
	return s, nil
}

// endCommon ends a session in its store, and at the other edges; in both stores
// while its server is between two.
func (e *Edge) endCommon(s *session) error {
	store := s.common.store.Load()
	if store == nil {
		return nil
	}
	var err error
	last := s.common.last.Load()
	switch p := e.passages.get(s.server); {
	case p != nil && (p.from == store || p.to == store):
		if p.to != nil {
			err = e.entomb(p.to, s.common.key)
		}
		if !p.from.Away() { // else nobody can go on with it there either
			err = errors.Join(err, e.forget(p.from, s.common.key))
		}
	case last != nil && last.Moved: // another edge may be between the stores yet
		err = e.entomb(store, s.common.key)
	default:
		err = e.forget(store, s.common.key)
	}
	if err != nil {
		return relay.ErrAway()
	}
	return nil
}

// giveUp takes this edge off a session that it no longer keeps. One that no edge
// keeps ends.
func (e *Edge) giveUp(s *session) {
	store := s.common.store.Load()
	if store == nil {
		return
	}
	e.work.Go(func() {
		defer edge.Contain(e.log, "session")
		_ = store.Update(context.Background(), s.common.key, e.keepFor(), func(old []byte) ([]byte, error) {
			r := readRecord(old)
			if r == nil {
				return nil, nil
			}
			if e.sessions.known(s.common.key) != nil {
				return old, nil // it is back
			}
			r.Nodes = slices.DeleteFunc(r.Nodes, func(n string) bool { return n == e.relay.Node })
			if len(r.Nodes) == 0 {
				return nil, nil
			}
			return r.text(), nil
		}) // what cannot be written down now ends with its lifetime
	})
}

// slide begins the lifetimes anew of the sessions that are busy and have sent
// nothing for long, such as those that only listen.
func (e *Edge) slide(now time.Time) {
	due := now.UnixMilli() - e.settings.SessionTTL.Milliseconds()/4
	var late []*session
	e.sessions.mu.RLock()
	for _, s := range e.sessions.byKey {
		if s.common.slid.Load() < due && s.busy() {
			late = append(late, s)
		}
	}
	e.sessions.mu.RUnlock()
	if len(late) == 0 || !e.sliding.CompareAndSwap(false, true) {
		return
	}
	e.work.Go(func() {
		defer e.sliding.Store(false)
		defer edge.Contain(e.log, "session")
		for _, s := range late {
			if store := s.common.store.Load(); store != nil {
				_, _ = e.confirm(store, s) // one that has ended ends here, too
			}
		}
	})
}
