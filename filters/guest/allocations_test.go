//go:build !race

package guest_test

import (
	"context"
	"testing"

	"github.com/weir-edge/weir/edge/v1beta1"
)

// TestP10 costs a call that a program lets pass no allocation of the host's, nor
// one that it is not asked about. Under the race detector pools drop some of what
// they are given.
func TestP10(t *testing.T) {
	for _, isolation := range []v1beta1.FilterIsolation{v1beta1.IsolationShared, v1beta1.IsolationPerRequest} {
		h := asking(t, isolation, "sub|on_call_request|header=x-a,x-b|pointer=/text", "on_call_request|tool=never|deny|0|no")
		x, ctx := exchange(t, 1<<10), context.Background()
		n := testing.AllocsPerRun(200, func() {
			if _, err := h.Handle(ctx, x); err != nil {
				t.Fatal(err)
			}
		})
		if n != 0 {
			t.Errorf("%s: %v allocations", isolation, n)
		}
	}
	h := asking(t, v1beta1.IsolationShared, "sub|on_call_request|tool=delete_*", "on_call_request|*|deny|0|no")
	x, ctx := exchange(t, 1<<10), context.Background()
	if n := testing.AllocsPerRun(200, func() {
		if _, err := h.Handle(ctx, x); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("a call that it is not asked about: %v allocations", n)
	}
}
