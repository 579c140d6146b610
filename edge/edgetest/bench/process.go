package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is a child of the run. It ends by stop, or with the run.
type process struct {
	name  string
	addr  string   // where it listens, HOST:PORT
	addrs []string // of a helper that listens on several, the first among them
	cmd   *exec.Cmd
	stdin io.Closer
	said  *tail
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
	p.said, p.ended = &tail{}, make(chan struct{})
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

// tail keeps the end of what is written to it. It is safe for concurrent use.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const tailSize = 2 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if over := len(t.text) - tailSize; over > 0 {
		t.text = append(t.text[:0], t.text[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.text))
}

// buildWeir builds the edge's program into dir and returns its path.
func buildWeir(ctx context.Context, dir string) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("build weir: go env GOMOD: %w", err)
	}
	root, ok := strings.CutSuffix(strings.TrimSpace(string(out)), "/go.mod")
	if !ok {
		return "", errors.New("build weir: this is no module; name the program with --weir, or measure the --floors alone")
	}
	program := dir + "/weir"
	cmd := exec.CommandContext(ctx, "go", "build", "-o", program, "./cmd/weir")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build weir: %w: %s", err, bytes.TrimSpace(out))
	}
	return program, nil
}
