//go:build unix

package main

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/weir-edge/weir/edge/edgetest"
)

// SIGUSR1 has the logs opened anew, as often as it comes, until it is stopped.
func TestReopening(t *testing.T) {
	reopened := make(chan struct{}, 1)
	signals := make(chan os.Signal, 1)
	notifyReopen(signals)
	stop := reopening(signals, func() { reopened <- struct{}{} })
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

// A signal that comes before the edge serves ends the process no otherwise than later: here it
// waits for the sockets of another one.
func TestSignalsDuringTheStart(t *testing.T) {
	dir, err := os.MkdirTemp("", "weir") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	config, path := filepath.Join(dir, "weir.yaml"), filepath.Join(dir, "socket")
	if err := os.WriteFile(config, []byte(edgetest.Manifest(edgetest.NewServer(t, edgetest.Legacy))), 0o600); err != nil {
		t.Fatal(err)
	}
	before, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	p := run(t, "serve", "--listen", "127.0.0.1:0", "--admin-listen", "", "--hand-over", path, "-c", config)
	asks, err := before.Accept()
	if err != nil {
		t.Fatal(err)
	}
	p.signal(syscall.SIGHUP)
	p.signal(syscall.SIGUSR1)
	p.signal(syscall.SIGTERM)
	p.until("draining")
	asks.Close()
	if code := p.end(); code != exitFault || !strings.Contains(strings.Join(p.said, " "), "--hand-over: ") {
		t.Errorf("exit code %d: %q", code, p.said)
	}

	// A process before that says nothing keeps nobody from ending.
	p = run(t, "serve", "--listen", "127.0.0.1:0", "--admin-listen", "", "--hand-over", path, "-c", config)
	if asks, err = before.Accept(); err != nil {
		t.Fatal(err)
	}
	defer asks.Close()
	p.signal(syscall.SIGTERM)
	if code := p.end(); code != 143 || !strings.Contains(strings.Join(p.said, " "), "ended before it served") {
		t.Errorf("exit code %d: %q", code, p.said)
	}
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
	stop, err := watch(slog.New(slog.DiscardHandler), nil, []string{link}, func() []string { return nil }, func() { changed <- struct{}{} })
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

// tree is a folder of a test. Its methods end the test when they fail.
type tree struct {
	*testing.T
	top string
}

func (w tree) at(name string) string { return filepath.Join(w.top, name) }

func (w tree) try(errs ...error) {
	w.Helper()
	if err := errors.Join(errs...); err != nil {
		w.Fatal(err)
	}
}

// put writes a file, and the folders that it is in.
func (w tree) put(name string) {
	w.Helper()
	w.try(os.MkdirAll(filepath.Dir(w.at(name)), 0o755), os.WriteFile(w.at(name), []byte(time.Now().String()), 0o644))
}

// turn makes a link lead to a place, also one that led elsewhere.
func (w tree) turn(link, to string) {
	w.Helper()
	w.try(os.Symlink(to, w.at(link)+".new"), os.Rename(w.at(link)+".new", w.at(link)))
}

// watched is a configuration that is watched until the end of the test. Each reload says whether
// the file w.yaml of the folder d is there.
func (w tree) watched(config string) (reloads <-chan bool) {
	w.Helper()
	read := make(chan bool, 100)
	stop, err := watch(slog.New(slog.DiscardHandler), nil, []string{w.at(config)}, func() []string { return nil }, func() {
		_, err := os.Stat(w.at("d/w.yaml"))
		read <- err == nil
	})
	w.try(err)
	w.Cleanup(stop)
	return read
}

// Where links lead that stand before the configuration, or in its folder, is seen: the system
// tells nothing of it.
func TestWatchBehindLinks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, config string
		change       func(tree)
	}{
		{"the target of a link is written to", "w.yaml", func(w tree) { w.put("store/w.yaml") }},
		{"the target of a link is replaced", "w.yaml", func(w tree) {
			w.put("store/new")
			w.try(os.Rename(w.at("store/new"), w.at("store/w.yaml")))
		}},
		{"a link above a file leads elsewhere", "current/etc/w.yaml", func(w tree) { w.turn("current", "two") }},
		{"a link above a folder leads elsewhere", "current/etc", func(w tree) { w.turn("current", "two") }},
		{"behind it, a file is written to", "current/etc", func(w tree) { w.put("two/etc/w.yaml") }},
		{"the target of a link in a folder is written to", "one", func(w tree) { w.put("store/w.yaml") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := tree{t, t.TempDir()}
			w.put("one/etc/w.yaml")
			w.put("two/etc/w.yaml")
			w.put("store/w.yaml")
			w.turn("current", "one")
			w.turn("one/link.yaml", "../store/w.yaml")
			w.turn("w.yaml", "store/w.yaml")
			read := w.watched(c.config)
			if strings.HasPrefix(c.name, "behind it") {
				w.turn("current", "two")
				edgetest.Receive(t, read, "the link")
			}
			c.change(w)
			edgetest.Receive(t, read, "the change")
		})
	}
}

// A configuration that was gone, for a moment or longer, is read and watched again.
func TestWatchOfWhatWasGone(t *testing.T) {
	t.Parallel()
	for _, config := range []string{"d", "d/w.yaml"} {
		t.Run(config, func(t *testing.T) {
			t.Parallel()
			w := tree{t, t.TempDir()}
			w.put("d/w.yaml")
			read := w.watched(config)
			await := func(there bool) {
				t.Helper()
				edgetest.Until(t, "a look", func() bool { return edgetest.Receive(t, read, "a reload") == there })
			}
			w.try(os.RemoveAll(w.at("d")))
			await(false)
			w.put("d/w.yaml")
			await(true)
			w.try(os.Rename(w.at("d"), w.at("away")), os.Mkdir(w.at("d"), 0o755))
			await(false)
			w.put("d/w.yaml")
			await(true)
			w.try(os.Remove(w.at("d/w.yaml")))
			await(false)
		})
	}
}
