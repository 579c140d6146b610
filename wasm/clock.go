package wasm

import (
	"runtime"
	"time"
)

// clock counts the time of a processor that a guest uses in one call. Neither
// what it waits for in host functions nor what the machine does for others
// meanwhile is its own. While the clock runs, the call keeps its thread.
type clock struct {
	limit   time.Duration
	used    time.Duration // before since
	since   time.Duration // what the thread had used when it was last looked at
	running bool
}

// Bounds of what one look counts. A slice takes some 100 µs; in what takes much
// longer, a virtual machine was stopped, or the system made pages. A quarter of
// the limit keeps one such stop from ending a call.
const (
	leastCounted = 250 * time.Microsecond
	mostCounted  = time.Millisecond
)

// over starts a clock that stands still, and reports whether the time is used up.
func (c *clock) over() bool {
	if c.running {
		c.count()
	} else {
		c.start()
	}
	return c.used > c.limit
}

func (c *clock) count() {
	now := threadTime()
	c.used += min(now-c.since, max(c.limit/4, leastCounted), mostCounted)
	c.since = now
}

func (c *clock) start() {
	runtime.LockOSThread()
	c.since, c.running = threadTime(), true
}

func (c *clock) stop() {
	if c.running {
		c.count()
		c.running = false
		runtime.UnlockOSThread()
	}
}

// pause stops a clock that runs, for as long as a host function waits; the
// function that it returns starts it again.
func (c *clock) pause() (resume func()) {
	if !c.running {
		return func() {}
	}
	c.stop()
	return c.start
}

// Clock is the clock of a call of a program that some other engine runs.
type Clock struct{ clock clock }

// Set gives the call its time, and stops the clock.
func (c *Clock) Set(limit time.Duration) { c.clock = clock{limit: limit} }

// Over starts the clock when it is called first, and reports whether the time is used up.
// The call keeps its thread until Stop.
func (c *Clock) Over() bool { return c.clock.over() }

// Left is what Over has found left of the time.
func (c *Clock) Left() time.Duration { return c.clock.limit - c.clock.used }

// Spend counts work of which it is known what it will take, as far as a look at the clock
// would not count it.
func (c *Clock) Spend(d time.Duration) { c.clock.used += max(0, d-mostCounted) }

// Stop stops the clock.
func (c *Clock) Stop() { c.clock.stop() }

// Pause stops the clock while the call waits for others. What it returns starts it again.
func (c *Clock) Pause() (resume func()) { return c.clock.pause() }
