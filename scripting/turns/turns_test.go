package turns

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestPlaces: holders get places in turn, the runs of one holder in the order in which they
// came, and a place that came to somebody who has left goes to the next.
func TestPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(1, 0)
		if err := p.take(t.Context(), "a", 0, false); err != nil || p.Waiting() != 0 {
			t.Fatal(err)
		}
		var order []string
		var all sync.WaitGroup
		cause := errors.New("gone")
		gone, cancel := context.WithCancelCause(t.Context())
		for _, run := range []string{"a1", "a2", "a3", "b1", "gone", "b2", "c1"} {
			ctx := t.Context()
			if run == "gone" {
				ctx = gone
			}
			all.Go(func() {
				if err := p.take(ctx, run[:1], 0, false); err != nil {
					if err != cause || run != "gone" {
						t.Errorf("%s: %v", run, err)
					}
					return
				}
				order = append(order, run)
				p.give(run[:1], 0)
			})
			synctest.Wait()
		}
		cancel(cause)
		synctest.Wait()
		p.give("x", 0)
		all.Wait()
		if !slices.Equal(order, []string{"a1", "b1", "c1", "a2", "b2", "a3"}) || p.Free() != 1 || p.Waiting() != 0 || len(p.holders) != 0 {
			t.Errorf("the order was %v, %d are free, %d wait", order, p.Free(), p.Waiting())
		}
	})
}

// TestTurn: a run takes a place when it has computed for its first while, keeps it for a
// slice where others wait, and has none while it rests. Waiting is no computing.
func TestTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, ctx := New(1, 0), t.Context()
		other := p.Turn("other", 0)
		if err := other.Begin(ctx); err != nil || p.Free() != 0 {
			t.Fatal(err)
		}
		one := p.Turn("one", 5*time.Millisecond)
		if err := one.Begin(ctx); err != nil { // waits for nobody
			t.Fatal(err)
		}
		time.Sleep(3 * time.Millisecond)
		if one.Due() {
			t.Error("it is to rest before its first while is over")
		}
		one.Rest()
		time.Sleep(time.Second)
		if err := one.Begin(ctx); err != nil || one.Used() != 3*time.Millisecond {
			t.Errorf("%v of computing, %v", one.Used(), err)
		}
		time.Sleep(2 * time.Millisecond)
		if !one.Due() {
			t.Error("it goes on without a place")
		}
		looked := make(chan error)
		go func() { looked <- one.Look(ctx) }()
		synctest.Wait()
		if p.Waiting() != 1 || !other.Due() {
			t.Errorf("%d wait", p.Waiting())
		}
		go func() { // other gives its place, and waits in turn
			other.Rest()
			_ = other.Begin(ctx)
			other.Rest()
		}()
		if err := <-looked; err != nil || one.Due() {
			t.Errorf("it has a place: %v", err)
		}
		synctest.Wait()
		time.Sleep(slice)
		if !one.Due() || one.Used() != 5*time.Millisecond+slice {
			t.Errorf("it keeps its place for ever, after %v", one.Used())
		}
		if err := one.Look(ctx); err != nil || p.Waiting() != 0 {
			t.Errorf("%d wait, %v", p.Waiting(), err)
		}
		one.Rest()
		if p.Free() != 1 {
			t.Errorf("%d places are free", p.Free())
		}
	})
}

// TestTurnEnds: a run whose context ends while it waits rests, and has nothing to give back.
func TestTurnEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(1, 0)
		if err := p.take(t.Context(), "other", 0, false); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		one := p.Turn("one", time.Hour)
		if err := one.Begin(ctx); err != nil {
			t.Fatal(err)
		}
		if err := one.Heavy(ctx); err != context.DeadlineExceeded || one.Used() != 0 {
			t.Errorf("%v after %v of computing", err, one.Used())
		}
		one.Rest()
		if p.Free() != 0 || p.Waiting() != 0 {
			t.Errorf("%d are free, %d wait", p.Free(), p.Waiting())
		}
		p.give("x", 0)
		if err := (*Places)(nil).Turn("", 0).Begin(ctx); err != nil {
			t.Errorf("without places: %v", err)
		}
	})
}

// BenchmarkTurn is what a short run pays beside its first while, and a long one whose place is
// free.
func BenchmarkTurn(b *testing.B) {
	p := New(1, 0)
	for name, first := range map[string]time.Duration{"short": time.Hour, "long": 0} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				t := p.Turn("me", first)
				_ = t.Begin(b.Context())
				t.Rest()
			}
		})
	}
}

