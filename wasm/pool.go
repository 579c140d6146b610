package wasm

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// pool holds the instances of a guest that no call is using. There are never
// more than its slots, in use or not. Slots are tried from the first on, so
// that the instances used last are used again first and the others rest.
//
// The order in which state is changed keeps callers from waiting for ever: one
// that found nothing first says that it waits and then looks again, and one
// that gives something back first does so and then looks for those who wait.
type pool struct {
	slots   []atomic.Pointer[instance]
	live    atomic.Int32 // instances in use or not, and those being made
	waiting atomic.Int32

	mu    sync.Mutex
	queue []chan struct{} // callers that wait, the longest first; each is told once
}

func newPool(size int) *pool { return &pool{slots: make([]atomic.Pointer[instance], size)} }

// take returns an idle instance, nil when there is none.
func (p *pool) take() *instance {
	for i := range p.slots {
		if s := &p.slots[i]; s.Load() != nil {
			if in := s.Swap(nil); in != nil {
				return in
			}
		}
	}
	return nil
}

// room says that an instance may be made, and counts it as made.
func (p *pool) room() bool {
	for {
		n := p.live.Load()
		if int(n) >= len(p.slots) {
			return false
		}
		if p.live.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// get returns an idle instance, or waits for one as long as wait and ctx last,
// and then reports false. Where evict is given, the caller may make the instance
// itself: nil is the right to, for which evict may make room. more is asked, where
// it is given, for an instance when there is none.
func (p *pool) get(ctx context.Context, wait time.Duration, evict func() bool, more func()) (in *instance, ok bool) {
	look := func() (*instance, bool) {
		in := p.take()
		return in, in != nil || evict != nil && (p.room() || evict() && p.room())
	}
	if in, ok := look(); ok {
		return in, true
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		turn := make(chan struct{}, 1)
		p.mu.Lock()
		p.queue = append(p.queue, turn)
		p.waiting.Add(1)
		p.mu.Unlock()
		if in, ok := look(); ok {
			p.leave(turn)
			return in, true
		}
		if more != nil {
			more()
		}
		select {
		case <-turn:
			continue
		case <-timer.C:
		case <-ctx.Done():
		}
		p.leave(turn)
		return nil, false
	}
}

// leave takes a caller out of the queue, and passes its turn on if it was
// already told.
func (p *pool) leave(turn chan struct{}) {
	p.mu.Lock()
	for i, q := range p.queue {
		if q == turn {
			p.queue = append(p.queue[:i], p.queue[i+1:]...)
			p.waiting.Add(-1)
			p.mu.Unlock()
			return
		}
	}
	p.mu.Unlock()
	p.tell()
}

// tell tells the caller that waits longest to look again.
func (p *pool) tell() {
	if p.waiting.Load() == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) > 0 {
		p.queue[0] <- struct{}{}
		p.queue = p.queue[1:]
		p.waiting.Add(-1)
	}
}

// put gives an instance back.
func (p *pool) put(in *instance) {
	for i := range p.slots {
		if s := &p.slots[i]; s.Load() == nil && s.CompareAndSwap(nil, in) {
			p.tell()
			return
		}
	}
	// There are as many slots as instances, but others moved about meanwhile.
	p.drop(in)
}

// drop closes an instance; nil gives up the right to make one.
func (p *pool) drop(in *instance) {
	if in != nil {
		in.close()
	}
	p.live.Add(-1)
	p.tell()
}

// idle counts the instances that no call is using.
func (p *pool) idle() (n int) {
	for i := range p.slots {
		if p.slots[i].Load() != nil {
			n++
		}
	}
	return n
}

// close closes what is idle. Calls under way must have ended before.
func (p *pool) close() {
	for in := p.take(); in != nil; in = p.take() {
		p.drop(in)
	}
}
