package edge

import (
	"context"
	"sync"
	"time"
)

// Made is an attempt to make a credential for a user: an exchange of a token, for example.
type Made struct {
	Strategy string    // type of it, as an MCPExternalAuthConfig has it
	Who      *Identity // whom it is for; its calls wait for it, or go on with an older one
	Began    time.Time
	Took     time.Duration
	Err      error // of a kind that Credential has; nil where it was made

	// Context is that of the call that wanted it first, without its end.
	Context context.Context
}

// Outcome is what became of it, in a word: issued, unauthenticated, denied, timeout or failed.
func (m Made) Outcome() string {
	if m.Err == nil {
		return "issued"
	}
	switch KindOf(m.Err) {
	case Unauthenticated:
		return "unauthenticated"
	case Denied:
		return "denied"
	case Timeout:
		return "timeout"
	}
	return "failed"
}

// Shared is what the parts that are opened for one server have in common, as long as one of
// them is open. The zero value is ready, and nil shares nothing. It is safe for concurrent use.
type Shared struct {
	mu     sync.Mutex
	values map[any]any
	after  []func()
}

// Of returns what is shared under a key, a value of a type of the part's own, which open
// makes when there is nothing yet. What it defers is called when nobody shares it any longer;
// where s is nil, env has it called.
func (s *Shared) Of(key any, env Env, open func(after func(func())) any) any {
	if s == nil {
		after := env.Defer
		if after == nil {
			after = func(func()) {}
		}
		return open(after)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.values[key]
	if !ok {
		if s.values == nil {
			s.values = map[any]any{}
		}
		v = open(func(f func()) { s.after = append(s.after, f) })
		s.values[key] = v
	}
	return v
}

// Look returns what is shared under a key; nil for nothing.
func (s *Shared) Look(key any) any {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.values[key]
}

// Close calls what was deferred.
func (s *Shared) Close() {
	s.mu.Lock()
	after := s.after
	s.after, s.values = nil, nil
	s.mu.Unlock()
	for _, f := range after {
		f()
	}
}
