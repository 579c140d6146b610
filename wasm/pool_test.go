package wasm

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestBreaker(t *testing.T) {
	g := open(t, byCommand().bytes())
	for range crashes {
		fails2(t, g, "t", Trap)
	}
	fails2(t, g, "k", Open)
	if s := g.Stats(); !s.Resting || s.Rests != 1 {
		t.Errorf("after %d crashes in a row: %+v", crashes, s)
	}
	// The rest is over.
	g.breaker.mu.Lock()
	g.breaker.until = time.Now()
	g.breaker.mu.Unlock()
	fails2(t, g, "t", Trap)
	if g.breaker.rest != 2*restMin {
		t.Errorf("the second rest lasts %v", g.breaker.rest)
	}
	g.breaker.mu.Lock()
	g.breaker.until = time.Now()
	g.breaker.mu.Unlock()
	if _, err := g.Call(context.Background(), hook, "", []byte("k"), nil); err != nil {
		t.Error(err)
	}
	if g.Stats().Resting {
		t.Error("it rests after a success")
	}
}

func fails2(t *testing.T, g *Guest, input string, want Reason) {
	t.Helper()
	_, err := g.Call(context.Background(), hook, "", []byte(input), nil)
	var f *Failure
	if !errors.As(err, &f) || f.Reason != want {
		t.Fatalf("%q: got %v, want %v", input, err, want)
	}
}

func TestSaturated(t *testing.T) {
	for _, isolation := range []Isolation{Shared, PerSession} {
		g := open(t, byCommand().bytes(), func(b *Binding) {
			b.Isolation, b.Limits.Instances, b.Limits.Wait = isolation, 1, time.Millisecond
			b.Limits.Timeout, b.Limits.Fuel = time.Hour, 1<<60
		})
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = g.Call(ctx, hook, "a", []byte("l"), nil) })
		for g.Stats().Live == 0 || g.Stats().Idle > 0 {
			runtime.Gosched()
		}
		_, err := g.Call(context.Background(), hook, "b", []byte("k"), nil)
		var f *Failure
		if !errors.As(err, &f) || f.Reason != Saturated {
			t.Errorf("isolation %d: got %v", isolation, err)
		}
		cancel()
		wg.Wait()
		if _, err := g.Call(context.Background(), hook, "b", []byte("k"), nil); err != nil {
			t.Errorf("isolation %d: afterwards: %v", isolation, err)
		}
	}
}

// TestPoolHammer: many callers of few instances, some of which crash or change
// what cannot be reset.
func TestPoolHammer(t *testing.T) {
	for _, isolation := range []Isolation{Shared, PerRequest, PerSession} {
		g := open(t, byCommand().bytes(), func(b *Binding) {
			b.Isolation, b.Limits.Instances, b.Limits.Prewarm = isolation, 3, 3
		})
		var wg sync.WaitGroup
		for w := range 16 {
			wg.Go(func() {
				for i := range 100 {
					input, key := "k", strconv.Itoa((w+i)%8)
					if i%7 == 3 {
						input = "t"
					}
					_, err := g.Call(context.Background(), hook, key, []byte(input), nil)
					var f *Failure
					if input == "k" && err != nil && !(errors.As(err, &f) && f.Reason == Open) {
						t.Errorf("isolation %d: %v", isolation, err)
					}
					if i%10 == 0 {
						g.EndSession(key)
					}
				}
			})
		}
		wg.Wait()
		if s := g.Stats(); s.Live > 3 || s.Live != s.Idle {
			t.Errorf("isolation %d: %d instances, %d of them idle", isolation, s.Live, s.Idle)
		}
		g.Close()
		if n := g.pool.live.Load(); n != 0 {
			t.Errorf("isolation %d: %d instances after the end", isolation, n)
		}
	}
}

func TestCacheDir(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		c, err := NewCompiler(Compilation{Dir: dir + "/cache"})
		if err != nil {
			t.Fatal(err)
		}
		m, err := c.Compile(context.Background(), scanner().bytes(), "")
		if err != nil {
			t.Fatal(err)
		}
		m.Close()
		c.Close()
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := NewCompiler(Compilation{Dir: dir}); err == nil || !strings.Contains(err.Error(), "others than its owner") {
		t.Errorf("a directory that all may write to: %v", err)
	}
}
