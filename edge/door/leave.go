package door

import (
	"context"
	"time"
)

// How a door shuts: its clients are sent elsewhere, calls under way finish, and who
// sends a byte now and then does not keep it open.

const (
	// lingers is how long a door that shuts still takes what was on its way to it,
	// and quiet how long nothing must have come for it to shut at once.
	lingers = time.Second
	quiet   = 50 * time.Millisecond

	// arrivesWithin is how long nothing may come of a request that has begun for a
	// shut door to wait for the rest of it, and arrivesAtAll how long all of them
	// may take.
	arrivesWithin = 100 * time.Millisecond
	arrivesAtAll  = 2 * time.Second

	// looks is how often a door that shuts looks whether anybody is left.
	looks = 5 * time.Millisecond
)

// Leave makes every answer the last on its connection.
func (d *Door) Leave() { d.leaving.Store(true) }

// Leaving reports whether every answer is the last on its connection.
func (d *Door) Leaving() bool { return d.leaving.Load() }

// Knock notes a request that came after Leave.
func (d *Door) Knock() { d.knocked.Store(time.Now().UnixNano()) }

// TurnAway sends clients elsewhere before the door shuts. It returns when no
// connection is left but those of streams, when nothing has come for a moment, or
// after a second.
func (d *Door) TurnAway(streams func() int) {
	d.Leave()
	began := time.Now()
	tick := time.NewTicker(looks)
	defer tick.Stop()
	for d.Connections() > streams() {
		now := <-tick.C
		last := began
		if at := time.Unix(0, d.knocked.Load()); at.After(last) {
			last = at
		}
		if now.Sub(last) > quiet || now.Sub(began) > lingers {
			return
		}
	}
}

// Closing reports whether no further request is served.
func (d *Door) Closing() bool { return d.closing.Load() }

// Shut serves no further request: connections that wait for one end, and no other
// is taken. It returns what ends the connections that are still there then, and
// waits for that.
func (d *Door) Shut() (end func()) {
	d.closing.Store(true)
	d.retire(nil)
	shut, cut := context.WithCancel(context.Background())
	down := make(chan struct{})
	go func() {
		defer close(down)
		_ = d.server.ShutdownWithContext(shut) // it ends when it is told to
	}()
	return func() {
		cut()
		<-down
		for _, en := range d.open() {
			en.Close() // a server that is told to end before it began leaves it open
		}
	}
}

// Served returns how many connections the HTTP server has.
func (d *Door) Served() int {
	return max(0, int(d.server.GetOpenConnectionsCount())) // less than none before it is told to end
}

// Connections returns how many client connections are open.
func (d *Door) Connections() int {
	d.underway.mu.Lock()
	defer d.underway.mu.Unlock()
	return len(d.underway.conns) - d.underway.apart
}

// CallsApart returns how many calls go on that no connection waits for: their client
// has its stream at another edge.
func (d *Door) CallsApart() int {
	d.underway.mu.Lock()
	defer d.underway.mu.Unlock()
	return d.underway.apart
}

// Apart returns a connection without a socket, for a call whose client, at that
// address, has its stream at another edge.
func (d *Door) Apart(from string) *Conn {
	c := &Conn{door: d, From: from}
	c.place.Store(serves) // it waits for no other request
	return c
}

// BeginApart lists such a connection.
func (d *Door) BeginApart(c *Conn) { d.underway.add(c) }

// EndApart ends BeginApart.
func (d *Door) EndApart(c *Conn) { d.underway.remove(c) }

// EndLasting cancels the calls that last until somebody ends them.
func (d *Door) EndLasting() {
	d.Each(func(c *Call) {
		if c.Lasts {
			c.Cancel()
		}
	})
}

// Settle cancels every call and waits until none is under way, but for no longer
// than that: a call that does not heed its end is left behind.
func (d *Door) Settle(within time.Duration) {
	d.Each((*Call).Cancel)
	for by := time.Now().Add(within); d.Underway() > 0 && time.Now().Before(by); {
		time.Sleep(time.Millisecond)
	}
}

// Underway returns how many calls are under way.
func (d *Door) Underway() (n int) {
	d.Each(func(*Call) { n++ })
	return n
}

// retire ends the connections that wait for a request: those of an entrance, or, for nil,
// all of them.
func (d *Door) retire(of *Entrance) {
	d.underway.mu.Lock()
	defer d.underway.mu.Unlock()
	for c := range d.underway.conns {
		if c.Conn != nil && (of == nil || c.entrance == of) {
			c.retire()
		}
	}
}

// Arrivals watches the requests that have begun to arrive at a shut door.
type Arrivals struct {
	door *Door
	shut time.Time
	seen map[*Conn]arriving
}

// arriving is what was seen of a connection that waits for more of a request.
type arriving struct {
	later int32 // as the connection's
	since time.Time
}

// Arrivals begins to watch.
func (d *Door) Arrivals() *Arrivals {
	return &Arrivals{door: d, shut: time.Now(), seen: make(map[*Conn]arriving)}
}

// Cut ends the wait for requests of which nothing has come for a moment, and for all
// of them when the door has been shut for long enough.
func (a *Arrivals) Cut(now time.Time) {
	within := arrivesWithin
	if now.Sub(a.shut) > arrivesAtAll {
		within = 0
	}
	u := &a.door.underway
	u.mu.Lock()
	defer u.mu.Unlock()
	for c := range u.conns {
		if c.Conn == nil || c.place.Load() != arrives {
			continue
		}
		later := c.later.Load()
		was, there := a.seen[c]
		switch {
		case within > 0 && (!there || was.later != later):
			a.seen[c] = arriving{later, now}
		case within == 0 || now.Sub(was.since) > within:
			_ = c.Conn.SetReadDeadline(time.Unix(1, 0))
		}
	}
}
