package door

import (
	"sync/atomic"
	"time"
)

// Clock is the time of day, coarse and cheap.
type Clock struct{ at atomic.Pointer[time.Time] }

// NewClock returns a clock that shows the time of now.
func NewClock() *Clock {
	c := &Clock{}
	c.Tick(time.Now())
	return c
}

// Tick sets the time that it shows.
func (c *Clock) Tick(now time.Time) { c.at.Store(&now) }

// Now is the time that it shows.
func (c *Clock) Now() time.Time { return *c.at.Load() }
