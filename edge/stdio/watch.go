package stdio

import (
	"strconv"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

const (
	// probeEvery and probeWithin are between two questions for a sign of life, and from
	// one to its answer; a process that leaves unanswered probeFailures in a row is ended.
	probeEvery    = 3 * time.Second
	probeWithin   = 2 * time.Second
	probeFailures = 3

	// firstPing is where the ids of such questions begin, and pings how many there are before they
	// come again. They have pingDigits digits, and what owners send has ids of more.
	firstPing  = 100_000_000
	pings      = 800_000_000
	pingDigits = 9
)

// watch looks after the processes, until there are none: it asks those at rest for a sign
// of life, and ends those that nobody has used for long or that block whoever writes to
// them.
func (b *Bridge) watch() {
	defer edge.Contain(b.Log, "watch")
	tick := time.NewTimer(probeEvery)
	defer tick.Stop()
	for check := false; ; check = !check {
		var now time.Time
		select {
		case now = <-tick.C:
		case <-b.quit:
			return
		}
		b.mu.Lock()
		if len(b.children) == 0 {
			b.watching = false
			b.mu.Unlock()
			return
		}
		all := make([]*child, 0, len(b.children))
		for c := range b.children {
			all = append(all, c)
		}
		b.mu.Unlock()
		for _, c := range all {
			if check {
				c.checked()
			} else {
				c.look(now)
			}
		}
		if check {
			tick.Reset(probeEvery - probeWithin)
		} else {
			tick.Reset(probeWithin)
		}
	}
}

// look asks a process at rest for a sign of life, and ends one that has rested for long.
func (c *child) look(now time.Time) {
	used := c.used.Load()
	use := c.h.Use()
	if used != c.atTick || use.Calls > 0 || use.Listens {
		c.atTick, c.resting = used, now
	}
	if at := c.w.attempts.Load(); at%2 == 0 || at != c.stuckAt {
		c.stuckAt, c.stuckBy = at, now
	} else if now.Sub(c.stuckBy) >= c.b.Stuck {
		c.end("stuck: it does not read what it is sent", edge.Unavailable, 0)
	}
	switch {
	case c.leaving(), !c.spoke.Load(): // its introduction has a clock of its own
		return
	case use.Own && now.Sub(c.resting) >= c.b.Idle:
		c.end("unused", edge.Unavailable, c.b.Timeout)
		return
	case use.Calls > 0: // one thread may be at work on it
		c.failed = 0
		c.ping.Store(0)
		return
	}
	id := firstPing + c.b.uses.Add(1)%pings
	c.ping.Store(id)
	c.pinged = now
	body := mcp.AppendRequest(nil, strconv.AppendUint(nil, id, 10), "ping", nil)
	go func() { _ = c.w.send(body, nil) }() // a descriptor that blocks may hold it up
}

// checked counts a question for a sign of life that has not been answered in time.
func (c *child) checked() {
	if c.ping.Load() == 0 {
		if c.pinged != (time.Time{}) {
			c.failed = 0
		}
		return
	}
	if c.h.Use().Calls > 0 {
		c.failed = 0
		return
	}
	if c.failed++; c.failed >= probeFailures {
		c.log.event("%d probes in a row without an answer", c.failed)
		c.b.ailing(c)
		c.end("it does not answer", edge.Timeout, min(afterStdin, c.b.Timeout))
	}
}

// kindOf returns the kind of the error that its calls end with.
func (c *child) kindOf() edge.Kind {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kind
}

// ailing notes that a process does not answer.
func (b *Bridge) ailing(c *child) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.now.State == Running && !b.others(c.h.Principal) {
		b.is(Unhealthy, "it does not answer")
	}
}
