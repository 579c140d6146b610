package relay

import (
	"fmt"
	"testing"
	"time"
)

// TestZ41Claims: what is remembered of places that are kept is bounded; a place is
// kept for one, for a moment.
func TestZ41Claims(t *testing.T) {
	now := time.Now()
	var c Claims
	if !c.Take(now, "x", "a", "who") || c.Take(now, "x", "b", "who") || !c.Take(now, "x", "a", "who") {
		t.Error("a place is kept for another, or not for its own")
	}
	if c.Use(now, "x", "b") || c.Use(now, "x", "") || !c.Use(now, "x", "a") || c.Use(now, "x", "a") || !c.Use(now, "x", "") {
		t.Error("a place is used by another, or not by its own, or twice")
	}
	if !c.Take(now, "x", "a", "who") || !c.Take(now.Add(claimFor), "x", "b", "who") {
		t.Error("a place is kept for ever")
	}
	for i := range 2 * maxClaims {
		c.Take(now.Add(claimFor), fmt.Sprint(i), fmt.Sprint(i), "who")
	}
	if len(c.byWhat) > maxClaims || len(c.byName) > maxClaims {
		t.Errorf("%d places are kept", len(c.byWhat))
	}
}
