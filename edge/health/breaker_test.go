package health

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-edge/weir/edge"
)

var outcomes = map[string]Outcome{"good": Success, "bad": Failure, "none": Neutral}

// play does to a breaker what the steps say: "good", "bad" and "none" are
// exchanges that end so at once; "take x" and "x good" are the beginning and
// the end of one; "refused 5s" is one that gets no leave and is told to wait so
// long; "wait 5s" lets time pass; anything else is the state that it must be in.
func play(t *testing.T, b *Breaker, steps string) {
	t.Helper()
	held := map[string]Pass{}
	for i, step := range strings.Split(steps, ", ") {
		at := fmt.Sprintf("step %d, %q", i+1, step)
		first, second, _ := strings.Cut(step, " ")
		switch outcome, is := outcomes[first]; {
		case is:
			p, err := b.Allow()
			if err != nil {
				t.Fatalf("%s: %v", at, err)
			}
			p.Done(outcome)
		case first == "take":
			p, err := b.Allow()
			if err != nil {
				t.Fatalf("%s: %v", at, err)
			}
			held[second] = p
		case first == "wait":
			d, err := time.ParseDuration(second)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(d)
		case first == "refused":
			d, err := time.ParseDuration(second)
			if err != nil {
				t.Fatal(err)
			}
			_, err = b.Allow()
			var e *edge.Error
			if !errors.As(err, &e) || e.Kind != edge.Unavailable || e.After != d || e.Err.Error() != `backend "x" unavailable` {
				t.Fatalf("%s: %#v", at, err)
			}
		default:
			if p, is := held[first]; is {
				p.Done(outcomes[second])
				continue
			}
			if is, _ := b.State(); is != Circuit(step) {
				t.Fatalf("%s: it is %s", at, is)
			}
		}
	}
}

// The table of transitions, for a threshold of 3 and a timeout of one minute.
func TestBreaker(t *testing.T) {
	for name, steps := range map[string]string{
		"opens at the threshold":                           "closed, bad, bad, closed, bad, open, refused 1m",
		"counts failures in a row":                         "bad, bad, good, bad, bad, closed, bad, open",
		"what says nothing neither counts nor breaks":      "bad, none, bad, none, closed, bad, open",
		"says how long it stays open":                      "bad, bad, bad, wait 20s, refused 40s, wait 39s, refused 1s, open",
		"stays open until someone asks":                    "bad, bad, bad, wait 1h, open",
		"lets one through on trial":                        "bad, bad, bad, wait 60s, take a, half-open, refused 1s, refused 1s, a good, closed, good",
		"a good trial closes it":                           "bad, bad, bad, wait 60s, good, closed, bad, bad, closed, bad, open",
		"a bad trial opens it again":                       "bad, bad, bad, wait 60s, bad, open, refused 1m, wait 60s, good, closed",
		"a trial that says nothing leaves it to the next":  "bad, bad, bad, wait 60s, none, half-open, take a, refused 1s, a bad, open",
		"a trial says only one thing":                      "bad, bad, bad, wait 60s, take a, a bad, a good, open, refused 1m",
		"a trial that does not end is given up":            "bad, bad, bad, wait 60s, take a, wait 59s, refused 1s, wait 1s, take b, refused 1s, b good, closed, a bad, closed, bad, bad, closed",
		"of two trials the first to end decides":           "bad, bad, bad, wait 60s, take a, wait 60s, take b, a good, closed, b bad, bad, bad, closed",
		"a call from before it opened does not close it":   "take a, bad, bad, bad, a good, open",
		"a call from before it opened does not decide":     "take a, take b, bad, bad, bad, wait 60s, take c, a good, half-open, b bad, half-open, c good, closed",
		"a call from before it opened is forgotten":        "take a, take b, take c, bad, bad, bad, wait 60s, good, closed, a bad, b bad, c bad, closed",
		"calls that fail at the same time open it once":    "take a, take b, take c, take d, a bad, b bad, c bad, open, wait 30s, d bad, refused 30s",
		"a success of an earlier turn does not mend a new": "take a, bad, bad, bad, wait 60s, good, bad, bad, a good, bad, open",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { play(t, NewBreaker("x", 3, time.Minute), steps) })
		})
	}
}

func TestBreakerDefaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		play(t, NewBreaker("x", 0, 0), "bad, bad, bad, bad, closed, bad, open, refused 60s")
	})
	synctest.Test(t, func(t *testing.T) {
		play(t, NewBreaker("x", 1, time.Second), "bad, open, refused 1s, wait 1s, good, closed")
	})
}

