//go:build !unix

package wire

import (
	"errors"
	"os"
	"time"
)

// probe looks at a connection that waits for its next call.
type probe struct{ c *Conn }

// at has the probe look at a connection.
func (p *probe) at(c *Conn) { p.c = c }

// quiet reports whether nothing has arrived: anything that has, the end of the
// stream included, means that the backend is done with the connection.
func (p *probe) quiet() bool {
	if p.c.SetReadDeadline(time.Now().Add(time.Millisecond)) != nil {
		return false
	}
	p.c.read = time.Time{} // the deadline is none, here and in the end
	var b [1]byte
	_, err := p.c.Read(b[:])
	return errors.Is(err, os.ErrDeadlineExceeded) && p.c.SetReadDeadline(time.Time{}) == nil
}
