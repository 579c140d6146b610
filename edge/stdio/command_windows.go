package stdio

import "os/exec"

// alone does nothing: there are no process groups to kill.
func alone(*exec.Cmd) {}

// Wait is Process.Wait.
func (p *childProcess) Wait() Exit {
	_ = p.cmd.Wait() // the state says it
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reaped = true
	return Exit{Code: p.cmd.ProcessState.ExitCode()}
}

// Terminate is Process.Terminate: there is no signal that asks.
func (p *childProcess) Terminate() { p.Kill() }

// Kill is Process.Kill.
func (p *childProcess) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		_ = p.cmd.Process.Kill()
	}
}
