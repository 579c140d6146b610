package relay

import (
	"errors"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
)

// Claims are reservations for large messages of other edges. An edge first asks
// whether a message is wanted, which reserves a place for a moment, and only then
// sends it, so that each awaited message is sent whole once. A waiter that leaves
// early releases the place, so that another edge can send the message.
type Claims struct {
	mu     sync.Mutex
	byWhat map[string]*claim
	byName map[string]*claim
}

// claim is a reserved place.
type claim struct {
	what  string
	name  string // of the edge and its exchange that may send
	who   string // the client that it is for
	until time.Time
}

// maxClaims bounds the places reserved at a time. Each is reserved for claimFor, as
// long as a message on its way is waited for.
const (
	maxClaims = 4096
	claimFor  = waitFor
)

// Take reserves a place; false if it is reserved for another, or if there are too
// many.
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

// of returns the client for whom an exchange of another edge has a place; false if
// it has none.
func (c *Claims) Of(name string) (who string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.byName[name]
	if one == nil {
		return "", false
	}
	return one.who, true
}

// Leave releases the place of an exchange of another edge, if it has one.
func (c *Claims) Leave(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if one := c.byName[name]; one != nil {
		c.drop(one)
	}
}

// Kept reports whether a place is reserved.
func (c *Claims) Kept(now time.Time, what string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.byWhat[what]
	return one != nil && now.Before(one.until)
}

// Use releases a place when its message has come, under the name by which it is
// reserved or without a name. It reports false if it is reserved for another.
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

// ErrClaimed tells a client that another request with the same content is being
// served and may yet fail, so that it may try again.
func ErrClaimed() error {
	return &edge.Error{Kind: edge.Overload, Op: "relay", After: time.Second, Err: errors.New("this is on its way to its call already; try again later")}
}

// drop removes a place; c.mu is held.
func (c *Claims) drop(one *claim) {
	delete(c.byWhat, one.what)
	delete(c.byName, one.name)
}
