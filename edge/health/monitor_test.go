package health

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-edge/weir/edge"
)

// watched is a monitor whose backend the test plays, by a clock that starts
// with it. Chance is taken out: the first check comes after half a second.
type watched struct {
	*Monitor
	t     *testing.T
	start time.Time

	mu     sync.Mutex
	say    func(context.Context) error
	probes []string // when each began
	told   []string // when and what
}

func watch(t *testing.T, c Config, say func(context.Context) error) *watched {
	w := &watched{t: t, start: time.Now(), say: say}
	c.Probe = func(ctx context.Context) error {
		w.mu.Lock()
		w.probes = append(w.probes, w.at())
		say := w.say
		w.mu.Unlock()
		return say(ctx)
	}
	c.Changed = func(s Snapshot) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.told = append(w.told, w.at()+" "+string(s.Status))
	}
	if c.Random == nil {
		c.Random = func() float64 { return 0.5 }
	}
	w.Monitor = Watch(c)
	t.Cleanup(func() { w.Close() })
	return w
}

func (w *watched) at() string { return time.Since(w.start).String() }

func (w *watched) now(say func(context.Context) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.say = say
}

// until lets time pass up to a moment after the start.
func (w *watched) until(d time.Duration) {
	time.Sleep(time.Until(w.start.Add(d)))
	synctest.Wait()
}

