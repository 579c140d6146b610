package serve

import (
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// What many sessions leave behind when they end is garbage that nobody collects:
// the runtime does so when more is made, and a process that rests makes none (of
// itself it collects every two minutes, and gives what is free back bit by bit
// after that). So the house looks after it.

const (
	// restsFor is how long no collection must have begun for the process to rest,
	// and givesEvery how long it waits from one time that it gives memory back to
	// the next.
	restsFor   = 3 * time.Second
	givesEvery = 10 * time.Second

	// worthGiving is how many bytes have to be garbage, or free and not given
	// back, for it to be worth a collection.
	worthGiving = 6 << 20
)

// memory gives back what the process no longer needs. One goroutine has it.
type memory struct {
	samples []metrics.Sample
	cycles  uint64    // collections so far
	changed time.Time // when the last one was seen
	gave    time.Time
}

func newMemory() *memory {
	return &memory{samples: []metrics.Sample{
		{Name: "/gc/cycles/total:gc-cycles"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
	}}
}

// look gives memory back when the process rests and holds some that it does not
// need. It reports whether it did.
func (m *memory) look(now time.Time) bool {
	metrics.Read(m.samples)
	cycles, objects, live, free := m.samples[0].Value.Uint64(), m.samples[1].Value.Uint64(), m.samples[2].Value.Uint64(), m.samples[3].Value.Uint64()
	if cycles != m.cycles || m.changed.IsZero() {
		m.cycles, m.changed = cycles, now
		return false
	}
	if now.Sub(m.changed) < restsFor || now.Sub(m.gave) < givesEvery || objects-min(live, objects)+free < worthGiving {
		return false
	}
	m.gave = now
	debug.FreeOSMemory()
	return true
}
