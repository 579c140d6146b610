package edgetest

import (
	"testing"

	"github.com/weir-edge/weir/edge/edgetest/need"
)

// Need ends the test unless ok holds: see need.Of.
func Need(t testing.TB, ok bool, reason string) {
	t.Helper()
	need.Of(t, ok, reason)
}
