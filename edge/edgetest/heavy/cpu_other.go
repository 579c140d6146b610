//go:build !linux

package heavy

import "time"

var start = time.Now()

// CPU is the time that f takes: threads have no clock of their own here.
func CPU(f func()) time.Duration {
	from := time.Now()
	f()
	return time.Since(from)
}

// Process is the time that has passed.
func Process() time.Duration { return time.Since(start) }
