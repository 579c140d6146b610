package container

import (
	"context"
	"testing"
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
