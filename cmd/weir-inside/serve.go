//go:build linux

package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/weir-edge/weir/edge/sandbox/link"
)

// The helper's own descriptors.
const rulesetFD = 4

var linkFD = 3 // that it is started with, or connects

// helper serves one link.
type helper struct {
	setup  setup
	doors  *doors    // nil where nothing goes out
	beside *attached // nil where descriptors are handed over

	sending sync.Mutex

	mu   sync.Mutex         // also held while a process is started, and while one is reaped
	ids  map[uint32]*server // of those that have not been reaped
	pids map[int]*server    // the same
	more chan struct{}      // a process was started
}

// server is a process that the manager asked for.
type server struct {
	id     uint32
	pid    int
	became chan bool // whether it became the server, as the manager has been told
}

// serveLink does what the manager asks until the link ends.
func serveLink(s setup) int {
	// What forks has to stay: children of a sandbox without namespaces die with this thread.
	runtime.LockOSThread()
	debug.SetGCPercent(25)
	first := unix.Getpid() == 1
	doors, err := listen(s.ports) // with a capability that goes next, or as a container may
	if err != nil {
		fatal(err.Error())
		return 1
	}
	if err := harden(s.drop, !s.container); err != nil {
		fatal(err.Error())
		return 1
	}
	if !first {
		// Orphans come to the helper, as they do to the first process of a namespace.
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			fatal("orphans cannot be kept: " + err.Error())
			return 1
		}
	}
	// No server is given a descriptor of the helper's, whatever was left open for it.
	if err := unix.CloseRange(3, ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		for fd := 3; fd < 1024; fd++ { // before Linux 5.11
			unix.CloseOnExec(fd)
		}
	}
	s.guard = unix.Getpid()
	h := &helper{setup: s, doors: doors, ids: map[uint32]*server{}, pids: map[int]*server{}, more: make(chan struct{}, 1)}
	r := link.Reader{Receive: receive}
	if s.attached {
		if h.beside, err = attach(); err != nil {
			return 1
		}
		r.Receive = func(p, _ []byte) (int, int, int, error) {
			n, err := h.beside.frames.Read(p)
			return n, 0, 0, err
		}
	}
	go h.reap()
	if doors != nil {
		go h.admit()
	}
	h.send(&link.Message{Kind: link.Hello, A: link.Version, B: uint32(s.guard), C: uint32(unix.Getuid())})
	for {
		m, fds, err := r.Next()
		if err != nil || len(fds) > 0 {
			break // the manager is gone, or is none
		}
		h.do(&m)
	}
	if !first {
		killAll()
	}
	return 0 // and with the first process of a namespace goes everything in it
}

// connectLink connects to the socket of a link.
func connectLink(path string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return err
	}
	linkFD = fd
	return nil
}

// mounted looks whether what is mounted is what the manager has judged: a path inside, a
// device and a file for each. Between that and the engine's mount a path may have come to lead
// elsewhere.
func mounted(all []string) error {
	for ; len(all) > 0; all = all[3:] {
		if len(all) < 3 {
			return fail("mounts", unix.EINVAL)
		}
		var is unix.Stat_t
		if err := unix.Stat(all[0], &is); err != nil {
			return fail(all[0], err)
		}
		if strconv.FormatUint(is.Dev, 10) != all[1] || strconv.FormatUint(is.Ino, 10) != all[2] {
			return fail(all[0], unix.ESTALE)
		}
	}
	return nil
}

// harden makes the helper something that what it starts can neither read nor end. It comes
// before signals are ignored: the runtime reaches all threads by one. With its parent dies
// the first process of a namespace, unless that parent is a container engine's: its threads
// come and go, and the death of each would count.
func harden(drop, withParent bool) error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return err
	}
	if unix.Getpid() == 1 && withParent {
		// With bubblewrap, too. Elsewhere the helper has to outlive the manager: it ends
		// what is inside when the link ends.
		_ = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0)
	}
	if drop {
		if err := dropAll(); err != nil {
			return err
		}
	}
	ignoreSignals()
	return nil
}

// dropAll takes all capabilities from all threads, and keeps them from coming back with exec.
func dropAll() error {
	for c := uintptr(0); c < 64; c++ {
		// Without CAP_SETPCAP it stays in the bounding set, and no_new_privs keeps it there.
		if _, _, e := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0, 0, 0, 0); e != 0 {
			break
		}
	}
	if _, _, e := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); e != 0 {
		return e
	}
	_, _, _ = syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0, 0)
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if _, _, e := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&head)), uintptr(unsafe.Pointer(&none[0])), 0); e != 0 {
		return e
	}
	return nil
}

// sigaction is the kernel's on amd64 and arm64.
type sigaction struct {
	handler, flags, restorer uintptr
	mask                     uint64
}

