//go:build linux

package main

import (
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// bomb makes processes that make processes, as fast as they can.
func bomb() {
	for {
		_, _, _ = unix.RawSyscall(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0)
	}
}

// clone makes a process with flags, which ends at once.
func clone(flags string) error {
	n, err := strconv.ParseUint(flags, 0, 64)
	if err != nil {
		return err
	}
	pid, _, e := unix.RawSyscall6(unix.SYS_CLONE, uintptr(n)|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if e != 0 {
		return e
	}
	if pid == 0 {
		for {
			_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
	}
	_, err = unix.Wait4(int(pid), nil, 0, nil)
	return err
}

func queue(pid, n int, info *[128]byte) error {
	if _, _, e := unix.Syscall(unix.SYS_RT_SIGQUEUEINFO, uintptr(pid), uintptr(n), uintptr(unsafe.Pointer(info))); e != 0 {
		return e
	}
	return nil
}

func ioctlPointer(fd int, request uintptr, p *[16]byte) error {
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(unsafe.Pointer(p))); e != 0 {
		return e
	}
	return nil
}

// x32 makes a system call by the x32 interface; on other architectures than amd64, by a
// number that nothing has.
func x32(nr uintptr) uintptr {
	r, _, e := unix.RawSyscall(nr|0x40000000, 0, 0, 0)
	if e != 0 {
		return -uintptr(e)
	}
	return r
}
