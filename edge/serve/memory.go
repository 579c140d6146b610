package serve

import (
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"time"
)

// Many sessions that end leave garbage behind. The runtime collects it when more memory is
// asked for, which a process at rest does not (it collects every two minutes, and returns
// free memory bit by bit after that). So the edge collects it.

const (
	// restsFor is for how long no collection must have begun for the process to be at
	// rest, and givesEvery the least time between two returns of memory.
	restsFor   = 3 * time.Second
	givesEvery = 10 * time.Second

	// startsFor is for how long the process is taken to start.
	startsFor = 2 * time.Second

	// worthGiving is how many bytes of garbage and free memory are worth a collection, and
	// by how many what the last collection found in use must exceed what the last return of
	// memory left: some of it may be garbage since, as what a reload replaced is.
	worthGiving = 6 << 20
)

// A heap of a few MiB is collected over and over by a process that makes much garbage, each time
// for as much as it has in use. One that does so many times a second lets the heap grow to
// smallHeap first, unless GOGC or a manager says when.
const (
	smallHeap = 16 << 20
	usualPace = 100 // percent: garbage is collected when it is as much as what is in use
	mostPace  = 400
	often     = 8 // collections a second
)

// memory returns unused memory to the system, has the process forget pages of its program
// that it may not need any more, and sets the pace of collections. It belongs to one goroutine.
type memory struct {
	born    time.Time
	samples []metrics.Sample
	cycles  uint64    // collections so far
	changed time.Time // when the last one was seen
	gave    time.Time
	left    uint64       // bytes in use after that
	forgot  uint64       // collections when the program was forgotten; see forgetProgram
	pace    atomic.Int64 // GOGC now, percent; 0 where others have set it
	watched atomic.Bool  // the next collection says whether the heap is still a small one
}

func newMemory() *memory {
	m := &memory{born: time.Now(), samples: []metrics.Sample{
		{Name: "/gc/cycles/total:gc-cycles"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
		{Name: "/gc/gogc:percent"},
	}}
	metrics.Read(m.samples)
	if _, set := os.LookupEnv("GOGC"); !set && m.samples[4].Value.Uint64() >= usualPace { // that of another edge in this process may be more
		m.pace.Store(usualPace)
	}
	return m
}

// keepPace sets at how much garbage it is collected, from how many collections there were within
// the last second, how many bytes the last one found in use, and whether the process is at rest.
func (m *memory) keepPace(collections, live uint64, rests bool) {
	is := int(m.pace.Load())
	pace := is
	switch {
	case pace == 0:
		return
	case rests || live >= smallHeap/2:
		pace = usualPace
	case collections >= often:
		pace = min(mostPace, int(100*(smallHeap-live)/max(live, 1)))
	}
	if change := pace - is; pace == usualPace && change != 0 || change > is/4 || -change > is/4 { // each stops the process for a moment
		m.pace.Store(int64(pace))
		debug.SetGCPercent(pace)
	}
}

// watch has the usual pace back as soon as a collection finds that the heap is no small one any
// more: until the next look it could grow to five times of what is in use.
func (m *memory) watch() {
	if m.pace.Load() <= usualPace || m.watched.Swap(true) {
		return
	}
	type mark struct{ _ *byte } // an object of its own, which nothing leads to
	runtime.AddCleanup(&mark{}, func(m *memory) {
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(live)
		m.watched.Store(false)
		if m.pace.Load() > usualPace && live[0].Value.Uint64() >= smallHeap/2 {
			m.pace.Store(usualPace)
			debug.SetGCPercent(usualPace)
		}
		m.watch()
	}, m)
}

// look returns memory when the process is at rest and holds enough that it does not need.
// It reports whether it did.
func (m *memory) look(now time.Time) bool {
	metrics.Read(m.samples)
	cycles, objects, live, free := m.samples[0].Value.Uint64(), m.samples[1].Value.Uint64(), m.samples[2].Value.Uint64(), m.samples[3].Value.Uint64()
	if now.Sub(m.born) >= startsFor {
		m.keepPace(cycles-m.cycles, live, cycles == m.cycles && now.Sub(m.changed) >= restsFor)
		m.watch()
		if m.forgot == 0 {
			m.forgot = max(cycles, 1)
			forgetProgram()
		}
	}
	if cycles != m.cycles || m.changed.IsZero() {
		m.cycles, m.changed = cycles, now
		return false
	}
	if now.Sub(m.changed) < restsFor {
		return false
	}
	give := now.Sub(m.gave) >= givesEvery && (objects-min(live, objects)+free >= worthGiving || live >= m.left+worthGiving)
	if give {
		debug.FreeOSMemory()
		metrics.Read(m.samples)
		m.gave, m.left = now, m.samples[2].Value.Uint64()
		cycles = m.samples[0].Value.Uint64()
	}
	if cycles != m.forgot { // so much was done since that its pages are there again
		m.forgot = cycles
		forgetProgram()
	}
	return give
}

// mostForValues is how many bytes the values of workflows take in all, a quarter of it by one
// principal: as many as an eighth of the memory of a process that has a limit (GOMEMLIMIT),
// and at least one run's of 64 MiB.
func mostForValues() int64 {
	const most, least = 512 << 20, 4 * 65 << 20
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		return min(most, max(least, limit/8))
	}
	return most
}
