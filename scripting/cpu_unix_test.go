//go:build unix

package scripting_test

import (
	"syscall"
	"time"
)

// cpu is the time that the process has computed.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
