package stdio

import (
	"syscall"
	"unsafe"
)

const (
	pPID    = 1         // P_PID
	wExited = 4         // WEXITED
	wNowait = 0x1000000 // WNOWAIT
)

// awaitExit waits until a child has ended, and does not reap it (waitid(2)). It reports
// false where that cannot be.
func awaitExit(pid int) bool {
	var info [128]byte // siginfo_t
	for {
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, pPID, uintptr(pid), uintptr(unsafe.Pointer(&info)), wExited|wNowait, 0, 0)
		if errno != syscall.EINTR {
			return errno == 0
		}
	}
}
