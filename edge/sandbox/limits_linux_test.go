package sandbox

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/weir-edge/weir/edge/edgetest/need"
)

// TestV24 has a server take all that it can of files, of memory on disk, of memory and of
// processes, as root and as nobody. It alone ends, and another sandbox goes on.
func TestV24(t *testing.T) {
	asNobody(t)
	m := machine(t)
	m.watch.every = 100 * time.Millisecond
	for _, grade := range []Grade{Bwrap, Landlock, None} {
		t.Run(string(grade), func(t *testing.T) {
			grades(t, m, grade)
			other := startIn(t, openBox(t, m, config(t, grade, "echo")))
			defer func() {
				go func() { _, _ = other.Stdin().Write([]byte("x\n")) }()
				if _, err := io.ReadFull(other.Stdout(), make([]byte, 2)); err != nil {
					t.Errorf("the other sandbox: %v", err)
				}
			}()
			c := config(t, grade, "files:100000")
			c.Files = 500
			got, _ := said(t, openBox(t, m, c))
			if !strings.HasPrefix(got["files:100000"], "refused: after 49") || !strings.HasSuffix(got["files:100000"], "too many open files") {
				t.Errorf("files: %q", got["files:100000"])
			}
			if grade == Bwrap {
				for _, dir := range []string{"/tmp", "/run", "/dev/shm"} {
					try := "write:" + dir + "/x,10737418240"
					got, _ := said(t, openBox(t, m, config(t, grade, try)))
					if !strings.HasSuffix(got[try], "no space left on device") {
						t.Errorf("%s: %q", try, got[try])
					}
				}
			}
			c = config(t, grade, "memory:1073741824")
			c.Memory = 64 << 20
			ends(t, m, c, ReasonMemory)
			c.Command = []string{probe(t), "memfd:268435456"} // which no process has mapped
			ends(t, m, c, ReasonMemory)
			if grade == Bwrap && os.Geteuid() != 0 || m.groups().pids != "" {
				// The kernel refuses one more.
				c = config(t, grade, "processes:200")
				c.Processes = 40
				s := openBox(t, m, c)
				got, _ := said(t, s)
				if !strings.HasSuffix(got["processes:200"], "resource temporarily unavailable") {
					t.Errorf("processes: %q", got["processes:200"])
				}
				c.Command = []string{probe(t), "bomb"}
				s = openBox(t, m, c)
				p := startIn(t, s)
				all := descendants(s.cmd.Process.Pid)
				for deadline := time.Now().Add(10 * time.Second); len(all) < 20 && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
					all = descendants(s.cmd.Process.Pid)
				}
				if n := len(all); n > c.Processes+ofHelper+2 || n < 20 {
					t.Errorf("%d processes", n)
				}
				began := time.Now()
				p.Kill()
				if exit := p.Wait(); exit.Code != -1 || time.Since(began) > 3*time.Second {
					t.Errorf("%+v after %v", exit, time.Since(began))
				}
				s.Close()
				bombs(t, c.Command[0])
				return
			}
			c = config(t, grade, "processes:150")
			c.Processes = 40
			ends(t, m, c, ReasonProcesses)
		})
	}
}

// bombs waits until no process of a bomb is left, on the whole machine.
func bombs(t *testing.T, program string) {
	t.Helper()
	var left []string
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		left = nil
		for _, p := range readProcesses() {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid))
			if err == nil && string(text) == program+"\x00bomb\x00" {
				left = append(left, strconv.Itoa(p.pid))
			}
		}
		if len(left) == 0 {
			return
		}
	}
	t.Errorf("%d processes of the bomb are left: %v", len(left), left)
}

// ends starts a server that is ended for a reason.
func ends(t *testing.T, m *Machine, c Config, reason string) {
	t.Helper()
	s := openBox(t, m, c)
	p := startIn(t, s)
	began := time.Now()
	if exit := p.Wait(); exit != (Exit{Code: -1, Signal: "killed", Reason: reason}) {
		out, _ := io.ReadAll(p.Stdout())
		t.Errorf("%+v: %s", exit, out)
	}
	s.Close()
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("after %v", took)
	}
}

