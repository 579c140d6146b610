//go:build linux && (amd64 || arm64)

package turn

import (
	"net"
	"os"
	"syscall"
	"unsafe"
)

// Turn takes the turns of one connection.
type Turn struct {
	raw  syscall.RawConn
	step func(fd uintptr) bool // next, bound once

	// Of the turn that is being taken.
	out, in []byte
	look    bool
	said    bool
	sent    int
	n       int
	err     error
	peeked  [1]byte
}

// Of makes t the turns of a connection. It reports false for one that has none,
// such as one with TLS.
func (t *Turn) Of(c net.Conn) bool {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return false
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return false
	}
	t.raw, t.step = raw, t.next
	return true
}

// Able reports whether the connection has turns.
func (t *Turn) Able() bool { return t.raw != nil }

func (t *Turn) take(out, in []byte, look bool) (n, sent int, err error) {
	t.out, t.in, t.look = out, in, look
	t.said, t.sent, t.n, t.err = false, 0, 0, nil
	err = t.raw.Read(t.step)
	t.out, t.in = nil, nil
	switch {
	case err == nil:
		err = t.err
	case !t.said && !look: // the time for reading was over before: it is not for writing
		err = errShort
	}
	return t.n, t.sent, err
}

// next does what can be done without waiting. It reports false to be called
// again when something may have arrived since the turn began.
func (t *Turn) next(fd uintptr) bool {
	if !t.said {
		if over := t.say(fd); over || t.look {
			return over
		}
	}
	n, errno := read(fd, t.in)
	switch errno {
	case 0:
		t.n, t.err = end(n)
		return true
	case syscall.EAGAIN:
		return false
	}
	t.err = os.NewSyscallError("read", errno)
	return true
}

// say writes, and reports whether the turn ends with that.
func (t *Turn) say(fd uintptr) (over bool) {
	if t.look {
		_, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&t.peeked)), 1, syscall.MSG_PEEK|syscall.MSG_DONTWAIT, 0, 0)
		if errno != syscall.EAGAIN {
			t.err = ErrStale
			return true
		}
	}
	n, errno := write(fd, t.out[:min(len(t.out), most)])
	switch {
	case errno == 0 && n == len(t.out):
		t.said = true
		return false
	case errno == 0 || errno == syscall.EAGAIN:
		t.sent, t.err = n, errShort
		return true
	}
	t.err = os.NewSyscallError("write", errno)
	return true
}
