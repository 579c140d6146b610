package authserver

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge/authserver/upstream"
	"github.com/weir-edge/weir/edge/oauth"
)

// For how long it is known whether a grant lives, and of how many. Who stays is looked at once a
// second: one look finds that nobody knows any longer, and the next what was found out. Whoever
// has lost a grant is gone after ten seconds, with half a second to spare.
const (
	aliveAge  = 7500 * time.Millisecond
	aliveMost = 100_000
	aliveIdle = time.Minute // after which one is forgotten that nobody asks about: what policies read of it may be large
)

// Life is whether one grant lives. It is safe for concurrent use.
type Life struct {
	until atomic.Int64 // until when it is known to live, in Unix nanoseconds; 0 for not known
	over  atomic.Bool  // it lives no longer, and never will

	policy atomic.Pointer[policy] // what policies read; nil for nothing
	made   time.Time

	looking sync.Mutex
	dead    time.Time // until when it is known not to live; of looking
}

// policy is what policies read of a user's tokens of the primary upstream.
type policy struct {
	tokens  *upstream.Tokens // nil for none
	version uint64
}

// Claims are what policies read of the user, nil for nothing; the version changes with them.
func (l *Life) Claims() (claims map[string]any, version uint64) {
	p := l.policy.Load()
	if p == nil || p.tokens == nil {
		return nil, p.number()
	}
	return p.tokens.Claims, p.version
}

func (p *policy) number() uint64 {
	if p == nil {
		return 0
	}
	return p.version
}

// Lives reports whether the grant is known to live at a time. What would be known for longer than
// anything is, was known by a clock that has been set back since: then nobody knows.
func (l *Life) Lives(now time.Time) bool {
	left := time.Duration(l.until.Load() - now.UnixNano())
	return 0 < left && left <= aliveAge+time.Second && !l.over.Load()
}

// end says that the grant lives no longer, and reports whether that is new.
func (l *Life) end() bool {
	first := !l.over.Swap(true)
	l.until.Store(0)
	l.policy.Store(nil)
	return first
}

// alive remembers for a while which grants live. It is safe for concurrent use.
type alive struct {
	mu  sync.Mutex
	all map[string]*Life
}

// of is the life of a grant. A new one has a handful of others looked at: those that nobody has
// asked about for long are forgotten, and where there is no room any other is. Whoever has one of
// these has to look again.
func (a *alive) of(id string, now time.Time) *Life {
	a.mu.Lock()
	defer a.mu.Unlock()
	if l := a.all[id]; l != nil {
		return l
	}
	if a.all == nil {
		a.all = map[string]*Life{}
	}
	looked := 0
	for other, l := range a.all {
		idle := !l.over.Load() && now.Sub(l.made) > aliveIdle && now.Sub(time.Unix(0, l.until.Load())) > aliveIdle
		if idle || len(a.all) >= aliveMost {
			l.until.Store(0)
			delete(a.all, other)
		}
		if looked++; looked == 8 {
			break
		}
	}
	l := &Life{made: now}
	a.all[id] = l
	return l
}

// Look finds out whether the grant of a token of ours, its claim tsid, lives; nil for one that
// does not. The store is asked once in 7.5 s for each grant. An error is the store's.
func (s *Server) Look(ctx context.Context, id string) (*Life, error) {
	now := s.now()
	l := s.alive.of(id, now)
	if l.Lives(now) {
		return l, nil
	}
	l.looking.Lock()
	defer l.looking.Unlock()
	switch {
	case l.over.Load() || now.Before(l.dead):
		return nil, nil
	case l.Lives(now): // somebody else has looked
		return l, nil
	}
	_, err := s.records.grant(ctx, id, now)
	switch {
	case errors.Is(err, errAbsent):
		l.dead = now.Add(aliveAge)
		s.lasting.ended.note(id, now)
		return nil, nil
	case err != nil:
		return nil, err
	}
	if s.config.Primary != "" {
		t, err := s.vault.Peek(ctx, id, s.config.Primary)
		if err != nil {
			return nil, err
		}
		if was := l.policy.Load(); was == nil || was.tokens != t {
			l.policy.Store(&policy{t, was.number() + 1})
		}
	}
	l.until.Store(now.Add(aliveAge).UnixNano())
	s.lasting.ended.lives(id)
	if l.over.Load() { // it was revoked meanwhile, perhaps before the line above
		s.lasting.ended.note(id, now)
		return nil, nil
	}
	return l, nil
}

// Believe takes a grant that nobody can look for as one that lives, for a while; nil for one
// that this replica knows to have ended.
func (s *Server) Believe(id string) *Life {
	now := s.now()
	if s.lasting.ended.has(id, now) {
		return nil
	}
	l := s.alive.of(id, now)
	l.until.Store(now.Add(aliveAge).UnixNano())
	return l
}

// Keys are the keys that tokens are judged with. It never waits long.
func (s *Server) Keys() oauth.Snapshot {
	m := s.material.current(context.Background())
	return oauth.Snapshot{Keys: m.keys, Generation: m.generation}
}
