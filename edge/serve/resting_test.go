package serve

import (
	"runtime"
	"testing"
	"time"
)

// TestMemoryOfWhatWasReplaced: what was in use when the last collection looked, and
// is not any more, goes back to the system when the process rests; and then it is
// left alone.
func TestMemoryOfWhatWasReplaced(t *testing.T) {
	m, now := newMemory(), time.Now()
	rest := func() (gave bool) {
		for range 2 { // the first look finds that there were collections
			gave = m.look(now)
			now = now.Add(givesEvery)
		}
		return gave
	}
	rest() // what this process had before
	replaced := make([]byte, 4*worthGiving)
	runtime.GC()
	runtime.KeepAlive(replaced)
	if !rest() {
		t.Error("what was replaced stays")
	}
	for range 2 {
		if rest() {
			t.Error("a process at rest with nothing to give collects again")
		}
	}
}