// TestReadProcesses reads what this process uses.
func TestReadProcesses(t *testing.T) {
	all := readProcesses()
	i := slices.IndexFunc(all, func(u usage) bool { return u.pid == os.Getpid() })
	if i < 0 {
		t.Fatal("this process is not there")
	}
	if me := all[i]; me.parent != os.Getppid() || me.tasks < 2 || me.memory < 1<<20 || me.memory > 1<<33 {
		t.Errorf("%+v", me)
	}
}

// TestUnmapped counts a file in memory once, whoever has it open and however often it is mapped, and
// with it those that are not mapped.
func TestUnmapped(t *testing.T) {
	const size = 64 << 20 // more than what else changes
	file := func(size int) int {
		t.Helper()
		fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		for range size >> 20 {
			if _, err := unix.Write(fd, make([]byte, 1<<20)); err != nil {
				t.Fatal(err)
			}
		}
		return fd
	}
	const none = 1 << 40 // a limit that nothing is above
	now := func(limit int64) int64 {
		me := slices.DeleteFunc(readProcesses(), func(u usage) bool { return u.pid != os.Getpid() })
		return taken(me, limit)
	}
	is := func(what string, got, want int64) {
		t.Helper()
		if got < want-16<<20 || got > want+16<<20 {
			t.Errorf("%s: %d MiB, want %d", what, got>>20, want>>20)
		}
	}
	debug.FreeOSMemory() // what earlier tests left would be given back during this one
	before := now(none)
	fd := file(size)
	again, err := unix.Dup(fd)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(again)
	is("a file", now(none)-before, size)
	for range 4 {
		b, err := unix.Mmap(fd, 0, size, unix.PROT_READ, unix.MAP_SHARED|unix.MAP_POPULATE)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Munmap(b) }()
	}
	is("mapped four times, below the limit", now(none)-before, 4*size)
	is("mapped four times, above it", now(before+2*size)-before, size)
	is("far above it", now((before+4*size)/(maxShared+1))-before, 4*size)
	file(3 * size)
	is("with one that is not mapped", now(before+2*size)-before, 4*size)
}