// Nobody pays for a breaker that is not enabled.
func TestNoBreaker(t *testing.T) {
	var b *Breaker
	for range 100 {
		p, err := b.Allow()
		if err != nil {
			t.Fatal(err)
		}
		p.Done(Failure)
	}
	if is, since := b.State(); is != "" || !since.IsZero() || b.Wait() != 0 || b.Changed() != nil {
		t.Errorf("state %q since %s, wait %s", is, since, b.Wait())
	}
}

func TestBreakerTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBreaker("x", 1, time.Minute)
		made := time.Now()
		expect := func(what string, told bool, circuit Circuit, after, wait time.Duration) {
			t.Helper()
			select {
			case <-b.Changed():
				if !told {
					t.Errorf("%s: told of a change", what)
				}
			default:
				if told {
					t.Errorf("%s: not told", what)
				}
			}
			if is, since := b.State(); is != circuit || since.Sub(made) != after || b.Wait() != wait {
				t.Errorf("%s: %s since %s, wait %s", what, is, since.Sub(made), b.Wait())
			}
		}
		expect("new", false, Closed, 0, 0)
		time.Sleep(time.Second)
		play(t, b, "good, none")
		expect("used", false, Closed, 0, 0)
		play(t, b, "bad")
		expect("opened", true, Open, time.Second, time.Minute)
		time.Sleep(2 * time.Minute)
		expect("ready for a trial", false, Open, time.Second, 0)
		p, err := b.Allow()
		if err != nil {
			t.Fatal(err)
		}
		expect("on trial", true, HalfOpen, 121*time.Second, time.Minute)
		p.Done(Neutral)
		expect("trial over", true, HalfOpen, 121*time.Second, 0)
		time.Sleep(time.Second)
		play(t, b, "good")
		expect("closed", true, Closed, 122*time.Second, 0)
	})
}

// However many ask at the same moment, one goes through.
func TestOneTrial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBreaker("x", 1, time.Second)
		for range 20 {
			play(t, b, "bad, open, wait 1s")
			var through atomic.Int32
			var trial atomic.Pointer[Pass]
			var all sync.WaitGroup
			for range 200 {
				all.Go(func() {
					if p, err := b.Allow(); err == nil {
						through.Add(1)
						trial.Store(&p)
					}
				})
			}
			all.Wait()
			if through.Load() != 1 {
				t.Fatalf("%d went through", through.Load())
			}
			trial.Load().Done(Success)
			play(t, b, "closed")
		}
	})
}

// What happens at the same time leaves the breaker whole: whatever went before,
// it closes once the backend is well, and opens once it is not.
func TestBreakerHammer(t *testing.T) {
	b := NewBreaker("x", 3, 20*time.Microsecond)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 5000 {
				if p, err := b.Allow(); err == nil {
					p.Done(Outcome(rand.N(3)))
				}
				b.State()
				b.Wait()
			}
		})
	}
	all.Wait()
	for deadline := time.Now().Add(10 * time.Second); ; {
		if p, err := b.Allow(); err == nil {
			p.Done(Success)
		}
		if is, _ := b.State(); is == Closed {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it does not close")
		}
	}
	for range 3 {
		p, err := b.Allow()
		if err != nil {
			t.Fatal(err)
		}
		p.Done(Failure)
	}
	if is, _ := b.State(); is != Open {
		t.Fatal("it does not open")
	}
}

func TestClosedPathAllocatesNothing(t *testing.T) {
	b := NewBreaker("x", 5, time.Minute)
	if n := testing.AllocsPerRun(1000, func() {
		p, err := b.Allow()
		p.Done(Judge(err))
	}); n != 0 {
		t.Errorf("%v allocations a call", n)
	}
}

func BenchmarkClosed(bench *testing.B) {
	for name, b := range map[string]*Breaker{"closed": NewBreaker("x", 5, time.Minute), "none": nil} {
		bench.Run(name, func(bench *testing.B) {
			bench.ReportAllocs()
			for bench.Loop() {
				p, err := b.Allow()
				p.Done(Judge(err))
			}
		})
		bench.Run(name+", many", func(bench *testing.B) {
			bench.ReportAllocs()
			bench.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					p, err := b.Allow()
					p.Done(Judge(err))
				}
			})
		})
	}
}

func BenchmarkOpen(bench *testing.B) {
	b := NewBreaker("x", 1, time.Hour)
	p, err := b.Allow()
	if err != nil {
		bench.Fatal(err)
	}
	p.Done(Failure)
	bench.ReportAllocs()
	for bench.Loop() {
		if _, err := b.Allow(); err == nil {
			bench.Fatal("it lets something through")
		}
	}
}
