package route

import (
	"fmt"
	"testing"
	"time"
)

// TestZ41Spent: what is remembered of refused states is bounded.
func TestZ41Spent(t *testing.T) {
	var s Spent
	now := time.Now()
	for i := range 2 * maxSpent {
		s.Add(now, fmt.Sprint(i), now.Unix()+60)
	}
	if len(s.all) != maxSpent || !s.Has(fmt.Sprint(2*maxSpent-1)) {
		t.Errorf("%d states", len(s.all))
	}
}
