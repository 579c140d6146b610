package wire

import (
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
)

// TimedOut reports whether an error says that a connection took too long.
func TimedOut(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// Closed reports whether an error says that the other side is gone: it closed
// the connection, or the connection broke.
func Closed(err error) bool {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.ECONNABORTED) || errors.Is(err, syscall.EPIPE) {
		return true
	}
	text := err.Error()
	return strings.Contains(text, "closed") || strings.Contains(text, "reset by peer") || strings.Contains(text, "broken pipe")
}
