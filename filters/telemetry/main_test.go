package telemetry

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// until waits for what must come.
func until(t *testing.T, what string, true func() bool) {
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
