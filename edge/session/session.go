// Package session keeps the sessions of legacy clients: their calls under way, their
// streams and the logs by which clients resume them, the part of a session that replicas
// share in a store, and its hand-over to the process that replaces this one.
package session

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/catalog"
	"github.com/weir-edge/weir/edge/door"
	"github.com/weir-edge/weir/edge/mcp"
)

// Session is a legacy client's session.
type Session struct {
	edge.Session
	Server string // name of its server
	of     *Sessions
	used   atomic.Int64  // Unix milliseconds of the last request
	turn   atomic.Uint64 // number of that request among those of all sessions
	asks   atomic.Uint64
	stored stored // the part in a store; empty for a session of this edge alone

	holder *holder // set before the session is in the table
	at     int     // its index among the holder's; the table's mu guards this and known
	known  uint64  // its turn when it got that place

	mu      sync.Mutex                  // may be taken while the table's is held: never wait for a client with it
	calls   []*door.Call                // requests under way
	asked   map[string]chan edge.Answer // questions that wait, by the edge's id
	streams []*Stream                   // open ones, the newest last
	over    bool                        // the session has ended
	hearing context.CancelFunc          // stops listening to the backends; nil while nothing does
	logs    []*Log                      // of streams that may be resumed, the newest last
	logged  int                         // bytes in them
	begun   uint64                      // count of streams so far
	due     catalog.Changes             // to tell the client
	telling bool                        // a goroutine tells the client

	lost   atomic.Bool // a process that a backend had for it alone has ended
	handed atomic.Bool // another process goes on with it
	older  atomic.Bool // it is of the older transport, and ends with its stream
	told   atomic.Bool // Host.End is called at its end

	// Of a session that another process handed over, until its client opens a stream:
	until       time.Time      // when waiting for that ends; zero while nobody waits
	missed      []*mcp.Message // messages that came meanwhile
	missedBytes int
	mute        bool // the process before may still hear its backends
}

// busy reports whether something is under way in the session.
func (s *Session) busy() bool {
	busy, _ := s.look()
	return busy
}

// look is busy, and reports whether the session holds logs that may be forgotten.
func (s *Session) look() (busy, holds bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.calls) > 0 || len(s.streams) > 0, len(s.logs) > 0 || s.awaited()
}

// end cancels the calls under way and closes what rooms attached.
func (s *Session) end() {
	s.mu.Lock()
	streams, hearing := s.streams, s.hearing
	s.hearing, s.over = nil, true
	for len(s.logs) > 0 {
		s.dropLog(0)
	}
	for _, x := range s.calls {
		x.CancelFor(ErrOver)
	}
	s.mu.Unlock()
	if hearing != nil {
		hearing()
	}
	for _, o := range streams {
		if s.older.Load() { // the calls that were cut are answered there
			go o.CloseAfterCalls()
		} else {
			o.Close()
		}
	}
	if host := s.of.o.Servers()[s.Server]; host != nil && host.End != nil && s.told.Load() && !s.handed.Load() {
		host.End(&s.Session) // before the memory of programs for the session goes
	}
	s.End()
}

// OpenedBy notes who opened the session's stream here.
func (s *Session) OpenedBy(who *edge.Identity) { s.stored.who.Store(who) }

// TellEnd makes the session call Host.End at its end.
func (s *Session) TellEnd() { s.told.Store(true) }

// Lost reports whether a backend no longer has what it had for the session alone.
func (s *Session) Lost() bool { return s.lost.Load() }

// EndsWithStream marks the session as one of the older transport, which ends with its
// stream.
func (s *Session) EndsWithStream() { s.older.Store(true) }

// Key returns the key of the session in its store; "" without a store.
func (s *Session) Key() string { return s.stored.key }

// Shared reports whether a store has the session.
func (s *Session) Shared() bool { return s.stored.key != "" }

// Enter registers a request that is under way, so that it can be cancelled.
func (s *Session) Enter(x *door.Call) {
	s.mu.Lock()
	s.calls = append(s.calls, x)
	s.mu.Unlock()
}

// Leave ends Enter.
func (s *Session) Leave(x *door.Call) {
	s.mu.Lock()
	if i := slices.Index(s.calls, x); i >= 0 {
		last := len(s.calls) - 1
		s.calls[i], s.calls[last] = s.calls[last], nil
		s.calls = s.calls[:last]
	}
	s.mu.Unlock()
}

// Cancel cancels the request that a notifications/cancelled names. It reports false if that
// is not under way here.
func (s *Session) Cancel(n *mcp.Message) (found bool) {
	s.mu.Lock()
	defer s.mu.Unlock() // the lock keeps the call from ending and becoming another
	id := n.Get("requestId").Of(n.Raw)
	for _, x := range s.calls {
		if mcp.SameID(x.ID, id) { // the client's id: the message to the backend may have another
			found = true
			if reason := n.Text("reason"); reason != "" {
				x.CancelFor(&withdrawn{edge.Printable(reason)})
			} else {
				x.Cancel()
			}
		}
	}
	return found
}

// Ask puts questions to the client as requests under ids of the edge's own,
// which emit sends, and waits for the answers that come to Answered.
func (s *Session) Ask(ctx context.Context, questions map[string]edge.Question, emit func(*mcp.Message) error) (map[string]edge.Answer, error) {
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
	for _, key := range slices.Sorted(maps.Keys(questions)) {
		q := questions[key]
		id := s.stored.question(s.asks.Add(1))
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
		if q.Sent != nil {
			q.Sent()
		}
	}
	answers := make(map[string]edge.Answer, len(questions))
	for key, ch := range waiting {
		select {
		case a := <-ch:
			answers[key] = a
		case <-ctx.Done():
			var w *edge.Withdrawn
			if errors.As(context.Cause(ctx), &w) {
				s.withdraw(ids, w, emit)
			}
			return nil, edge.Errorf(edge.Gone, "ask", "%w", context.Cause(ctx))
		}
	}
	return answers, nil
}

// withdraw tells the client that questions of these ids need no answer any longer.
func (s *Session) withdraw(ids []string, w *edge.Withdrawn, emit func(*mcp.Message) error) {
	for _, id := range ids {
		set := []mcp.Member{mcp.Raw("requestId", []byte(id))}
		if w.Reason != "" {
			set = append(set, mcp.Raw("reason", mcp.Quote(w.Reason)))
		}
		if n, err := mcp.Decode(mcp.AppendRequest(nil, nil, "notifications/cancelled", mcp.Change(nil, nil, set...))); err == nil {
			_ = emit(n) // who is gone needs no word
		}
	}
}

// waitsFor reports whether a question of an id, JSON text, waits for its answer.
func (s *Session) waitsFor(id []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[string(id)] != nil
}

// Answered takes a client's answer to a question. It reports false if nobody here waits for
// it.
func (s *Session) Answered(m *mcp.Message) bool {
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

// Asks reports whether the client is asked something.
func (s *Session) Asks() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.asked) > 0
}

// ErrOver is the error of a call whose session has ended meanwhile. Its client is told so: it may
// know nothing of that, as where a store has lost the session.
var ErrOver error = over{}

type over struct{}

func (over) Error() string        { return "the session has ended" }
func (over) Is(target error) bool { return target == context.Canceled }

// withdrawn is the error of a call that its client cancelled with a reason.
type withdrawn struct{ reason string }

func (w *withdrawn) Error() string        { return w.reason }
func (w *withdrawn) Is(target error) bool { return target == context.Canceled }
