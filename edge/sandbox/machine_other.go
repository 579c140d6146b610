//go:build !linux

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"sync"
)

const onUnix = runtime.GOOS != "windows"

var errClosed = errors.New("the sandboxes of this workload are closed")

// Machine is what the sandboxes of a process share. This system has the grade none alone:
// a server is a child of this process, in a process group of its own.
type Machine struct{}

// NewMachine returns the machine.
func NewMachine(string) *Machine { return &Machine{} }

// Close does nothing here.
func (m *Machine) Close() {}

// Sandbox is an open one. Its methods are safe for concurrent use.
type Sandbox struct {
	config Config
	note   string

	mu     sync.Mutex
	procs  map[*Process]bool
	closed bool
	ended  chan struct{}
}

// Open opens a sandbox; no server runs in it yet.
func (m *Machine) Open(_ context.Context, c Config) (*Sandbox, error) {
	c = c.withDefaults()
	if err := c.judge(); err != nil {
		return nil, err
	}
	if err := c.place(); err != nil {
		return nil, err
	}
	s := &Sandbox{config: c, procs: map[*Process]bool{}, ended: make(chan struct{})}
	s.note = fmt.Sprintf("%s: sandbox none (%s): nothing is held, the server can do what its user can, and no limit is: %s", c.Name, noSandbox, contain)
	if c.Opened != nil {
		c.Opened(s)
	}
	return s, nil
}

// Judge says what keeps a sandbox from being opened, by the errors of Open, and opens nothing.
func (m *Machine) Judge(c Config) error {
	c = c.withDefaults()
	return c.judge()
}

const noSandbox, contain = "there are sandboxes on Linux alone", "run it as a container"

// judge refuses what there is not without a sandbox.
func (c *Config) judge() error {
	if err := c.check(); err != nil {
		return err
	}
	switch {
	case c.Grade == Bwrap || c.Grade == Landlock:
		return &GradeError{c.Name, "--sandbox " + string(c.Grade), noSandbox, contain}
	case c.Isolate && c.Network != Host:
		return &GradeError{c.Name, "--isolate-network", noSandbox, contain}
	}
	if c.Network != Host {
		c.Network, c.opened = Host, true // as the note says
	}
	for _, mount := range c.Mounts {
		if mount.Inside != "" && mount.Inside != mount.Host {
			return &MountError{mount.Host, "without a sandbox it is at no other path than its own", contain}
		}
	}
	if len(c.Writable) > 0 {
		return &MountError{c.Writable[0], "without a sandbox there is no memory at a path (--writable)", contain}
	}
	hidden, err := Overlays(c.Mounts, c.Ignore)
	if err != nil {
		return fmt.Errorf("sandbox of %s: %w", c.Name, err)
	}
	if len(hidden) > 0 {
		return &MountError{hidden[0].Host, "ignore patterns name it, and without a sandbox nothing of a mounted directory is hidden", contain}
	}
	return nil
}

// Grade is what the sandbox holds.
func (s *Sandbox) Grade() Grade { return None }

// Note says in one line what the sandbox holds less than the best, and how to get it.
func (s *Sandbox) Note() string { return s.note }

// Start starts the server once more. ctx bounds the start alone.
func (s *Sandbox) Start(ctx context.Context) (*Process, error) {
	env, err := s.config.environment(ctx, os.TempDir())
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(s.config.Command[0], s.config.Command[1:]...)
	cmd.Env, cmd.Dir = env, s.config.Dir
	separate(cmd)
	p := newProcess()
	var theirs []*os.File
	pipe := func(in bool) (*os.File, *os.File, error) {
		r, w, err := os.Pipe()
		if in {
			r, w = w, r
		}
		theirs = append(theirs, w)
		return r, w, err
	}
	stdin, childIn, err1 := pipe(true)
	stdout, childOut, err2 := pipe(false)
	stderr, childErr, err3 := pipe(false)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = childIn, childOut, childErr
	err = errors.Join(err1, err2, err3)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed && err == nil {
		err = errClosed
	}
	if err == nil {
		err = cmd.Start()
	}
	for _, f := range theirs {
		_ = f.Close()
	}
	if err != nil {
		for _, f := range []*os.File{stdin, stdout, stderr} {
			_ = f.Close()
		}
		return nil, fmt.Errorf("start %s: %w", s.config.Name, err)
	}
	p.stdin, p.stdout, p.stderr = stdin, stdout, stderr
	p.terminate, p.kill = func() { terminate(cmd) }, func() { kill(cmd) }
	s.procs[p] = true
	go func() {
		exit := exitOf(cmd.Wait(), cmd)
		kill(cmd) // what it left in its group
		s.mu.Lock()
		delete(s.procs, p)
		s.mu.Unlock()
		p.finish(exit)
	}()
	return p, nil
}

// Port is where the server is to listen; 0 for one on its standard streams.
func (s *Sandbox) Port() int { return s.config.Port }

// Dial connects to a port of this machine, which is the server's.
func (s *Sandbox) Dial(ctx context.Context, port int) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", fmt.Sprintf("localhost:%d", port))
}

// Ended is closed when the sandbox has been closed.
func (s *Sandbox) Ended() <-chan struct{} { return s.ended }

// HasEnded is Box.HasEnded.
func (s *Sandbox) HasEnded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// Close ends all processes, and returns when they have ended.
func (s *Sandbox) Close() {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	procs := make([]*Process, 0, len(s.procs))
	for p := range s.procs {
		procs = append(procs, p)
	}
	s.mu.Unlock()
	for _, p := range procs {
		p.Kill()
		p.Wait()
	}
	if first {
		close(s.ended)
	}
}

func exitOf(err error, cmd *exec.Cmd) Exit {
	code := cmd.ProcessState.ExitCode()
	if err != nil && code < 0 {
		return Exit{Code: -1, Signal: "killed"}
	}
	return Exit{Code: code}
}

// ownedByUs is not asked here: there is no helper.
func ownedByUs(os.FileInfo) bool { return true }
