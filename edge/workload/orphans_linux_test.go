package workload

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// A bubblewrap that waits for its parent, which is gone, is ended at once, and no other's.
func TestOrphanThatWaitsForEver(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	k := &Keeper{KeeperOptions: KeeperOptions{Paths: Paths{State: dir}, Log: slog.New(slog.DiscardHandler)}}
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(sleep)
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, bubblewrap)
	if err := os.WriteFile(program, text, 0o700); err != nil {
		t.Fatal(err)
	}
	start := func(name string) (ended chan struct{}) {
		home := filepath.Join(k.Paths.Workloads(), name, "home")
		if err := os.MkdirAll(home, 0o700); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(home)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		cmd := exec.Command(program, "600")
		cmd.Env, cmd.ExtraFiles = []string{}, []*os.File{f}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended = make(chan struct{})
		go func() {
			_ = cmd.Wait()
			close(ended)
		}()
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			<-ended
		})
		return ended
	}
	mine, other := start("mine"), start("other")
	began := time.Now()
	k.endOrphans([]string{"mine"})
	if took := time.Since(began); took >= orphansWithin {
		t.Errorf("it was waited for %s", took)
	}
	select {
	case <-mine:
	case <-time.After(10 * time.Second):
		t.Error("it still waits")
	}
	select {
	case <-other:
		t.Error("that of another workload was ended, too")
	default:
	}
}
