//go:build !unix

package backend

import (
	"errors"
	"net"
	"os"
	"time"
)

// quiet reports whether nothing has arrived on a connection that waits for its
// next call: anything that has, the end of the stream included, means that the
// backend is done with it.
func quiet(c net.Conn) bool {
	if c.SetReadDeadline(time.Now().Add(time.Millisecond)) != nil {
		return false
	}
	var b [1]byte
	_, err := c.Read(b[:])
	return errors.Is(err, os.ErrDeadlineExceeded) && c.SetReadDeadline(time.Time{}) == nil
}
