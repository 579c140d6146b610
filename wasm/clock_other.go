//go:build !linux

package wasm

import "time"

var started = time.Now()

// threadTime is the time that passes: the most that the calling thread can have
// used of a processor.
func threadTime() time.Duration { return time.Since(started) }
