package sandbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-edge/weir/scripting"
	"github.com/weir-edge/weir/scripting/turns"
)

// TestAdmissionOrder: who comes first gets in first, and a holder that has all it may have
// keeps nobody else out.
func TestAdmissionOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(3, 2)
		for _, holder := range []string{"a", "a", "b"} {
			if err := a.enter(t.Context(), holder); err != nil {
				t.Fatal(err)
			}
		}
		var mu sync.Mutex
		var order []string
		var all sync.WaitGroup
		for _, holder := range []string{"a", "a", "b", "c", "d"} {
			all.Go(func() {
				if err := a.enter(t.Context(), holder); err != nil {
					t.Error(err)
				}
				mu.Lock()
				order = append(order, holder)
				mu.Unlock()
			})
			synctest.Wait()
		}
		for _, holder := range []string{"b", "a", "a", "b", "c", "d", "a", "a"} {
			a.leave(holder)
			synctest.Wait()
		}
		all.Wait()
		if got := fmt.Sprint(order); got != "[b a a c d]" || a.running != 0 || len(a.of) != 0 {
			t.Errorf("they got in as %s; %d run, of %v", got, a.running, a.of)
		}
	})
}

// TestAdmissionWait: who waits too long leaves the queue, and what came to it at the same
// time goes to the next.
func TestAdmissionWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(1, 1)
		if err := a.enter(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		ctx, cancel := context.WithTimeoutCause(t.Context(), admissionWait, ErrBusy)
		defer cancel()
		if err := a.enter(ctx, "b"); err != ErrBusy || time.Since(start) != time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		a.leave("a")
		if len(a.queue) != 0 || a.running != 0 {
			t.Errorf("%d wait, %d run", len(a.queue), a.running)
		}
	})
}

// TestX33Turns: scripts that compute share the turns there are, and none is kept out by
// those that never wait for a call.
func TestX33Turns(t *testing.T) {
	places := turns.New(1, 0) // as on a machine with two processors
	e := engine(t, Options{Most: 8, MostPerHolder: 8, Places: places})
	busy := program(t, "while True:\n  pass", nil)
	var spent atomic.Int64
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			o, err := e.Run(t.Context(), "busy", &scripting.Run{Program: busy, Call: tools{}.call, Limits: scripting.Limits{Steps: 1 << 60, CPU: 300 * time.Millisecond}})
			if err != nil || said(o) != "error: ran longer than 300ms of CPU" {
				t.Error(said(o), err)
				return
			}
			spent.Add(1)
		})
	}
	eventually(t, "three wait for a turn", func() bool { return places.Waiting() == 3 })
	if got := said(run1(t, e, "return 1", nil)); got != "1" {
		t.Error(got)
	}
	if n := spent.Load(); n > 1 {
		t.Errorf("%d of the busy ones had ended before a short one got its turn", n)
	}
	all.Wait()
	if places.Free() != 1 || places.Waiting() > 0 {
		t.Errorf("%d places are free", places.Free())
	}
}

// TestClose ends what runs and what waits, and refuses what comes after.
func TestClose(t *testing.T) {
	engine(t) // machine code lies in the directory from here on
	e := New(Options{CacheDir: shared.cache(), Most: 2, MostPerHolder: 2})
	begun := make(chan struct{}, 2)
	s := tools{"until": func(ctx context.Context, c *scripting.Call) scripting.Answer {
		begun <- struct{}{}
		return until(ctx, c)
	}}
	r := &scripting.Run{Program: program(t, "until()", s), Call: s.call}
	ended := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := e.Run(context.Background(), "me", r)
			ended <- err
		}()
		<-begun
	}
	e.Close()
	for range 2 {
		if err := <-ended; err != errClosed {
			t.Errorf("a run that was under way: %v", err)
		}
	}
	if _, err := e.Run(t.Context(), "me", r); err != errClosed {
		t.Errorf("a run after Close: %v", err)
	}
	e = New(Options{CacheDir: shared.cache()})
	e.Close() // while it compiles
	if err := e.Ready(t.Context()); err == nil && e.ready != nil {
		t.Error("it is ready after it was closed")
	}
}

// TestNotReady: a script waits for the interpreter as long as its context does.
func TestNotReady(t *testing.T) {
	release := make(chan struct{})
	e := newEngine(Options{CacheDir: shared.cache()}, func() (module, error) { <-release; return interpreter() })
	defer e.Close()
	r := &scripting.Run{Program: program(t, "return 1", nil), Call: tools{}.call}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := e.Run(ctx, "me", r); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while it is compiled: %v", err)
	}
	close(release)
	if o, err := e.Run(t.Context(), "me", r); err != nil || said(o) != "1" {
		t.Errorf("after that: %v, %v", o, err)
	}
}
