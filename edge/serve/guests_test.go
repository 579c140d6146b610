package serve_test

import (
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
)

// TestSlowOpening serves the first client of an edge whose plan took long to
// open, as one with large programs does.
func TestSlowOpening(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Modern, edgetest.Before(func(e *serve.Edge) { e.OpenedAt(time.Now().Add(-time.Hour)) }))
	if r := f.callerOf(t, edgetest.Modern, "").call(t, "1", "{}"); r.Status != 200 {
		t.Errorf("status %d: %s", r.Status, r.Body)
	}
}
