//go:build linux && !amd64

package main

import "golang.org/x/sys/unix"

// int80 is not there on other architectures.
func int80(uintptr) uintptr {
	errno := unix.ENOSYS
	return -uintptr(errno)
}
