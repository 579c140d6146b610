package sandbox

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// errDescriptor says that a descriptor on the link is not what was asked for.
var errDescriptor = errors.New("a descriptor on the link is not what was asked for")

const pipefsMagic = 0x50495045

// takePipe makes a file of one end of a pipe that came over the link: flag is O_RDONLY or
// O_WRONLY, which it must be open for. It takes fd over, also when it fails.
//
// The pipe is opened anew through /proc: whether a descriptor blocks belongs to what was
// opened, which the sandbox shares of the one that it sent and not of the new one.
func takePipe(fd, flag int, name string) (*os.File, error) {
	ours, err := ownPipe(fd, flag)
	_ = unix.Close(fd)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(ours), name), nil
}

func ownPipe(fd, flag int) (int, error) {
	var stat unix.Stat_t
	var fsys unix.Statfs_t
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_PATH != 0 || flags&unix.O_ACCMODE != flag {
		return -1, errDescriptor
	}
	if err := unix.Fstat(fd, &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFIFO {
		return -1, errDescriptor
	}
	// A pipe, and no FIFO of a directory that somebody else may open.
	if err := unix.Fstatfs(fd, &fsys); err != nil || fsys.Type != pipefsMagic {
		return -1, errDescriptor
	}
	return unix.Open("/proc/self/fd/"+strconv.Itoa(fd), flag|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
}

// takeConn makes a connection of a socket that came over the link, as the one to a port of
// the sandbox's loopback. It takes fd over, also when it fails.
func takeConn(fd, port int) (net.Conn, error) {
	if err := checkSocket(fd, port); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "link")
	c, err := net.FileConn(f) // has a duplicate
	_ = f.Close()
	if err != nil {
		return nil, err
	}
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		_ = c.Close()
		return nil, errDescriptor
	}
	return newConn(tcp)
}

// takeOutgoing makes a connection of a socket that came over the link, as one that a server
// made to its loopback: to one of ports. It takes fd over, also when it fails. One whose other
// end has gone meanwhile is errGone, and no violation.
func takeOutgoing(fd int, ports []int) (*conn, error) {
	own, err := unix.Getsockname(fd)
	local, ok := own.(*unix.SockaddrInet4)
	if err != nil || !ok || checkStream(fd) != nil || local.Addr[0] != 127 || !slices.Contains(ports, local.Port) {
		_ = unix.Close(fd)
		return nil, errDescriptor
	}
	peer, err := unix.Getpeername(fd)
	from, ok := peer.(*unix.SockaddrInet4)
	if err != nil || !ok {
		_ = unix.Close(fd)
		return nil, errGone
	}
	c, err := takeConn(fd, from.Port)
	if err != nil {
		return nil, errGone
	}
	return c.(*conn), nil
}

// errGone says that a connection has ended before it was taken.
var errGone = errors.New("a connection on the link has ended")

// checkStream looks whether fd is a TCP socket that listens nowhere.
func checkStream(fd int) error {
	var stat unix.Stat_t
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_PATH != 0 {
		return errDescriptor
	}
	if err := unix.Fstat(fd, &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return errDescriptor
	}
	for _, want := range [][2]int{{unix.SO_TYPE, unix.SOCK_STREAM}, {unix.SO_PROTOCOL, unix.IPPROTO_TCP}, {unix.SO_ACCEPTCONN, 0}} {
		if got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, want[0]); err != nil || got != want[1] {
			return errDescriptor
		}
	}
	return nil
}

// checkSocket looks whether fd is a connected TCP socket, and its other end what was asked.
func checkSocket(fd, port int) error {
	if err := checkStream(fd); err != nil {
		return err
	}
	peer, err := unix.Getpeername(fd)
	if err != nil {
		return errDescriptor
	}
	switch p := peer.(type) {
	case *unix.SockaddrInet4:
		if net.IP(p.Addr[:]).IsLoopback() && p.Port == port {
			return nil
		}
	case *unix.SockaddrInet6:
		if net.IP(p.Addr[:]).IsLoopback() && p.Port == port {
			return nil
		}
	}
	return errDescriptor
}

// conn is a socket that a stranger has too, who may set it to blocking again: it asks the
// kernel at each call not to block.
type conn struct {
	*net.TCPConn
	raw interface {
		Read(func(fd uintptr) bool) error
		Write(func(fd uintptr) bool) error
	}
	closed func() // told of the end; nil for nobody
}

func newConn(tcp *net.TCPConn) (*conn, error) {
	raw, err := tcp.SyscallConn()
	if err != nil {
		_ = tcp.Close()
		return nil, err
	}
	return &conn{TCPConn: tcp, raw: raw}, nil
}

func (c *conn) Read(p []byte) (n int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	waited := c.raw.Read(func(fd uintptr) bool {
		n, err = uninterrupted(func() (int, error) {
			n, _, err := unix.Recvfrom(int(fd), p, unix.MSG_DONTWAIT)
			return n, err
		})
		return err != unix.EAGAIN
	})
	return c.result("read", n, err, waited, true)
}

func (c *conn) Write(p []byte) (n int, err error) {
	for n < len(p) {
		var took int
		waited := c.raw.Write(func(fd uintptr) bool {
			took, err = uninterrupted(func() (int, error) {
				return unix.SendmsgN(int(fd), p[n:], nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
			})
			return err != unix.EAGAIN
		})
		took, err = c.result("write", took, err, waited, false)
		n += took
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// uninterrupted repeats a call that a signal interrupted.
func uninterrupted(f func() (int, error)) (int, error) {
	for {
		n, err := f()
		if err != unix.EINTR {
			return n, err
		}
	}
}

func (c *conn) result(op string, n int, err, waited error, read bool) (int, error) {
	switch {
	case waited != nil: // closed, or past its deadline
		return 0, waited
	case err != nil:
		return 0, &net.OpError{Op: op, Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: os.NewSyscallError(op, err)}
	case read && n == 0:
		return 0, errEOF
	}
	return n, nil
}

// onClose has f called at the end.
func (c *conn) onClose(f func()) { c.closed = f }

func (c *conn) Close() error {
	err := c.TCPConn.Close()
	if c.closed != nil {
		c.closed()
	}
	return err
}

// pair makes a socket pair: a connection of ours, and a file for the helper.
func pair() (*net.UnixConn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("link: %w", err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "link")
	if err := unix.SetNonblock(fds[0], true); err != nil {
		_, _ = unix.Close(fds[0]), theirs.Close()
		return nil, nil, fmt.Errorf("link: %w", err)
	}
	ours := os.NewFile(uintptr(fds[0]), "link")
	defer ours.Close()
	c, err := net.FileConn(ours)
	if err != nil {
		_ = theirs.Close()
		return nil, nil, fmt.Errorf("link: %w", err)
	}
	return c.(*net.UnixConn), theirs, nil
}

// sendTimeout is how long the helper may take nothing of what it is sent.
const sendTimeout = 5 * time.Second
