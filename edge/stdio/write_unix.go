//go:build unix

package stdio

import "syscall"

// write is one write to a descriptor in non-blocking mode.
func write(fd uintptr, b []byte) (int, error) { return syscall.Write(int(fd), b) }
