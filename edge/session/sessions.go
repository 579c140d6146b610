package session

import (
	"container/heap"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/backend"
	"github.com/weir-edge/weir/edge/door"
	"github.com/weir-edge/weir/edge/kv"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/relay"
)

// Options configure the table of sessions.
type Options struct {
	Most    int           // sessions of all holders
	Each    int           // sessions of one
	Streams int           // long-lived streams of one
	TTL     time.Duration // of a session that nobody uses, unless its server says otherwise
	CallCap time.Duration // the longest a call may take
	Largest int           // bytes of a message between replicas

	ServeWithoutStore bool // sessions go on while their store is away
	SharedKey         bool // messages of replicas are signed with a common key
	HandOver          bool // another process may go on with the sessions

	Relay  *relay.Relay
	Signer *relay.Signer
	Memory *kv.MemoryStore // of the process
	Clock  *door.Clock
	Log    *slog.Logger
	Work   *sync.WaitGroup // of goroutines that are started here
	End    <-chan struct{} // closed when they are to end

	// Servers returns the servers that are served now, by name; nil before the first.
	Servers func() map[string]*Host

	// Handlers returns the handlers of messages that are about no session, by kind.
	Handlers func(*Store) map[string]relay.Handler

	// Wanted reports whether this edge has what a replica asks for, other than a session.
	Wanted func(relay.Message, []byte) error

	// Keys returns the keys that seal states, and TakeKeys adds those of the process
	// before.
	Keys     func() [][]byte
	TakeKeys func([][]byte)
}

// Host is a server as its sessions see it.
type Host struct {
	Store    *Store             // of its sessions; nil for the memory of the process
	Backends []*backend.Backend // whose sessions are handed over with the client's
	Digest   string             // of what the server is made from, to compare with another process
	Guarded  bool               // clients have to authenticate
	TTL      time.Duration      // of a session that nobody uses; 0 for that of the options

	// Ask sends a request of the edge's own for a session, through the same filters as the
	// client's.
	Ask func(context.Context, *edge.Exchange) (*edge.Response, error)

	// Level sets the log level of a session at the backends.
	Level func(ctx context.Context, s *edge.Session, level string)

	// Notify tells the backends what the client of a session has said at another edge.
	Notify func(context.Context, *edge.Session, *mcp.Message)

	// Hear begins to listen to the backends for a session of somebody, until the context
	// ends.
	Hear func(context.Context, *edge.Session, *edge.Identity, edge.Client)

	// Told is the way for what the edge itself tells a session of somebody: to, through
	// the programs that are asked about it.
	Told func(s *edge.Session, who *edge.Identity, to edge.Client) edge.Client

	// End tells programs that a session has ended; nil if none wants to know.
	End func(*edge.Session)

	// Tasks returns the known tasks and resources, and by what policies judge tasks; TakeTask adds one. It
	// reports false if there is no such backend.
	Tasks    func() []Task
	TakeTask func(Task) bool
}

// backend returns the backend of a name; nil for none.
func (h *Host) backend(name string) *backend.Backend {
	for _, b := range h.Backends {
		if b.Name == name {
			return b
		}
	}
	return nil
}

// Sessions holds the legacy sessions of a process. Ids are 128 random bits, which nobody can
// guess. A session ends when it was not used for its lifetime. Each holder has a limit:
// beyond it, its own least recently used session ends, and nobody else's.
type Sessions struct {
	Streams Streams // long-lived ones
	Stores  Stores  // that replicas share

	o        Options
	node     string // of this edge if other processes may take over its sessions; else ""
	passages passages
	sliding  atomic.Bool // lifetimes in stores are being renewed

	mail   *Store                  // the socket between processes of this host; nil for none
	elders elders                  // processes before this one
	heir   atomic.Pointer[handing] // the process after it; nil for none

	kept  atomic.Int64  // bytes in their logs
	turns atomic.Uint64 // count of requests so far

	mu      sync.RWMutex
	byID    map[string]*Session
	byKey   map[string]*Session // those in a store, by their keys there; all if other processes may take them over
	holders map[string]*holder
	coming  int // places taken for sessions that are being made
}

// holder is the sessions of one holder: see edge.Holder.
type holder struct {
	name   string
	places int          // sessions, and those to come
	kept   atomic.Int64 // bytes in the logs of the sessions
	least  []*Session   // a heap by known: the least recently used comes first
}

func (h *holder) Len() int           { return len(h.least) }
func (h *holder) Less(i, j int) bool { return h.least[i].known < h.least[j].known }
func (h *holder) Swap(i, j int) {
	h.least[i], h.least[j] = h.least[j], h.least[i]
	h.least[i].at, h.least[j].at = i, j
}

// Push and Pop are for container/heap.
func (h *holder) Push(v any) {
	s := v.(*Session)
	s.at = len(h.least)
	h.least = append(h.least, s)
}

func (h *holder) Pop() any {
	last := len(h.least) - 1
	s := h.least[last]
	h.least[last] = nil
	h.least = h.least[:last]
	return s
}

