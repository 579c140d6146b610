package scripting

import (
	"testing"

	"go.starlark.net/starlark"
)

// TestStoredKeysTakeLittle: what counts the keys that are stored one by one takes no more memory,
// which no limit of the run counts, however often keys are stored.
func TestStoredKeysTakeLittle(t *testing.T) {
	m := newMeter(newRun(nil, &Names{}, Limits{}.Full(), &Host{}))
	for _, stores := range []int{0, 1000, maxValueElements, 200_000_000} {
		m.stores, m.room = stores, stores
		if err := m.storing(&starlark.Thread{}, starlark.MakeInt(1), nil); err != nil {
			t.Fatal(err)
		}
		if n := 4 * len(m.stored.keys); n > 2<<20 || m.room <= stores {
			t.Errorf("after %d: %d bytes, for up to %d", stores, n, m.room)
		}
	}
}
