package sandbox

import (
	"context"
	"sync"
	"sync/atomic"
)

// turns are places to compute, which those who wait get in the order in which they
// came.
type turns struct {
	waiting atomic.Int32

	mu    sync.Mutex
	free  int
	queue []chan struct{} // the longest wait first; each is told once
}

// take waits for a place; it fails with the cause of ctx when that ends before.
func (t *turns) take(ctx context.Context) error {
	t.mu.Lock()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return nil
	}
	turn := make(chan struct{}, 1)
	t.queue = append(t.queue, turn)
	t.waiting.Add(1)
	t.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	for i, q := range t.queue {
		if q == turn {
			t.queue = append(t.queue[:i], t.queue[i+1:]...)
			t.waiting.Add(-1)
			t.mu.Unlock()
			return context.Cause(ctx)
		}
	}
	t.mu.Unlock()
	t.give() // the turn came at the same time
	return context.Cause(ctx)
}

// give gives a place back, to whoever waits longest.
func (t *turns) give() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.queue) == 0 {
		t.free++
		return
	}
	t.queue[0] <- struct{}{}
	t.queue = t.queue[1:]
	t.waiting.Add(-1)
}

// wanted reports whether anybody waits for a place.
func (t *turns) wanted() bool { return t.waiting.Load() > 0 }
