package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// cgroups are those that this process may make. Of version 2 where it is delegated; the
// pids of version 1 where this is root and they are all there is.
type cgroups struct {
	v2          string // directory in which groups are made; "" for none
	controllers []string
	pids        string // of version 1; "" for none
	made        atomic.Int64
}

// group is the one of a sandbox.
type group struct {
	dir               string
	v2                bool   // it is of version 2
	home              string // of version 1: the directory of this process's own
	memory, pids, cpu bool   // what it holds
}

// findCgroups looks for cgroups that are this process's to make.
func findCgroups() *cgroups {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return &cgroups{}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return &cgroups{}
	}
	v2, pids := cgroupPaths(string(own), string(mounts))
	g := &cgroups{}
	if v2 != "" && delegated(v2) {
		g.enable(v2)
	}
	if g.v2 == "" && pids != "" && os.Geteuid() == 0 && unix.Access(pids, unix.W_OK) == nil {
		g.pids = pids
	}
	for _, dir := range []string{g.v2, g.pids} {
		if dir != "" {
			sweep(dir)
		}
	}
	return g
}

// sweep removes the groups of managers that were killed. One with processes stays.
func sweep(dir string) {
	groups, _ := filepath.Glob(filepath.Join(dir, "weir-*-*")) // the pattern is right
	for _, group := range groups {
		var pid, n int
		if _, err := fmt.Sscanf(filepath.Base(group), "weir-%d-%d", &pid, &n); err == nil && errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			_ = unix.Rmdir(group)
		}
	}
}

// cgroupPaths finds the directories of this process's cgroup: of version 2, and of the pids
// of version 1. own and mounts are /proc/self/cgroup and /proc/self/mountinfo.
func cgroupPaths(own, mounts string) (v2, pids string) {
	place := func(match func(kind, options string) bool, path string) string {
		for line := range strings.Lines(mounts) {
			before, after, ok := strings.Cut(line, " - ")
			fields, rest := strings.Fields(before), strings.Fields(after)
			if ok && len(fields) > 4 && len(rest) > 2 && match(rest[0], rest[2]) {
				return filepath.Join(fields[4], path)
			}
		}
		return ""
	}
	for line := range strings.Lines(own) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(parts) < 3:
		case parts[0] == "0":
			v2 = place(func(kind, _ string) bool { return kind == "cgroup2" }, parts[2])
		case parts[1] == "pids":
			pids = place(func(kind, options string) bool {
				return kind == "cgroup" && slices.Contains(strings.Split(options, ","), "pids")
			}, parts[2])
		}
	}
	return v2, pids
}

// delegated says whether a cgroup of version 2 is this process's to divide: it is the user's
// own, or systemd says so, or it is the root of all.
func delegated(dir string) bool {
	info, err := os.Stat(dir)
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(stat.Uid) != os.Geteuid() {
		return false
	}
	if stat.Uid != 0 {
		return true
	}
	for _, name := range []string{"trusted.delegate", "user.delegate"} {
		var b [2]byte
		if n, err := unix.Getxattr(dir, name, b[:]); err == nil && string(b[:n]) == "1" {
			return true
		}
	}
	_, err = os.Stat(filepath.Join(dir, "cgroup.type")) // which the root does not have
	return errors.Is(err, os.ErrNotExist)
}

// enable has groups made in a cgroup of version 2. Its own processes go into a group beside
// theirs first: one that has groups with controllers has no processes of its own.
func (g *cgroups) enable(dir string) {
	has := readFields(filepath.Join(dir, "cgroup.controllers"))
	if !slices.Contains(has, "memory") || !slices.Contains(has, "pids") {
		return
	}
	want := "+memory +pids"
	if slices.Contains(has, "cpu") {
		want += " +cpu"
	}
	control := filepath.Join(dir, "cgroup.subtree_control")
	if enabled := readFields(control); !slices.Contains(enabled, "memory") || !slices.Contains(enabled, "pids") {
		if write(control, want) != nil { // there are processes: ours, it may be
			beside := filepath.Join(dir, "weir-manager")
			if err := os.Mkdir(beside, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
				return
			}
			if write(filepath.Join(beside, "cgroup.procs"), strconv.Itoa(os.Getpid())) != nil {
				return
			}
			if write(control, want) != nil { // and somebody else's
				_ = write(filepath.Join(dir, "cgroup.procs"), strconv.Itoa(os.Getpid()))
				_ = os.Remove(beside)
				return
			}
		}
	}
	g.v2, g.controllers = dir, readFields(control)
}

