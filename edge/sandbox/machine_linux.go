package sandbox

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const onUnix = true

var errClosed = errors.New("the sandboxes of this workload are closed")

// Times of a start, and of an end.
const (
	greetTimeout = 10 * time.Second // from the start of a helper until it has greeted
	probeTimeout = 10 * time.Second
	tryAgain     = 10 * time.Second // after bubblewrap did not work
	endTimeout   = 10 * time.Second // from the end of a link until the helper is killed
)

// Machine is what the sandboxes of a process share: the helper, what this system can hold,
// and who looks after limits. It is safe for concurrent use.
type Machine struct {
	cache string
	watch *watcher

	abi     func() int // of Landlock; 0 for none
	groups  func() *cgroups
	spawner func() chan<- func()
	done    chan struct{}
	once    sync.Once

	mu       sync.Mutex // held while bubblewrap is tried
	bwrapAt  string     // its path, once it has worked
	bwrapErr error      // why it did not, when it was tried last
	tried    time.Time
}

// NewMachine returns the machine, with a directory for the helper. It looks at nothing
// before the first sandbox is opened.
func NewMachine(cache string) *Machine {
	m := &Machine{cache: cache, watch: newWatcher(watchEvery), done: make(chan struct{})}
	m.abi = sync.OnceValue(landlockABI)
	m.groups = sync.OnceValue(findCgroups)
	m.spawner = sync.OnceValue(m.newSpawner)
	return m
}

// Close releases what the machine has. All sandboxes have been closed before.
func (m *Machine) Close() { m.once.Do(func() { close(m.done) }) }

// newSpawner returns what has functions run on one thread that lives as long as the machine:
// a child whose parent's thread ends gets the signal that it asked for when its parent ends.
func (m *Machine) newSpawner() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for {
			select {
			case f := <-work:
				f()
			case <-m.done:
				return
			}
		}
	}()
	return work
}

// spawn has a start of a command done on the thread for it.
func (m *Machine) spawn(start func() error) error {
	err := make(chan error, 1)
	select {
	case m.spawner() <- func() { err <- start() }:
		return <-err
	case <-m.done:
		return errClosed
	}
}

// bwrap is the path of a bubblewrap that works here, or says why there is none. One that did
// not is tried again after a while: the machine may have been busy, or it was installed.
func (m *Machine) bwrap() (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.bwrapAt == "" && (m.tried.IsZero() || time.Since(m.tried) > tryAgain) {
		m.bwrapAt, m.bwrapErr = m.tryBwrap()
		m.tried = time.Now()
	}
	if m.bwrapAt == "" {
		return "", m.bwrapErr
	}
	return m.bwrapAt, nil
}

var errNoBwrap = errors.New("bubblewrap is not in PATH")

