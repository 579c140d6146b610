package serve

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
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

// TestPaceOfCollections: a small heap that is collected often grows first, until the process has
// nothing to do or more in use. What the operator has set holds, and what a manager has.
func TestPaceOfCollections(t *testing.T) {
	usual := debug.SetGCPercent(usualPace)
	defer debug.SetGCPercent(usual)
	m := newMemory()
	for _, look := range []struct {
		collections, live uint64
		rests             bool
		want              int
	}{
		{often - 1, 4 << 20, false, 100},
		{often, 4 << 20, false, 300},
		{0, 4 << 20, false, 300},
		{often, 3500 << 10, false, 300}, // too little to stop the process for
		{often, 1 << 20, false, 400},
		{often, 0, false, 400},
		{often, 6 << 20, false, 166},
		{0, 6 << 20, true, 100},
		{often, 4 << 20, false, 300},
		{often, smallHeap / 2, false, 100},
		{often, 1 << 30, false, 100},
	} {
		m.keepPace(look.collections, look.live, look.rests)
		if got := debug.SetGCPercent(look.want); got != look.want || int(m.pace.Load()) != look.want {
			t.Errorf("%+v: %d%%, %d", look, got, m.pace.Load())
		}
	}
	held := func(what string, percent int) {
		t.Helper()
		debug.SetGCPercent(percent)
		m := newMemory()
		m.keepPace(often, 4<<20, false)
		if m.keepPace(0, 4<<20, true); debug.SetGCPercent(usualPace) != percent {
			t.Errorf("%s was changed", what)
		}
	}
	held("the pace of a manager", 50)
	t.Setenv("GOGC", "120")
	held("what GOGC says", 120)
}

// TestPaceOfABurst: what comes between two looks is collected at the usual pace as soon as a
// collection has seen it.
func TestPaceOfABurst(t *testing.T) {
	usual := debug.SetGCPercent(usualPace)
	defer debug.SetGCPercent(usual)
	m := newMemory()
	m.keepPace(often, 1<<20, false)
	if m.pace.Load() <= usualPace {
		t.Fatalf("%d%%", m.pace.Load())
	}
	m.watch()
	burst := make([]byte, smallHeap)
	for began := time.Now(); m.pace.Load() != usualPace && time.Since(began) < 10*time.Second; time.Sleep(time.Millisecond) {
		runtime.GC()
	}
	runtime.KeepAlive(burst)
	if got := debug.SetGCPercent(usualPace); got != usualPace || m.pace.Load() != usualPace {
		t.Errorf("%d%%, %d%%", got, m.pace.Load())
	}
}

// TestPaceOfABusyEdge: the looks of an edge that has started see the collections.
func TestPaceOfABusyEdge(t *testing.T) {
	usual := debug.SetGCPercent(usualPace)
	defer debug.SetGCPercent(usual)
	m := newMemory()
	looks := func(after time.Duration) {
		for range often {
			runtime.GC()
		}
		m.look(m.born.Add(after))
	}
	looks(0) // the start's own collections say nothing
	if looks(startsFor - 1); m.pace.Load() != usualPace {
		t.Errorf("%d%% while it starts", m.pace.Load())
	}
	looks(startsFor)
	metrics.Read(m.samples)
	if live := m.samples[2].Value.Uint64(); (m.pace.Load() > usualPace) != (live < smallHeap/2) {
		t.Errorf("%d%% with %d bytes in use", m.pace.Load(), live)
	}
}
