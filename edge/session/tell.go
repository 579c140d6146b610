package session

import (
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/catalog"
)

// Tell tells a legacy client which lists to get again, on its stream. Nobody
// waits for a client that reads slowly: what is due meanwhile is told in one. A
// client without a stream asks when it next wants to know.
func (ss *Sessions) Tell(s *Session, c catalog.Changes) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.streams) == 0 {
		return
	}
	s.due.Add(c)
	if s.telling {
		return
	}
	s.telling = true
	go func() {
		defer edge.Contain(ss.o.Log, "tell")
		for c, more := s.takeDue(); more; c, more = s.takeDue() {
			for _, n := range c.Notices() {
				_ = newest{s}.Send(n) // one that is gone asks when it is back
			}
		}
	}()
}

// takeDue returns what is due to be told, and false for nothing.
func (s *Session) takeDue() (catalog.Changes, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.due
	s.due = catalog.Changes{}
	s.telling = c.Any()
	return c, c.Any()
}