// expect lets the monitor act, and compares the snapshot and what has happened
// since the last time.
func (w *watched) expect(status string, probes, told string) {
	w.t.Helper()
	synctest.Wait()
	s := w.Snapshot()
	got := fmt.Sprintf("%s/%d", s.Status, s.Failures)
	if s.Circuit != "" {
		got += " " + string(s.Circuit)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := strings.Join(w.probes, " "); got != status || p != probes || strings.Join(w.told, ", ") != told {
		w.t.Errorf("at %s: %s; probes at %s; told %q", w.at(), got, p, w.told)
	}
	w.probes, w.told = nil, nil
}

func says(err error) func(context.Context) error {
	return func(context.Context) error { return err }
}

func takes(d time.Duration, err error) func(context.Context) error {
	return func(context.Context) error { time.Sleep(d); return err }
}

// silent is a backend that never says anything; the probe's own context ends it,
// and is told as a caller's is.
func silent(ctx context.Context) error {
	<-ctx.Done()
	return edge.Errorf(edge.Gone, "call", "%w", context.Cause(ctx))
}

var (
	good    = says(nil)
	down    = says(&edge.Error{Kind: edge.Unavailable, Op: "call", Err: answer(503)})
	refuses = says(&edge.Error{Kind: edge.Unavailable, Op: "call", Err: answer(401)})
)

func bubble(name string, t *testing.T, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

func TestMonitor(t *testing.T) {
	bubble("checks each interval and tells once", t, func(t *testing.T) {
		w := watch(t, Config{}, good)
		w.expect("unknown/0", "", "")
		w.until(91 * time.Second)
		w.expect("ready/0", "500ms 30.5s 1m0.5s 1m30.5s", "500ms ready")
		if s := w.Snapshot(); !s.Checked.Equal(w.start.Add(90*time.Second+500*time.Millisecond)) || !s.Since.Equal(w.start.Add(500*time.Millisecond)) {
			t.Errorf("checked %s, since %s", s.Checked, s.Since)
		}
	})
	bubble("an outage: attempts in between do not count, and find the end early", t, func(t *testing.T) {
		w := watch(t, Config{}, good)
		w.until(20 * time.Second)
		w.now(down)
		w.expect("ready/0", "500ms", "500ms ready")
		w.until(60 * time.Second)
		w.expect("ready/1", "30.5s 31.5s 33.5s 37.5s 45.5s", "")
		w.until(90 * time.Second)
		w.expect("ready/2", "1m0.5s 1m16.5s", "")
		w.until(100 * time.Second)
		w.expect("unavailable/3", "1m30.5s", "1m30.5s unavailable")
		w.until(300 * time.Second)
		w.expect("unavailable/9", "2m0.5s 2m30.5s 3m0.5s 3m30.5s 4m0.5s 4m30.5s", "")
		w.now(good)
		w.until(301 * time.Second)
		w.expect("degraded/0", "5m0.5s", "5m0.5s degraded")
		w.until(331 * time.Second)
		w.expect("ready/0", "5m30.5s", "5m30.5s ready")
	})
	bubble("a short outage is over with the first attempt that succeeds", t, func(t *testing.T) {
		w := watch(t, Config{}, down)
		w.until(3 * time.Second)
		w.expect("unknown/1", "500ms 1.5s", "")
		w.now(good)
		w.until(30 * time.Second)
		w.expect("degraded/0", "3.5s", "3.5s degraded")
		w.until(34 * time.Second)
		w.expect("ready/0", "33.5s", "33.5s ready")
	})
	bubble("an interval shorter than the first attempt", t, func(t *testing.T) {
		w := watch(t, Config{Interval: time.Second}, down)
		w.until(4 * time.Second)
		w.expect("unavailable/4", "500ms 1.5s 2.5s 3.5s", "2.5s unavailable")
	})
	bubble("wants a credential: no attempts, and nothing more after the threshold", t, func(t *testing.T) {
		w := watch(t, Config{}, refuses)
		w.until(60 * time.Second)
		w.expect("unknown/2", "500ms 30.5s", "")
		w.until(time.Hour)
		w.expect("unauthenticated/3", "1m0.5s", "1m0.5s unauthenticated")
		w.Again()
		w.until(2 * time.Hour)
		w.expect("unauthenticated/4", "1h0m0s", "")
		w.now(good)
		w.Again()
		w.until(2*time.Hour + 40*time.Second)
		w.expect("ready/0", "2h0m0s 2h0m30s", "2h0m0s degraded, 2h0m30s ready")
	})
	bubble("wants a credential, and nothing can be locked: checks go on, without attempts", t, func(t *testing.T) {
		w := watch(t, Config{Bare: true}, refuses)
		w.until(91 * time.Second)
		w.expect("unauthenticated/4", "500ms 30.5s 1m0.5s 1m30.5s", "1m0.5s unauthenticated")
		w.now(good)
		w.until(121 * time.Second)
		w.expect("degraded/0", "2m0.5s", "2m0.5s degraded")
	})
	bubble("wants a credential that the calls have", t, func(t *testing.T) {
		w := watch(t, Config{Rules: Rules{Credential: true}}, refuses)
		w.until(91 * time.Second)
		w.expect("ready/0", "500ms 30.5s 1m0.5s 1m30.5s", "500ms ready")
		w.now(down)
		w.until(200 * time.Second)
		w.expect("unavailable/3", "2m0.5s 2m1.5s 2m3.5s 2m7.5s 2m15.5s 2m30.5s 2m46.5s 3m0.5s", "3m0.5s unavailable")
	})
	bubble("has no credential for now: asks on", t, func(t *testing.T) {
		w := watch(t, Config{Rules: Rules{Credential: true}}, says(edge.Errorf(edge.Unauthenticated, "attach", "no token")))
		w.until(130 * time.Second)
		w.expect("unauthenticated/5", "500ms 30.5s 1m0.5s 1m30.5s 2m0.5s", "1m0.5s unauthenticated")
		w.now(good)
		w.until(160 * time.Second)
		w.expect("degraded/0", "2m30.5s", "2m30.5s degraded")
	})
	bubble("each outage has its attempts from the beginning", t, func(t *testing.T) {
		w := watch(t, Config{}, down)
		w.until(10 * time.Second)
		w.now(good)
		w.until(20 * time.Second)
		w.now(down)
		w.expect("degraded/0", "500ms 1.5s 3.5s 7.5s 15.5s", "15.5s degraded")
		w.until(50 * time.Second)
		w.expect("degraded/1", "45.5s 46.5s 48.5s", "")
	})
	bubble("slow", t, func(t *testing.T) {
		w := watch(t, Config{}, takes(6*time.Second, nil))
		w.until(37 * time.Second)
		w.expect("degraded/0", "500ms 36.5s", "6.5s degraded")
		if s := w.Snapshot(); s.Message != "took 6s to answer" || s.Category != "" {
			t.Errorf("%q, %q", s.Message, s.Category)
		}
		w.now(good)
		w.until(100 * time.Second)
		w.expect("ready/0", "1m12.5s", "1m12.5s ready")
	})
	bubble("silent", t, func(t *testing.T) {
		w := watch(t, Config{}, silent)
		w.until(11 * time.Second)
		w.expect("unknown/1", "500ms", "")
		if s := w.Snapshot(); s.Message != "did not answer in time" || s.Category != TimedOut {
			t.Errorf("%q, %q", s.Message, s.Category)
		}
		w.until(2 * time.Minute)
		w.expect("unavailable/3", "11.5s 23.5s 40.5s 54.5s 1m20.5s 1m38.5s", "1m30.5s unavailable")
	})
	bubble("panics", t, func(t *testing.T) {
		w := watch(t, Config{Rules: Rules{Threshold: 1}}, func(context.Context) error { panic("at the probe") })
		w.until(time.Second)
		w.expect("unavailable/1", "500ms", "500ms unavailable")
		if s := w.Snapshot(); s.Category != CheckFailed {
			t.Error(s.Category)
		}
		w.now(good)
		w.until(2 * time.Second)
		w.expect("degraded/0", "1.5s", "")
		w.until(10 * time.Second)
		w.expect("degraded/0", "", "5.5s degraded")
	})
	bubble("is told of a credential in the middle of a probe", t, func(t *testing.T) {
		w := watch(t, Config{Rules: Rules{Threshold: 1}}, takes(time.Second, refuses(context.Background())))
		w.until(1 * time.Second)
		w.Again()
		w.Again()
		w.until(1400 * time.Millisecond)
		w.now(good)
		w.until(2 * time.Second)
		w.expect("degraded/0", "500ms 1.5s", "1.5s unauthenticated")
		w.until(7 * time.Second)
		w.expect("degraded/0", "", "6.5s degraded")
	})
	bubble("whoever is told may panic", t, func(t *testing.T) {
		told := 0
		m := Watch(Config{Probe: good, Interval: time.Second, Changed: func(Snapshot) { told++; panic("at the news") }})
		time.Sleep(10 * time.Second)
		if s := m.Snapshot(); s.Status != Ready || time.Since(s.Checked) > 2*time.Second {
			t.Errorf("%+v", s)
		}
		m.Close()
		if told != 1 {
			t.Errorf("told %d times", told)
		}
	})
}

// fail makes calls that fail.
func fail(t *testing.T, b *Breaker, n int) {
	t.Helper()
	for range n {
		p, err := b.Allow()
		if err != nil {
			t.Fatal(err)
		}
		p.Done(Failure)
	}
}

func TestMonitorAndBreaker(t *testing.T) {
	make := func() *Breaker { return NewBreaker("x", 5, time.Minute) }

	bubble("calls open it: the status says so at once, and no probe is made until the trial", t, func(t *testing.T) {
		b := make()
		w := watch(t, Config{Breaker: b}, good)
		w.until(10 * time.Second)
		w.expect("ready/0 closed", "500ms", "500ms ready")
		fail(t, b, 5)
		if s := w.Snapshot(); s.Status != Unavailable || s.Circuit != Open { // before the monitor has had time to notice
			t.Errorf("%s, %s", s.Status, s.Circuit)
		}
		w.until(69 * time.Second)
		w.expect("unavailable/0 open", "", "10s unavailable")
		w.until(71 * time.Second)
		w.expect("degraded/0 closed", "1m10s", "1m10s degraded")
		w.until(101 * time.Second)
		w.expect("ready/0 closed", "1m40s", "1m40s ready")
		if s := w.Snapshot(); !s.CircuitChanged.Equal(w.start.Add(70 * time.Second)) {
			t.Error(s.CircuitChanged)
		}
	})
	bubble("checks open it, attempts do not, and each trial is one probe", t, func(t *testing.T) {
		b := make()
		w := watch(t, Config{Breaker: b}, down)
		w.until(119 * time.Second)
		w.expect("unavailable/4 closed", "500ms 1.5s 3.5s 7.5s 15.5s 30.5s 46.5s 1m0.5s 1m30.5s", "1m0.5s unavailable")
		w.until(5 * time.Minute)
		w.expect("unavailable/7 open", "2m0.5s 3m0.5s 4m0.5s", "")
		w.now(good)
		w.until(5*time.Minute + 10*time.Second)
		w.expect("degraded/0 closed", "5m0.5s", "5m0.5s degraded")
	})
	bubble("checks and calls count together", t, func(t *testing.T) {
		b := make()
		w := watch(t, Config{Breaker: b}, down)
		w.until(10 * time.Second)
		fail(t, b, 4)
		w.expect("unavailable/1 open", "500ms 1.5s 3.5s 7.5s", "10s unavailable")
	})
	// A call is quicker than the monitor when a check of the monitor, which began
	// before the breaker opened, is still under way.
	bubble("a call on trial closes it: a check follows", t, func(t *testing.T) {
		b := NewBreaker("x", 5, 5*time.Second)
		w := watch(t, Config{Breaker: b}, good)
		w.until(20 * time.Second)
		w.now(silent)
		w.until(31 * time.Second)
		fail(t, b, 5)
		w.until(37 * time.Second)
		p, err := b.Allow()
		if err != nil {
			t.Fatal(err)
		}
		w.now(good)
		w.until(41 * time.Second)
		w.expect("unavailable/1 half-open", "500ms 30.5s", "500ms ready, 31s unavailable")
		p.Done(Success)
		w.until(50 * time.Second)
		w.expect("ready/0 closed", "41s", "41s degraded, 46s ready")
	})
	bubble("a call on trial that never ends gives way to a probe", t, func(t *testing.T) {
		b := NewBreaker("x", 5, 5*time.Second)
		w := watch(t, Config{Breaker: b}, good)
		w.until(20 * time.Second)
		w.now(silent)
		w.until(31 * time.Second)
		fail(t, b, 5)
		w.until(39 * time.Second)
		if _, err := b.Allow(); err != nil {
			t.Fatal(err)
		}
		w.now(good)
		w.until(43 * time.Second)
		w.expect("unavailable/1 half-open", "500ms 30.5s", "500ms ready, 31s unavailable")
		w.until(45 * time.Second)
		w.expect("degraded/0 closed", "44s", "44s degraded")
	})
	bubble("a trial that says nothing is not repeated at once", t, func(t *testing.T) {
		b := make()
		w := watch(t, Config{Breaker: b}, good)
		w.until(time.Second)
		fail(t, b, 5)
		w.now(says(edge.Errorf(edge.Overload, "dial", "no room")))
		w.until(64 * time.Second)
		w.expect("unavailable/0 half-open", "500ms 1m1s 1m2s 1m3s 1m4s", "500ms ready, 5.5s unavailable")
		w.now(says(edge.Errorf(edge.Unauthenticated, "attach", "no token")))
		w.until(100 * time.Second)
		w.expect("unavailable/2 half-open", "1m5s 1m35s", "")
		w.now(good)
		w.until(130 * time.Second)
		w.expect("degraded/0 closed", "2m5s", "2m5s degraded")
	})
	bubble("good news from before it opened is old", t, func(t *testing.T) {
		b := make()
		w := watch(t, Config{Breaker: b}, takes(4*time.Second, nil))
		w.until(time.Second)
		fail(t, b, 5)
		w.until(10 * time.Second)
		w.expect("unavailable/0 open", "500ms", "1s unavailable")
		if s := w.Snapshot(); !s.Since.Equal(w.start.Add(time.Second)) || !s.Checked.Equal(w.start.Add(4500*time.Millisecond)) {
			t.Errorf("unavailable since %s, checked at %s", s.Since.Sub(w.start), s.Checked.Sub(w.start))
		}
	})
	bubble("refused at the trial: it is alive, and wants a credential", t, func(t *testing.T) {
		b := make()
		w := watch(t, Config{Breaker: b}, refuses)
		w.until(2 * time.Minute)
		w.expect("unauthenticated/3 closed", "500ms 30.5s 1m0.5s", "1m0.5s unauthenticated")
		fail(t, b, 5)
		w.until(150 * time.Second)
		w.expect("unavailable/3 open", "", "2m0s unavailable")
		w.until(time.Hour)
		w.expect("unauthenticated/4 closed", "3m0s", "3m0s unauthenticated")
	})
	bubble("Again does not go around it", t, func(t *testing.T) {
		b := make()
		w := watch(t, Config{Breaker: b}, good)
		w.until(time.Second)
		fail(t, b, 5)
		w.Again()
		w.until(61 * time.Second)
		w.expect("degraded/0 closed", "500ms 1m1s", "500ms ready, 5.5s unavailable, 1m1s degraded")
	})
	bubble("it opens while a check keeps silent", t, func(t *testing.T) {
		b := make()
		w := watch(t, Config{Breaker: b, Quiet: time.Second}, silent)
		w.until(time.Second)
		fail(t, b, 5)
		w.expect("unavailable/0 open", "500ms", "1s unavailable")
		w.until(11 * time.Second)
		w.expect("unavailable/1 open", "", "")
	})
}

// A backend that flaps each second is told of at most once in Quiet, while
// whoever asks gets the truth; and what is told last is what holds.
func TestFlapping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		up, steady := false, false
		var told []time.Time
		var last Status
		m := Watch(Config{
			Interval: time.Second,
			Rules:    Rules{Threshold: 1},
			Random:   func() float64 { return 0.5 },
			Quiet:    10 * time.Second,
			Probe: func(ctx context.Context) error {
				mu.Lock()
				defer mu.Unlock()
				if up = !up; up || steady {
					return nil
				}
				return down(ctx)
			},
			Changed: func(s Snapshot) {
				mu.Lock()
				defer mu.Unlock()
				told, last = append(told, time.Now()), s.Status
			},
		})
		seen := map[Status]int{}
		for range 600 {
			time.Sleep(time.Second)
			synctest.Wait()
			seen[m.Snapshot().Status]++
		}
		// Once it flaps no more, what was told last becomes what holds.
		mu.Lock()
		steady = true
		mu.Unlock()
		time.Sleep(11 * time.Second)
		synctest.Wait()
		mu.Lock()
		if now := m.Snapshot().Status; now != Ready || last != Ready {
			t.Errorf("told %s, and it is %s", last, now)
		}
		mu.Unlock()
		m.Close()
		if len(told) < 10 || len(told) > 62 {
			t.Errorf("told %d times in 611 s", len(told))
		}
		for i := range told[1:] {
			if gap := told[i+1].Sub(told[i]); gap < 10*time.Second {
				t.Errorf("told again after %s", gap)
			}
		}
		if seen[Unavailable] < 299 || seen[Degraded] < 299 {
			t.Errorf("seen %v", seen)
		}
	})
}

