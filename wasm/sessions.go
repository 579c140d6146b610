package wasm

import (
	"context"
	"sync"
	"time"
)

// sessions are the instances of a guest that keeps one for each session. A
// session's instance is made at its first call. When there are as many as may
// be, the one that rested longest makes room; its session begins anew at its
// next call.
type sessions struct {
	pool *pool // counts instances, and has those that no session has begun with yet

	mu    sync.Mutex
	byKey map[string]*session
	rest  session // a ring of those without a call, the longest at rest first
}

type session struct {
	key  string
	in   *instance     // nil until made
	busy chan struct{} // holds one while a call is under way
	uses int           // calls under way or waiting
	gone bool          // ended: the last call closes the instance

	prev, next *session // in rest; nil while in use
}

func newSessions(p *pool) *sessions {
	s := &sessions{pool: p, byKey: make(map[string]*session)}
	s.rest.prev, s.rest.next = &s.rest, &s.rest
	return s
}

func (e *session) leaveRest() {
	if e.next != nil {
		e.prev.next, e.next.prev = e.next, e.prev
		e.prev, e.next = nil, nil
	}
}

// get returns the session of key for one call. in is nil when the caller has
// to make the instance. false means that none can be had in time.
func (s *sessions) get(ctx context.Context, key string, wait time.Duration) (*session, bool) {
	s.mu.Lock()
	e := s.byKey[key]
	if e == nil {
		e = &session{key: key, busy: make(chan struct{}, 1)}
		s.byKey[key] = e
	}
	e.leaveRest()
	e.uses++
	s.mu.Unlock()
	select {
	case e.busy <- struct{}{}:
	default:
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case e.busy <- struct{}{}:
		case <-timer.C:
			s.unuse(e)
			return nil, false
		case <-ctx.Done():
			s.unuse(e)
			return nil, false
		}
	}
	if e.in != nil {
		return e, true
	}
	if in, ok := s.pool.get(ctx, wait, s.evict, nil); ok {
		e.in = in
		return e, true
	}
	<-e.busy
	s.unuse(e)
	return nil, false
}

// evict closes the instance that rested longest.
func (s *sessions) evict() bool {
	s.mu.Lock()
	e := s.rest.next
	if e == &s.rest {
		s.mu.Unlock()
		return false
	}
	e.leaveRest()
	delete(s.byKey, e.key)
	in := e.in
	e.in = nil
	s.mu.Unlock()
	s.pool.drop(in)
	return true
}

// put ends a call. keep says that the instance may be used again.
func (s *sessions) put(e *session, keep bool) {
	var drop *instance
	if !keep {
		drop, e.in = e.in, nil
	}
	<-e.busy
	if !keep {
		s.pool.drop(drop)
	}
	s.unuse(e)
}

func (s *sessions) unuse(e *session) {
	s.mu.Lock()
	e.uses--
	if e.uses > 0 {
		s.mu.Unlock()
		return
	}
	var drop *instance
	switch {
	case e.gone:
		drop, e.in = e.in, nil
	case e.in == nil:
		delete(s.byKey, e.key)
	default:
		last := s.rest.prev
		last.next, e.prev, e.next, s.rest.prev = e, last, &s.rest, e
	}
	s.mu.Unlock()
	if drop != nil {
		s.pool.drop(drop)
	} else {
		s.pool.tell() // there may be something to evict now
	}
}

// end forgets a session.
func (s *sessions) end(key string) {
	s.mu.Lock()
	e := s.byKey[key]
	if e == nil {
		s.mu.Unlock()
		return
	}
	delete(s.byKey, key)
	var drop *instance
	if e.uses == 0 {
		e.leaveRest()
		drop, e.in = e.in, nil
	} else {
		e.gone = true
	}
	s.mu.Unlock()
	if drop != nil {
		s.pool.drop(drop)
	}
}

// close closes all instances. Calls under way must have ended before.
func (s *sessions) close() {
	for s.evict() {
	}
}

// resting counts the sessions without a call.
func (s *sessions) resting() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := s.rest.next; e != &s.rest; e = e.next {
		n++
	}
	return n
}
