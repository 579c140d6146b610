package sandbox

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// watchEvery is how often the memory of sandboxes is looked at that no cgroup holds; above its limit it
// is looked at once more, after secondLook.
const (
	watchEvery = 2 * time.Second
	secondLook = 20 * time.Millisecond
)

// spawn starts the helper, or bubblewrap, in the cgroup of the sandbox, where it can have one,
// and says whether that holds it. Where the system calls that a start in a cgroup takes are
// refused, as in a container or by an old kernel, it starts outside of it.
func (s *Sandbox) spawn() (held bool, err error) {
	s.group = s.machine.groups().group(&s.config)
	if s.group != nil {
		plain := *s.cmd // a command is started once
		if err = s.machine.spawn(func() error { return s.group.start(s.cmd) }); err == nil {
			return true, nil
		}
		s.cmd = &plain
	}
	return false, s.machine.spawn(s.cmd.Start)
}

// limit holds a sandbox to its limits: by a cgroup what that can, and by looking the rest.
// held says that all its processes are in its cgroup by now.
func (s *Sandbox) limit(held bool) {
	group := s.group
	if group != nil && !held && group.put(s.processes()) != nil {
		group.close()
		group = nil
	}
	memory, processes := s.config.Memory > 0, s.config.Processes > 0
	if group != nil {
		memory, processes = memory && !group.memory, processes && !group.pids
		s.session.mu.Lock()
		s.session.why = group.why
		s.session.mu.Unlock()
	}
	if memory || processes {
		s.machine.watch.add(s, bounds{memory, processes})
	}
	if s.config.CPUs > 0 && (group == nil || !group.cpu) {
		s.note = join(s.note, s.config.Name+": --cpus is not held: it needs cgroup v2, delegated to this process: weir up --install has systemd do so")
	}
}

// processes are those of the sandbox before a server runs. Only bubblewrap has a child; to find
// it costs a look at every process of the machine.
func (s *Sandbox) processes() []int {
	if s.grade == Bwrap {
		return descendants(s.cmd.Process.Pid)
	}
	return []int{s.cmd.Process.Pid}
}

func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}

// bounds are what is looked at.
type bounds struct{ memory, processes bool }

// watcher looks at the processes of sandboxes, and ends one that has too much. It looks only
// while there is a sandbox to look at.
type watcher struct {
	every time.Duration
	pause func() // before a second look

	mu    sync.Mutex
	boxes map[*Sandbox]bounds
	stop  chan struct{} // of the loop; nil while there is none
}

func newWatcher(every time.Duration) *watcher {
	return &watcher{every: every, pause: func() { time.Sleep(secondLook) }, boxes: map[*Sandbox]bounds{}}
}

func (w *watcher) add(s *Sandbox, b bounds) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.HasEnded() {
		return
	}
	w.boxes[s] = b
	if w.stop == nil {
		w.stop = make(chan struct{})
		go w.run(w.stop)
	}
}

func (w *watcher) remove(s *Sandbox) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.boxes, s)
	if len(w.boxes) == 0 && w.stop != nil {
		close(w.stop)
		w.stop = nil
	}
}

func (w *watcher) run(stop <-chan struct{}) {
	tick := time.NewTicker(w.every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			w.look()
		case <-stop:
			return
		}
	}
}

// look ends the sandboxes that have too much. Memory is looked at twice: what ends during a look may
// count in full, and a child has its parent's between vfork and exec.
func (w *watcher) look() {
	w.mu.Lock()
	boxes := maps.Clone(w.boxes)
	w.mu.Unlock()
	again := map[*Sandbox]bounds{}
	for s, reason := range exceeding(boxes) {
		if reason == ReasonMemory {
			again[s] = bounds{memory: true}
		} else {
			s.end(reason)
		}
	}
	if len(again) == 0 {
		return
	}
	w.pause()
	for s, reason := range exceeding(again) {
		s.end(reason)
	}
}

// exceeding sums what each sandbox has, and says of which those have too much that do.
func exceeding(boxes map[*Sandbox]bounds) map[*Sandbox]string {
	if len(boxes) == 0 {
		return nil
	}
	reasons := map[*Sandbox]string{}
	children := map[int][]usage{}
	for _, p := range readProcesses() {
		children[p.parent] = append(children[p.parent], p)
	}
	for s, b := range boxes {
		tasks := 0
		all := []usage{{pid: s.cmd.Process.Pid}}
		for i := 0; i < len(all); i++ {
			for _, p := range children[all[i].pid] {
				tasks += p.tasks
				all = append(all, p)
			}
		}
		switch {
		case b.memory && taken(all[1:], s.config.Memory) > s.config.Memory:
			reasons[s] = ReasonMemory
		case b.processes && tasks > s.config.Processes+ofHelper:
			reasons[s] = ReasonProcesses
		}
	}
	return reasons
}

