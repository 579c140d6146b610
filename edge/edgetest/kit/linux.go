//go:build linux

package kit

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"syscall"
)

// Stops makes a process a black hole, until GoesOn.
const Stops, GoesOn = syscall.SIGSTOP, syscall.SIGCONT

// ChildAttr lets the kernel end a child whose starter is gone, so that nothing
// is left behind even when the starter was killed.
func ChildAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// RaiseFiles lets this process and its children open as many files as the
// system allows without asking.
func RaiseFiles() error {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return fmt.Errorf("limit of open files: %w", err)
	}
	l.Cur = l.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return fmt.Errorf("limit of open files: %w", err)
	}
	return nil
}

// MaxFiles is how many files a process may open.
func MaxFiles() int {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
		return 1024
	}
	return int(min(l.Cur, 1<<30))
}

// receiveBuffer bounds what the kernel holds for a client that does not read;
// the kernel doubles the number (socket(7), SO_RCVBUF).
func receiveBuffer(bytes int) func(network, address string, c syscall.RawConn) error {
	if bytes == 0 {
		return nil
	}
	return func(_, _ string, c syscall.RawConn) error {
		var err error
		if e := c.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, bytes)
		}); e != nil {
			return e
		}
		return err
	}
}

// Closed reports whether the peer has closed an idle connection: a client looks
// before it sends its next request.
func (c *Client) Closed() bool {
	t, ok := c.Conn.(*net.TCPConn)
	if !ok || c.In.Buffered() > 0 {
		return true // something that nobody asked for
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return true
	}
	gone := false
	if err := raw.Control(func(fd uintptr) {
		var b [1]byte
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		gone = n >= 0 && err == nil || err != syscall.EAGAIN
	}); err != nil {
		return true
	}
	return gone
}

// Socket is one TCP socket of this machine, as the kernel tells it
// (sock_diag(7)). Sizes are bytes.
type Socket struct {
	State          uint8
	Local, Peer    netip.AddrPort
	unread, Unsent int
	Held           int // kernel memory on its account
}

// The states of a connection that is open (linux/tcp_states.h): on both sides,
// and on this one alone.
const (
	Established = 1
	CloseWait   = 8
)

// The request and the answers of NETLINK_SOCK_DIAG for TCP over IPv4: struct
// inet_diag_req_v2, struct inet_diag_msg and the attribute
// INET_DIAG_SKMEMINFO, from linux/inet_diag.h.
const (
	sockDiagByFamily = 20
	diagMessage      = 72 // bytes of struct inet_diag_msg
	skmeminfo        = 7
	allStates        = 1<<12 - 1
)

// Sockets lists the TCP sockets of this machine that have the port at either
// end.
func Sockets(ports map[uint16]bool) ([]Socket, error) {
	const what = "list of sockets"
	fd, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, 4) // NETLINK_SOCK_DIAG
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	defer syscall.Close(fd)
	native := binary.NativeEndian
	req := make([]byte, syscall.NLMSG_HDRLEN+56)
	native.PutUint32(req[0:], uint32(len(req)))
	native.PutUint16(req[4:], sockDiagByFamily)
	native.PutUint16(req[6:], syscall.NLM_F_REQUEST|syscall.NLM_F_DUMP)
	body := req[syscall.NLMSG_HDRLEN:]
	body[0], body[1], body[2] = syscall.AF_INET, syscall.IPPROTO_TCP, 1<<(skmeminfo-1)
	native.PutUint32(body[4:], allStates)
	if err := syscall.Sendto(fd, req, 0, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	var out []Socket
	buf := make([]byte, 64<<10)
	for {
		n, _, err := syscall.Recvfrom(fd, buf, 0)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		messages, err := syscall.ParseNetlinkMessage(buf[:n])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		for _, m := range messages {
			switch m.Header.Type {
			case syscall.NLMSG_DONE:
				return out, nil
			case syscall.NLMSG_ERROR:
				return nil, fmt.Errorf("%s: the kernel refused it", what)
			}
			if s, ok := parseSocket(m.Data); ok && (ports[s.Local.Port()] || ports[s.Peer.Port()]) {
				out = append(out, s)
			}
		}
	}
}

// parseSocket reads one struct inet_diag_msg with its attributes.
func parseSocket(b []byte) (s Socket, ok bool) {
	if len(b) < diagMessage {
		return s, false
	}
	native := binary.NativeEndian
	s.State = b[1]
	at := func(port, host int) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[host:])), binary.BigEndian.Uint16(b[port:]))
	}
	s.Local, s.Peer = at(4, 8), at(6, 24)
	s.unread, s.Unsent = int(native.Uint32(b[56:])), int(native.Uint32(b[60:]))
	for rest := b[diagMessage:]; len(rest) >= 4; {
		size, kind := int(native.Uint16(rest)), native.Uint16(rest[2:])
		if size < 4 || size > len(rest) {
			break
		}
		if v := rest[4:size]; kind == skmeminfo && len(v) >= 36 {
			word := func(i int) int { return int(native.Uint32(v[4*i:])) }
			// SK_MEMINFO_: RMEM_ALLOC, RCVBUF, WMEM_ALLOC, SNDBUF, FWD_ALLOC,
			// WMEM_QUEUED, OPTMEM, BACKLOG, DROPS
			s.Held = word(0) + word(4) + word(5) + word(7)
		}
		rest = rest[min((size+3)&^3, len(rest)):]
	}
	return s, true
}
