package serve

import (
	"sync"
	"time"
)

// underway is what is being served. Each connection lists its own exchanges, so
// that cores do not meet on a lock; whoever wants all of them asks every
// connection.
type underway struct {
	mu    sync.Mutex // may be held when a connection's is taken
	conns map[*clientConn]struct{}
	apart int // of them, those of calls that no connection waits for
}

func (u *underway) add(c *clientConn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.conns == nil {
		u.conns = make(map[*clientConn]struct{})
	}
	u.conns[c] = struct{}{}
	if c.Conn == nil {
		u.apart++
	}
}

// remove takes a connection off; false when it was off already.
func (u *underway) remove(c *clientConn) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, there := u.conns[c]
	delete(u.conns, c)
	if there && c.Conn == nil {
		u.apart--
	}
	return there
}

// enter lists an exchange that begins. It reports false when its client has
// left already and the exchange ends with that.
func (c *clientConn) enter(x *exchange) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone && x.endsWithClient() {
		return false
	}
	if x.next = c.x; x.next != nil {
		x.next.prev = x
	}
	c.x = x
	return true
}

// leave takes an exchange off the list. From here on it may become another.
func (c *clientConn) leave(x *exchange) {
	c.mu.Lock()
	if x.prev != nil {
		x.prev.next = x.next
	} else {
		c.x = x.next
	}
	if x.next != nil {
		x.next.prev = x.prev
	}
	x.prev, x.next = nil, nil
	c.mu.Unlock()
}

// left ends what its client waited for.
func (c *clientConn) left() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone = true
	for x := c.x; x != nil; x = x.next {
		if x.endsWithClient() {
			x.cancel()
		}
	}
}

// each calls f with every exchange under way. With the locks held none of them
// can end and become another; f must not wait.
func (u *underway) each(f func(*exchange)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for c := range u.conns {
		c.mu.Lock()
		for x := c.x; x != nil; x = x.next {
			f(x)
		}
		c.mu.Unlock()
	}
}

// retire ends the connections that wait for a request.
func (u *underway) retire() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for c := range u.conns {
		c.retire()
	}
}

// arriving is what was seen of a connection that waits for more of a request.
type arriving struct {
	later int32 // as the connection's
	since time.Time
}

// cutArriving ends the wait for requests of which nothing has come for so long, and
// for all of them when that is 0. seen has what was seen before.
func (u *underway) cutArriving(now time.Time, seen map[*clientConn]arriving, within time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for c := range u.conns {
		if c.Conn == nil || c.place.Load() != arrives {
			continue
		}
		later := c.later.Load()
		was, there := seen[c]
		switch {
		case within > 0 && (!there || was.later != later):
			seen[c] = arriving{later, now}
		case within == 0 || now.Sub(was.since) > within:
			_ = c.Conn.SetReadDeadline(time.Unix(1, 0))
		}
	}
}

// connections returns how many client connections are open.
func (u *underway) connections() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.conns) - u.apart
}

// calls returns how many calls go on that no connection waits for: their client
// has its stream at another edge.
func (u *underway) calls() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.apart
}

// endLasting cancels the exchanges that last until somebody ends them.
func (u *underway) endLasting() {
	u.each(func(x *exchange) {
		if x.lasts {
			x.cancel()
		}
	})
}

// since returns the ways back of the exchanges that began before the moment.
func (u *underway) since(before time.Time) []way {
	var out []way
	u.each(func(x *exchange) {
		if x.began.Before(before) {
			out = append(out, way{&x.way, x.number})
		}
	})
	return out
}

// settle waits until nothing is under way, but for no longer than that: an
// exchange that does not heed its end is left behind.
func (u *underway) settle(within time.Duration) {
	for by := time.Now().Add(within); len(u.since(by)) > 0 && time.Now().Before(by); {
		time.Sleep(time.Millisecond)
	}
}