// A breaker before a backend that flaps each second lets one exchange through at
// a time, and fails no more of them than its timeout has room for.
func TestFlappingBehindABreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout, long = 9 * time.Second, 600 * time.Second
		b := NewBreaker("x", 2, timeout)
		var under, most, failed, succeeded atomic.Int32
		ask := func(ctx context.Context) error {
			most.Store(max(most.Load(), under.Add(1)))
			defer under.Add(-1)
			time.Sleep(10 * time.Millisecond)
			if time.Now().Second()%2 == 0 {
				failed.Add(1)
				return down(ctx)
			}
			succeeded.Add(1)
			return nil
		}
		m := Watch(Config{Interval: time.Second, Breaker: b, Probe: ask})
		defer m.Close()
		for start := time.Now(); time.Since(start) < long; time.Sleep(100 * time.Millisecond) {
			if p, err := b.Allow(); err == nil {
				if is, _ := b.State(); is == HalfOpen && under.Load() != 0 {
					t.Error("a call while a probe is on trial")
				}
				p.Done(Judge(ask(t.Context())))
			}
		}
		// Each opening costs the timeout, and takes two failures, or one on trial.
		if n := failed.Load(); n < 10 || n > int32(2*long/timeout+2) {
			t.Errorf("%d failures", n)
		}
		if succeeded.Load() < 100 {
			t.Errorf("%d successes: it never closed", succeeded.Load())
		}
		if most.Load() > 2 { // a call and a probe, while it is closed
			t.Errorf("%d at the same time", most.Load())
		}
	})
}

