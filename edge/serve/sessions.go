package serve

import (
	"container/heap"
	"context"
	"crypto/rand"
	"encoding/base64"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/catalog"
	"github.com/weir-edge/weir/edge/mcp"
)

// session is a legacy client's session, with what is under way in it.
type session struct {
	edge.Session
	server string        // whose it is
	kept   *atomic.Int64 // bytes in the logs of all sessions
	used   atomic.Int64  // Unix milliseconds of the last request
	turn   atomic.Uint64 // which of all requests of sessions that was
	asks   atomic.Uint64
	common common // what other edges know of it; nothing where it is this edge's alone

	holder *holder // who has it; set before the session is in the table
	at     int     // its place among the holder's; the table's mu guards this and what follows
	known  uint64  // its turn when it got that place

	mu      sync.Mutex                  // is taken with that of all sessions held: nobody waits for a client with it
	calls   []*exchange                 // requests under way
	asked   map[string]chan edge.Answer // questions that wait, by the edge's id
	outlets []*outlet                   // open streams of the client, the newest last
	over    bool                        // the session has ended
	hearing context.CancelFunc          // ends what the backends are listened to for
	logs    []*eventLog                 // of streams that may be resumed, the newest last
	logged  int                         // bytes in them
	streams uint64                      // streams that there have been
	due     catalog.Changes             // that the client is to be told of
	telling bool                        // a goroutine tells it

	handed atomic.Bool // another process goes on with it

	// Of one that another process handed over, until its client opens a stream:
	until       time.Time      // when it is waited for no longer; zero when it is not
	missed      []*mcp.Message // that have come for it meanwhile
	missedBytes int
	mute        bool // the process before may still hear its backends
}

// sessions holds the legacy sessions of a process. Ids are 128 random bits, so
// that none can be guessed; a session that nobody uses for its lifetime ends.
// Each holder has a bound of its own: whoever wants more loses the own one that
// is used least, and nobody else's.
type sessions struct {
	most int // of all holders
	each int // of one
	ttl  time.Duration
	node string // of this edge, where other processes go on with its sessions; else ""

	kept  atomic.Int64  // bytes in their logs
	turns atomic.Uint64 // requests that there have been

	// left is told of sessions that this edge gives up for room or age.
	left func(*session)

	mu      sync.RWMutex
	byID    map[string]*session
	byKey   map[string]*session // those that a store has, by their keys there, or all where other processes go on with them
	holders map[string]*holder
	coming  int // places that are taken and have no session yet
}

// holder is who has sessions: see Edge.holder.
type holder struct {
	name   string
	places int          // sessions, and those to come
	kept   atomic.Int64 // bytes in the logs of the sessions
	least  []*session   // a heap: the one used least, as far as is known, comes first
}

func (h *holder) Len() int           { return len(h.least) }
func (h *holder) Less(i, j int) bool { return h.least[i].known < h.least[j].known }
func (h *holder) Swap(i, j int) {
	h.least[i], h.least[j] = h.least[j], h.least[i]
	h.least[i].at, h.least[j].at = i, j
}

