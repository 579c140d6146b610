package backend

import (
	"context"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
)

// errands is what a backend is sent and no client waits for: farewells to its
// sessions, cancellations, answers to its pings. A few goroutines run them, one
// after the other, so that ten thousand sessions that end at once are ten
// thousand farewells and not ten thousand connections. There is no goroutine
// while there is no errand.
type errands struct {
	b      *Backend
	atOnce int // how many run at a time

	mu      sync.Mutex
	queue   []func(context.Context)
	first   int // of the queue that nobody has begun
	running int
	room    chan struct{} // closed when there is room again; nil when nobody waits for it
	until   time.Time     // until when those who find the queue full wait; zero when it was not full lately

	life context.Context // ends what runs
	end  context.CancelFunc
}

const (
	// errandTime bounds one errand, such as the DELETE of a session.
	errandTime = 2 * time.Second

	// errandsAtOnce is how many errands of a kind run at a time, and a quarter
	// of the backend's connections is the most that they may take.
	errandsAtOnce = 16

	// maxErrands is how many errands of a kind may wait.
	maxErrands = 16384

	// patience is how long whoever finds the queue full waits for room, all of
	// them together: a backend that takes nothing must not hold up those who
	// only tell it that they leave.
	patience = time.Second

	// errandsEnd is how long the errands that are left when a backend is closed
	// may take, and errandsRest how long none of them need end until the rest is
	// given up at the end of the process: a backend that answers is told that
	// thousands of sessions are over, one that does not holds nobody up.
	errandsEnd  = 3 * time.Second
	errandsRest = 200 * time.Millisecond
)

// newErrands returns the errands of a kind of a backend that may have most
// connections open.
func newErrands(b *Backend, most int) *errands {
	life, end := context.WithCancel(context.Background())
	return &errands{b: b, atOnce: max(1, min(errandsAtOnce, most/4)), life: life, end: end}
}

// run has f run soon, under a context that ends soon. It waits for room where
// there is none, and reports false when f will not run: there was no room for
// too long, or the backend is closed.
func (e *errands) run(f func(context.Context)) bool {
	e.mu.Lock()
	for len(e.queue)-e.first >= maxErrands {
		now := time.Now()
		if e.until.IsZero() {
			e.until = now.Add(patience)
		}
		left := e.until.Sub(now)
		if left <= 0 {
			e.mu.Unlock()
			return false
		}
		if e.room == nil {
			e.room = make(chan struct{})
		}
		room := e.room
		e.mu.Unlock()
		timer := time.NewTimer(left)
		select {
		case <-room:
		case <-timer.C:
		}
		timer.Stop()
		e.mu.Lock()
	}
	e.queue = append(e.queue, f)
	defer e.mu.Unlock()
	if e.running < e.atOnce {
		e.running++
		if !e.b.spawn("errand", e.work) {
			e.running--
			if e.running == 0 {
				e.queue, e.first = nil, 0
				return false
			}
		}
	}
	return true
}

// work runs errands until none is left.
func (e *errands) work() {
	for {
		e.mu.Lock()
		if e.first == len(e.queue) || e.life.Err() != nil {
			if e.running--; e.running == 0 {
				e.queue, e.first = nil, 0
			}
			e.mu.Unlock()
			return
		}
		f := e.queue[e.first]
		e.queue[e.first] = nil
		if e.first++; e.first > maxErrands {
			e.queue, e.first = append([]func(context.Context){}, e.queue[e.first:]...), 0
		}
		if e.room != nil {
			close(e.room)
			e.room = nil
		}
		if len(e.queue)-e.first < maxErrands/2 {
			e.until = time.Time{}
		}
		e.mu.Unlock()
		e.one(f)
	}
}

// one runs an errand. One that fails badly costs only itself.
func (e *errands) one(f func(context.Context)) {
	defer edge.Contain(e.b.Log, "errand")
	ctx, cancel := context.WithTimeout(e.life, errandTime)
	defer cancel()
	f(ctx)
	e.b.errand.Add(1)
}

// background sends what a call needs sent beside it, and what no client waits
// for.
func (b *Backend) background(f func(context.Context)) { b.beside.run(f) }

// farewell ends the server's end of a session, in the background.
func (b *Backend) farewell(f func(context.Context)) { b.farewells.run(f) }

// anyway is f again and again while every connection is in use: what takes the
// last one is a call, which ends.
func anyway(ctx context.Context, f func() error) error {
	for {
		err := f()
		if edge.KindOf(err) != edge.Overload || err == nil {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}
