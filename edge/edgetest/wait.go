package edgetest

import (
	"runtime"
	"testing"
	"time"
)

// Receive returns the next value of a channel; the test fails when none comes.
func Receive[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(Patience):
		t.Fatalf("%s did not come within %s", what, Patience)
	}
	panic("unreachable")
}

// Until waits for something that nothing announces, asking again and again.
func Until(t testing.TB, what string, done func() bool) {
	t.Helper()
	deadline := time.After(Patience)
	again := time.NewTicker(2 * time.Millisecond)
	defer again.Stop()
	for !done() {
		select {
		case <-again.C:
		case <-deadline:
			t.Fatalf("%s: not within %s", what, Patience)
		}
	}
}

func stacks() string {
	buf := make([]byte, 1<<20)
	return string(buf[:runtime.Stack(buf, true)])
}
