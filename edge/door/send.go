package door

import (
	"crypto/tls"
	"net"
	"os"
	"time"
)

// Send writes with a deadline that rolls along.
func (c *Conn) Send(p []byte) (int, error) {
	if err := c.ready(); err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(p[:min(len(p), writePiece)])
	for err == nil && n < len(p) {
		var more int
		if err = c.roll(); err == nil {
			more, err = c.Conn.Write(p[n:min(len(p), n+writePiece)])
			n += more
		}
	}
	if err != nil {
		c.failed(err)
	}
	return n, err
}

// ready sends what waits to be sent before the next write, and gives that its
// time.
func (c *Conn) ready() error {
	if c.answer.Load() != nil {
		if err := c.flush(); err != nil {
			return err
		}
	}
	return c.roll()
}

// SetWriteDeadline bounds all that is written from here on: no write has a time of its own any
// longer. It may be called while another goroutine writes.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.lastBy.Store(t.UnixNano())
	return c.Conn.SetWriteDeadline(t)
}

// roll gives the next write its time.
func (c *Conn) roll() error {
	now := c.door.Clock.Now()
	if c.lastBy.Load() != 0 || now.Sub(c.renewed) <= writeRenew {
		return nil
	}
	c.renewed = now
	err := c.Conn.SetWriteDeadline(now.Add(writeWithin))
	if by := c.lastBy.Load(); by != 0 { // it was set meanwhile
		err = c.Conn.SetWriteDeadline(time.Unix(0, by))
	}
	return err
}

// failed is told of a write that failed. A client that did not read in time is
// given up.
func (c *Conn) failed(err error) {
	if os.IsTimeout(err) {
		c.abandon()
	}
}

// abandon has the kernel throw away what the client does not take once the
// connection is closed, instead of trying on for minutes.
func (c *Conn) abandon() {
	under := c.Conn
	if t, ok := under.(*tls.Conn); ok {
		under = t.NetConn()
	}
	if t, ok := under.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
}
