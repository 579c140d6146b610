//go:build !race

package audit

import (
	"context"
	"testing"

	"github.com/weir-edge/weir/edge/v1beta1"
)

// A record costs a small number of allocations, whatever is in it. The race
// detector has some of its own.
func TestAllocations(t *testing.T) {
	_, x, h := benchLog(t, func(c *v1beta1.Audit) { c.IncludeRequestData = true })
	if n := testing.AllocsPerRun(1000, func() { _, _ = h.Handle(context.Background(), x) }); n > 4 {
		t.Errorf("%v allocations", n)
	}
}
