package engine

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Reach has the engine reach a port of this machine's loopback at the same address: a relay
// of the test's own listens in its network namespace.
func (e *Engine) Reach(t testing.TB, port int) {
	t.Helper()
	pid := e.cmd.Process.Pid
	if out, err := exec.Command("nsenter", "-t", fmt.Sprint(pid), "-n", "ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		t.Fatalf("the loopback of the engine: %v: %s", err, out)
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	type opened struct {
		net.Listener
		err error
	}
	made := make(chan opened)
	go func() {
		// On a thread that comes back: its end would be that of the processes that it has
		// started before. Where it cannot, it has to end.
		runtime.LockOSThread()
		own, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			made <- opened{nil, err}
			return
		}
		defer func() {
			if unix.Setns(int(own.Fd()), unix.CLONE_NEWNET) == nil {
				runtime.UnlockOSThread()
			}
			_ = own.Close()
		}()
		ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
		if err != nil {
			made <- opened{nil, err}
			return
		}
		defer ns.Close()
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			made <- opened{nil, err}
			return
		}
		l, err := net.Listen("tcp", address)
		made <- opened{l, err}
	}()
	l := <-made
	if l.err != nil {
		t.Fatal(l.err)
	}
	var work sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		work.Wait()
	})
	work.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() {
				defer in.Close()
				out, err := net.Dial("tcp", address)
				if err != nil {
					return
				}
				defer out.Close()
				go func() { // ends with either connection
					_, _ = io.Copy(out, in)
					_ = out.(*net.TCPConn).CloseWrite()
				}()
				_, _ = io.Copy(in, out)
			})
		}
	})
}