// Push and Pop are for container/heap.
func (h *holder) Push(v any) {
	s := v.(*session)
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

func newSessions(most, each int, ttl time.Duration) *sessions {
	return &sessions{
		most: most, each: each, ttl: ttl, left: func(*session) {},
		byID: make(map[string]*session), byKey: make(map[string]*session), holders: make(map[string]*holder),
	}
}

// touch marks a session as used. The clock is coarse; which of two sessions was
// used last is known exactly.
func (t *sessions) touch(s *session, now time.Time) {
	s.turn.Store(t.turns.Add(1))
	if at := now.UnixMilli(); s.used.Load() != at {
		s.used.Store(at)
	}
}

// begin makes a session, of a new id for "", which prepare may refuse. Without a
// place for it the error is Overload: see place.
func (t *sessions) begin(now time.Time, id, holder, server, owner, version string, info, capabilities []byte, prepare func(*session) error) (*session, error) {
	if id == "" {
		var raw [idBytes]byte
		if _, err := rand.Read(raw[:]); err != nil {
			return nil, edge.Errorf(edge.Internal, "session id", "%w", err)
		}
		id = base64.RawURLEncoding.EncodeToString(raw[:])
	}
	h, err := t.place(now, holder)
	if err != nil {
		return nil, err
	}
	s := t.make(now, id, server, owner, version, info, capabilities)
	if err := prepare(s); err != nil {
		t.vacate(h)
		return nil, err
	}
	return t.add(s, h), nil
}

// make makes a session that is in no table yet.
func (t *sessions) make(now time.Time, id, server, owner, version string, info, capabilities []byte) *session {
	s := &session{server: server, kept: &t.kept, Session: edge.Session{
		ID:           id,
		Owner:        owner,
		Version:      version,
		Info:         info,
		Capabilities: capabilities,
	}}
	s.common.node = t.node
	t.touch(s, now)
	return s
}

// place takes a place for a session of a holder, which add fills or vacate gives
// back. Where there is none, the holder's own session that is used least and has
// nothing under way makes it; without such a one the error is Overload.
func (t *sessions) place(now time.Time, name string) (*holder, error) {
	return t.placeFor(now, name, true)
}

// placeIfFree is place that ends no session to make room.
func (t *sessions) placeIfFree(now time.Time, name string) (*holder, error) {
	return t.placeFor(now, name, false)
}

func (t *sessions) placeFor(now time.Time, name string, evict bool) (*holder, error) {
	t.mu.Lock()
	h := t.holders[name]
	if h == nil {
		h = &holder{name: name}
	}
	var gone *session
	if mine := h.places >= t.each; mine || len(t.byID)+t.coming >= t.most {
		if evict {
			gone = t.idle(h, now)
		}
		if gone == nil {
			t.mu.Unlock()
			if mine {
				return nil, edge.Errorf(edge.Overload, "session", "this client has %d sessions, which is the limit, and all of them are in use; end one with DELETE", t.each)
			}
			return nil, edge.Errorf(edge.Overload, "session", "all %d sessions are taken; try again later", t.most)
		}
		t.take(gone)
	}
	h.places++
	t.coming++
	t.holders[name] = h
	t.mu.Unlock()
	if gone != nil {
		t.left(gone)
		gone.end()
	}
	return h, nil
}

// idle returns a holder's session that is used least, of those with nothing
// under way; nil for none. t.mu is held.
func (t *sessions) idle(h *holder, now time.Time) (found *session) {
	var busy []*session
	for found == nil && len(h.least) > 0 {
		s := h.least[0]
		switch is := s.turn.Load(); {
		case is != s.known: // used since it got its place
			s.known = is
			heap.Fix(h, 0)
		case s.busy():
			busy = append(busy, heap.Pop(h).(*session))
		default:
			found = s
		}
	}
	for _, s := range busy {
		t.touch(s, now)
		s.known = s.turn.Load()
		heap.Push(h, s)
	}
	return found
}

// vacate gives back a place that has no session.
func (t *sessions) vacate(h *holder) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.coming--
	t.free(h)
}

// free takes a place off a holder; t.mu is held.
func (t *sessions) free(h *holder) {
	if h.places--; h.places == 0 {
		delete(t.holders, h.name)
	}
}

// add puts a session into its holder's place in the table, or returns the one of
// its id that is there.
func (t *sessions) add(s *session, h *holder) *session {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.coming--
	if there := t.byID[s.ID]; there != nil {
		t.free(h)
		return there
	}
	s.holder, s.known = h, s.turn.Load()
	heap.Push(h, s)
	t.byID[s.ID] = s
	if key := t.keyOf(s); key != "" {
		t.byKey[key] = s
	}
	return s
}

// take takes a session out of the tables; t.mu is held.
func (t *sessions) take(s *session) {
	delete(t.byID, s.ID)
	if key := t.keyOf(s); key != "" {
		delete(t.byKey, key)
	}
	heap.Remove(s.holder, s.at)
	t.free(s.holder)
}

// holderOf is the name of who has a session.
func (t *sessions) holderOf(s *session) string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if s.holder == nil {
		return ""
	}
	return s.holder.name
}

// keyOf is by which other edges know a session; "" for one that none does.
func (t *sessions) keyOf(s *session) string {
	if s.common.key == "" && t.node != "" {
		return keyOf(s.ID)
	}
	return s.common.key
}

// known returns the session that a store has under a key; nil when it is not
// here.
func (t *sessions) known(key string) *session {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.byKey[key]
}

// find returns a session and marks it as used; nil when it is not there.
func (t *sessions) find(id string, now time.Time) *session {
	t.mu.RLock()
	s := t.byID[id]
	t.mu.RUnlock()
	if s != nil {
		t.touch(s, now)
	}
	return s
}

// end ends a session; false when there is none of that id.
func (t *sessions) end(id string) bool {
	t.mu.Lock()
	s := t.byID[id]
	if s != nil {
		t.take(s)
	}
	t.mu.Unlock()
	if s != nil {
		s.end()
	}
	return s != nil
}

// sweep ends the sessions that nobody has used for their lifetime.
func (t *sessions) sweep(now time.Time) {
	var old, some []*session
	before := now.Add(-t.ttl).UnixMilli()
	t.mu.Lock()
	for _, s := range t.byID {
		busy, holds := s.look()
		switch {
		case !busy && s.used.Load() < before:
			old = append(old, s)
			t.take(s)
		case holds:
			some = append(some, s)
		}
	}
	if len(t.byID) == 0 && len(old) > 0 {
		t.byID, t.byKey = make(map[string]*session), make(map[string]*session) // a map does not shrink
	}
	t.mu.Unlock()
	for _, s := range some {
		s.dropOld(now.Add(-logFor))
		s.giveUpWaiting(now)
	}
	for _, s := range old {
		t.left(s)
		s.end()
	}
}

