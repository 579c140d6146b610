package relay

import (
	"errors"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
)

// Claims are what other edges may send next, each thing once: an edge that asks
// whether something is wanted has the place kept for a moment, and sends all of
// it only then. What is large goes between edges once for each thing that is
// waited for. Who leaves before it came gives the place up: what was to come may
// come another way.
type Claims struct {
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

// maxClaims is how many places are kept at a time, and claimFor for how long: as
// long as what is on its way is waited for.
const (
	maxClaims = 4096
	claimFor  = waitFor
)

// Take keeps a place; false when somebody else has it, or when there are too many.
func (c *Claims) Take(now time.Time, what, name, who string) bool {
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
func (c *Claims) Of(name string) (who string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.byName[name]
	if one == nil {
		return "", false
	}
	return one.who, true
}

// Leave gives up the place that is kept for an exchange of another edge, if any is.
func (c *Claims) Leave(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if one := c.byName[name]; one != nil {
		c.drop(one)
	}
}

// Kept reports whether a place is kept for somebody.
func (c *Claims) Kept(now time.Time, what string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.byWhat[what]
	return one != nil && now.Before(one.until)
}

// Use gives up the place of whoever comes for it, under the name by which it is
// kept or without one. It reports false when it is kept for somebody else.
func (c *Claims) Use(now time.Time, what, name string) bool {
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

// ErrClaimed tells a client that somebody else has come with what it comes with,
// and may yet fail: it may come again.
func ErrClaimed() error {
	return &edge.Error{Kind: edge.Overload, Op: "relay", After: time.Second, Err: errors.New("this is on its way to its call already; try again later")}
}

// drop takes a place away; c.mu is held.
func (c *Claims) drop(one *claim) {
	delete(c.byWhat, one.what)
	delete(c.byName, one.name)
}
