package incoming_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/oauth"
)

// paced calls f n times, in step with a clock, each time with the number of
// calls before.
func paced(n int, every time.Duration, f func(int)) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for i := range n {
		<-tick.C
		f(i)
	}
}

// TestG12 is a storm of unknown keys beside valid tokens. Times are a tenth of
// the product's: 10,000 unknown keys in 1 s for 10 s, an interval of 3 s for
// 30 s. The interval is over when the storm begins.
func TestG12(t *testing.T) {
	p := newProvider(t, theRSA())
	g := open(t, p.spec(), &oauth.Issuers{Interval: 3 * time.Second})
	claims := p.claims(nil)
	valid := theRSA().mint(claims)
	accepted(t, g, "before the storm", valid)
	tail := "." + b64([]byte(claims)) + "." + b64(make([]byte, 256))
	measure := func(storm, ticks int) (p99 time.Duration) {
		var took []time.Duration
		var all sync.WaitGroup
		paced(ticks, 10*time.Millisecond, func(n int) {
			for i := range storm {
				all.Go(func() {
					if _, err := identify(t, g, b64([]byte(fmt.Sprintf(`{"alg":"RS256","kid":"%d-%d"}`, n, i)))+tail); err == nil {
						t.Error("an unknown key was accepted")
					}
				})
			}
			for i := range 5 {
				token := valid
				if i == 0 { // one that is not remembered
					token = theRSA().mint(p.claims(map[string]any{"jti": fmt.Sprint(storm, n)}))
				}
				start := time.Now()
				accepted(t, g, "a valid token", token)
				took = append(took, time.Since(start))
			}
		})
		all.Wait()
		slices.Sort(took)
		return took[len(took)*99/100]
	}
	calm := measure(0, 310)
	if n := p.fetches.Load(); n != 1 {
		t.Errorf("%d fetches of keys in the calm", n)
	}
	began := time.Now()
	tenfold := measure(100, 100)
	if n, most := p.fetches.Load()-1, 1+int32(time.Since(began)/(3*time.Second)); n < 1 || n > most {
		t.Errorf("%d fetches of keys in a storm of %s", n, time.Since(began))
	}
	// At the rate of the product: 1,000 unknown keys a second.
	ordinary := measure(10, 200)
	t.Logf("10,000 unknown keys in 1 s: 1 fetch of keys; p99 of valid tokens (a fifth of them new): %s calm, %s with 1,000 unknown keys a second, %s with 10,000", calm, ordinary, tenfold)
}

// TestG13 is a rotation under 1,000 tokens a second, each of them new. The
// interval is a hundredth of the product's: 300 ms for 30 s.
func TestG13(t *testing.T) {
	a, b, c := newEC("a"), newEC("b"), newEC("c")
	p := newProvider(t, a)
	g := open(t, p.spec(), &oauth.Issuers{Interval: 300 * time.Millisecond})
	accepted(t, g, "before", a.mint(p.claims(nil)))
	now, old := a, a
	var last time.Time // of a refusal
	refusals, after := 0, 0
	var rotated time.Time
	found := false
	paced(1500, time.Millisecond, func(n int) {
		switch n {
		case 500: // the new key signs at once
			p.change(b, a)
			now, rotated, found = b, time.Now(), false
		case 1000: // again, and the first one goes
			p.change(c, b)
			now, old, rotated, found = c, b, time.Now(), false
		}
		for _, s := range []signer{now, old} {
			_, err := identify(t, g, s.mint(p.claims(map[string]any{"jti": fmt.Sprint(n)})))
			switch {
			case err == nil && s.kid == now.kid:
				found = true
			case err != nil:
				refusals++
				last = time.Now()
				if found || s.kid != now.kid {
					after++
				}
				if d := last.Sub(rotated); d > time.Second {
					t.Errorf("refused %s after the rotation: %v", d, err)
				}
			}
		}
	})
	if after > 0 || !found {
		t.Errorf("%d refused after the first token of the new key was accepted (%v)", after, found)
	}
	t.Logf("3,000 tokens, two rotations: %d refused before the fetch, 0 after; %d fetches", refusals, p.fetches.Load())
}

// TestG14 is a provider that is away for an hour and more, at 500 tokens a
// second. Times are a 3,600th of the product's: 1 s for the hour, 83 ms for the
// five minutes between fetches.
func TestG14(t *testing.T) {
	p := newProvider(t, theEC())
	times := &oauth.Issuers{Interval: 8 * time.Millisecond, Refresh: 83 * time.Millisecond, MaxStale: time.Second}
	g := open(t, p.spec(), times)
	known := theEC().mint(p.claims(nil))
	accepted(t, g, "before", known)
	first := time.Now() // the keys were seen before this
	p.breaks(hangUp)
	gone := time.Now() // and may have been seen until this
	held, lost := 0, 0
	paced(700, 2*time.Millisecond, func(n int) {
		for _, token := range []string{known, theEC().mint(p.claims(map[string]any{"jti": n}))} {
			from := time.Now()
			_, err := identify(t, g, token)
			switch to := time.Now(); {
			case err == nil:
				held++
				if from.After(gone.Add(time.Second + 10*time.Millisecond)) {
					t.Errorf("accepted %s after the provider went", from.Sub(gone))
				}
			case edge.KindOf(err) != edge.Unauthenticated:
				t.Errorf("%v", err)
			default:
				lost++
				if to.Before(first.Add(time.Second - 100*time.Millisecond)) {
					t.Errorf("refused %s after the keys were seen: %s", to.Sub(first), op(err))
				}
			}
		}
	})
	if held == 0 || lost == 0 || g.Ready() == nil {
		t.Errorf("%d accepted, %d refused, ready: %v", held, lost, g.Ready())
	}

	// The process can be started meanwhile, and says what it lacks.
	again := open(t, p.spec(), &oauth.Issuers{Wait: 20 * time.Millisecond})
	if _, err := identify(t, again, known); edge.KindOf(err) != edge.Overload {
		t.Errorf("started anew: %v", err)
	}
	p.breaks(nil)
	start := time.Now()
	edgetest.Until(t, "both are back", func() bool { return again.Ready() == nil && g.Ready() == nil })
	back := time.Since(start)
	accepted(t, g, "after", known)
	accepted(t, again, "after", known)
	t.Logf("away for %s: %d accepted while the keys were good, %d refused after that; back within %s", time.Since(gone).Round(time.Millisecond), held, lost, back.Round(time.Millisecond))
}
