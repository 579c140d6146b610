//go:build unix

package main

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/weir-edge/weir/edge/edgetest"
)

// SIGUSR1 has the logs opened anew, as often as it comes, until it is stopped.
func TestReopening(t *testing.T) {
	reopened := make(chan struct{}, 1)
	stop := reopening(func() { reopened <- struct{}{} })
	for range 2 {
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		select {
		case <-reopened:
		case <-time.After(time.Minute):
			t.Fatal("nothing is opened anew")
		}
	}
	stop()
}

// A log beside manifests is none of them, also while it is written to.
func TestLogBesideManifests(t *testing.T) {
	dir := t.TempDir()
	for name, want := range map[string]bool{"weir.log": false, "nohup.out": false, "weir.yaml": true, "a.JSON": true, "ca.pem": true} {
		if got := matters(dir, fsnotify.Event{Name: filepath.Join(dir, name), Op: fsnotify.Write}); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if !matters(dir, fsnotify.Event{Name: filepath.Join(dir, "..data"), Op: fsnotify.Create}) {
		t.Error("a volume that is swapped is not seen")
	}
}

// A link to a folder is watched: what is in the folder, and where the link leads.
func TestWatchOfALink(t *testing.T) {
	top := t.TempDir()
	write := func(name string) {
		if err := errors.Join(os.MkdirAll(filepath.Join(top, name), 0o755), os.WriteFile(filepath.Join(top, name, "weir.yaml"), []byte(time.Now().String()), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	write("two")
	link := filepath.Join(top, "current")
	if err := os.Symlink("one", link); err != nil {
		t.Fatal(err)
	}
	changed := make(chan struct{}, 100)
	stop, err := watch(slog.New(slog.DiscardHandler), []string{link}, func() []string { return nil }, func() { changed <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	write("one")
	edgetest.Receive(t, changed, "an edit")
	if err := errors.Join(os.Symlink("two", link+".new"), os.Rename(link+".new", link)); err != nil {
		t.Fatal(err)
	}
	edgetest.Receive(t, changed, "the link that leads elsewhere")
	edgetest.Until(t, "an edit behind it", func() bool {
		write("two")
		select {
		case <-changed:
			return true
		case <-time.After(2 * settled):
			return false
		}
	})
}
