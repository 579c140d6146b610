package edge

import (
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

// Shared is what the parts that are opened for one server have in common. The zero value is
// ready, and nil shares nothing. It is safe for concurrent use.
type Shared struct {
	mu     sync.Mutex
	values map[any]any
}

// Of returns what is shared under a key, a value of a type of the part's own, which open
// makes when there is nothing yet.
func (s *Shared) Of(key any, open func() any) any {
	if s == nil {
		return open()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.values[key]
	if !ok {
		if s.values == nil {
			s.values = map[any]any{}
		}
		v = open()
		s.values[key] = v
	}
	return v
}
