package edge

import (
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// OfThisUser reports whether the process at the other end of a connection is this user's, by
// the word of the kernel.
func OfThisUser(c net.Conn) bool {
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return false
	}
	var peer *unix.Xucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		peer, failed = unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	}); err != nil || failed != nil {
		return false
	}
	return int(peer.Uid) == os.Geteuid()
}
