package wasm

import (
	"math"
	"testing"
	"time"
)

// TestSlowMachine: the machine, and not its guest, is slow where the fuel says that the guest
// did next to nothing. That gives it some more time, and not all that it wants.
func TestSlowMachine(t *testing.T) {
	const ms = time.Millisecond
	for name, of := range map[string]struct {
		limit, used time.Duration
		fuel        int64
		over        bool
	}{
		"in time":                               {5 * ms, 4 * ms, 20_000_000, false},
		"late after much work":                  {5 * ms, 6 * ms, 5_000_000, true},
		"late after next to no work":            {5 * ms, 6 * ms, 2_000_000, false},
		"very late after next to no work":       {5 * ms, 21 * ms, 2_000_000, true},
		"a short time":                          {ms, 3 * ms, 900_000, false},
		"a short time, four times over":         {ms, 5 * ms, 900_000, true},
		"a script":                              {time.Second, 1010 * ms, 10_000_000, false},
		"a script does not get four times that": {time.Second, 1020 * ms, 10_000_000, true},
		"of which nobody knows the fuel":        {5 * ms, 6 * ms, math.MaxInt64, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := clock{limit: of.limit, used: of.used}
			over := c.over(of.fuel)
			c.stop()
			if over != of.over {
				t.Errorf("after %s of %s with %d fuel: over is %v", of.used, of.limit, of.fuel, over)
			}
		})
	}
}
