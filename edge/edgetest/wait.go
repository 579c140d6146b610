package edgetest

import (
	"runtime"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/fake"
	"github.com/weir-edge/weir/edge/edgetest/port"
)

// Receive returns the next value of a channel; the test fails when none comes.
func Receive[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	return fake.Receive(t, ch, what)
}

// Allowed is how long something may take of which a test asserts that it takes d at the most:
// longer under the race detector, which has all of it take longer.
func Allowed(d time.Duration) time.Duration { return Slower * d }

// Until waits for something that nothing announces, asking again and again.
func Until(t testing.TB, what string, done func() bool) {
	t.Helper()
	fake.Until(t, what, done)
}

func stacks() string {
	buf := make([]byte, 1<<20)
	return string(buf[:runtime.Stack(buf, true)])
}

// FreeAddress returns a loopback host:port at which nothing listens, and which
// the system gives to nobody who lets it choose: a server may be started there
// later, or again.
func FreeAddress(t testing.TB) string {
	t.Helper()
	address, err := port.Free()
	if err != nil {
		t.Fatal(err)
	}
	return address
}
