package wasm

import (
	"math"
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

// Where a call has used next to no fuel, it is the machine that is slow: the host of a virtual
// machine takes nine tenths of a processor for some 10 ms at a time, and its kernel counts that
// to the thread. Such a call has up to this much more time.
const (
	timesMore = 3
	mostMore  = 15 * time.Millisecond
)

// over starts a clock that stands still, and reports whether the time is used up
// by a call that has used so much fuel.
func (c *clock) over(fuel int64) bool {
	if c.running {
		c.count()
	} else {
		c.start()
	}
	if c.used > c.limit && little(c.limit, fuel) {
		return c.used > c.limit+min(timesMore*c.limit, mostMore)
	}
	return c.used > c.limit
}

// little reports whether a call used less fuel than guests use in all of this time:
// its work is not what took its time or its memory.
func little(limit time.Duration, fuel int64) bool {
	const perSlice = 100 * time.Microsecond // for a slice, where the machine does nothing else
	return fuel < int64(limit/perSlice)*slice
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
func (c *Clock) Over() bool { return c.clock.over(math.MaxInt64) }

// Left is what Over has found left of the time.
func (c *Clock) Left() time.Duration { return c.clock.limit - c.clock.used }

// Spend counts work of which it is known what it will take, as far as a look at the clock
// would not count it.
func (c *Clock) Spend(d time.Duration) { c.clock.used += max(0, d-mostCounted) }

// Stop stops the clock.
func (c *Clock) Stop() { c.clock.stop() }

// Pause stops the clock while the call waits for others. What it returns starts it again.
func (c *Clock) Pause() (resume func()) { return c.clock.pause() }
