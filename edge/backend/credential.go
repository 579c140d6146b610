package backend

import (
	"bytes"
	"context"
	"errors"
	"net/url"
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

// pad is where the head of one request is put together.
type pad struct {
	head, lines []byte // lines are those of the credential
	to          edge.Outbound
	set         func(string, edge.Secret)
	generation  uint64   // of the credential
	at          *url.URL // of the backend, when it was written
}

// write puts the head of a request on a pad, with its credential. refused is the generation
// of one that the backend did not take; 0 for none.
func (p *peer) write(ctx context.Context, o *outgoing, one *edge.Credential, refused uint64) (*pad, error) {
	w, ok := p.credentials.pads.Get().(*pad)
	if !ok {
		w = &pad{}
		w.set = func(name string, value edge.Secret) {
			w.lines = append(append(append(append(w.lines, "\r\n"...), name...), ": "...), value...)
		}
	}
	w.at = p.address()
	w.head, w.lines = p.head(w.head[:0], o, one), w.lines[:0]
	first := bytes.Index(w.head, crlf)
	w.to = edge.Outbound{Exchange: o.x, Method: o.method, URL: w.at, Lines: w.head[first:], Body: o.body, Refused: refused != 0, Sent: refused}
	var err error
	w.generation, err = one.Attach(ctx, &w.to, w.set)
	w.to = edge.Outbound{} // a pad keeps no message
	if err != nil {
		p.credentials.pads.Put(w)
		return nil, &noCredential{err}
	}
	return w, nil
}

// noCredential is the error of a request that could not be sent for want of its
// credential. It says nothing of the backend.
type noCredential struct{ error }

func (e *noCredential) Unwrap() error    { return e.error }
func (e *noCredential) Unattached() bool { return true }

// errMoved says that the backend listens elsewhere than what is on the pad was written for.
var errMoved = errors.New("the backend listens at another port now")

var crlf = []byte("\r\n")

// sendWith is send with a credential. A 401 says that the backend did not run
// the request: it is sent once more where the credential is another by then, as
// one that is rotated is. The same one is never sent twice. Where the user has to sign in again
// for another, that is the error.
func (p *peer) sendWith(ctx context.Context, o *outgoing, one *edge.Credential) (*reply, bool, error) {
	c := p.credentials
	with, err := p.write(ctx, o, one, 0)
	if err != nil {
		return nil, false, err
	}
	defer func() { c.pads.Put(with) }()
	r, wrote, err := p.once(ctx, o, with)
	if err == errMoved {
		fresh, lacks := p.write(ctx, o, one, 0)
		if lacks != nil {
			return nil, false, lacks
		}
		c.pads.Put(with)
		with = fresh
		r, wrote, err = p.once(ctx, o, with)
	}
	if err == nil && r.status == 401 && with.generation != 0 {
		fresh, lacks := p.another(ctx, o, one, with)
		if edge.KindOf(lacks) == edge.Unauthenticated {
			c.heard(r.status)
			r.close()
			return nil, false, lacks
		}
		if fresh != nil {
			r.close()
			c.pads.Put(with)
			with = fresh
			r, wrote, err = p.once(ctx, o, with)
		}
	}
	if err == nil {
		if r.status >= 300 || o.opens {
			r.lines = bytes.Clone(with.lines)
		}
		c.heard(r.status)
	}
	return r, wrote, err
}

// another returns a request that was refused with another credential; nil when there
// is none, and an error where it cannot be had.
func (p *peer) another(ctx context.Context, o *outgoing, one *edge.Credential, sent *pad) (*pad, error) {
	fresh, err := p.write(ctx, o, one, sent.generation)
	if err == nil && fresh.generation == sent.generation {
		p.credentials.pads.Put(fresh)
		fresh = nil
	}
	return fresh, err
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
