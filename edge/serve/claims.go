package serve

import (
	"errors"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
)

// claims are what other edges may send next, each thing once: an edge that asks
// whether something is wanted has the place kept for a moment, and sends all of
// it only then. What is large goes between edges once for each thing that is
// waited for. Who leaves before it came gives the place up: what was to come may
// come another way.
type claims struct {
	mu     sync.Mutex
	byWhat map[string]*claim
	byName map[string]*claim
}

// claim is a place that is kept.
type claim struct {
	what  string
	name  string // of the edge and its exchange that may come
	who   string // for whom it is
	until time.Time
}

// maxClaims is how many places are kept at a time, and claimFor for how long.
const (
	maxClaims = 4096
	claimFor  = letterFor
)

// take keeps a place; false when somebody else has it, or when there are too many.
func (c *claims) take(now time.Time, what, name, who string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byWhat == nil {
		c.byWhat, c.byName = make(map[string]*claim), make(map[string]*claim)
	}
	if one := c.byWhat[what]; one != nil {
		if one.name != name && now.Before(one.until) {
			return false
		}
		c.drop(one)
	}
	if len(c.byWhat) >= maxClaims {
		for _, one := range c.byWhat {
			if !now.Before(one.until) {
				c.drop(one)
			}
		}
		if len(c.byWhat) >= maxClaims {
			return false
		}
	}
	one := &claim{what, name, who, now.Add(claimFor)}
	c.byWhat[what], c.byName[name] = one, one
	return true
}

// of returns for whom an exchange of another edge keeps a place; false when it
// keeps none.
func (c *claims) of(name string) (who string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.byName[name]
	if one == nil {
		return "", false
	}
	return one.who, true
}

// leave gives up the place that is kept for an exchange of another edge, if any is.
func (c *claims) leave(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if one := c.byName[name]; one != nil {
		c.drop(one)
	}
}

// kept reports whether a place is kept for somebody.
func (c *claims) kept(now time.Time, what string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.byWhat[what]
	return one != nil && now.Before(one.until)
}

// use gives up the place of whoever comes for it, under the name by which it is
// kept or without one. It reports false when it is kept for somebody else.
func (c *claims) use(now time.Time, what, name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.byWhat[what]
	if one == nil {
		return name == ""
	}
	if one.name != name && now.Before(one.until) {
		return false
	}
	kept := one.name == name
	c.drop(one)
	return kept || name == ""
}

// errClaimed tells a client that somebody else has come with what it comes with,
// and may yet fail: it may come again.
func errClaimed() error {
	return &edge.Error{Kind: edge.Overload, Op: "relay", After: time.Second, Err: errors.New("this is on its way to its call already; try again later")}
}

// drop takes a place away; c.mu is held.
func (c *claims) drop(one *claim) {
	delete(c.byWhat, one.what)
	delete(c.byName, one.name)
}

// spent are the states that the edge that had their calls has refused for good. A
// state that was used stays used, so nobody has to ask again.
type spent struct {
	mu  sync.Mutex
	all map[string]int64 // by digest, until when the state would have been good, Unix seconds
}

// maxSpent is how many are remembered.
const maxSpent = 10_000

func (s *spent) add(now time.Time, state string, until int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = make(map[string]int64)
	}
	if len(s.all) >= maxSpent {
		for one, until := range s.all {
			if until < now.Unix() {
				delete(s.all, one)
			}
		}
		for one := range s.all { // a map's order is random
			if len(s.all) < maxSpent {
				break
			}
			delete(s.all, one)
		}
	}
	s.all[digestText("state", state)] = until
}

func (s *spent) has(state string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, there := s.all[digestText("state", state)]
	return there
}
