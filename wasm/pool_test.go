package wasm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest/fake"
)

// TestZ33Breaker: who makes a guest fail rests alone, and only where failures
// refuse the message.
func TestZ33Breaker(t *testing.T) {
	bad, good := Sender{Identity: &edge.Identity{Issuer: "i", Subject: "bad"}}, Sender{Address: "192.0.2.1"}
	g := open(t, byCommand().bytes())
	for range crashes {
		fails2(t, g, bad, "t", Trap)
	}
	fails2(t, g, bad, "k", Open)
	for range 3 * crashes { // as many failures of others as there may be
		fails2(t, g, Sender{Address: "192.0.2.2"}, "l", Canceled)
		passes(t, g, good)
	}
	if s := g.Stats(); s.Resting != 1 || s.Rests != 1 {
		t.Errorf("after %d crashes in a row: %+v", crashes, s)
	}
	over := func() *row {
		g.front.breaker.mu.Lock()
		defer g.front.breaker.mu.Unlock()
		r := g.front.breaker.of[bad.key()]
		r.until = time.Now()
		return r
	}
	over()
	fails2(t, g, bad, "t", Trap)
	if r := over(); r.rest != 2*restMin {
		t.Errorf("the second rest lasts %v", r.rest)
	}
	passes(t, g, bad)
	if g.Stats().Resting != 0 {
		t.Error("it rests after a success")
	}
}

// TestZ33NeverRests: where failures are passed over, a guest sees every message,
// however often it failed before.
func TestZ33NeverRests(t *testing.T) {
	g := open(t, byCommand().bytes(), func(b *Binding) { b.OnError[hook] = Skip })
	for range 3 * crashes {
		if out, err := g.Call(t.Context(), hook, "", Sender{}, []byte("t"), nil); err != nil || len(out) > 0 {
			t.Fatalf("a failure that is passed over: %q, %v", out, err)
		}
	}
	passes(t, g, Sender{})
	if s := g.Stats(); s.Resting != 0 || s.Hooks[hook].Skipped != 3*crashes {
		t.Errorf("%+v", s)
	}
}

// TestZ33Bounded: senders without number do not fill the memory.
func TestZ33Bounded(t *testing.T) {
	var b breaker
	name := func(i int) Sender { return Sender{Address: "made up " + strconv.Itoa(i)} }
	for i := range 3 * maxSenders {
		b.failure(name(i))
		if i < maxSenders/2 {
			for range crashes {
				b.failure(name(i)) // rests
			}
		}
	}
	if n := len(b.of); n > maxSenders || int(b.trouble.Load()) != n {
		t.Errorf("%d senders are remembered, %d counted", n, b.trouble.Load())
	}
	// What nothing follows from any more is forgotten.
	for _, r := range b.of {
		r.last, r.rest = r.last.Add(-time.Hour), 0
	}
	b.failure(name(-1))
	if n := len(b.of); n != 1 {
		t.Errorf("%d senders are remembered an hour later", n)
	}
}

func passes(t *testing.T, g *Guest, from Sender) {
	t.Helper()
	if out, err := g.Call(t.Context(), hook, "", from, []byte("k"), nil); err != nil || string(out) != "k" {
		t.Fatalf("%+v: %q, %v", from, out, err)
	}
}

// fails2 wants a call to fail; one that is to be canceled is when it begins.
func fails2(t *testing.T, g *Guest, from Sender, input string, want Reason) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if want == Canceled {
		cancel()
	}
	_, err := g.Call(ctx, hook, "", from, []byte(input), nil)
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
		wg.Go(func() { _, _ = g.Call(ctx, hook, "a", Sender{}, []byte("l"), nil) })
		for g.Stats().Live == 0 || g.Stats().Idle > 0 {
			runtime.Gosched()
		}
		_, err := g.Call(context.Background(), hook, "b", Sender{}, []byte("k"), nil)
		var f *Failure
		if !errors.As(err, &f) || f.Reason != Saturated || !strings.Contains(f.Detail, "raise limits.instances") {
			t.Errorf("isolation %d: got %v", isolation, err)
		}
		cancel()
		wg.Wait()
		// What was canceled is made anew, which may take longer than a call waits.
		fake.Until(t, "an instance is free again", func() bool {
			_, err := g.Call(context.Background(), hook, "b", Sender{}, []byte("k"), nil)
			if err != nil && (!errors.As(err, &f) || f.Reason != Saturated) {
				t.Fatalf("isolation %d: afterwards: %v", isolation, err)
			}
			return err == nil
		})
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
					_, err := g.Call(context.Background(), hook, key, Sender{}, []byte(input), nil)
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
		g.maker.work.Wait()
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
	compiled := func() {
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
	compiled()
	compiled()
	// What is kept is bounded, over all versions of the engine: the oldest goes.
	other := filepath.Join(dir, "cache", "wazero-v0")
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	put := func(name string, size int64, age time.Duration) string {
		path := filepath.Join(other, name)
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, size), os.Chtimes(path, now.Add(-age), now.Add(-age))); err != nil {
			t.Fatal(err)
		}
		return path
	}
	oldest, older := put("aa", maxKept/2, 2*time.Hour), put("bb", maxKept/2, time.Hour)
	half, half2 := put("cc.1.tmp", 1, 2*time.Hour), put("dd.2.tmp", 1, 0)
	compiled()
	for path, kept := range map[string]bool{oldest: false, older: true, half: false, half2: true} {
		if _, err := os.Stat(path); (err == nil) != kept {
			t.Errorf("%s is kept: %v, want %v", path, err == nil, kept)
		}
	}
	if code, err := filepath.Glob(filepath.Join(dir, "cache", "wazero-*", "????????????????????????????????????????????????????????????????")); err != nil || len(code) != 1 {
		t.Errorf("the machine code of the module: %v, %v", code, err)
	}

	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := NewCompiler(Compilation{Dir: dir}); err == nil || !strings.Contains(err.Error(), "others than its owner") {
		t.Errorf("a directory that all may write to: %v", err)
	}
}
