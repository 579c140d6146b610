package health

import (
	"reflect"
	"testing"
	"time"
)

func TestOverall(t *testing.T) {
	for _, c := range []struct {
		name     string
		statuses []Status
		phase    Phase
		count    int
		message  string
		ready    string
		reason   string
		degraded string
	}{
		{"no backends", nil, PhaseReady, 0, "there are no backends", "True", "AllBackendsRoutable", "False"},
		{"all ready", []Status{Ready, Ready}, PhaseReady, 2, "2 of 2 backends are routable: 2 ready", "True", "AllBackendsRoutable", "False"},
		{"one", []Status{Ready}, PhaseReady, 1, "1 of 1 backend is routable: 1 ready", "True", "AllBackendsRoutable", "False"},
		{"unauthenticated ones are routable", []Status{Ready, Unauthenticated}, PhaseReady, 2, "2 of 2 backends are routable: 1 ready, 1 unauthenticated", "True", "AllBackendsRoutable", "False"},
		{"one of five is down", []Status{Ready, Ready, Unavailable, Ready, Ready}, PhaseDegraded, 4, "4 of 5 backends are routable: 4 ready, 1 unavailable", "False", "SomeBackendsUnhealthy", "False"},
		{"one is slow", []Status{Ready, Degraded}, PhaseDegraded, 1, "1 of 2 backends is routable: 1 ready, 1 degraded", "False", "SomeBackendsUnhealthy", "True"},
		{"all are slow, and serve", []Status{Degraded, Degraded}, PhaseDegraded, 0, "0 of 2 backends are routable: 2 degraded", "False", "SomeBackendsUnhealthy", "True"},
		{"slow and down", []Status{Degraded, Unavailable}, PhaseDegraded, 0, "0 of 2 backends are routable: 1 degraded, 1 unavailable", "False", "SomeBackendsUnhealthy", "True"},
		{"one is not known yet", []Status{Ready, Unknown}, PhaseDegraded, 1, "1 of 2 backends is routable: 1 ready, 1 unknown", "False", "SomeBackendsUnhealthy", "False"},
		{"none is known yet", []Status{Unknown, Unknown}, PhasePending, 0, "0 of 2 backends are routable yet: 2 unknown", "Unknown", "BackendsPending", "False"},
		{"none serves, and one may yet", []Status{Unavailable, Unknown}, PhasePending, 0, "0 of 2 backends are routable yet: 1 unavailable, 1 unknown", "Unknown", "BackendsPending", "False"},
		{"a status of no name", []Status{""}, PhasePending, 0, "0 of 1 backend is routable yet: 1 unknown", "Unknown", "BackendsPending", "False"},
		{"all down", []Status{Unavailable, Unavailable}, PhaseFailed, 0, "0 of 2 backends are routable: 2 unavailable", "False", "NoRoutableBackends", "False"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := Overall(c.statuses...)
			if o.Phase != c.phase || o.BackendCount != c.count || o.Message != c.message {
				t.Errorf("got %s, %d, %q", o.Phase, o.BackendCount, o.Message)
			}
			is := map[string]Condition{}
			for _, c := range o.Conditions {
				is[c.Type] = c
				if c.Reason == "" {
					t.Errorf("%s without a reason", c.Type)
				}
			}
			if is["Ready"].Status != c.ready || is["Ready"].Reason != c.reason || is["Degraded"].Status != c.degraded || is["BackendsDiscovered"].Status != "True" || len(o.Conditions) != 3 {
				t.Errorf("got %+v", o.Conditions)
			}
		})
	}
}

// Every mix of three backends has the phase that its parts say, and the order
// of the backends does not matter.
func TestOverallOfEveryMix(t *testing.T) {
	every := []Status{Ready, Degraded, Unavailable, Unauthenticated, Unknown}
	for _, a := range every {
		for _, b := range every {
			for _, c := range every {
				o := Overall(a, b, c)
				routable, serve, unknown := 0, 0, 0
				for _, s := range []Status{a, b, c} {
					switch s {
					case Ready, Unauthenticated:
						routable++
						serve++
					case Degraded:
						serve++
					case Unknown:
						unknown++
					}
				}
				want := PhaseFailed
				switch {
				case routable == 3:
					want = PhaseReady
				case serve > 0:
					want = PhaseDegraded
				case unknown > 0:
					want = PhasePending
				}
				if o.Phase != want || o.BackendCount != routable {
					t.Errorf("%s, %s, %s: %s, %d routable", a, b, c, o.Phase, o.BackendCount)
				}
				if !reflect.DeepEqual(o, Overall(c, a, b)) {
					t.Errorf("%s, %s, %s: another order, another overview", a, b, c)
				}
			}
		}
	}
}

// The time of a condition is that of its status, whatever else changes.
func TestConditionsKeepTheirTime(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	first := Overall(Ready, Ready).From(nil, at(1))
	second := Overall(Ready, Unavailable).From(first.Conditions, at(2))
	third := Overall(Unavailable, Unavailable).From(second.Conditions, at(3))
	for i, want := range []struct{ ready, discovered int64 }{{1, 1}, {2, 1}, {2, 1}} {
		is := map[string]Condition{}
		for _, c := range []Overview{first, second, third}[i].Conditions {
			is[c.Type] = c
		}
		if !is["Ready"].Since.Equal(at(want.ready)) || !is["BackendsDiscovered"].Since.Equal(at(want.discovered)) {
			t.Errorf("overview %d: %+v", i+1, is)
		}
	}
}
