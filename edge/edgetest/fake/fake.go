// Package fake is what the tests of single rooms stand on, apart from edgetest,
// which has the whole edge in it: secrets that a test changes, a log that it
// reads, and two ways to wait.
package fake

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
)

// Secrets are edge.Secrets by "name/key", which tests change.
type Secrets struct {
	mu     sync.Mutex
	values map[string]edge.Secret
}

// Keep returns secrets by "name/key".
func Keep(values map[string]edge.Secret) *Secrets {
	s := &Secrets{}
	for ref, v := range values {
		s.Set(ref, v)
	}
	return s
}

// Secret returns the secret of a name and a key.
func (s *Secrets) Secret(_ context.Context, name, key string) (edge.Secret, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v, ok := s.values[name+"/"+key]; ok {
		return v, nil
	}
	return "", edge.Errorf(edge.NotFound, "secret "+name+"/"+key, "not found anywhere")
}

// Set puts a secret in its place.
func (s *Secrets) Set(ref string, value edge.Secret) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.values == nil {
		s.values = map[string]edge.Secret{}
	}
	s.values[ref] = value
}

// Remove takes a secret away.
func (s *Secrets) Remove(ref string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.values, ref)
}

// Log keeps what is written to it.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write never fails.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns what is there.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// patience is how long a test waits for what must come.
const patience = time.Minute

// Until waits for something that nothing announces, asking again and again.
func Until(t testing.TB, what string, done func() bool) {
	t.Helper()
	again := time.NewTicker(2 * time.Millisecond)
	defer again.Stop()
	late := time.After(patience)
	for !done() {
		select {
		case <-again.C:
		case <-late:
			t.Fatalf("%s: not within %s", what, patience)
		}
	}
}

// Receive returns the next value of a channel; the test fails when none comes.
func Receive[T any](t testing.TB, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("%s did not come within %s", what, patience)
	}
	panic("unreachable")
}
