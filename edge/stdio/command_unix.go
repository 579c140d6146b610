//go:build unix

package stdio

import (
	"os/exec"
	"syscall"
)

// alone gives a child a process group of its own.
func alone(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// Wait is Process.Wait. Where that can be, the rest of the group is killed before the child
// is reaped, while its number cannot be another's.
func (p *childProcess) Wait() Exit {
	if awaitExit(p.cmd.Process.Pid) {
		p.signal(syscall.SIGKILL)
	}
	_ = p.cmd.Wait() // the state says it
	p.mu.Lock()
	p.reaped = true
	p.mu.Unlock()
	e := Exit{Code: p.cmd.ProcessState.ExitCode()}
	if s, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		e.Signal = s.Signal().String()
	}
	return e
}

// Terminate is Process.Terminate.
func (p *childProcess) Terminate() { p.signal(syscall.SIGTERM) }

// Kill is Process.Kill.
func (p *childProcess) Kill() { p.signal(syscall.SIGKILL) }

func (p *childProcess) signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		_ = syscall.Kill(-p.cmd.Process.Pid, s)
	}
}