// ignoreSignals ignores every signal but SIGCHLD, beside the runtime: what it is sent by
// strangers must reach no handler of it, and the runtime resets the signals that it handles
// to their default in what is forked.
func ignoreSignals() {
	ignore, byDefault := sigaction{handler: 1}, sigaction{}
	for n := uintptr(1); n <= 64; n++ {
		action := &ignore
		switch syscall.Signal(n) {
		case syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGCONT:
			continue // cannot be, or would stay ignored in what is forked
		case syscall.SIGCHLD:
			action = &byDefault
		}
		_, _, _ = syscall.RawSyscall6(unix.SYS_RT_SIGACTION, n, uintptr(unsafe.Pointer(action)), 0, 8, 0, 0)
	}
}

func receive(p, oob []byte) (n, oobn, flags int, err error) {
	for {
		n, oobn, flags, _, err = unix.Recvmsg(linkFD, p, oob, unix.MSG_CMSG_CLOEXEC)
		if err != unix.EINTR {
			return n, oobn, flags, err
		}
	}
}

// send sends m. An error is the end of the link, which its reader sees too, or that more
// descriptors are on their way than may be.
func (h *helper) send(m *link.Message, fds ...int) {
	h.sending.Lock()
	defer h.sending.Unlock()
	if h.beside != nil {
		_ = h.beside.send(m, fds)
		return
	}
	_ = link.Send(func(p, oob []byte) (int, error) {
		for {
			n, err := unix.SendmsgN(linkFD, p, oob, nil, unix.MSG_NOSIGNAL)
			if err != unix.EINTR {
				return n, err
			}
		}
	}, m, fds...)
}

// do does what the manager asks.
func (h *helper) do(m *link.Message) {
	switch m.Kind {
	case link.Start:
		h.start(m)
	case link.Signal:
		h.mu.Lock()
		if one := h.ids[m.ID]; one != nil {
			_ = unix.Kill(-one.pid, syscall.Signal(m.A))
		}
		h.mu.Unlock()
	case link.Kill:
		go h.killTree(m.ID)
	case link.Dial:
		go h.dial(m.ID, int(m.A))
	case link.Answer:
		if h.doors != nil {
			h.doors.answer(m)
		}
	}
}

// start starts a process. The manager hears of it when it has become the server, or cannot.
func (h *helper) start(m *link.Message) {
	s := h.setup
	s.tag = uint(m.ID)
	var p pipes
	if err := p.make(); err != nil {
		p.closeAll()
		h.send(&link.Message{Kind: link.Started, ID: m.ID, Text: "pipes: " + err.Error()})
		return
	}
	files := []uintptr{uintptr(p.stdin[0]), uintptr(p.stdout[1]), uintptr(p.stderr[1]), uintptr(p.status[1])}
	if s.landlock || s.scope {
		files = append(files, rulesetFD)
	}
	env := m.Env
	if home := os.Getenv("HOME"); s.container && home != "" && !slices.ContainsFunc(env, func(line string) bool { return strings.HasPrefix(line, "HOME=") }) {
		env = append(env, "HOME="+home) // which the engine knows of the image's user
	}
	attr := &syscall.ProcAttr{Env: env, Files: files, Sys: &syscall.SysProcAttr{Setsid: true}}
	if s.guard != 1 {
		attr.Sys.Pdeathsig = syscall.SIGKILL
	}
	one := &server{id: m.ID, became: make(chan bool, 1)}
	var err error
	h.mu.Lock()
	one.pid, err = syscall.ForkExec("/proc/self/exe", append([]string{"weir-inside", "exec", s.String(), m.Text}, m.Args...), attr)
	if err == nil {
		h.ids[m.ID], h.pids[one.pid] = one, one
	}
	h.mu.Unlock()
	p.closeTheirs()
	if err != nil {
		p.closeAll()
		h.send(&link.Message{Kind: link.Started, ID: m.ID, Text: "start: " + err.Error()})
		return
	}
	select {
	case h.more <- struct{}{}:
	default:
	}
	go func() {
		defer p.closeAll()
		if text := p.said(); text != "" {
			one.became <- false
			h.killTree(m.ID)
			h.send(&link.Message{Kind: link.Started, ID: m.ID, Text: text})
			return
		}
		h.send(&link.Message{Kind: link.Started, ID: m.ID}, p.stdin[1], p.stdout[0], p.stderr[0])
		one.became <- true
	}()
}

// pipes are those of one start: a server's streams, and what becomes of it.
type pipes struct{ stdin, stdout, stderr, status [2]int }

func (p *pipes) all() []*[2]int { return []*[2]int{&p.stdin, &p.stdout, &p.stderr, &p.status} }

func (p *pipes) make() error {
	for _, one := range p.all() {
		one[0], one[1] = -1, -1
	}
	for _, one := range p.all() {
		if err := unix.Pipe2(one[:], unix.O_CLOEXEC); err != nil {
			one[0], one[1] = -1, -1
			return err
		}
	}
	return nil
}

// closeTheirs closes what the process has.
func (p *pipes) closeTheirs() {
	for _, fd := range []*int{&p.stdin[0], &p.stdout[1], &p.stderr[1], &p.status[1]} {
		_ = unix.Close(*fd)
		*fd = -1
	}
}

func (p *pipes) closeAll() {
	for _, one := range p.all() {
		for i, fd := range one {
			if fd >= 0 {
				_ = unix.Close(fd)
			}
			one[i] = -1
		}
	}
}

