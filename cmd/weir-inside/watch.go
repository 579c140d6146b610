//go:build linux

package main

import (
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The pauses of a watcher before it starts the command again.
const (
	firstPause = 200 * time.Millisecond
	lastPause  = 30 * time.Second
	wellAfter  = time.Minute // after which a run counts as one that worked
)

// watch starts a command and waits for it and nothing else. It starts it again when it fails
// or is killed; a command that ends with 0 has ended. SIGTERM and SIGINT are passed on, and
// the watcher ends when the command has.
func watch(argv []string) int {
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(25)
	signals := make(chan os.Signal, 4)
	signal.Ignore(syscall.SIGPIPE)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	for pause := firstPause; ; {
		began := time.Now()
		pid, err := syscall.ForkExec(argv[0], argv, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}})
		if err != nil {
			fatal(argv[0] + ": " + err.Error())
		} else if code, end := wait(pid, signals); end {
			return code
		}
		if time.Since(began) >= wellAfter {
			pause = firstPause
		}
		select {
		case <-signals:
			return 0
		case <-time.After(pause):
		}
		pause = min(2*pause, lastPause)
	}
}

// wait waits for the command, and says whether the watcher ends with it.
func wait(pid int, signals <-chan os.Signal) (code int, end bool) {
	done := make(chan unix.WaitStatus)
	go func() {
		var status unix.WaitStatus
		for {
			if _, err := unix.Wait4(pid, &status, 0, nil); err != unix.EINTR {
				break
			}
		}
		done <- status
	}()
	for {
		select {
		case s := <-signals:
			end = true
			_ = unix.Kill(pid, s.(syscall.Signal))
		case status := <-done:
			if status.Signaled() {
				return 128 + int(status.Signal()), end
			}
			return status.ExitStatus(), end || status.ExitStatus() == 0
		}
	}
}
