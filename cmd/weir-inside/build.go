//go:build linux

package main

import (
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// maxPut bounds a file that put writes, in bytes.
const maxPut = 1 << 20

// hold is the first process of a container in which an image is built: it reaps orphans until
// its standard input ends, which the builder holds open. With it all ends that is left there.
func hold() int {
	ignoreSignals()
	go func() {
		var b [64]byte
		for {
			if n, err := unix.Read(0, b[:]); n <= 0 && err != unix.EINTR {
				os.Exit(0)
			}
		}
	}()
	for {
		pid, err := ended()
		if err != nil { // nobody is there, and the kernel tells nobody who comes
			time.Sleep(100 * time.Millisecond)
			continue
		}
		var status unix.WaitStatus
		_, _ = unix.Wait4(pid, &status, 0, nil)
	}
}

// put writes what comes on standard input to a new file, which its owner alone reads.
func put(path string) int {
	f, err := unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o400)
	if err != nil {
		fatal("put: " + err.Error())
		return 1
	}
	b := make([]byte, 32<<10)
	for size := 0; ; {
		n, err := unix.Read(0, b)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			fatal("put: " + err.Error())
			return 1
		case n == 0:
			return 0
		}
		if size += n; size > maxPut {
			fatal("put: the file is too large")
			return 1
		}
		for rest := b[:n]; len(rest) > 0; {
			done, err := unix.Write(f, rest)
			if err != nil && err != unix.EINTR {
				fatal("put: " + err.Error())
				return 1
			}
			rest = rest[max(done, 0):]
		}
	}
}

// quietWithin is how long processes may take to be gone that were killed.
const quietWithin = 10 * time.Second

// quiet ends every process but the first one and its own, so that nothing changes files any
// more. Whoever is killed forks no more: the kernel looks for a signal first.
func quiet() int {
	for until := time.Now().Add(quietWithin); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		_ = unix.Kill(-1, unix.SIGKILL)
		left := 0
		for _, p := range processes() {
			if p.pid != 1 && p.pid != os.Getpid() && p.state != 'Z' && p.state != 'X' {
				left++
			}
		}
		if left == 0 {
			return 0
		}
	}
	fatal("quiet: processes do not end")
	return 1
}

// wipe removes the directory that its own program is in, which the builder has put there.
func wipe() int {
	self, err := os.Executable()
	if err == nil {
		err = os.RemoveAll(filepath.Dir(self))
	}
	if err != nil {
		fatal("wipe: " + err.Error())
		return 1
	}
	return 0
}
