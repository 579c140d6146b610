package serve

import (
	"sync/atomic"

	"github.com/weir-edge/weir/edge"
)

// part is an open part of a server that its successors take over, as long as
// what it is made from stays the same. The last server that holds it closes it.
type part[T any] struct {
	digest string // of what it is made from
	open   T
	held   atomic.Int32
	after  []func()
}

// take gives a server a part: the one that the server before it has, when it
// is made from the same, or else a new one.
func take[T any](s *server, was *part[T], digest string, open func(edge.Env) (T, error)) (*part[T], error) {
	p := was
	if p == nil || p.digest != digest {
		p = &part[T]{digest: digest}
		env := s.edge.env(s)
		env.Defer = func(f func()) { p.after = append(p.after, f) }
		var err error
		if p.open, err = open(env); err != nil {
			p.end()
			return nil, err
		}
	}
	p.held.Add(1)
	s.after = append(s.after, func() {
		if p.held.Add(-1) == 0 {
			p.end()
		}
	})
	return p, nil
}

func (p *part[T]) end() {
	for _, f := range p.after {
		f()
	}
}
