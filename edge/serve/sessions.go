package serve

import (
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
	asks   atomic.Uint64
	common common // what other edges know of it; nothing where it is this edge's alone

	mu      sync.Mutex
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
}

// sessions holds the legacy sessions of a process. Ids are 128 random bits, so
// that none can be guessed; a session that nobody uses for its lifetime ends.
type sessions struct {
	most int
	ttl  time.Duration

	kept atomic.Int64 // bytes in their logs

	// left is told of sessions that this edge gives up for room or age.
	left func(*session)

	mu    sync.RWMutex
	byID  map[string]*session
	byKey map[string]*session // those that a store has, by their keys there
}

func newSessions(most int, ttl time.Duration) *sessions {
	return &sessions{most: most, ttl: ttl, left: func(*session) {}, byID: make(map[string]*session), byKey: make(map[string]*session)}
}

// begin makes a session, of a new id for "", which prepare may refuse. When there is no room, the session that has been idle
// longest makes it; with all of them busy the error is Overload.
func (t *sessions) begin(now time.Time, id, server, owner, version string, info, capabilities []byte, prepare func(*session) error) (*session, error) {
	if id == "" {
		var raw [idBytes]byte
		if _, err := rand.Read(raw[:]); err != nil {
			return nil, edge.Errorf(edge.Internal, "session id", "%w", err)
		}
		id = base64.RawURLEncoding.EncodeToString(raw[:])
	}
	s := t.make(now, id, server, owner, version, info, capabilities)
	if err := prepare(s); err != nil {
		return nil, err
	}
	return t.add(s)
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
	s.used.Store(now.UnixMilli())
	return s
}

// add puts a session into the table, or returns the one of its id that is there.
func (t *sessions) add(s *session) (*session, error) {
	var gone *session
	t.mu.Lock()
	if there := t.byID[s.ID]; there != nil {
		t.mu.Unlock()
		return there, nil
	}
	if len(t.byID) >= t.most {
		if gone = t.idlest(); gone == nil {
			t.mu.Unlock()
			return nil, edge.Errorf(edge.Overload, "session", "all %d sessions are in use", t.most)
		}
		t.take(gone)
	}
	t.byID[s.ID] = s
	if s.common.key != "" {
		t.byKey[s.common.key] = s
	}
	t.mu.Unlock()
	if gone != nil {
		t.left(gone)
		gone.end()
	}
	return s, nil
}

// take takes a session out of the tables; t.mu is held.
func (t *sessions) take(s *session) {
	delete(t.byID, s.ID)
	delete(t.byKey, s.common.key)
}

// known returns the session that a store has under a key; nil when it is not
// here.
func (t *sessions) known(key string) *session {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.byKey[key]
}

// idlest returns, of a sample of the sessions that have nothing under way, the
// one unused for longest. A map's order is random, so a sample is fair.
func (t *sessions) idlest() *session {
	var found *session
	seen := 0
	for _, s := range t.byID {
		if s.busy() {
			continue
		}
		if found == nil || s.used.Load() < found.used.Load() {
			found = s
		}
		if seen++; seen == 64 {
			break
		}
	}
	return found
}

// find returns a session and marks it as used; nil when it is not there.
func (t *sessions) find(id string, now time.Time) *session {
	t.mu.RLock()
	s := t.byID[id]
	t.mu.RUnlock()
	if s != nil && s.used.Load() != now.UnixMilli() {
		s.used.Store(now.UnixMilli())
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
	var old []*session
	before := now.Add(-t.ttl).UnixMilli()
	t.mu.Lock()
	for _, s := range t.byID {
		if s.used.Load() < before && !s.busy() {
			old = append(old, s)
			t.take(s)
			continue
		}
		s.dropOld(now.Add(-logFor))
	}
	t.mu.Unlock()
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
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.calls) > 0 || len(s.outlets) > 0
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
		x.cancel()
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
				x.cancelFor(&withdrawn{printable(reason)})
			} else {
				x.cancel()
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
