package wasm

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// maker makes the instances of a guest beside its calls: as many as are kept
// ready, and more while calls wait for one. After a failure, which no message
// caused, it rests for restMin, and twice as long each time, up to restMax.
type maker struct {
	busy atomic.Bool
	work sync.WaitGroup

	trouble atomic.Bool // failed is of interest
	mu      sync.Mutex
	failed  error // of the last try
	rest    time.Duration
	until   time.Time // no try before
}

// may reports whether an instance may be tried for, and why the last try failed.
func (m *maker) may() (bool, error) {
	if !m.trouble.Load() {
		return true, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return !time.Now().Before(m.until), m.failed
}

// note keeps how a try ended, and reports whether it is the first that failed.
func (m *maker) note(err error) (first bool) {
	if err == nil && !m.trouble.Load() {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		m.failed, m.rest = nil, 0
		m.trouble.Store(false)
		return false
	}
	first = m.failed == nil
	m.failed, m.rest = err, min(max(2*m.rest, restMin), restMax)
	m.until = time.Now().Add(m.rest)
	m.trouble.Store(true)
	return first
}

// make makes an instance, which the pool has counted already.
func (g *Guest) make(ctx context.Context) (*instance, error) {
	may, err := g.maker.may()
	var in *instance
	if may {
		in, _, err = g.newInstance(ctx)
		if ctx.Err() == nil || err == nil {
			if g.maker.note(err) {
				g.binding.Log.Warn("an instance of a guest cannot be made: tried again later", "guest", g.binding.Name, "error", err)
			}
		}
	}
	if err != nil {
		return nil, err
	}
	g.front.counts.made.Add(1)
	return in, nil
}

// short reports whether an instance is to be made, and may be.
func (g *Guest) short() bool {
	if g.front.closed.Load() || int(g.pool.live.Load()) >= len(g.pool.slots) {
		return false
	}
	ready := int(g.pool.live.Load())
	if g.sessions != nil {
		ready = g.pool.idle()
	}
	if ready >= g.binding.Limits.Prewarm && (g.sessions != nil || g.pool.waiting.Load() == 0) && !(g.how != nil && g.pool.idle() == 0) {
		return false
	}
	may, _ := g.maker.may()
	return may
}

// grow makes what is short of, beside the calls. A call under way, or Open, asks
// for it, so that Close can wait for the work.
func (g *Guest) grow() {
	if !g.short() || !g.maker.busy.CompareAndSwap(false, true) {
		return
	}
	g.maker.work.Go(func() {
		for again := true; again; {
			for g.short() && g.pool.room() {
				if in, err := g.make(context.Background()); err != nil {
					g.pool.drop(nil)
				} else {
					g.pool.put(in)
				}
			}
			g.maker.busy.Store(false)
			// A call may have begun to wait after the last look.
			again = g.short() && g.maker.busy.CompareAndSwap(false, true)
		}
	})
}
