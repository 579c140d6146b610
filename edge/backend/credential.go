package backend

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/health"
)

// credentials are what requests to a backend are sent with: header lines that are asked
// for with every request, since they may be others from one to the next.
type credentials struct {
	configured *edge.Credential // nil for none
	taken      func()           // told when a request is not refused any longer

	refused atomic.Bool // the last answer was a 401
	pads    sync.Pool   // of *pad
}

// of returns the credential of a request, by the exchange that it is sent for; nil for
// none.
func (c *credentials) of(x *edge.Exchange) *edge.Credential {
	one := c.configured
	if x != nil && x.Chosen != nil {
		one = x.Chosen
	}
	if one == nil || one.Attach == nil {
		return nil
	}
	return one
}

// pad is where the lines of one request are put together.
type pad struct {
	lines []byte
	set   func(string, edge.Secret)
}

// write puts the lines for a request on a pad.
func (c *credentials) write(ctx context.Context, x *edge.Exchange, one *edge.Credential) (*pad, error) {
	p, ok := c.pads.Get().(*pad)
	if !ok {
		p = &pad{}
		p.set = func(name string, value edge.Secret) {
			p.lines = append(append(append(append(p.lines, "\r\n"...), name...), ": "...), value...)
		}
	}
	p.lines = p.lines[:0]
	if err := one.Attach(ctx, x, p.set); err != nil {
		c.pads.Put(p)
		return nil, err
	}
	return p, nil
}

// sendWith is send with a credential. A 401 says that the backend did not run
// the request: it is sent once more where the credential is another by then, as
// one that is rotated is. The same one is never sent twice.
func (p *peer) sendWith(ctx context.Context, o *outgoing, one *edge.Credential) (*reply, bool, error) {
	c := p.credentials
	with, err := c.write(ctx, o.x, one)
	if err != nil {
		return nil, false, err
	}
	defer func() { c.pads.Put(with) }()
	r, wrote, err := p.once(ctx, o, with.lines)
	if err == nil && r.status == 401 {
		if fresh := c.changed(ctx, o.x, one, with); fresh != nil {
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
func (c *credentials) changed(ctx context.Context, x *edge.Exchange, one *edge.Credential, sent *pad) *pad {
	fresh, err := c.write(ctx, x, one)
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
func (c *credentials) heard(status int) {
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
