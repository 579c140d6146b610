//go:build linux && (amd64 || arm64) && !race

package turn

import (
	"syscall"
	"unsafe"
)

func read(fd uintptr, b []byte) (int, syscall.Errno)  { return call(syscall.SYS_READ, fd, b) }
func write(fd uintptr, b []byte) (int, syscall.Errno) { return call(syscall.SYS_WRITE, fd, b) }

// call is a system call that does not wait, so that the scheduler need not hear
// of it: that is half of the cost of a short one.
func call(trap, fd uintptr, b []byte) (int, syscall.Errno) {
	for {
		n, _, errno := syscall.RawSyscall(trap, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
		switch errno {
		case 0:
			return int(n), 0
		case syscall.EINTR:
			continue
		}
		return 0, errno
	}
}