// endAll ends every session that which wants ended.
func (t *sessions) endAll(which func(*session) bool) {
	var out []*session
	t.mu.Lock()
	for _, s := range t.byID {
		if which(s) {
			out = append(out, s)
			t.take(s)
		}
	}
	t.mu.Unlock()
	for _, s := range out {
		s.end()
	}
}

// every returns all sessions.
func (t *sessions) every() []*session {
	t.mu.RLock()
	defer t.mu.RUnlock()
	all := make([]*session, 0, len(t.byID))
	for _, s := range t.byID {
		all = append(all, s)
	}
	return all
}

// of returns the sessions of a server.
func (t *sessions) of(server string) []*session {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var out []*session
	for _, s := range t.byID {
		if s.server == server {
			out = append(out, s)
		}
	}
	return out
}

func (t *sessions) len() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.byID)
}

// busy reports whether something is under way in the session.
func (s *session) busy() bool {
	busy, _ := s.look()
	return busy
}

// look is busy, and reports whether the session holds what grows old.
func (s *session) look() (busy, holds bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.calls) > 0 || len(s.outlets) > 0, len(s.logs) > 0 || s.awaited()
}

// end ends what is under way and what rooms attached.
func (s *session) end() {
	s.mu.Lock()
	outlets, hearing := s.outlets, s.hearing
	s.hearing, s.over = nil, true
	for len(s.logs) > 0 {
		s.dropLog(0)
	}
	for _, x := range s.calls {
		x.Cancel()
	}
	s.mu.Unlock()
	if hearing != nil {
		hearing()
	}
	for _, o := range outlets {
		o.close()
	}
	s.End()
}

// enter registers a request that is under way, so that it can be cancelled.
func (s *session) enter(x *exchange) {
	s.mu.Lock()
	s.calls = append(s.calls, x)
	s.mu.Unlock()
}

func (s *session) leave(x *exchange) {
	s.mu.Lock()
	if i := slices.Index(s.calls, x); i >= 0 {
		last := len(s.calls) - 1
		s.calls[i], s.calls[last] = s.calls[last], nil
		s.calls = s.calls[:last]
	}
	s.mu.Unlock()
}

// cancelCall ends the request that a notifications/cancelled names. It reports
// false when there is none of it here.
func (s *session) cancelCall(n *mcp.Message) (found bool) {
	s.mu.Lock()
	defer s.mu.Unlock() // with the lock held the exchange cannot end and become another
	id := n.Get("requestId").Of(n.Raw)
	for _, x := range s.calls {
		if mcp.SameID(x.request.IDText(), id) { // as it came: what goes to the backend may be another message
			found = true
			if reason := n.Text("reason"); reason != "" {
				x.CancelFor(&withdrawn{printable(reason)})
			} else {
				x.Cancel()
			}
		}
	}
	return found
}

// ask puts questions to the client as requests under ids of the edge's own,
// which emit sends, and waits for the answers that come to answered.
func (s *session) ask(ctx context.Context, questions map[string]edge.Question, emit func(*mcp.Message) error) (map[string]edge.Answer, error) {
	waiting := make(map[string]chan edge.Answer, len(questions))
	ids := make([]string, 0, len(questions))
	defer func() {
		s.mu.Lock()
		for _, id := range ids {
			delete(s.asked, id)
		}
		if len(s.asked) == 0 {
			s.asked = nil
		}
		s.mu.Unlock()
	}()
	for key, q := range questions {
		id := s.common.question(s.asks.Add(1))
		ch := make(chan edge.Answer, 1)
		s.mu.Lock()
		if s.asked == nil {
			s.asked = make(map[string]chan edge.Answer, 1)
		}
		s.asked[id] = ch
		s.mu.Unlock()
		ids, waiting[key] = append(ids, id), ch
		m, err := mcp.Decode(mcp.AppendRequest(nil, []byte(id), q.Method, q.Params))
		if err != nil {
			return nil, edge.Errorf(edge.Internal, "ask", "%w", err)
		}
		if err := emit(m); err != nil {
			return nil, edge.Errorf(edge.Gone, "ask", "%w", err)
		}
	}
	answers := make(map[string]edge.Answer, len(questions))
	for key, ch := range waiting {
		select {
		case a := <-ch:
			answers[key] = a
		case <-ctx.Done():
			return nil, edge.Errorf(edge.Gone, "ask", "%w", context.Cause(ctx))
		}
	}
	return answers, nil
}

// waitsFor reports whether a question of an id, JSON text, waits for its answer.
func (s *session) waitsFor(id []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[string(id)] != nil
}

// answered takes a client's answer to a question. An answer that nobody here
// waits for is not taken.
func (s *session) answered(m *mcp.Message) bool {
	s.mu.Lock()
	ch := s.asked[string(m.IDText())]
	s.mu.Unlock()
	if ch == nil {
		return false
	}
	m = m.Clone()
	a := edge.Answer{Result: m.Result.Of(m.Raw), Error: m.Error.Of(m.Raw)}
	select {
	case ch <- a:
	default: // answered already
	}
	return true
}
