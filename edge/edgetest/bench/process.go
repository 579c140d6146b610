package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/program"
)

// process is a child of the run. It ends by stop, or with the run.
type process struct {
	name  string
	addr  string   // where it listens, HOST:PORT
	addrs []string // of a helper that listens on several, the first among them
	cmd   *exec.Cmd
	stdin io.Closer
	said  *program.Tail
	ended chan struct{} // closed when it has ended
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// startHelper starts this program again as one of its helpers and waits until
// it says where it listens.
func startHelper(ctx context.Context, procs int, args ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	args = append(args, "--attached")
	p := &process{name: args[0], cmd: exec.Command(self, args...)}
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.stdin = stdin
	if err := p.start(procs); err != nil {
		return nil, err
	}
	// The first line is read before Wait, which closes the pipe.
	stop := context.AfterFunc(ctx, func() { _ = p.cmd.Process.Kill() })
	timer := time.AfterFunc(handshakeLimit, func() { _ = p.cmd.Process.Kill() })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	stop()
	timer.Stop()
	go p.wait()
	addr, ok := strings.CutPrefix(strings.TrimSpace(line), "ready ")
	if !ok {
		p.stop()
		return nil, fmt.Errorf("%s: it did not start: %v: %s", p.name, err, p.said)
	}
	p.addrs = strings.Fields(addr)
	if len(p.addrs) == 0 {
		p.stop()
		return nil, fmt.Errorf("%s: it listens nowhere", p.name)
	}
	p.addr = p.addrs[0]
	return p, nil
}

// start starts the command with GOMAXPROCS as the run wants it and without the
// settings of an edge that the environment may hold.
func (p *process) start(procs int) error {
	p.said, p.ended = &program.Tail{}, make(chan struct{})
	p.cmd.Stderr = p.said
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "WEIR_") {
			p.cmd.Env = append(p.cmd.Env, v)
		}
	}
	if procs > 0 {
		p.cmd.Env = append(p.cmd.Env, "GOMAXPROCS="+strconv.Itoa(procs))
	}
	p.cmd.SysProcAttr = childAttr()
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	return nil
}

// wait ends when the process does.
func (p *process) wait() {
	_ = p.cmd.Wait() // how it ended is told by what it said
	close(p.ended)
}

// stop ends the process: by asking, and after a while by force.
func (p *process) stop() {
	if p.stdin != nil {
		p.stdin.Close()
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(5 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// fault adds to an error what the process said last.
func (p *process) fault(err error) error {
	if err == nil {
		return nil
	}
	if said := p.said.String(); said != "" {
		return fmt.Errorf("%w (%s said: %s)", err, p.name, said)
	}
	return err
}
