package door

import (
	"context"
	"io"
	"slices"
	"sync"
	"time"
)

// Call is one request under way, and its context. It is part of a larger value, which
// may serve one request after the other, costs no allocation of its own, and closes
// what waits for its end without a goroutine.
type Call struct {
	Owner any       // what the call is part of; it does not change
	Began time.Time // when its request had been read
	Lasts bool      // until the client or the edge ends it
	ID    []byte    // of its request, JSON text, as it came; it shares the request's memory

	mu     sync.Mutex
	done   chan struct{}
	err    error
	heeded [2]io.Closer // connections of the back door
	after  []*func()    // for contexts that are derived from this one

	ends       bool  // with its client
	prev, next *Call // of those under way on its connection
}

var _ context.Context = (*Call)(nil)

// Deadline returns none: the back door bounds a call.
func (c *Call) Deadline() (time.Time, bool) { return time.Time{}, false }

// Value returns nil: what belongs to a call is a field of its owner.
func (c *Call) Value(any) any { return nil }

// Done returns a channel that is closed when the call is cancelled.
func (c *Call) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.err != nil {
			close(c.done)
		}
	}
	return c.done
}

// Err returns nil, and an error that is context.Canceled once the call is cancelled.
func (c *Call) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Heed closes v when the call is cancelled, at once if it has been.
func (c *Call) Heed(v io.Closer) {
	c.mu.Lock()
	if c.err == nil {
		for i := range c.heeded {
			if c.heeded[i] == nil {
				c.heeded[i] = v
				c.mu.Unlock()
				return
			}
		}
		c.mu.Unlock()
		c.AfterFunc(func() { v.Close() })
		return
	}
	c.mu.Unlock()
	v.Close()
}

// Ignore ends Heed, and reports whether the call goes on.
func (c *Call) Ignore(v io.Closer) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.heeded {
		if c.heeded[i] == v {
			c.heeded[i] = nil
		}
	}
	return c.err == nil
}

// AfterFunc calls f when the call is cancelled. It is the method that
// context.AfterFunc and derived contexts look for.
func (c *Call) AfterFunc(f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		go f()
		return func() bool { return false }
	}
	p := &f
	c.after = append(c.after, p)
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		i := slices.Index(c.after, p)
		if i < 0 {
			return false
		}
		c.after = slices.Delete(c.after, i, i+1)
		return true
	}
}

// Untouched reports whether the call has not ended and nothing waits for its end.
func (c *Call) Untouched() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err == nil && c.done == nil && len(c.after) == 0 && c.heeded == [2]io.Closer{}
}

// Cancel ends the call: nobody waits for its answer any longer.
func (c *Call) Cancel() { c.CancelFor(context.Canceled) }

// CancelFor is Cancel with the error that Err returns from then on.
func (c *Call) CancelFor(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = why
	if c.done != nil {
		close(c.done)
	}
	for i, v := range c.heeded {
		if v != nil {
			v.Close()
		}
		c.heeded[i] = nil
	}
	for _, f := range c.after {
		go (*f)()
	}
	c.after = nil
}
