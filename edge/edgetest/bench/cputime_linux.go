package main

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// threadTime returns the CPU time that the present thread has used.
func threadTime() (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0, fmt.Errorf("cpu time of a thread: %w", err)
	}
	return time.Duration(t.Nano()), nil
}
