package door

import (
	"context"
	"sync"
)

// underway is the connections and what is served on them. Each connection lists its
// own calls, so that cores do not meet on a lock; whoever wants all of them asks
// every connection.
type underway struct {
	mu    sync.Mutex // may be held when a connection's is taken
	conns map[*Conn]struct{}
	apart int // of them, those of calls that no connection waits for
}

func (u *underway) add(c *Conn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.conns == nil {
		u.conns = make(map[*Conn]struct{})
	}
	u.conns[c] = struct{}{}
	if c.Conn == nil {
		u.apart++
	}
}

// remove takes a connection off; false when it was off already.
func (u *underway) remove(c *Conn) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, there := u.conns[c]
	delete(u.conns, c)
	if there && c.Conn == nil {
		u.apart--
	}
	return there
}

// Enter lists a call that begins. Where it ends with its client and that has left
// already, Enter reports false.
func (c *Conn) Enter(x *Call, endsWithClient bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone && endsWithClient {
		return false
	}
	x.ends = endsWithClient
	if x.next = c.call; x.next != nil {
		x.next.prev = x
	}
	c.call = x
	return true
}

// Moved says that the client of a call reads on elsewhere. What it sent here would not be read before
// the call ends, so it is shown the end of the connection; and the call no longer ends with that.
func (c *Conn) Moved(x *Call) {
	c.mu.Lock()
	x.ends = false
	c.mu.Unlock()
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

// Lasting says that a call under way lasts until its client or the edge ends it, which a
// door that its clients leave does at once.
func (c *Conn) Lasting(x *Call) {
	c.mu.Lock()
	x.Lasts = true
	c.mu.Unlock()
	if c.Leaving() {
		x.Cancel()
	}
}

// Leave takes a call off the list. From here on it may become another.
func (c *Conn) Leave(x *Call) {
	c.mu.Lock()
	if x.prev != nil {
		x.prev.next = x.next
	} else {
		c.call = x.next
	}
	if x.next != nil {
		x.next.prev = x.prev
	}
	x.prev, x.next = nil, nil
	c.mu.Unlock()
}

// ErrLeft is the error of a call that has ended because its client left.
var ErrLeft error = left{}

type left struct{}

func (left) Error() string { return "the client left" }
func (left) Unwrap() error { return context.Canceled }

// left ends what its client waited for.
func (c *Conn) left() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone = true
	for x := c.call; x != nil; x = x.next {
		if x.ends {
			x.CancelFor(ErrLeft)
		}
	}
}

// Each calls f with every call under way. The locks that are held keep each of them
// from ending and becoming another; f must not wait.
func (d *Door) Each(f func(*Call)) {
	u := &d.underway
	u.mu.Lock()
	defer u.mu.Unlock()
	for c := range u.conns {
		c.mu.Lock()
		for x := c.call; x != nil; x = x.next {
			f(x)
		}
		c.mu.Unlock()
	}
}
