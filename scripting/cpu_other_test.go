//go:build !unix

package scripting_test

import "time"

// cpu is the time that the process has computed, at the most.
func cpu() time.Duration { return time.Duration(time.Now().UnixNano()) }
