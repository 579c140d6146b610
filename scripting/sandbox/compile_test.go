package sandbox

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/fake"
	"github.com/weir-edge/weir/scripting"
	"github.com/weir-edge/weir/scripting/turns"
)

// TestCompilingTakesTurns: a script waits for those that are under way, and not for all that
// another client has sent before it.
func TestCompilingTakesTurns(t *testing.T) {
	var (
		c     = NewCompiler()
		text  = strings.Repeat("a=1\n", 16<<10)
		many  = min(20*turns.Most(), maxWaiting)
		ended atomic.Int64
		all   sync.WaitGroup
	)
	for range many {
		all.Go(func() {
			_, _ = c.Compile(t.Context(), "loud", "f.star", text, scripting.Scope{}) // the last ones may wait too long
			ended.Add(1)
		})
	}
	fake.Until(t, "half of the texts wait", func() bool { return c.places.Waiting() >= many/2 })
	before := ended.Load()
	if _, err := c.Compile(t.Context(), "quiet", "f.star", "return 1", scripting.Scope{}); err != nil {
		t.Error(err)
	}
	if n := ended.Load() - before; n > int64(3*turns.Most()) {
		t.Errorf("%d scripts of another client were compiled before it", n)
	}
	all.Wait()
}

// TestWaitingIsBounded: of one client so many scripts wait for the compiler, and for a place to
// run, and the next one is answered at once. Another client waits as ever.
func TestWaitingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, a := NewCompiler(), newAdmission(1, 1)
		var places []*turns.Turn
		for range turns.Most() {
			places = append(places, c.places.Turn("first", 0))
			if err := places[len(places)-1].Begin(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := a.enter(t.Context(), "first"); err != nil {
			t.Fatal(err)
		}
		compile := func(holder string) error {
			_, err := c.Compile(t.Context(), holder, "f.star", "return 1", scripting.Scope{})
			return err
		}
		run := func(holder string) error {
			err := a.enter(t.Context(), holder)
			if err == nil {
				a.leave(holder)
			}
			return err
		}
		var all sync.WaitGroup
		for _, do := range []func(string) error{compile, run} {
			wait := func(holder string) {
				all.Go(func() {
					if err := do(holder); err != nil {
						t.Errorf("%s: %v", holder, err)
					}
				})
			}
			for range maxWaiting {
				wait("loud")
			}
			synctest.Wait()
			start := time.Now()
			if err := do("loud"); !errors.Is(err, ErrBusy) || time.Since(start) > 0 {
				t.Errorf("one more: %v after %v", err, time.Since(start))
			}
			wait("quiet")
			synctest.Wait()
		}
		for _, place := range places {
			place.Rest()
		}
		a.leave("first")
		all.Wait()
		if c.waiting.running != 0 || len(a.queue) != 0 {
			t.Errorf("%d still wait for the compiler, %d to run", c.waiting.running, len(a.queue))
		}
	})
}