// said waits for what the process says before exec: nothing, when it became the server.
func (p *pipes) said() string {
	fd := []unix.PollFd{{Fd: int32(p.status[0]), Events: unix.POLLIN}}
	end := time.Now().Add(10 * time.Second)
	for {
		n, err := unix.Poll(fd, int(time.Until(end).Milliseconds()))
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return "start: no exec within 10 s"
		}
		break
	}
	var b [512]byte
	n, _ := unix.Read(p.status[0], b[:])
	return string(b[:max(n, 0)])
}

// reap reaps whatever ends, servers and orphans.
func (h *helper) reap() {
	for {
		// A pid is taken only when it stands in no table any more: until then nobody
		// else can have it.
		pid, err := ended()
		if err == unix.ECHILD {
			<-h.more
			continue
		}
		if err != nil {
			continue
		}
		h.mu.Lock()
		var status unix.WaitStatus
		_, _ = unix.Wait4(pid, &status, 0, nil)
		one := h.pids[pid]
		delete(h.pids, pid)
		if one != nil {
			delete(h.ids, one.id)
		}
		h.mu.Unlock()
		if one != nil {
			go h.tell(one, status)
		}
	}
}

// tell tells the manager that a server has ended, after that it had started, and ends what
// the server left behind.
func (h *helper) tell(one *server, status unix.WaitStatus) {
	if <-one.became {
		m := link.Message{Kind: link.Ended, ID: one.id, A: uint32(status.ExitStatus())}
		if status.Signaled() {
			m.A, m.B = 0, uint32(status.Signal())
		}
		h.send(&m)
	}
	h.killTree(one.id)
}

// ended waits until a child has ended, and leaves it to be reaped.
func ended() (pid int, err error) {
	var info unix.Siginfo
	for {
		err = unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			break
		}
	}
	// The pid is the first of the union, which is aligned to 8 bytes.
	return int(*(*int32)(unsafe.Add(unsafe.Pointer(&info), 16))), err
}

// dial connects to a port of the sandbox's loopback.
func (h *helper) dial(id uint32, port int) {
	var err error
	for _, to := range []unix.Sockaddr{&unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}, &unix.SockaddrInet6{Port: port, Addr: [16]byte{15: 1}}} {
		var fd int
		if fd, err = connect(to); err == nil {
			h.send(&link.Message{Kind: link.Dialed, ID: id}, fd)
			_ = unix.Close(fd)
			return
		}
	}
	h.send(&link.Message{Kind: link.Dialed, ID: id, Text: err.Error()})
}

func connect(to unix.Sockaddr) (int, error) {
	family := unix.AF_INET
	if _, six := to.(*unix.SockaddrInet6); six {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, err
	}
	if err = unix.Connect(fd, to); err == unix.EINPROGRESS {
		if n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, 5000); n == 1 {
			var e int
			if e, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR); err == nil && e != 0 {
				err = syscall.Errno(e)
			}
		} else {
			err = unix.ETIMEDOUT
		}
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// killTree ends all that a process started, also what left its group and its session: they
// are told by a limit that they have from it. Where they are made faster than they end,
// everything inside ends.
func (h *helper) killTree(id uint32) {
	limit := tagLimit(uint(id))
	if killEach(800*time.Millisecond, func(pid int) bool { return tagOf(pid) == limit }) {
		return
	}
	if unix.Getpid() != 1 {
		killAll()
	}
	unix.Exit(1)
}

// killAll ends everything below the helper.
func killAll() { killEach(8*time.Second, func(int) bool { return true }) }

// killEach ends the processes below this one that f chooses, until there are none, and says
// whether it came so far in time. They are stopped before they are killed: what makes
// processes makes none while it is stopped. Twice none have to be found: one whose parent has
// gone while /proc was read hangs in the air for a moment.
func killEach(within time.Duration, f func(pid int) bool) bool {
	began := time.Now()
	for none := 0; none < 2; time.Sleep(2 * time.Millisecond) {
		if time.Since(began) > within {
			return false
		}
		none++
		var chosen []int
		running := false
		for _, p := range descendants(unix.Getpid()) {
			if f(p.pid) {
				chosen = append(chosen, p.pid)
				running = running || p.state != 'T'
			}
		}
		signal := unix.SIGKILL
		if running && time.Since(began) < within/2 { // what waits for a disk does not stop
			signal = unix.SIGSTOP
		}
		for _, pid := range chosen {
			none = 0
			_ = unix.Kill(pid, signal)
		}
	}
	return true
}

// descendants are the processes below one, without those that ended and wait to be reaped.
func descendants(of int) []process {
	all := map[int][]process{}
	for _, p := range processes() {
		all[p.parent] = append(all[p.parent], p)
	}
	var found []process
	for queue := []int{of}; len(queue) > 0; queue = queue[1:] {
		for _, p := range all[queue[0]] {
			queue = append(queue, p.pid)
			if p.state != 'Z' && p.state != 'X' {
				found = append(found, p)
			}
		}
	}
	return found
}
