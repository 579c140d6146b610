package authserver

import (
	"testing"
	"time"
)

// TestLifeOfAClockThatIsSetBack: that a grant lives is not known for longer by a clock that is set
// back, so that one which was revoked meanwhile ends.
func TestLifeOfAClockThatIsSetBack(t *testing.T) {
	l, now := &Life{}, time.Now()
	l.until.Store(now.Add(aliveAge).UnixNano())
	for after, want := range map[time.Duration]bool{0: true, aliveAge - time.Second: true, aliveAge: false, -time.Hour: false} {
		if l.Lives(now.Add(after)) != want {
			t.Errorf("after %s: want %t", after, want)
		}
	}
}