// tryBwrap looks whether bubblewrap makes a sandbox here, with all that one has.
func (m *Machine) tryBwrap() (string, error) {
	path, err := exec.LookPath("bwrap")
	if err != nil {
		return "", errNoBwrap
	}
	helper, err := Helper(m.cache)
	if err != nil {
		return "", err
	}
	home, err := os.MkdirTemp("", "weir-probe-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(home)
	c := Config{Name: "probe", Command: []string{"probe"}, Home: home}.withDefaults()
	v, err := m.view(&c)
	if err != nil {
		return "", err
	}
	defer v.close()
	cmd, err := bwrapCommand(path, helper, &c, v, "probe")
	if err != nil {
		return "", err
	}
	defer closeFiles(cmd.ExtraFiles)
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := m.spawn(cmd.Start); err != nil {
		return "", err
	}
	late := time.AfterFunc(probeTimeout, func() { _ = cmd.Process.Kill() })
	err = cmd.Wait()
	late.Stop()
	if err != nil {
		return "", fmt.Errorf("bubblewrap cannot make a sandbox here: %s", clean(cmp.Or(strings.Join(strings.Fields(said.String()), " "), err.Error())))
	}
	return path, nil
}

// choose decides which grade a sandbox has, and says what it lacks.
func (m *Machine) choose(c *Config) (Grade, string, error) {
	want := func(what, cause, next string) error { return &GradeError{c.Name, what, cause, next} }
	install := "install bubblewrap (apt-get install bubblewrap, dnf install bubblewrap)"
	grade := c.Grade
	lacks := ""
	if grade == Auto || grade == Bwrap {
		_, err := m.bwrap()
		var helper *HelperError
		switch {
		case err == nil && c.Network == Host && m.abi() < scopes:
			return Bwrap, c.Name + ": sandbox bwrap: not held: abstract sockets of this machine, as X11 may have one (Linux 6.12 holds them): --isolate-network keeps it from them", nil
		case err == nil:
			return Bwrap, "", nil
		case errors.As(err, &helper):
			return "", "", err
		case !errors.Is(err, errNoBwrap): // it is there
			install = "let users make namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns; in a chroot nobody may)"
		}
		if grade == Bwrap {
			return "", "", want("--sandbox bwrap", err.Error(), install+", or use --sandbox landlock")
		}
		lacks = err.Error()
	}
	if abi := m.abi(); grade != None && abi < 4 {
		cause := fmt.Sprintf("this kernel has Landlock of version %d, and 4 is needed (Linux 6.7)", abi)
		if grade == Landlock {
			return "", "", want("--sandbox landlock", cause, install+", or use --sandbox off")
		}
		grade, lacks = None, lacks+"; "+cause
	} else if grade != None {
		if c.Network == Closed && c.Port > 0 {
			return "", "", want("an HTTP server with the profile none", "the grade landlock refuses all sockets", install+", or use the profile network")
		}
		if c.Network == Profile && c.Isolate {
			return "", "", want("--isolate-network", "the grade landlock holds a server to no hosts"+after(lacks), install+", or use the profile none")
		}
		return Landlock, landlockNote(c, abi, lacks, install), nil
	}
	if c.Grade == None {
		lacks, install = "--sandbox off", "run it without --sandbox off to have it held"
	}
	if c.Isolate && c.Network != Host {
		return "", "", want("--isolate-network", "the grade none isolates nothing"+after(lacks), install)
	}
	return None, fmt.Sprintf("%s: sandbox none (%s): nothing is held, the server can do what its user can: %s", c.Name, lacks, install), nil
}

func after(cause string) string {
	if cause == "" {
		return ""
	}
	return " (" + cause + ")"
}

// landlockNote says in one line what the grade does not hold.
func landlockNote(c *Config, abi int, lacks, install string) string {
	var not []string
	switch c.Network {
	case Profile:
		not = append(not, "what its profile names (the network is open, loopback included)")
	case Host:
		not = append(not, "the network (it is open, loopback included)")
	}
	not = append(not, "modes and times of this user's files (also those of read-only mounts and those that are not mounted) and which paths there are", "processes of this user (they can be seen)")
	if abi < scopes {
		not = append(not, "signals to processes of this user, its own helper among them, and abstract sockets")
	}
	if lacks == "" {
		return fmt.Sprintf("%s: sandbox landlock: not held: %s", c.Name, strings.Join(not, "; "))
	}
	return fmt.Sprintf("%s: sandbox landlock (%s): not held: %s: %s", c.Name, lacks, strings.Join(not, "; "), install)
}

// Sandbox is an open one. Its methods are safe for concurrent use.
type Sandbox struct {
	config  Config
	grade   Grade
	note    string
	temp    string // what TMPDIR is
	session *session
	machine *Machine
	cmd     *exec.Cmd
	group   *group
	exited  chan struct{} // closed when cmd has been waited for
	said    string        // what it complained of, once exited is closed
	closing sync.Once
}

// Open opens a sandbox; no server runs in it yet. Its errors are a GradeError, a
// MountError, a HelperError, or what the system said.
func (m *Machine) Open(ctx context.Context, c Config) (*Sandbox, error) {
	// 1. What is asked for, which grade holds it, and what is seen inside.
	c = c.withDefaults()
	helper, err := Helper(m.cache)
	if err != nil {
		return nil, err
	}
	grade, note, v, err := m.judge(&c)
	if err != nil {
		return nil, err
	}
	defer v.close()
	// 2. Where it may write.
	s := &Sandbox{config: c, grade: grade, note: note, temp: "/tmp", machine: m, exited: make(chan struct{})}
	if grade != Bwrap {
		s.temp = c.Home + "/.tmp"
		if err := os.Mkdir(s.temp, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, fmt.Errorf("sandbox of %s: %w", c.Name, err)
		}
	}
	// 3. The helper, with one end of the link.
	ours, theirs, err := pair()
	if err != nil {
		return nil, err
	}
	s.cmd, err = m.command(grade, helper, &c, v, theirs)
	if err != nil {
		_, _ = ours.Close(), theirs.Close()
		return nil, fmt.Errorf("sandbox of %s: %w", c.Name, err)
	}
	said, theirSaid, err := os.Pipe()
	if err != nil {
		_ = ours.Close()
		closeFiles(s.cmd.ExtraFiles)
		return nil, fmt.Errorf("sandbox of %s: %w", c.Name, err)
	}
	s.cmd.Stderr = theirSaid
	held, err := s.spawn()
	closeFiles(s.cmd.ExtraFiles)
	// It is read at the end: what does not fit is lost, and nobody waits for a reader.
	_ = unix.SetNonblock(int(theirSaid.Fd()), true)
	_ = theirSaid.Close()
	if err != nil {
		_, _ = ours.Close(), said.Close()
		if s.group != nil {
			s.group.close()
		}
		return nil, startError(&c, err)
	}
	var passage Passage
	var ports []int
	if c.Network == Profile {
		passage, ports = openOutlet(c.Outlet)
	}
	s.session = newSession(ours, c.Name, passage, ports, func() { s.wait(said) })
	// 4. It greets, and is held to the limits before a server runs.
	ctx, cancel := context.WithTimeout(ctx, greetTimeout)
	defer cancel()
	if err := s.session.greet(ctx); err != nil {
		s.Close()
		return nil, fmt.Errorf("sandbox of %s: the helper did not start: %w: %s", c.Name, err, clean(s.said))
	}
	s.limit(held)
	if c.Opened != nil {
		c.Opened(s)
	}
	return s, nil
}

// Judge says what keeps a sandbox from being opened, by the errors of Open, and opens nothing.
// Its home and its port are not looked at: another one may have them until it is opened.
func (m *Machine) Judge(c Config) error {
	c = c.withDefaults()
	c.judged = true
	_, _, v, err := m.judge(&c)
	if err == nil {
		v.close()
	}
	return err
}

// judge looks at what a sandbox is to be: which grade holds it, what that lacks, and what is to be
// seen inside.
func (m *Machine) judge(c *Config) (grade Grade, note string, v *view, err error) {
	if err = c.check(); err != nil {
		return
	}
	if grade, note, err = m.choose(c); err != nil {
		return
	}
	if grade == None && c.Network == Closed || grade != Bwrap && c.Network == Profile {
		c.Network, c.opened = Host, true // as the note says
	}
	switch {
	case c.Network == Profile:
		err = c.avoid()
	case !c.judged && (grade != Bwrap || c.Network == Host):
		err = c.place()
	}
	if err != nil {
		return
	}
	if v, err = m.view(c); err != nil {
		return
	}
	if grade == Bwrap {
		err = v.placed(c.Home, c.Writable)
	} else {
		err = v.plain(grade, c.Writable)
	}
	if err != nil {
		v.close()
	}
	return
}

// startError says what keeps a helper from being started.
func startError(c *Config, err error) error {
	if errors.Is(err, unix.EACCES) {
		return &HelperError{fmt.Sprintf("sandbox of %s: the helper cannot be run: is its directory mounted noexec? %v", c.Name, err)}
	}
	return fmt.Errorf("sandbox of %s: %w", c.Name, err)
}

// command is what starts the helper with a link, which becomes its descriptor 3.
func (m *Machine) command(grade Grade, helper string, c *Config, v *view, link *os.File) (*exec.Cmd, error) {
	setup := "files=" + strconv.Itoa(max(c.Files, 0))
	switch grade {
	case Bwrap:
		path, err := m.bwrap()
		if err != nil {
			return nil, err
		}
		setup += ",filter=1,drop=1"
		if c.Network == Profile {
			setup += OutletSetup(c.Outlet, c.Published...) // its own port is another one: see Config.avoid
		}
		// The kernel counts processes of each user namespace, for all users but root.
		if c.Processes > 0 && os.Geteuid() != 0 && kernelAtLeast(5, 14) {
			setup += ",procs=" + strconv.Itoa(c.Processes+ofHelper)
		}
		if c.Network != Host || m.abi() < scopes {
			return bwrapCommand(path, helper, c, v, "link", setup, link)
		}
		ruleset, err := scope()
		if err != nil {
			return nil, err
		}
		return bwrapCommand(path, helper, c, v, "link", setup+",scope=1", link, ruleset)
	case Landlock:
		ruleset, err := v.ruleset(m.abi())
		if err != nil {
			return nil, err
		}
		setup += ",filter=1,drop=1,landlock=1,nounix=1"
		if c.Network == Closed {
			setup += ",noinet=1"
		}
		return plainCommand(helper, setup, link, ruleset), nil
	}
	return plainCommand(helper, setup, link), nil
}

// ofHelper is how many threads the helper, and what starts a server, may have.
const ofHelper = 32

// helperEnvironment is that of the helper: it computes nothing, and with one processor its runtime
// takes 60 KiB less. Servers are given their own.
var helperEnvironment = []string{"GOMAXPROCS=1"}

// plainCommand starts the helper in no namespace of its own.
func plainCommand(helper, setup string, files ...*os.File) *exec.Cmd {
	cmd := exec.Command(helper, "link", setup)
	cmd.Args[0] = "weir-inside"
	cmd.Env = helperEnvironment
	cmd.Dir = "/"
	cmd.ExtraFiles = files
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // it sees the end of the link, and ends all, before it goes
	return cmd
}

// wait reaps the helper, or bubblewrap, when the link has ended, as it does with them: to wait
// for a process takes a thread, and to wait for a socket none.
func (s *Sandbox) wait(said *os.File) {
	_ = s.cmd.Wait()
	text := make([]byte, maxText)
	_ = said.SetReadDeadline(time.Now().Add(saidWithin))
	n, _ := io.ReadFull(said, text) // there is an end, or nothing more for now
	_ = said.Close()
	s.said = string(bytes.TrimSpace(text[:n]))
	s.machine.watch.remove(s)
	if s.group != nil {
		s.group.close()
	}
	close(s.exited)
}

// saidWithin is for how long the last words of a helper are waited for whose standard error
// somebody else still has.
const saidWithin = 100 * time.Millisecond

// Grade is what the sandbox holds.
func (s *Sandbox) Grade() Grade { return s.grade }

// Note says in one line what the sandbox holds less than the best, and how to get it; "" for
// nothing.
func (s *Sandbox) Note() string { return s.note }

// Start starts the server once more. ctx bounds the start alone.
func (s *Sandbox) Start(ctx context.Context) (*Process, error) {
	env, err := s.config.environment(ctx, s.temp)
	if err != nil {
		return nil, err
	}
	p, err := s.session.start(ctx, s.config.Command, env, s.config.Dir)
	if err != nil {
		if _, link := prefixes(&s.config, newUnsafe(&s.config)); link != "" && strings.HasSuffix(err.Error(), unix.ENOENT.Error()) {
			err = fmt.Errorf("%w: %s is a link in a directory that the server may write to, which is not followed: mount what it leads to, too, or that directory read-only (:ro)", err, link)
		}
		return nil, fmt.Errorf("start %s: %w", s.config.Name, err)
	}
	return p, nil
}

// Port is where the server is to listen; 0 for one on its standard streams.
func (s *Sandbox) Port() int { return s.config.Port }

// Dial connects to a port of the server's, on its loopback.
func (s *Sandbox) Dial(ctx context.Context, port int) (net.Conn, error) {
	return s.session.dial(ctx, port)
}

// Ended is closed when the sandbox has ended, and nothing of it is left.
func (s *Sandbox) Ended() <-chan struct{} { return s.exited }

// HasEnded is Box.HasEnded.
func (s *Sandbox) HasEnded() bool {
	select {
	case <-s.session.ended:
		return true
	default:
		return false
	}
}

// Close ends everything inside, and returns when nothing of it is left.
func (s *Sandbox) Close() {
	s.closing.Do(func() { s.end("") })
	<-s.exited
}

// end ends the sandbox for a reason.
func (s *Sandbox) end(reason string) {
	s.session.close(reason)
	late := time.AfterFunc(endTimeout, func() { _ = s.cmd.Process.Kill() })
	go func() {
		<-s.exited
		late.Stop()
	}()
	if s.grade == Bwrap {
		// Its child dies with it, and all in the namespace with that.
		_ = s.cmd.Process.Kill()
	}
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// kernelAtLeast compares the version of the kernel.
func kernelAtLeast(major, minor int) bool {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return false
	}
	var a, b int
	if n, _ := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &a, &b); n < 2 {
		return false
	}
	return a > major || a == major && b >= minor
}

// ownedByUs says whether a file is this user's.
func ownedByUs(info os.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}
