//go:build unix && !(linux && (amd64 || arm64))

package wire

import "syscall"

// nothing reports whether a socket has nothing to read.
func nothing(fd uintptr, b *[1]byte) bool {
	_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	return err == syscall.EAGAIN
}
