package session

import (
	"slices"
	"time"

	"github.com/weir-edge/weir/edge/mcp"
)

// A session that was handed over has no stream at first. What comes for its client meanwhile
// waits for it to open one.

// awaited reports whether the client of a session that was handed over is waited
// for; s.mu is held.
func (s *Session) awaited() bool { return !s.until.IsZero() }

// miss keeps a message for the client that is waited for. It reports false when
// there is none, or no room.
func (s *Session) miss(m *mcp.Message) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.awaited() || len(s.missed) >= maxMissed || s.missedBytes+len(m.Raw) > maxMissedBytes {
		return false
	}
	s.missed = append(s.missed, m.Clone())
	s.missedBytes += len(m.Raw)
	return true
}

// met ends the waiting and returns what has come meanwhile; s.mu is held.
func (s *Session) met() []*mcp.Message {
	all := s.missed
	s.missed, s.missedBytes, s.until = nil, 0, time.Time{}
	return all
}

// giveUpWaiting ends the waiting for a client that does not come back in time.
func (s *Session) giveUpWaiting(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.awaited() || now.Before(s.until) {
		return
	}
	s.met()
	if len(s.streams) == 0 && s.hearing != nil {
		s.hearing()
		s.hearing = nil
	}
}

// finished returns the logs of streams that have ended.
func (s *Session) finished() []*Log {
	return slices.DeleteFunc(s.carried(), func(l *Log) bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return !l.done
	})
}

// carried returns the logs of the session that are still kept.
func (s *Session) carried() []*Log {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.logs)
}
