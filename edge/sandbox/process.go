package sandbox

import (
	"io"
	"sync"
	"time"
)

// Process is a running server. It has the methods of edge/stdio's, but for the type of what
// Wait returns.
type Process struct {
	stdin          io.WriteCloser
	stdout, stderr io.ReadCloser

	terminate, kill func()

	mu    sync.Mutex
	ended chan struct{}
	exit  Exit   // once ended is closed
	then  func() // called once when it has ended; nil for nothing
}

func newProcess() *Process { return &Process{ended: make(chan struct{})} }

// Stdin, Stdout and Stderr are the ends of the server's pipes, each a syscall.Conn in
// non-blocking mode. Whoever uses them closes them.
func (p *Process) Stdin() io.WriteCloser { return p.stdin }

// Stdout is what the server prints.
func (p *Process) Stdout() io.ReadCloser { return p.stdout }

// Stderr is what it complains of.
func (p *Process) Stderr() io.ReadCloser { return p.stderr }

// Wait returns how the server ended, once it has.
func (p *Process) Wait() Exit {
	<-p.ended
	return p.exit
}

// Ended is closed when the server has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Terminate asks the server's process group to end (SIGTERM). After its end it does nothing.
func (p *Process) Terminate() {
	if !p.hasEnded() {
		p.terminate()
	}
}

// Kill ends the server and all that it started, also what left its group. It may be called
// at any time; what a server leaves behind when it ends by itself is ended without it.
func (p *Process) Kill() { p.kill() }

// Stop ends the server in order: stdin is closed, 2 s later comes SIGTERM, and at the
// timeout, counted from now, SIGKILL. It returns when the server has ended.
func (p *Process) Stop(timeout time.Duration) Exit {
	_ = p.stdin.Close()
	kill := time.NewTimer(timeout)
	defer kill.Stop()
	term := time.NewTimer(min(afterStdin, timeout))
	defer term.Stop()
	for {
		select {
		case <-p.ended:
			return p.exit
		case <-term.C:
			p.Terminate()
		case <-kill.C:
			p.Kill()
			return p.Wait()
		}
	}
}

// finish notes how the server ended. The first to say so knows.
func (p *Process) finish(exit Exit) {
	p.mu.Lock()
	if p.hasEnded() {
		p.mu.Unlock()
		return
	}
	p.exit = exit
	close(p.ended)
	then := p.then
	p.mu.Unlock()
	if then != nil {
		then()
	}
}

// after has f called when the server has ended, and at once where it has. It is called once,
// and must not wait for anything.
func (p *Process) after(f func()) {
	p.mu.Lock()
	ended := p.hasEnded()
	if !ended {
		p.then = f
	}
	p.mu.Unlock()
	if ended {
		f()
	}
}

func (p *Process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}