// group makes the group of a sandbox. It returns nil where none can be made.
func (g *cgroups) group(c *Config) *group {
	name := fmt.Sprintf("weir-%d-%d", os.Getpid(), g.made.Add(1))
	var made *group
	var settings map[string]string
	switch {
	case g.v2 != "":
		settings = g.settings(c)
		made = &group{dir: filepath.Join(g.v2, name), v2: true, memory: true, pids: true, cpu: settings["cpu.max"] != ""}
	case g.pids != "" && c.Processes > 0:
		settings = map[string]string{"pids.max": strconv.Itoa(c.Processes + ofHelper)}
		made = &group{dir: filepath.Join(g.pids, name), home: g.pids, pids: true}
	default:
		return nil
	}
	if err := os.Mkdir(made.dir, 0o755); err != nil {
		return nil
	}
	if !made.set(settings) {
		made.close()
		return nil
	}
	return made
}

// settings are those of a group of version 2.
func (g *cgroups) settings(c *Config) map[string]string {
	all := map[string]string{}
	if c.Memory > 0 {
		all["memory.max"] = strconv.FormatInt(c.Memory, 10)
		all["memory.swap.max"], all["memory.oom.group"] = "0", "1"
	}
	if c.Processes > 0 {
		all["pids.max"] = strconv.Itoa(c.Processes + ofHelper)
	}
	if c.CPUs > 0 && slices.Contains(g.controllers, "cpu") {
		all["cpu.max"] = fmt.Sprintf("%d 100000", int64(c.CPUs*100000)) // of 100 ms
	}
	return all
}

// set writes the settings of a group, and says whether it holds them.
func (g *group) set(settings map[string]string) bool {
	for name, value := range settings {
		// Systems without swap have no memory.swap.max.
		if err := write(filepath.Join(g.dir, name), value); err != nil && name != "memory.swap.max" {
			return false
		}
	}
	return true
}

// start starts a command in the group, which holds it from its first instruction on. The
// kernel moves what runs already as well, but waits some 10 ms for all processors before that.
// It is called on a thread that runs nothing else meanwhile.
func (g *group) start(cmd *exec.Cmd) error {
	if g.v2 {
		dir, err := os.Open(g.dir)
		if err != nil {
			return err
		}
		defer dir.Close()
		var attr syscall.SysProcAttr
		if cmd.SysProcAttr != nil {
			attr = *cmd.SysProcAttr // which a second try has as it was
		}
		attr.UseCgroupFD, attr.CgroupFD = true, int(dir.Fd())
		cmd.SysProcAttr = &attr
		return cmd.Start()
	}
	// A child is where the thread is that starts it.
	if err := write(filepath.Join(g.dir, "tasks"), "0"); err != nil {
		return err
	}
	err := cmd.Start()
	// What has started has started, also where the thread stays in the group: the next start
	// takes it out of that.
	_ = write(filepath.Join(g.home, "tasks"), "0")
	return err
}

// put puts processes into the group.
func (g *group) put(pids []int) error {
	for _, pid := range pids {
		if err := write(filepath.Join(g.dir, "cgroup.procs"), strconv.Itoa(pid)); err != nil {
			return err
		}
	}
	return nil
}

// why says why the kernel ended a process of the group; "" when it did not.
func (g *group) why() string {
	if !g.v2 {
		return ""
	}
	fields := readFields(filepath.Join(g.dir, "memory.events"))
	for i := 0; i+1 < len(fields); i += 2 {
		if fields[i] == "oom_kill" && fields[i+1] != "0" {
			return ReasonMemory
		}
	}
	return ""
}

// close ends what is left in the group, also what the helper could not end, and removes it.
// What has just ended may be in it for a moment.
func (g *group) close() {
	_ = write(filepath.Join(g.dir, "pids.max"), "0") // nothing is made while it is ended
	_ = write(filepath.Join(g.dir, "cgroup.kill"), "1")
	for try := 0; try < 300 && errors.Is(unix.Rmdir(g.dir), unix.EBUSY); try++ {
		for _, field := range readFields(filepath.Join(g.dir, "cgroup.procs")) {
			// 0 is of another namespace.
			if pid, err := strconv.Atoi(field); err == nil && pid > 0 && pid != os.Getpid() {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func write(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

func readFields(path string) []string {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return strings.Fields(string(text))
}