// Monitors that start together, or lose their backends together, do not stay
// together.
func TestNoHerd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		chance := rand.New(rand.NewPCG(1, 2))
		var mu sync.Mutex
		random := func() float64 {
			mu.Lock()
			defer mu.Unlock()
			return chance.Float64()
		}
		start := time.Now()
		in := map[int]int{} // probes in each tenth of a second
		const backends = 300
		for range backends {
			m := Watch(Config{Random: random, Probe: func(context.Context) error {
				mu.Lock()
				defer mu.Unlock()
				in[int(time.Since(start)/(100*time.Millisecond))]++
				return nil
			}})
			t.Cleanup(func() { m.Close() })
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		total, latest := 0, 0
		for tenth, n := range in {
			total += n
			if n > backends/5 {
				t.Errorf("%d probes at %d00 ms", n, tenth)
			}
			if tenth >= 5*600 && n > latest {
				latest = n
			}
		}
		if latest > backends/20 {
			t.Errorf("%d probes at once after five minutes", latest)
		}
		if want := 20 * backends; total < want*95/100 || total > want*105/100 {
			t.Errorf("%d probes in ten minutes, want about %d", total, want)
		}
	})
}

func TestClose(t *testing.T) {
	bubble("ends the probe, tells nothing more, and may come twice", t, func(t *testing.T) {
		b := NewBreaker("x", 1, time.Minute)
		var cause error
		told := 0
		m := Watch(Config{Breaker: b, Rules: Rules{Threshold: 1}, Changed: func(Snapshot) { told++ }, Probe: func(ctx context.Context) error {
			err := silent(ctx)
			cause = context.Cause(ctx)
			time.Sleep(time.Second) // to clean up
			return err
		}})
		time.Sleep(2 * time.Second)
		closed := time.Now()
		m.Close()
		if cause != context.Canceled || time.Since(closed) != time.Second {
			t.Errorf("the probe ended with %v; Close took %s", cause, time.Since(closed))
		}
		m.Close()
		m.Again()
		if s := m.Snapshot(); s.Status != Unknown || s.Category != Cancelled || s.Circuit != Closed || told != 0 {
			t.Errorf("%+v, told %d times", s, told)
		}
	})
	bubble("before the first check", t, func(t *testing.T) {
		w := watch(t, Config{}, good)
		w.Close()
		time.Sleep(time.Hour)
		w.expect("unknown/0", "", "")
	})
	bubble("a trial under way is free for another", t, func(t *testing.T) {
		b := NewBreaker("x", 1, time.Second)
		m := Watch(Config{Breaker: b, Probe: silent})
		fail(t, b, 1)
		time.Sleep(2 * time.Second)
		m.Close()
		play(t, b, "half-open, good, closed")
	})
}

