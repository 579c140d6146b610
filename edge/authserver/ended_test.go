package authserver

import (
	"strconv"
	"testing"
	"time"
)

// TestEndedHasRoom: of however many grants that end the last are remembered, within a bound, and
// those whose tokens are over make room.
func TestEndedHasRoom(t *testing.T) {
	var e ended
	now := time.Now()
	for i := range endedMost + 1000 {
		id := strconv.Itoa(i)
		e.note(id, now)
		if !e.has(id, now) {
			t.Fatalf("%s is not remembered", id)
		}
	}
	if n := len(e.all); n != endedMost {
		t.Errorf("%d are remembered", n)
	}
	later := now.Add(maxAccess)
	for i := range 1000 {
		e.note("late"+strconv.Itoa(i), later)
	}
	for i := range 1000 {
		if id := "late" + strconv.Itoa(i); !e.has(id, later) {
			t.Errorf("%s made room for another one, though others are over", id)
			break
		}
	}
	if n := len(e.all); n > endedMost {
		t.Errorf("%d are remembered", n)
	}
	e.lives("late0")
	if e.has("late0", later) {
		t.Error("one that lives has ended")
	}
}
