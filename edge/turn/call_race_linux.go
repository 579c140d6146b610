//go:build linux && (amd64 || arm64) && race

package turn

import (
	"errors"
	"syscall"
)

// The race detector learns from the ordinary calls that what is written before
// is read after.

func read(fd uintptr, b []byte) (int, syscall.Errno)  { return call(syscall.Read, fd, b) }
func write(fd uintptr, b []byte) (int, syscall.Errno) { return call(syscall.Write, fd, b) }

func call(f func(int, []byte) (int, error), fd uintptr, b []byte) (int, syscall.Errno) {
	for {
		n, err := f(int(fd), b)
		if err == nil {
			return n, 0
		}
		var errno syscall.Errno
		if !errors.As(err, &errno) {
			errno = syscall.EIO
		}
		if errno != syscall.EINTR {
			return 0, errno
		}
	}
}
