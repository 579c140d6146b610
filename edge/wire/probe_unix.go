//go:build unix

package wire

import (
	"crypto/tls"
	"syscall"
)

// probe looks at a connection that waits for its next call without reading
// from it, and without an allocation.
type probe struct {
	raw   syscall.RawConn // nil when the connection cannot be looked at
	look  func(fd uintptr)
	still bool
	b     [1]byte
}

// at has the probe look at a connection.
func (p *probe) at(c *Conn) {
	under := c.Conn
	if t, ok := under.(*tls.Conn); ok {
		under = t.NetConn()
	}
	sc, ok := under.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return
	}
	p.raw = raw
	p.look = func(fd uintptr) { p.still = nothing(fd, &p.b) }
}

// quiet reports whether nothing has arrived: anything that has, the end of the
// stream included, means that the backend is done with the connection.
func (p *probe) quiet() bool {
	p.still = false
	return p.raw != nil && p.raw.Control(p.look) == nil && p.still
}
