package authserver

import (
	"context"
	"errors"
	"sync"
	"time"
)

// How long it is known whether a grant lives, and of how many.
const (
	aliveAge  = 10 * time.Second
	aliveMost = 100_000
)

// alive remembers for a while which grants live. It is safe for concurrent use.
type alive struct {
	mu  sync.Mutex
	all map[string]*life
}

// life is what is known of one grant.
type life struct {
	lives bool
	at    time.Time
	done  chan struct{} // closed when what is asked is known; nil where nobody asks
	err   error         // of asking
}

// set says what a grant is from now on.
func (a *alive) set(id string, lives bool, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.put(id, &life{lives: lives, at: now})
}

// put keeps what is known; another grant is forgotten where there is no room. a.mu is held.
func (a *alive) put(id string, l *life) {
	if a.all == nil {
		a.all = map[string]*life{}
	}
	if _, ok := a.all[id]; !ok && len(a.all) >= aliveMost {
		for other := range a.all {
			delete(a.all, other)
			break
		}
	}
	a.all[id] = l
}

// Alive reports whether the grant of a token of ours, its claim tsid, lives. The store is
// asked once in 10 s for each grant. An error says that it did not answer.
func (s *Server) Alive(ctx context.Context, id string) (bool, error) {
	now, a := s.now(), &s.alive
	a.mu.Lock()
	l := a.all[id]
	switch {
	case l != nil && l.done == nil && now.Sub(l.at) < aliveAge:
		a.mu.Unlock()
		return l.lives, nil
	case l != nil && l.done != nil:
		a.mu.Unlock()
		select {
		case <-l.done:
			return l.lives, l.err
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	l = &life{done: make(chan struct{})}
	a.put(id, l)
	a.mu.Unlock()

	_, err := s.records.grant(context.WithoutCancel(ctx), id, now)
	a.mu.Lock()
	defer a.mu.Unlock()
	if l.lives = err == nil; err != nil && !errors.Is(err, errAbsent) {
		l.err = err
	}
	switch {
	case a.all[id] != l: // it was revoked meanwhile
		if other := a.all[id]; other != nil && other.done == nil {
			l.lives = l.lives && other.lives
		}
	case l.err != nil:
		delete(a.all, id)
	default:
		a.all[id] = &life{lives: l.lives, at: now}
	}
	close(l.done)
	return l.lives, l.err
}