// TestPlacesLong: short runs and long ones of a holder go on alternately, the short ones as
// they came, the long ones as they began; and they go before no other holder.
func TestPlacesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(1, 0)
		if err := p.take(t.Context(), "a", 0, false); err != nil {
			t.Fatal(err)
		}
		cause := errors.New("gone")
		gone, cancel := context.WithCancelCause(t.Context())
		var order []string
		var all sync.WaitGroup
		for _, run := range []struct {
			name   string
			number uint64
			long   bool
		}{{"a9", 9, true}, {"a7", 7, true}, {"b1", 1, true}, {"a10", 10, false}, {"a3", 3, false}, {"gone", 2, true}, {"a8", 8, true}, {"a11", 11, false}} {
			ctx, holder := t.Context(), run.name[:1]
			if run.name == "gone" {
				ctx, holder = gone, "a"
			}
			all.Go(func() {
				if err := p.take(ctx, holder, run.number, run.long); err != nil {
					return
				}
				order = append(order, run.name)
				p.give(holder, 0)
			})
			synctest.Wait()
		}
		cancel(cause)
		synctest.Wait()
		p.give("x", 0)
		all.Wait()
		if got := strings.Join(order, " "); got != "a10 b1 a7 a3 a8 a11 a9" || p.Free() != 1 || p.Waiting() != 0 {
			t.Errorf("%s, %d free, %d waiting", got, p.Free(), p.Waiting())
		}
	})
}

// TestTurnsOfLittle: a run that computes little between its many waits goes on after the slice
// that is under way, however many holders compute for long.
func TestTurnsOfLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(1, 0)
		ctx, end := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				turn := p.Turn(string(rune('a'+i%10)), 0)
				defer turn.Rest()
				for err := turn.Begin(ctx); err == nil && ctx.Err() == nil; err = turn.Look(ctx) {
					time.Sleep(time.Millisecond)
				}
			})
		}
		began := time.Now()
		turn := p.Turn("calls", 0)
		for range 100 {
			if err := turn.Begin(ctx); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
			turn.Rest()
			time.Sleep(15 * time.Millisecond) // its call
		}
		if took := time.Since(began); took > 100*(16*time.Millisecond+slice) {
			t.Errorf("it took %v", took)
		}
		end()
		all.Wait()
	})
}

// TestTurnsOfLongRuns: three holders have ten runs at any time, of which one computes for a
// second and the others for a fifth of that. It has half of its holder's turns at least, since
// those that began after it come after it.
func TestTurnsOfLongRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(1, 0)
		ctx, end := context.WithCancel(t.Context())
		run := func(holder string, computes time.Duration) time.Duration {
			began := time.Now()
			turn := p.Turn(holder, 0)
			defer turn.Rest()
			err := turn.Begin(ctx)
			for err == nil && turn.Used() < computes {
				time.Sleep(time.Millisecond)
				err = turn.Look(ctx)
			}
			return time.Since(began)
		}
		var all sync.WaitGroup
		for i := range 9 {
			all.Go(func() {
				for ctx.Err() == nil {
					run(string(rune('a'+i%3)), 200*time.Millisecond)
				}
			})
		}
		for range 3 {
			if took := run("a", time.Second); took > 7*time.Second {
				t.Errorf("it took %v", took)
			}
		}
		end()
		all.Wait()
	})
}

// TestHold is runs whose values take memory: of all, of one holder, and of one that has ended.
func TestHold(t *testing.T) {
	p := New(1, 400)
	a, more, b, c, d, e := p.Turn("a", 0), p.Turn("a", 0), p.Turn("b", 0), p.Turn("c", 0), p.Turn("d", 0), p.Turn("e", 0)
	holds := func(what string, turn *Turn, bytes int64, want bool) {
		t.Helper()
		if turn.Hold(bytes) != want {
			t.Errorf("%s: %v is not the answer", what, !want)
		}
	}
	holds("a quarter", a, 100, true)
	holds("more than that, by another run of the holder", more, 1, false)
	holds("what another has is not its", b, 90, true)
	holds("a second time", b, 11, false)
	holds("after a refusal", b, 10, true)
	holds("a third", c, 100, true)
	holds("a fourth", d, 99, true)
	holds("two bytes where one is left", e, 2, false)
	a.Free()
	a.Free()
	holds("what was given back once", more, 100, true)
	for _, one := range []*Turn{more, b, c, d, e} {
		one.Free()
	}
	if p.taken != 0 || len(p.held) != 0 {
		t.Errorf("after all have ended %d bytes are held, by %v", p.taken, p.held)
	}
	if !New(1, 0).Turn("a", 0).Hold(1<<40) || !(*Places)(nil).Turn("a", 0).Hold(1<<40) {
		t.Error("there is a bound where none was set")
	}
}
