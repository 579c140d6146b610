package sandbox

import (
	"context"
	"sync"
)

// maxWaiting is how many scripts of one holder wait at a place. More are answered at once: whoever
// sends them without end would keep all of them in memory for a second each.
const maxWaiting = 256

// admission bounds how many scripts run at once, in all and of one holder. Who waits
// gets in as soon as both bounds allow it, and before those who came later, except
// where only its own holder's bound keeps it out.
type admission struct {
	most, mostPerHolder int

	mu      sync.Mutex
	running int
	of      map[string]int // holders that run scripts; no others have an entry
	queue   []*entrant     // the longest wait first
}

type entrant struct {
	holder string
	in     chan struct{} // closed when it got in
}

func newAdmission(most, mostPerHolder int) *admission {
	return &admission{most: most, mostPerHolder: mostPerHolder, of: make(map[string]int)}
}

func (a *admission) fits(holder string) bool {
	return a.running < a.most && a.of[holder] < a.mostPerHolder
}

func (a *admission) admit(holder string) {
	a.running++
	a.of[holder]++
}

// enter waits for a place, which the caller gives back by leave. It fails with the
// cause of ctx when that ends before, and with ErrBusy where too many of the holder wait.
func (a *admission) enter(ctx context.Context, holder string) error {
	a.mu.Lock()
	if a.fits(holder) { // so nobody waits for what this one takes
		a.admit(holder)
		a.mu.Unlock()
		return nil
	}
	waiting := 0
	for _, q := range a.queue {
		if q.holder == holder {
			waiting++
		}
	}
	if waiting >= maxWaiting {
		a.mu.Unlock()
		return ErrBusy
	}
	e := &entrant{holder, make(chan struct{})}
	a.queue = append(a.queue, e)
	a.mu.Unlock()
	select {
	case <-e.in:
		return nil
	case <-ctx.Done():
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, q := range a.queue {
		if q == e {
			a.queue = append(a.queue[:i], a.queue[i+1:]...)
			return context.Cause(ctx)
		}
	}
	a.free(holder) // it got in at the same time
	return context.Cause(ctx)
}

// leave gives a place back.
func (a *admission) leave(holder string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.free(holder)
}

func (a *admission) free(holder string) {
	a.running--
	if a.of[holder]--; a.of[holder] == 0 {
		delete(a.of, holder)
	}
	// A place of one holder may let in one of its own alone, and a place of the
	// process anybody: the first that fits.
	for i, e := range a.queue {
		if a.fits(e.holder) {
			a.admit(e.holder)
			a.queue = append(a.queue[:i], a.queue[i+1:]...)
			close(e.in)
			return
		}
	}
}
