package serve

import (
	"sync"

	"github.com/weir-edge/weir/edge"
)

// kept holds open things of one kind by what they are made from. Each stays open as long as
// somebody holds it. The zero value is ready; it is safe for concurrent use.
type kept[T any] struct {
	mu  sync.Mutex
	all map[string]*held[T] // by what they are made from
}

type held[T any] struct {
	open    T
	close   func() // nil for nothing
	holders int
}

// Get returns the thing that is open under a digest of what it is made from, or opens it.
// The last release closes it; further calls of the same release do nothing.
func (k *kept[T]) Get(digest string, open func() (one T, closeIt func(), err error)) (one T, release func(), err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	h := k.all[digest]
	if h == nil {
		h = &held[T]{}
		if h.open, h.close, err = open(); err != nil {
			return h.open, nil, err
		}
		if k.all == nil {
			k.all = make(map[string]*held[T])
		}
		k.all[digest] = h
	}
	h.holders++
	return h.open, sync.OnceFunc(func() { k.leave(digest, h) }), nil
}

// leave gives back what a holder had. It closes outside the lock: that may take long.
func (k *kept[T]) leave(digest string, h *held[T]) {
	k.mu.Lock()
	h.holders--
	last := h.holders == 0
	if last {
		delete(k.all, digest)
	}
	k.mu.Unlock()
	if last && h.close != nil {
		h.close()
	}
}

// part opens a part of a server that goes on with the servers after it as long as they
// are made from the same. What the part defers is called when it closes.
func part[T any](s *server, k *kept[T], digest string, open func(edge.Env) (T, error)) (T, error) {
	one, release, err := k.Get(s.Name+"\x00"+digest, func() (T, func(), error) {
		var after releases
		one, err := open(s.env(&after))
		if err != nil {
			after.run()
		}
		return one, after.run, err
	})
	if err == nil {
		s.after.add(release)
	}
	return one, err
}

// releases are functions that give back what was taken.
type releases []func()

func (r *releases) add(f func()) { *r = append(*r, f) }

// run calls them all, in the order in which things were taken. It may be called again,
// for what was added since.
func (r *releases) run() {
	all := *r
	*r = nil
	for _, f := range all {
		f()
	}
}
