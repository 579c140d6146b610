package workload

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// orphansWithin is how long processes of an earlier manager have to end by themselves, as
// their sandboxes end with it.
const orphansWithin = 2 * time.Second

// endOrphans ends what is left of servers that ran before: processes whose home is that of
// one of some workloads.
func (k *Keeper) endOrphans(names []string) {
	homes := map[string]bool{}
	for _, name := range names {
		homes[filepath.Join(k.Paths.Workloads(), name, "home")] = true
	}
	for until := time.Now().Add(orphansWithin); ; time.Sleep(20 * time.Millisecond) {
		left, stuck := processesWith(homes)
		if len(left)+len(stuck) == 0 {
			return
		}
		if time.Now().After(until) {
			stuck, homes = append(stuck, left...), nil // and that is all
		}
		for _, pid := range stuck {
			k.Log.Warn("a process that was left over is ended", "pid", pid)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// processesWith are the processes of this user whose HOME is one of some, or that are about to
// make a sandbox with it; stuck are those of the latter that will never come to that.
func processesWith(homes map[string]bool) (all, stuck []int) {
	if len(homes) == 0 {
		return nil, nil
	}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		environ, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if err != nil {
			continue // of another user, or gone
		}
		if len(environ) == 0 {
			switch {
			case !waits(e.Name(), homes):
			case nameOf(parentOf(e.Name())) == bubblewrap:
				all = append(all, pid)
			default:
				stuck = append(stuck, pid)
			}
			continue
		}
		if homes[homeIn(environ)] {
			all = append(all, pid)
		}
	}
	return all, stuck
}

// homeIn is the HOME of an environment as the system shows it; "" for none.
func homeIn(environ []byte) string {
	for variable := range bytes.SplitSeq(environ, []byte{0}) {
		if home, ok := bytes.CutPrefix(variable, []byte("HOME=")); ok {
			return string(home)
		}
	}
	return ""
}

// resident is what the processes of workloads have in memory, in bytes, by name: those whose HOME is
// a workload's own.
func (k *Keeper) resident() map[string]int64 {
	all := map[string]int64{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		environ, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ")) // nothing of another user's
		dir, home := filepath.Split(homeIn(environ))
		if dir = filepath.Clean(dir); home != "home" || filepath.Dir(dir) != k.Paths.Workloads() {
			continue
		}
		text, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "statm"))
		if fields := strings.Fields(string(text)); len(fields) > 1 {
			pages, _ := strconv.ParseInt(fields[1], 10, 64)
			all[filepath.Base(dir)] += pages * int64(os.Getpagesize())
		}
	}
	return all
}

const bubblewrap = "bwrap"

// nameOf is what the system calls a process; "" for one that is gone.
func nameOf(pid string) string {
	name, _ := os.ReadFile(filepath.Join("/proc", pid, "comm"))
	return strings.TrimSuffix(string(name), "\n")
}

// parentOf is the parent of a process; "" for one that is gone.
func parentOf(pid string) string {
	text, _ := os.ReadFile(filepath.Join("/proc", pid, "status"))
	_, rest, _ := strings.Cut(string(text), "\nPPid:\t")
	parent, _, _ := strings.Cut(rest, "\n")
	return parent
}

// waits reports whether a process is the first of a sandbox of one of some homes, and is not
// inside yet. bubblewrap 0.8 has it wait for ever when its parent, which is bubblewrap as
// well, is killed just then: it reads from an eventfd that nobody else has.
func waits(pid string, homes map[string]bool) bool {
	if nameOf(pid) != bubblewrap {
		return false
	}
	files, _ := filepath.Glob(filepath.Join("/proc", pid, "fd", "*"))
	for _, file := range files {
		if path, err := os.Readlink(file); err == nil && homes[strings.TrimSuffix(path, " (deleted)")] {
			return true
		}
	}
	return false
}
