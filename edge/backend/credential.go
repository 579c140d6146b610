package backend

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/health"
)

// credential is the lines that a backend's requests carry besides: those of a
// credential, and others that are configured. They are asked for with every
// request, since they may be others from one to the next.
type credential struct {
	attach func(context.Context, *edge.Exchange, func(string, edge.Secret)) error
	own    func(string) bool
	ownFor func(*edge.Exchange, string) bool // in place of own; nil for none
	taken  func()                            // told when a request is not refused any longer

	refused atomic.Bool // the last answer was a 401
	pads    sync.Pool   // of *pad
}

// pad is where the lines of one request are put together.
type pad struct {
	lines []byte
	set   func(string, edge.Secret)
}

// sets reports whether lines of a name are not a client's to send.
func (c *credential) sets(x *edge.Exchange, name string) bool {
	if c.ownFor != nil {
		return c.ownFor(x, name)
	}
	return c.own(name)
}

// write puts the lines for a request on a pad.
func (c *credential) write(ctx context.Context, x *edge.Exchange) (*pad, error) {
	p, ok := c.pads.Get().(*pad)
	if !ok {
		p = &pad{}
		p.set = func(name string, value edge.Secret) {
			p.lines = append(append(append(append(p.lines, "\r\n"...), name...), ": "...), value...)
		}
	}
	p.lines = p.lines[:0]
	if err := c.attach(ctx, x, p.set); err != nil {
		c.pads.Put(p)
		return nil, err
	}
	return p, nil
}

// sendWith is send with a credential. A 401 says that the backend did not run
// the request: it is sent once more where the credential is another by then, as
// one that is rotated is. The same one is never sent twice.
func (p *peer) sendWith(ctx context.Context, o *outgoing, c *credential) (*reply, bool, error) {
	with, err := c.write(ctx, o.x)
	if err != nil {
		return nil, false, err
	}
	defer func() { c.pads.Put(with) }()
	r, wrote, err := p.once(ctx, o, with.lines)
	if err == nil && r.status == 401 {
		if fresh := c.changed(ctx, o.x, with); fresh != nil {
			r.close()
			c.pads.Put(with)
			with = fresh
			r, wrote, err = p.once(ctx, o, with.lines)
		}
	}
	if err == nil {
		if r.status >= 300 {
			r.lines = bytes.Clone(with.lines)
		}
		c.heard(r.status)
	}
	return r, wrote, err
}

// changed returns the lines for a request that was refused with others; nil
// when they are the same, or cannot be had.
func (c *credential) changed(ctx context.Context, x *edge.Exchange, sent *pad) *pad {
	fresh, err := c.write(ctx, x)
	if err != nil {
		return nil
	}
	if bytes.Equal(fresh.lines, sent.lines) {
		c.pads.Put(fresh)
		return nil
	}
	return fresh
}

// heard notes how a request was answered.
func (c *credential) heard(status int) {
	switch {
	case status == 401:
		c.refused.Store(true)
	case c.refused.Load() && c.refused.CompareAndSwap(true, false) && c.taken != nil:
		c.taken()
	}
}

// taken is told when the backend takes the edge's credential again. Checks that
// have ended because it did not begin anew.
func (b *Backend) taken() {
	if b.monitor.Snapshot().Is() == health.Unauthenticated {
		b.monitor.Again()
	}
}
