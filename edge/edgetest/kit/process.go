package kit

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/program"
)

// Process is a child of this program. It ends by Stop, or with this program.
type Process struct {
	Name  string
	Addr  string // where it listens, host:port; empty when it does not
	Said  program.Tail
	Began time.Time
	Ended chan struct{} // closed when it has ended

	cmd   *exec.Cmd
	stdin io.Closer // nil for none
}

// Start starts a command, without the settings of an edge that the environment
// may hold and with those of env. stdin, if any, is closed by Stop.
func Start(name string, cmd *exec.Cmd, stdin io.Closer, env ...string) (*Process, error) {
	p := &Process{Name: name, Ended: make(chan struct{}), cmd: cmd, stdin: stdin}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "WEIR_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, env...)
	cmd.Stderr = &p.Said
	cmd.SysProcAttr = ChildAttr()
	p.Began = time.Now()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	go func() { // ends with the process
		_ = cmd.Wait() // how it ended is told by what it said
		close(p.Ended)
	}()
	return p, nil
}

// PID is the number of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends a signal; a process that has ended needs none.
func (p *Process) Signal(sig os.Signal) { _ = p.cmd.Process.Signal(sig) }

// AwaitEnd waits until the process has ended; false when it has not in time.
func (p *Process) AwaitEnd(within time.Duration) bool {
	select {
	case <-p.Ended:
		return true
	case <-time.After(within):
		return false
	}
}

// Stop ends the process: by asking, by asking again, which ends an edge at
// once, and then by force.
func (p *Process) Stop() {
	if p.stdin != nil {
		p.stdin.Close()
	}
	p.Signal(syscall.SIGTERM)
	if p.AwaitEnd(200 * time.Millisecond) {
		return
	}
	p.Signal(syscall.SIGTERM)
	if !p.AwaitEnd(2 * time.Second) {
		p.Kill()
	}
}

// Kill ends the process at once, as kill -9 does.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.Ended
}

// Fault adds to an error what the process said last.
func (p *Process) Fault(err error) error {
	if said := p.Said.String(); err != nil && said != "" {
		return fmt.Errorf("%w (%s said: %s)", err, p.Name, said)
	}
	return err
}

// ErrNotReady says that a process lived but was not ready in time.
var ErrNotReady = errors.New("not ready in time")