// TestSharedMemory: a server whose processes share what they have, as after a fork, is not ended for
// having it as often as there are processes.
func TestSharedMemory(t *testing.T) {
	m := machine(t)
	for _, grade := range []Grade{Bwrap, Landlock} {
		grades(t, m, grade)
		c := config(t, grade)
		c.Memory = 160 << 20
		c.Command = []string{"/bin/sh", "-c", "x=$(head -c 40000000 /dev/zero | tr '\\0' x); exec 3<&0; for i in 1 2 3 4 5 6; do (read y <&3) & done; echo ready; read y"}
		s := openBox(t, m, c)
		p := startIn(t, s)
		if _, err := p.Stdout().Read(make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
		m.watch.add(s, bounds{memory: true}) // a cgroup may hold it here
		m.watch.look()
		sum, within := int64(0), descendants(s.cmd.Process.Pid)
		for _, u := range readProcesses() {
			if slices.Contains(within, u.pid) {
				sum += u.memory
			}
		}
		if sum < c.Memory || s.HasEnded() {
			t.Errorf("%s: ended %v, with %d MiB where each counts all", grade, s.HasEnded(), sum>>20)
		}
	}
}

// TestEndedMemory: a process that ends during a look has nothing any more, waited for or not; one that
// hides what it shares counts in full.
func TestEndedMemory(t *testing.T) {
	asNobody(t)
	cmd := exec.Command("true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	if err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	const none, has = 1 << 23, 64 << 10 // no process has so high a number
	ended := []usage{{pid: cmd.Process.Pid, memory: has}, {pid: none, memory: has}}
	if got := taken(ended, has); got != 0 {
		t.Errorf("%d bytes of processes that have ended", got)
	}
	if got := taken(append(ended, usage{pid: 1, memory: has}), has); got != has && os.Geteuid() != 0 {
		t.Errorf("%d bytes of one that hides them, want %d", got, has)
	}
}

// TestMemoryForMoments: a server that has too much for a moment alone, as by a child, is not ended.
func TestMemoryForMoments(t *testing.T) {
	m := machine(t)
	grades(t, m, Landlock)
	m.groups = func() *cgroups { return &cgroups{} } // the kernel would end it
	m.watch.every = time.Hour
	c := config(t, Landlock)
	c.Memory = 20 << 20
	c.Command = []string{"/bin/sh", "-c", "exec 3<&0; (x=$(head -c 40000000 /dev/zero | tr '\\0' x); echo much; read y <&3); echo less; read y"}
	s := openBox(t, m, c)
	p := startIn(t, s)
	says := func(want string) {
		t.Helper()
		got := make([]byte, len(want))
		if _, err := io.ReadFull(p.Stdout(), got); err != nil || string(got) != want {
			t.Fatalf("%q, %v", got, err)
		}
	}
	says("much\n")
	looks := 0
	m.watch.pause = func() {
		looks++
		_, _ = p.Stdin().Write([]byte("\n"))
		says("less\n")
	}
	m.watch.look()
	if looks != 1 || s.HasEnded() {
		t.Errorf("%d second looks, ended %v", looks, s.HasEnded())
	}
}

// TestCgroups divides a cgroup of version 2 that is a directory of plain files: what is
// written there is what the kernel would be told.
func TestCgroups(t *testing.T) {
	base := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(base, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(base, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(base, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	put("cgroup.controllers", "cpu memory pids\n")
	put("cgroup.subtree_control", "")
	g := &cgroups{}
	g.enable(base)
	if g.v2 != base || read("cgroup.subtree_control") != "+memory +pids +cpu" {
		t.Fatalf("%+v, %q", g.v2, read("cgroup.subtree_control"))
	}
	g.controllers = []string{"memory", "pids", "cpu"}
	// The kernel makes a group's files with it.
	name := fmt.Sprintf("weir-%d-1", os.Getpid())
	files := []string{"memory.max", "memory.swap.max", "memory.oom.group", "pids.max", "cpu.max", "cgroup.procs", "memory.events"}
	made := &group{dir: filepath.Join(base, name), v2: true}
	for _, f := range files {
		put(filepath.Join(name, f), "")
	}
	c := Config{Memory: 5 << 20, Processes: 10, CPUs: 1.5}
	settings := g.settings(&c)
	if !made.set(settings) || made.put([]int{4711}) != nil {
		t.Fatal("not filled")
	}
	for file, want := range map[string]string{"memory.max": "5242880", "memory.swap.max": "0", "memory.oom.group": "1", "pids.max": "42", "cpu.max": "150000 100000", "cgroup.procs": "4711"} {
		if got := read(filepath.Join(name, file)); got != want {
			t.Errorf("%s: %q, want %q", file, got, want)
		}
	}
	if got := made.why(); got != "" {
		t.Errorf("why: %q", got)
	}
	put(filepath.Join(name, "memory.events"), "low 0\nhigh 0\nmax 12\noom 1\noom_kill 3\n")
	if got := made.why(); got != ReasonMemory {
		t.Errorf("why: %q", got)
	}
	// One that has no controllers is left alone.
	put("cgroup.controllers", "hugetlb\n")
	g = &cgroups{}
	g.enable(base)
	if g.v2 != "" || g.group(&c) != nil {
		t.Errorf("%+v", g.v2)
	}
}

// TestCgroupPaths finds where this process's cgroups are.
func TestCgroupPaths(t *testing.T) {
	const hybrid = `30 29 0:26 / /sys/fs/cgroup/pids rw,relatime shared:9 - cgroup cgroup rw,pids
31 29 0:27 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
`
	const unified = `30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate
`
	for _, c := range []struct{ own, mounts, v2, pids string }{
		{"8:pids:/a\n0::/b\n", hybrid, "/sys/fs/cgroup/unified/b", "/sys/fs/cgroup/pids/a"},
		{"0::/user.slice/x.service\n", unified, "/sys/fs/cgroup/user.slice/x.service", ""},
		{"", unified, "", ""},
		{"nonsense\n", "nonsense - \n", "", ""},
	} {
		if v2, pids := cgroupPaths(c.own, c.mounts); v2 != c.v2 || pids != c.pids {
			t.Errorf("%q: %q, %q", c.own, v2, pids)
		}
	}
}

// TestCgroupStart starts a program in a group of each version that is here, and asks it where it
// is: it is held from its first instruction on. The thread that started it comes back.
func TestCgroupStart(t *testing.T) {
	need.Of(t, os.Geteuid() == 0, "root")
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	v2, pids := cgroupPaths(string(own), string(mounts))
	tried := 0
	for _, g := range []*group{{dir: v2, v2: true}, {dir: pids, home: pids}} {
		if g.dir == "" || unix.Access(g.dir, unix.W_OK) != nil {
			continue
		}
		name := fmt.Sprintf("weir-%d-start", os.Getpid())
		g.dir = filepath.Join(g.dir, name)
		if err := os.Mkdir(g.dir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(g.close)
		m := NewMachine(t.TempDir())
		t.Cleanup(m.Close)
		cmd := exec.Command("cat", "/proc/self/cgroup")
		cmd.SysProcAttr = &syscall.SysProcAttr{}
		var where strings.Builder
		cmd.Stdout = &where
		if err := m.spawn(func() error { return g.start(cmd) }); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(where.String(), name); n != 1 {
			t.Errorf("version 2 %v: it was in\n%s", g.v2, where.String())
		}
		if left := readFields(filepath.Join(g.dir, "cgroup.procs")); len(left) != 0 {
			t.Errorf("version 2 %v: %v are left in the group", g.v2, left)
		}
		tried++
		if g.v2 {
			continue
		}
		// A command that has started has, also where its thread cannot come back: it would be
		// started a second time.
		lost := &group{dir: g.dir, home: t.TempDir() + "/gone"}
		cmd = exec.Command("true")
		if err := m.spawn(func() error { return lost.start(cmd) }); err != nil {
			t.Errorf("it is told as not started: %v", err)
		} else if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
		if err := m.spawn(func() error { return write(filepath.Join(pids, "tasks"), "0") }); err != nil {
			t.Error(err)
		}
	}
	need.Of(t, tried > 0, "a cgroup in which groups can be made")
}

// TestCgroupStartRefused opens a sandbox where the system call is refused that starts a process in
// a group: it is put there before a server runs.
func TestCgroupStartRefused(t *testing.T) {
	const inside = "WEIR_TEST_CLONE3_REFUSED"
	if os.Getenv(inside) == "" {
		need.Of(t, os.Geteuid() == 0, "root")
		cmd := exec.Command("/proc/self/exe", "-test.run", "^TestCgroupStartRefused$", "-test.v", "-test.count=1")
		cmd.Env = append(os.Environ(), inside+"=1")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	own, _ := os.ReadFile("/proc/self/cgroup")
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	v2, _ := cgroupPaths(string(own), string(mounts))
	if v2 == "" || unix.Access(v2, unix.W_OK) != nil {
		return // there is none to start in
	}
	refuse(t, unix.SYS_CLONE3)
	m := machine(t)
	m.groups = func() *cgroups { return &cgroups{v2: v2} }
	c := config(t, None, "echo")
	c.Memory, c.Processes = -1, -1 // which need controllers
	s := openBox(t, m, c)
	if s.group == nil {
		t.Fatal("there is no group")
	}
	if in := readFields(filepath.Join(s.group.dir, "cgroup.procs")); !slices.Equal(in, []string{strconv.Itoa(s.cmd.Process.Pid)}) {
		t.Errorf("%v are in the group, want the helper, %d", in, s.cmd.Process.Pid)
	}
}

// refuse has the kernel refuse a system call to all threads of this process.
func refuse(t *testing.T, call uint32) {
	t.Helper()
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // its number
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: call, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	f := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	if _, _, err := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&f))); err != 0 {
		t.Fatal(err)
	}
}

// TestCgroupPids has the kernel hold a group of version 1 to its processes, where there is one.
func TestCgroupPids(t *testing.T) {
	m := machine(t)
	g := m.groups()
	if g.v2 != "" {
		return // TestV24 shows that of version 2
	}
	need.Of(t, g.pids != "", "a cgroup of this process's that can be divided")
	bwrapped(t, m)
	s := openBox(t, m, config(t, Bwrap, "echo"))
	if s.group == nil || !s.group.pids {
		t.Fatalf("group %+v", s.group)
	}
	dir := s.group.dir
	if got := readFields(filepath.Join(dir, "pids.max")); !slices.Equal(got, []string{"288"}) {
		t.Errorf("pids.max %q", got)
	}
	if n := len(readFields(filepath.Join(dir, "cgroup.procs"))); n != 2 {
		t.Errorf("%d processes, want bubblewrap and the helper", n)
	}
	s.Close()
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the group is left: %v", err)
	}
}
