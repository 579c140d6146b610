package incoming

import (
	"sync/atomic"
	"time"
)

// settle is how long a jump of the wall clock has to last before it is believed.
const settle = 5 * time.Minute

// clock tells the wall time by which tokens are judged. A jump of more than the
// skew, as of a clock that is set, is believed only when it has lasted: until
// then time goes on as before, so that a mistake of the clock neither logs
// everyone out nor brings expired tokens back. It is safe for concurrent use.
type clock struct {
	read func() (wall int64, mono time.Duration) // nanoseconds since 1970, and since some start
	base atomic.Pointer[moment]
	odd  atomic.Int64 // when, by mono, the jump was first seen, plus one; 0 for none
}

// moment is a wall time and the monotonic time that goes with it.
type moment struct {
	wall int64
	mono time.Duration
}

func newClock(read func() time.Time) *clock {
	start := read()
	return &clock{read: func() (int64, time.Duration) {
		now := read()
		return now.UnixNano(), now.Sub(start)
	}}
}

// now returns the time.
func (c *clock) now() time.Time {
	wall, mono := c.read()
	base := c.base.Load()
	if base == nil {
		c.base.CompareAndSwap(nil, &moment{wall, mono})
		base = c.base.Load()
	}
	steady := base.wall + int64(mono-base.mono)
	if off := time.Duration(wall - steady); off <= skew && off >= -skew {
		if mono-base.mono > time.Minute { // follow a clock that is slowed or sped up
			c.base.CompareAndSwap(base, &moment{wall, mono})
		}
		if c.odd.Load() != 0 {
			c.odd.Store(0)
		}
		return time.Unix(0, wall)
	}
	since := c.odd.Load()
	switch {
	case since == 0:
		c.odd.CompareAndSwap(0, int64(mono)+1)
	case mono-time.Duration(since-1) >= settle:
		c.base.CompareAndSwap(base, &moment{wall, mono})
		c.odd.Store(0)
		return time.Unix(0, wall)
	}
	return time.Unix(0, steady)
}

// wall is what the wall clock says, be it believed or not.
func (c *clock) wall() time.Time {
	wall, _ := c.read()
	return time.Unix(0, wall)
}
