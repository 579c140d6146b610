package audit

import (
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// need skips a test for want of something; under WEIR_REQUIRE_ALL it fails.
func need(t testing.TB, have bool, why string) {
	t.Helper()
	switch {
	case have:
	case os.Getenv("WEIR_REQUIRE_ALL") == "1":
		t.Fatal(why)
	default:
		t.Skip(why)
	}
}

// until waits for what must come.
func until(t testing.TB, what string, true func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	late := time.After(time.Minute)
	for !true() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("no sign of %s", what)
		}
	}
}

// receive returns what comes on a channel.
func receive[T any](t testing.TB, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(time.Minute):
		t.Fatalf("no sign of %s", what)
		panic("unreachable")
	}
}
