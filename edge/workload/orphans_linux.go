package workload

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// orphansWithin is how long processes of an earlier manager have to end by themselves, as
// their sandboxes end with it.
const orphansWithin = 2 * time.Second

// endOrphans ends what is left of servers that an earlier manager had: processes whose home
// is that of a workload that this one keeps.
func (k *Keeper) endOrphans() {
	homes := map[string]bool{}
	for _, w := range k.sorted() {
		if !w.unusable() {
			homes[filepath.Join(k.Paths.Workloads(), w.name, "home")] = true
		}
	}
	for until := time.Now().Add(orphansWithin); ; time.Sleep(20 * time.Millisecond) {
		left := processesWith(homes)
		if len(left) == 0 {
			return
		}
		if time.Now().After(until) {
			for _, pid := range left {
				k.Log.Warn("a process of an earlier manager is ended", "pid", pid)
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			return
		}
	}
}

// processesWith are the processes of this user whose HOME is one of some.
func processesWith(homes map[string]bool) (all []int) {
	if len(homes) == 0 {
		return nil
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
		for variable := range bytes.SplitSeq(environ, []byte{0}) {
			if home, ok := bytes.CutPrefix(variable, []byte("HOME=")); ok && homes[string(home)] {
				all = append(all, pid)
				break
			}
		}
	}
	return all
}
