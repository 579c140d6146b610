package container

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/engine"
	"github.com/weir-edge/weir/edge/sandbox"
)

// TestRemovedWhileItStarts: a container that somebody else removes at any moment of its start is
// made again, and says nothing of how its engine is reached.
func TestRemovedWhileItStarts(t *testing.T) {
	e := running(t)
	image(t, e, "probe:1", engine.Config{})
	m := machine(t, e)
	for i := range 10 {
		pool := sandbox.NewPoolOf(func(ctx context.Context) (sandbox.Box, error) { return m.Open(ctx, config(t, "echo:")) })
		type start struct {
			p   *sandbox.Process
			err error
		}
		began, first := time.Now(), make(chan start, 1)
		go func() {
			p, err := pool.Start(t.Context(), "")
			first <- start{p, err}
		}()
		after := time.Duration(i) * 40 * time.Millisecond
		time.Sleep(after)
		for _, id := range e.Containers(t) {
			_, _ = e.Try("DELETE", "/containers/"+id+"?force=1") // it may be on its way already
		}
		got := <-first
		if took := time.Since(began); got.err != nil || took > 10*time.Second {
			t.Errorf("removed after %v: %v in %v", after, got.err, took)
		}
		if got.p != nil {
			go func() { _ = got.p.Wait() }()
		}
		pool.Close()
	}
	here, err := m.Engine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if link := m.linkOf(t.Context(), here); link != LinkAuto {
		t.Errorf("its link is %s from now on", link)
	}
}

// TestMarkThatIsNotKept: a mark that could not be written is no mark.
func TestMarkThatIsNotKept(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	m, e := NewMachine(Options{State: state}), &Engine{host: "unix:///nowhere.sock"}
	if mark, err := m.mark(e); err == nil {
		t.Fatalf("a mark that is nowhere: %q", mark)
	}
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	mark, err := m.mark(e)
	if err != nil {
		t.Fatal(err)
	}
	if k, err := NewMachine(Options{State: state}).read(); err != nil || k.Manager != mark {
		t.Errorf("%q is used, and kept is %+v, %v", mark, k, err)
	}
}

// TestSettled: what is made for who has left meanwhile is known, and is waited for as long as said.
func TestSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for takes, want := range map[time.Duration]bool{time.Second: true, time.Minute: false} {
			ctx, cancel := context.WithCancel(t.Context())
			made, err := settled(ctx, settlesWithin, func(ctx context.Context) (bool, error) {
				cancel()
				select {
				case <-time.After(takes):
					return true, nil
				case <-ctx.Done():
					return false, ctx.Err()
				}
			})
			if made != want || (err == nil) != want {
				t.Errorf("after %s: %t, %v", takes, made, err)
			}
			if _, err := settled(ctx, settlesWithin, func(context.Context) (bool, error) { t.Error("it is begun for nobody"); return true, nil }); err == nil {
				t.Error("no error")
			}
		}
	})
}