// New makes a table without sessions.
func New(o Options) *Sessions {
	ss := &Sessions{o: o, byID: make(map[string]*Session), byKey: make(map[string]*Session), holders: make(map[string]*holder)}
	if o.HandOver {
		ss.node = o.Relay.Node
	}
	return ss
}

// passed reports whether some time has passed between two times in milliseconds. It has where the
// clock was set back meanwhile: nobody knows.
func passed(now, since int64, d time.Duration) bool {
	return now-since >= d.Milliseconds() || now < since
}

// Touch marks a session as used. The clock is coarse, but the order of uses is exact.
func (ss *Sessions) Touch(s *Session, now time.Time) {
	s.turn.Store(ss.turns.Add(1))
	if at := now.UnixMilli(); s.used.Load() != at {
		s.used.Store(at)
	}
}

// Beginning describes a session to begin.
type Beginning struct {
	ID    string // given by the stream of the older transport; "" for a new one
	Store *Store // that it lies in; nil for none

	Server, Owner, Holder, Version string
	Info, Capabilities             []byte // JSON text; Info is nil if the client gave none
	Forward                        []edge.Header

	// Judge says whether the session may begin, before anybody can find it. What it says of
	// the session goes into the store with it. nil: it may.
	Judge func(*Session) error
}

// Begin makes a session. Without a place for it the error is Overload: see place.
func (ss *Sessions) Begin(b Beginning) (*Session, error) {
	id, now := b.ID, ss.o.Clock.Now()
	if id == "" {
		var raw [IDBytes]byte
		if _, err := rand.Read(raw[:]); err != nil {
			return nil, edge.Errorf(edge.Internal, "session id", "%w", err)
		}
		id = base64.RawURLEncoding.EncodeToString(raw[:])
	}
	h, err := ss.place(now, b.Holder)
	if err != nil {
		return nil, err
	}
	s := ss.make(now, id, b.Server, b.Owner, b.Version, b.Info, b.Capabilities)
	s.Forward = b.Forward
	if b.ID != "" && b.Store != nil {
		err = ss.begun(b.Store, b.ID)
	}
	if b.Judge != nil && err == nil {
		err = b.Judge(s)
	}
	if b.Store != nil && err == nil {
		err = ss.enroll(b.Store, s, b.ID != "")
		if b.ID != "" && edge.KindOf(err) == edge.Overload {
			err = nil // it ends with its stream, which is here, and needs no store
		}
	}
	if err != nil {
		ss.vacate(h)
		if !errors.Is(err, errBegun) { // else what programs have of it is that of the one which began before
			s.end() // programs that were told of its beginning are
		}
		return nil, err
	}
	return ss.add(s, h), nil
}

// make returns a session that is not in the table yet.
func (ss *Sessions) make(now time.Time, id, server, owner, version string, info, capabilities []byte) *Session {
	s := &Session{Server: server, of: ss, Session: edge.Session{
		ID:           id,
		Owner:        owner,
		Version:      version,
		Info:         info,
		Capabilities: capabilities,
	}}
	s.stored.node = ss.node
	ss.Touch(s, now)
	return s
}

// place takes a place for a session of a holder, which add fills or vacate gives back. If
// there is none, the holder's least recently used idle session ends; without one the error
// is Overload.
func (ss *Sessions) place(now time.Time, name string) (*holder, error) {
	return ss.placeFor(now, name, true)
}

// placeIfFree is place, but ends no session.
func (ss *Sessions) placeIfFree(now time.Time, name string) (*holder, error) {
	return ss.placeFor(now, name, false)
}

func (ss *Sessions) placeFor(now time.Time, name string, evict bool) (*holder, error) {
	ss.mu.Lock()
	h := ss.holders[name]
	if h == nil {
		h = &holder{name: name}
	}
	var gone *Session
	if mine := h.places >= ss.o.Each; mine || len(ss.byID)+ss.coming >= ss.o.Most {
		if evict {
			gone = ss.idle(h, now)
		}
		if gone == nil {
			ss.mu.Unlock()
			if mine {
				return nil, edge.Errorf(edge.Overload, "session", "this client has %d sessions, which is the limit, and all of them are in use; end one with DELETE", ss.o.Each)
			}
			return nil, edge.Errorf(edge.Overload, "session", "all %d sessions are taken; try again later", ss.o.Most)
		}
		ss.take(gone)
	}
	h.places++
	ss.coming++
	ss.holders[name] = h
	ss.mu.Unlock()
	if gone != nil {
		ss.giveUp(gone)
		gone.end()
	}
	return h, nil
}

// idle returns the least recently used session of a holder without anything under way; nil
// for none. t.mu is held.
func (ss *Sessions) idle(h *holder, now time.Time) (found *Session) {
	var busy []*Session
	for found == nil && len(h.least) > 0 {
		s := h.least[0]
		switch is := s.turn.Load(); {
		case is != s.known: // used since it got its place
			s.known = is
			heap.Fix(h, 0)
		case s.busy():
			busy = append(busy, heap.Pop(h).(*Session))
		default:
			found = s
		}
	}
	for _, s := range busy {
		ss.Touch(s, now)
		s.known = s.turn.Load()
		heap.Push(h, s)
	}
	return found
}

