//go:build unix

package backend

import (
	"crypto/tls"
	"net"
	"syscall"
)

// quiet reports whether nothing has arrived on a connection that waits for its
// next call: anything that has, the end of the stream included, means that the
// backend is done with it.
func quiet(c net.Conn) bool {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	sc, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	still := false
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		still = err == syscall.EAGAIN
	})
	return err == nil && still
}