// Everything at once: calls, checks, changes and questions, for the race
// detector; and in the end the truth.
func TestMonitorHammer(t *testing.T) {
	b := NewBreaker("x", 3, 200*time.Microsecond)
	var well atomic.Bool
	ask := func(ctx context.Context) error {
		if well.Load() || rand.N(2) == 0 {
			return nil
		}
		return down(ctx)
	}
	var told atomic.Int32
	m := Watch(Config{Interval: 100 * time.Microsecond, Quiet: time.Nanosecond, Breaker: b, Probe: ask, Changed: func(Snapshot) { told.Add(1) }})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 2000 {
				if p, err := b.Allow(); err == nil {
					p.Done(Judge(ask(t.Context())))
				}
				m.Snapshot()
				if rand.N(100) == 0 {
					m.Again()
				}
			}
		})
	}
	all.Wait()
	well.Store(true)
	is := func() bool {
		s := m.Snapshot()
		return s.Status == Ready && s.Circuit == Closed && s.Failures == 0
	}
	for deadline := time.Now().Add(10 * time.Second); !is(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("it stays %+v", m.Snapshot())
		}
	}
	m.Close()
	if told.Load() == 0 {
		t.Error("nothing was told")
	}
}

// The words are those of the documents: status.phase, discoveredBackends[].
func TestWords(t *testing.T) {
	got := []string{
		string(Ready), string(Degraded), string(Unavailable), string(Unauthenticated), string(Unknown),
		string(Closed), string(Open), string(HalfOpen),
		string(PhasePending), string(PhaseReady), string(PhaseDegraded), string(PhaseFailed),
		string(AuthenticationFailed), string(TimedOut), string(Cancelled), string(BackendUnavailable), string(ConnectionFailed), string(CheckFailed),
	}
	want := strings.Fields(`ready degraded unavailable unauthenticated unknown closed open half-open Pending Ready Degraded Failed
		authentication_failed timeout cancelled backend_unavailable connection_failed health_check_failed`)
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	if !reflect.DeepEqual(Rules{}.withDefaults(), Rules{Threshold: 3, Slow: 5 * time.Second}) {
		t.Error("other defaults")
	}
}
