package sandbox

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// linger is how long a sandbox without a process is kept for the next one.
const linger = 5 * time.Second

// Box is a sandbox that a Pool keeps: a Sandbox, or a container.
type Box interface {
	// Start starts the server once more. ctx bounds the start alone.
	Start(ctx context.Context) (*Process, error)

	// HasEnded says that nothing can be started in it any more.
	HasEnded() bool

	// Close ends everything inside, and returns when nothing of it is left.
	Close()
}

// Pool keeps one sandbox for each principal of a workload, as long as it has processes.
type Pool struct {
	open func(ctx context.Context) (Box, error)

	mu     sync.Mutex
	boxes  map[string]*box
	closed bool
}

// box is one principal's sandbox.
type box struct {
	mu    sync.Mutex // held while it is opened
	box   Box
	used  atomic.Bool // a process could be started in it
	users int         // processes, and starts under way; under Pool.mu
	idle  *time.Timer
}

// NewPool returns a pool of sandboxes like c, of a host. noted is told once what they hold
// less than the best, as Sandbox.Note says it; nil for nobody.
func NewPool(h *Machine, c Config, noted func(note string)) *Pool {
	var once sync.Once
	return NewPoolOf(func(ctx context.Context) (Box, error) {
		s, err := h.Open(ctx, c)
		if err != nil {
			return nil, err
		}
		if s.Note() != "" && noted != nil {
			once.Do(func() { noted(s.Note()) })
		}
		return s, nil
	})
}

// NewPoolOf returns a pool of what open opens.
func NewPoolOf(open func(ctx context.Context) (Box, error)) *Pool {
	return &Pool{boxes: map[string]*box{}, open: open}
}

// Start starts the server once more in the principal's sandbox. ctx bounds the start alone.
func (p *Pool) Start(ctx context.Context, principal string) (*Process, error) {
	b, err := p.enter(principal)
	if err != nil {
		return nil, err
	}
	process, err := b.start(ctx, p.open)
	if err != nil {
		p.leave(principal, b)
		return nil, err
	}
	b.used.Store(true)
	process.after(func() { p.leave(principal, b) })
	return process, nil
}

// start starts a process in a sandbox that lives; one that has ended is opened anew, also where
// it ends meanwhile, once.
func (b *box) start(ctx context.Context, open func(ctx context.Context) (Box, error)) (*Process, error) {
	s, err := b.living(ctx, open)
	if err != nil {
		return nil, err
	}
	p, err := s.Start(ctx)
	if err == nil || !s.HasEnded() || ctx.Err() != nil {
		return p, err
	}
	if s, err = b.living(ctx, open); err != nil {
		return nil, err
	}
	return s.Start(ctx)
}

func (b *box) living(ctx context.Context, open func(ctx context.Context) (Box, error)) (Box, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.box != nil && b.box.HasEnded() {
		b.box.Close()
		b.box = nil
	}
	if b.box == nil {
		var err error
		b.used.Store(false)
		if b.box, err = open(ctx); err != nil {
			return nil, err
		}
	}
	return b.box, nil
}

func (p *Pool) enter(principal string) (*box, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errClosed
	}
	b := p.boxes[principal]
	if b == nil {
		b = &box{}
		p.boxes[principal] = b
	}
	if b.idle != nil {
		b.idle.Stop()
		b.idle = nil
	}
	b.users++
	return b, nil
}

// leave has a sandbox closed when nobody has used it for a while; at once where nothing could be
// started in it: what it shows was found before that failed.
func (p *Pool) leave(principal string, b *box) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b.users--; b.users > 0 || p.closed {
		return
	}
	if !b.used.Load() {
		delete(p.boxes, principal)
		p.mu.Unlock()
		b.close()
		p.mu.Lock()
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(linger, func() {
		p.mu.Lock()
		mine := b.idle == timer
		if mine {
			delete(p.boxes, principal)
		}
		p.mu.Unlock()
		if mine {
			b.close()
		}
	})
	b.idle = timer
}

func (b *box) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.box != nil {
		b.box.Close()
		b.box = nil
	}
}

// Close ends all sandboxes, and with them every process. It returns when they have ended.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	boxes := p.boxes
	p.boxes = nil
	for _, b := range boxes {
		if b.idle != nil {
			b.idle.Stop()
		}
	}
	p.mu.Unlock()
	var all sync.WaitGroup
	for _, b := range boxes {
		all.Go(b.close)
	}
	all.Wait()
}
