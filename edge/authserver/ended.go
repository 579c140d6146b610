package authserver

import (
	"sync"
	"time"
)

// endedMost is how many grants that have ended are remembered.
const endedMost = 100_000

// ended remembers which grants this replica knows to have ended, as long as an access token of
// them may be good: while the store is away nobody takes them for grants that live. It is safe
// for concurrent use, and its zero value is ready.
type ended struct {
	mu  sync.Mutex
	all map[string]time.Time // by grant, until when it is remembered
}

// note remembers that a grant has ended. Where there is no room, one makes it that is over, else
// any other; a handful is looked at, so that it costs the same however many there are.
func (e *ended) note(id string, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.all == nil {
		e.all = map[string]time.Time{}
	}
	if _, known := e.all[id]; !known && len(e.all) >= endedMost {
		looked := 0
		for other, until := range e.all {
			looked++
			last := looked == 8
			if !now.Before(until) || last && len(e.all) >= endedMost {
				delete(e.all, other)
			}
			if last {
				break
			}
		}
	}
	e.all[id] = now.Add(maxAccess)
}

// lives forgets a grant that the store has after all.
func (e *ended) lives(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.all, id)
}

// has reports whether a grant is known to have ended.
func (e *ended) has(id string, now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return now.Before(e.all[id])
}