// vacate gives back a place.
func (ss *Sessions) vacate(h *holder) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.coming--
	ss.free(h)
}

// free subtracts a place from a holder; t.mu is held.
func (ss *Sessions) free(h *holder) {
	if h.places--; h.places == 0 {
		delete(ss.holders, h.name)
	}
}

// add puts a session into the table, or returns the one of its id that is there.
func (ss *Sessions) add(s *Session, h *holder) *Session {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.coming--
	if there := ss.byID[s.ID]; there != nil {
		ss.free(h)
		return there
	}
	s.holder, s.known = h, s.turn.Load()
	heap.Push(h, s)
	ss.byID[s.ID] = s
	if key := ss.keyOf(s); key != "" {
		ss.byKey[key] = s
	}
	return s
}

// take takes a session out of the tables; t.mu is held.
func (ss *Sessions) take(s *Session) {
	delete(ss.byID, s.ID)
	if key := ss.keyOf(s); key != "" {
		delete(ss.byKey, key)
	}
	heap.Remove(s.holder, s.at)
	ss.free(s.holder)
}

// holderOf returns the name of the holder of a session.
func (ss *Sessions) holderOf(s *Session) string {
	ss.mu.RLock()
	defer ss.mu.RUnlock()
	if s.holder == nil {
		return ""
	}
	return s.holder.name
}

// keyOf returns the key by which other edges know a session; "" if none does.
func (ss *Sessions) keyOf(s *Session) string {
	if s.stored.key == "" && ss.node != "" {
		return Key(s.ID)
	}
	return s.stored.key
}

// known returns the session that a store has under a key; nil when it is not
// here.
func (ss *Sessions) known(key string) *Session {
	ss.mu.RLock()
	defer ss.mu.RUnlock()
	return ss.byKey[key]
}

// Here returns a session of this edge and marks it as used; nil for none.
func (ss *Sessions) Here(id string, now time.Time) *Session {
	ss.mu.RLock()
	s := ss.byID[id]
	ss.mu.RUnlock()
	if s != nil {
		ss.Touch(s, now)
	}
	return s
}

// End ends a session. It reports false if there is none of that id.
func (ss *Sessions) End(id string) bool {
	ss.mu.Lock()
	s := ss.byID[id]
	if s != nil {
		ss.take(s)
	}
	ss.mu.Unlock()
	if s != nil {
		s.end()
	}
	return s != nil
}

// Sweep ends the sessions that were not used for their lifetime.
func (ss *Sessions) Sweep(now time.Time) {
	var old, some []*Session
	ss.mu.Lock()
	for _, s := range ss.byID {
		busy, holds := s.look()
		if s.used.Load() > now.UnixMilli() { // the clock was set back, and its lifetime would be longer by that
			s.used.Store(now.UnixMilli())
		}
		switch {
		case !busy && s.used.Load() < now.Add(-ss.ttl(s.Server)).UnixMilli():
			old = append(old, s)
			ss.take(s)
		case holds:
			some = append(some, s)
		}
	}
	if len(ss.byID) == 0 && len(old) > 0 {
		ss.byID, ss.byKey = make(map[string]*Session), make(map[string]*Session) // a map does not shrink
	}
	ss.mu.Unlock()
	for _, s := range some {
		s.dropOld(now.Add(-logFor))
		s.giveUpWaiting(now)
	}
	for _, s := range old {
		ss.giveUp(s)
		s.end()
	}
}

// EndAll ends every session that which picks.
func (ss *Sessions) EndAll(which func(*Session) bool) {
	var out []*Session
	ss.mu.Lock()
	for _, s := range ss.byID {
		if which(s) {
			out = append(out, s)
			ss.take(s)
		}
	}
	ss.mu.Unlock()
	for _, s := range out {
		s.end()
	}
}

// every returns all sessions.
func (ss *Sessions) every() []*Session {
	ss.mu.RLock()
	defer ss.mu.RUnlock()
	all := make([]*Session, 0, len(ss.byID))
	for _, s := range ss.byID {
		all = append(all, s)
	}
	return all
}

// Of returns the sessions of a server.
func (ss *Sessions) Of(server string) []*Session {
	ss.mu.RLock()
	defer ss.mu.RUnlock()
	var out []*Session
	for _, s := range ss.byID {
		if s.Server == server {
			out = append(out, s)
		}
	}
	return out
}

// Len returns how many sessions there are.
func (ss *Sessions) Len() int {
	ss.mu.RLock()
	defer ss.mu.RUnlock()
	return len(ss.byID)
}

// Leave ends all sessions at the end of the process. Those in a store continue at other
// edges, which find the logs of their streams there.
func (ss *Sessions) Leave() {
	for _, t := range ss.Stores.List() {
		t.writer.write(t)
	}
	ss.EndAll(func(s *Session) bool {
		s.stored.store.Store(nil)
		return true
	})
}

// Replaced reports whether another process has replaced this one.
func (ss *Sessions) Replaced() bool { return ss.heir.Load() != nil }
