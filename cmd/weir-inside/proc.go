//go:build linux

package main

import (
	"bytes"
	"strconv"

	"golang.org/x/sys/unix"
)

// process is one in /proc. One that is dead waits to be reaped, and may still be somebody's
// parent while /proc is read.
type process struct {
	pid, parent int
	state       byte // 'T' stopped, 'Z' or 'X' dead
}

// processes are those in /proc.
func processes() (all []process) {
	dir, err := unix.Open("/proc", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(dir)
	buf := make([]byte, 16<<10)
	for {
		n, err := unix.Getdents(dir, buf)
		if err != nil || n <= 0 {
			return all
		}
		_, _, names := unix.ParseDirent(buf[:n], -1, nil)
		for _, name := range names {
			pid, err := strconv.Atoi(name)
			if err != nil {
				continue
			}
			if parent, state := stat(name); state != 0 {
				all = append(all, process{pid, parent, state})
			}
		}
	}
}

// stat reads the parent and the state of a process; 0 for one that is gone.
func stat(pid string) (parent int, state byte) {
	fd, err := unix.Open("/proc/"+pid+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, 0
	}
	defer unix.Close(fd)
	var b [512]byte
	n, _ := unix.Read(fd, b[:])
	// PID (NAME) STATE PARENT: a name may have anything in it, also parentheses.
	at := bytes.LastIndexByte(b[:max(n, 0)], ')')
	if at < 0 {
		return 0, 0
	}
	fields := bytes.Fields(b[at+1 : n])
	if len(fields) < 2 {
		return 0, 0
	}
	parent, _ = strconv.Atoi(string(fields[1]))
	return parent, fields[0][0]
}

// tagLimit is the limit on message queues that marks what belongs to one process of a link:
// children have it from their parents and cannot raise it, and the filter keeps them from lowering it.
func tagLimit(tag uint) uint64 {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MSGQUEUE, &l) != nil || l.Max > 819200 {
		l.Max = 819200 // the kernel's default, in bytes
	}
	return l.Max - uint64(tag)%max(l.Max/2, 1)
}

// tagOf is the limit that a process has; 0 when it is gone.
func tagOf(pid int) uint64 {
	var l unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_MSGQUEUE, nil, &l); err != nil {
		return 0
	}
	return l.Max
}
