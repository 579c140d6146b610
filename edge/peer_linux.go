package edge

import (
	"net"
	"os"
	"syscall"
)

// OfThisUser reports whether the process at the other end of a connection is this user's, by
// the word of the kernel.
func OfThisUser(c net.Conn) bool {
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return false
	}
	var peer *syscall.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		peer, failed = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); err != nil || failed != nil {
		return false
	}
	return int(peer.Uid) == os.Geteuid()
}
