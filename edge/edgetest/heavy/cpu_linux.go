package heavy

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// CPU is the processor time that f takes on its own thread. What other threads
// do for it, such as collecting garbage, does not count, and neither does it
// count how busy the machine is.
func CPU(f func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	from := thread()
	f()
	return thread() - from
}

func thread() time.Duration { return spent(unix.RUSAGE_THREAD) }

// Process is the processor time that this process has taken so far.
func Process() time.Duration { return spent(unix.RUSAGE_SELF) }

func spent(who int) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(who, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
