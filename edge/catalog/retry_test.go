package catalog_test

import (
	"testing"
	"testing/synctest"
	"time"
)

// A list that could not be fetched for long is fetched as soon as its backend
// answers again, and is worth waiting for then, whether the last attempt has
// failed or still waits for an answer; a backend that goes on failing is not
// asked more often for it.
func TestZ13ListsOfABackendThatAnswersAgain(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		for _, known := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				a, b := having("a", "x"), having("b", "y")
				down := func() {
					if a.fail(); hangs {
						a.slow(time.Hour)
					}
				}
				if !known {
					down()
				}
				r := open(t, bestEffort, a, b)
				_, _ = r.tools(nil)
				down()
				time.Sleep(3 * time.Minute)
				r.want(2*time.Second, "b_y")
				for range 100 {
					r.want(0, "b_y")
					time.Sleep(173 * time.Millisecond)
				}
				a.slow(0)
				a.set("x")
				r.want(0, "b_y")
				r.Retry("a")
				if hangs {
					time.Sleep(2 * time.Second) // until then the attempt under way counts
				}
				r.want(700*time.Millisecond, "a_x", "b_y")
			})
		}
	}
	synctest.Test(t, func(t *testing.T) {
		a, b := having("a"), having("b", "y")
		a.fail()
		r := open(t, bestEffort, a, b)
		r.want(0, "b_y")
		time.Sleep(time.Minute)
		before := a.times("tools/list")
		for range 10_000 {
			r.Retry("a")
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		if n := a.times("tools/list") - before; n > 25 {
			t.Errorf("asked %d times in 10 s", n)
		}
	})
}