// maxShared is how many times its limit a sandbox may seem to have before it is asked how much of
// that its processes share: to ask, the kernel walks all of it.
const maxShared = 16

// taken are the bytes that processes have together, files in memory among them. Where that is above
// a limit, what several share, as after a fork, counts once.
func taken(all []usage, limit int64) int64 {
	var text [4 << 10]byte
	read := func(p usage, file string) []byte { return readStart(fmt.Sprintf("/proc/%d/%s", p.pid, file), text[:]) }
	kib := func(said []byte, field string) (n int64, err error) {
		_, rest, _ := bytes.Cut(said, []byte("\n"+field+":"))
		_, err = fmt.Sscan(string(rest), &n)
		return n, err
	}
	files := filesInMemory(all)
	var memory, mapped int64
	for _, p := range all {
		memory += p.memory
		if files > 0 {
			n, _ := kib(read(p, "status"), "RssShmem") // nothing of a process that has ended
			mapped += n << 10
		}
	}
	memory += max(0, files-mapped)
	if memory <= limit || memory/maxShared > limit {
		return memory
	}
	var shares int64
	mapped = 0
	for _, p := range all {
		rollup := read(p, "smaps_rollup")
		n, _ := kib(rollup, "Pss_Shmem")
		share, err := kib(rollup, "Pss")
		if err != nil {
			now, _ := parseUsage(p.pid, read(p, "stat"))
			share = min(p.memory, now.memory) >> 10 // of one that hides it, as above; nothing of one that has ended
		}
		shares, mapped = shares+share<<10, mapped+n<<10
	}
	return min(memory, shares+max(0, files-mapped))
}

// maxLooked is how many descriptors of one sandbox are looked at each time.
const maxLooked = 10_000

// filesInMemory are the bytes of files in memory (memfd_create(2)) that processes have open. What they
// have mapped of them is counted as theirs, too.
func filesInMemory(all []usage) (size int64) {
	var stat unix.Stat_t
	seen := map[[2]uint64]bool{}
	for left, i := maxLooked, 0; left > 0 && i < len(all); i++ {
		dir := fmt.Sprintf("/proc/%d/fd/", all[i].pid)
		open, _ := os.ReadDir(dir) // none of a process that has ended, or hides them
		for _, e := range open[:min(len(open), left)] {
			left--
			link, _ := os.Readlink(dir + e.Name()) // the system of another file may not answer
			if strings.HasPrefix(link, "/memfd:") && unix.Stat(dir+e.Name(), &stat) == nil && !seen[[2]uint64{stat.Dev, stat.Ino}] {
				seen[[2]uint64{stat.Dev, stat.Ino}] = true
				size += stat.Blocks * 512
			}
		}
	}
	return size
}

// usage is what /proc says of a process.
type usage struct {
	pid, parent, tasks int
	memory             int64 // bytes of it that are in memory
}

// readProcesses reads what all processes use. What cannot be read has ended.
func readProcesses() (all []usage) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1) // what was read before an error counts
	var buf [1 << 10]byte            // more than a line of stat has
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if u, ok := parseUsage(pid, readStart("/proc/"+name+"/stat", buf[:])); ok {
			all = append(all, u)
		}
	}
	return all
}

// readStart reads as much of a file's beginning as fits into a buffer; nothing of one that
// cannot be read. All of /proc is read every few seconds.
func readStart(path string, buf []byte) []byte {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, buf)
	if err != nil {
		return nil
	}
	return buf[:n]
}

// parseUsage reads /proc/PID/stat (proc_pid_stat(5)): PID (NAME) STATE PARENT …, where a name
// may have anything in it. It reports false for what is none.
func parseUsage(pid int, text []byte) (u usage, ok bool) {
	u.pid = pid
	i := 0
	for field := range bytes.FieldsSeq(text[bytes.LastIndexByte(text, ')')+1:]) {
		n, _ := strconv.ParseInt(string(field), 10, 64)
		switch i++; i {
		case 2:
			u.parent = int(n)
		case 18:
			u.tasks = int(n)
		case 22:
			u.memory = n * int64(os.Getpagesize())
			return u, true
		}
	}
	return u, false
}

// descendants are a process and all below it.
func descendants(of int) []int {
	children := map[int][]int{}
	for _, p := range readProcesses() {
		children[p.parent] = append(children[p.parent], p.pid)
	}
	all := []int{of}
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i]]...)
	}
	return all
}
