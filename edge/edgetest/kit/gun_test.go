package kit

import (
	"testing"
	"time"
)

// TestGun fires faster than the backend answers, and every call is answered.
func TestGun(t *testing.T) {
	b := NewBackend(Modern, "slow")
	b.Slow = 10 * time.Millisecond
	g := &Gun{Addr: beforeBackend(t, b).Addr, Tool: "slow", Numbers: new(Numbers)}
	defer g.Close()
	shots := g.Fire(t.Context(), 400, 250*time.Millisecond)
	if len(shots) != 100 {
		t.Fatalf("%d shots", len(shots))
	}
	for i, s := range shots {
		if s.Err != nil || s.Took < 10*time.Millisecond {
			t.Errorf("shot %d: %v after %s", i, s.Err, s.Took)
		}
	}
	if n := g.Opened(); n < 2 || n > 100 {
		t.Errorf("%d connections", n)
	}
}

func TestSort(t *testing.T) {
	good, shed, late, failed := Sort([]Shot{{Took: GoodWithin}, {Took: GoodWithin + 1}, {Err: ErrBusy}, {Err: ErrFull}, {}})
	if good != 2 || shed != 1 || late != 1 || failed != 1 {
		t.Errorf("%d good, %d shed, %d late, %d failed", good, shed, late, failed)
	}
}
