//go:build unix

package wasi

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

func namedPipe(path string) bool { return syscall.Mkfifo(path, 0o600) == nil }

// A directory that becomes a named pipe while it is opened is not opened, either: nobody would
// ever end the wait for its other end, not even the end of the instance.
func TestDirectoryBecomesPipe(t *testing.T) {
	dir := t.TempDir()
	name := func(s string) string { return filepath.Join(dir, s) }
	if err := os.Mkdir(name("x"), 0o700); err != nil || !namedPipe(name("pipe")) {
		t.Fatal(err)
	}
	stop, swapped := make(chan struct{}), make(chan struct{})
	go func() { // another process, which has the directory as well
		defer close(swapped)
		for {
			for _, move := range [][2]string{{"x", "dir"}, {"pipe", "x"}, {"x", "pipe"}, {"dir", "x"}} {
				if err := os.Rename(name(move[0]), name(move[1])); err != nil {
					t.Error(err)
					return
				}
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	p := play(t, Dir{Name: "/", Root: openRoot(t, dir), Writable: true})
	opened := make(chan struct{})
	go func() {
		defer close(opened)
		for end := time.Now().Add(time.Second); time.Now().Before(end); {
			if fd, n := p.open(0, "x", openDirectory, rightRead); n == success {
				p.call("fd_close", fd)
			}
		}
	}()
	select {
	case <-opened:
	case <-time.After(20 * time.Second):
		t.Error("it waits for the other end of a named pipe")
	}
	close(stop)
	<-swapped
	for { // whoever waits goes on
		if f, err := os.OpenFile(name("pipe"), os.O_RDWR|syscall.O_NONBLOCK, 0); err == nil {
			defer f.Close()
		}
		select {
		case <-opened:
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}
