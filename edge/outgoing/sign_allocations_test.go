//go:build !race

package outgoing

import (
	"testing"
	"time"
)

// TestSignAllocations holds what a signature costs in allocations, in the second that it is
// made in and with keys that were used before. The race detector has allocations of its own.
func TestSignAllocations(t *testing.T) {
	s, k, r, set := signing()
	now := time.Unix(1<<30, 0)
	s.sign(k, now, r, set)
	if n := testing.AllocsPerRun(200, func() { s.sign(k, now, r, set) }); n > 2 {
		t.Errorf("a signature allocates %v times, at most 2", n)
	}
}
