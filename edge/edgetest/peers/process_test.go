package peers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
)

func TestNewEnough(t *testing.T) {
	for version, want := range map[string]bool{
		"v22.19.0\n": true, "v22.18.9\n": false, "v24.1.0": true, "v20.20.2": false, "v9.99.0": false, "node": false, "": false, "v22": false,
	} {
		if got := newEnough(version); got != want {
			t.Errorf("%q: %v", version, got)
		}
	}
}

// TestNothingIsLeft starts a shell with a child and ends it in every way that
// there is: the child must be gone each time.
func TestNothingIsLeft(t *testing.T) {
	_, err := exec.LookPath("sh")
	edgetest.Need(t, runtime.GOOS == "linux" && err == nil, "whole groups are ended on Linux only, and this needs a shell")

	t.Run("Run, and the shell leaves its child", func(t *testing.T) {
		child, err := Run(Command(t.Context(), "sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!"))
		if err != nil {
			t.Fatal(err)
		}
		gone(t, child)
	})

	t.Run("Run, and its context ends", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		note := filepath.Join(t.TempDir(), "child")
		done := make(chan error, 1)
		go func() { // ends with Run
			_, err := Run(Command(ctx, "sh", "-c", fmt.Sprintf("sleep 1000 & echo $! >'%s'; wait", note)))
			done <- err
		}()
		var child []byte
		until(t, func() bool {
			child, _ = os.ReadFile(note) // there in a moment
			return bytes.HasSuffix(child, []byte("\n"))
		})
		cancel()
		if err := <-done; err == nil {
			t.Error("cut short and no error")
		}
		gone(t, child)
	})

	for name, c := range map[string]struct {
		script string
		force  bool
	}{
		"Stop":                    {script: "sleep 1000 & echo $!; wait"},
		"Stop, and by force":      {script: "trap '' TERM; sleep 1000 & echo $!; while true; do wait; done", force: true},
		"Stop of what is no more": {script: "sleep 1000 & echo $!"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := start("shell", "", Command(context.Background(), "sh", "-c", c.script))
			if err != nil {
				t.Fatal(err)
			}
			if c.force {
				p.patience = 50 * time.Millisecond
			}
			until(t, func() bool { return p.Said() != "" })
			if err := p.Stop(); (err != nil) != c.force {
				t.Errorf("ended with %v", err)
			}
			gone(t, []byte(p.Said()))
		})
	}
}

func TestAwait(t *testing.T) {
	_, err := exec.LookPath("sh")
	edgetest.Need(t, err == nil, "there is no shell")

	t.Run("the process ends", func(t *testing.T) {
		p, err := start("shell", "", Command(context.Background(), "sh", "-c", "echo no address >&2"))
		if err != nil {
			t.Fatal(err)
		}
		err = p.await(t.Context(), func(context.Context) bool { return false })
		if err == nil || !strings.Contains(err.Error(), "it ended; shell said: no address") {
			t.Errorf("ended with %v", err)
		}
	})

	t.Run("the context ends", func(t *testing.T) {
		p, err := start("shell", "", Command(context.Background(), "sh", "-c", "sleep 1000"))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := p.await(ctx, func(context.Context) bool { return false }); !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v", err)
		}
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// gone waits until a process is no more, or waits for a parent to ask after it.
func gone(t *testing.T, number []byte) {
	t.Helper()
	path := "/proc/" + string(bytes.TrimSpace(number)) + "/stat"
	until(t, func() bool {
		stat, err := os.ReadFile(path)
		return err != nil || bytes.Contains(stat, []byte(") Z "))
	})
}

// until asks try again and again until it says yes.
func until(t *testing.T, try func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for limit := time.After(10 * time.Second); !try(); {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatal("it did not happen within 10s")
		}
	}
}
