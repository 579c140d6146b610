//go:build unix

package wasm

import (
	"syscall"
	"time"
)

// processTime is what this process has taken of processors.
func processTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // of this process it never fails
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
