package peers

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/program"
)

// Command is exec.CommandContext for a program that leads a process group of
// its own: when ctx ends, the whole group is killed. Its environment lacks the
// settings of an edge.
func Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = groupAttr()
	cmd.Cancel = func() error { return killGroup(cmd) }
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "WEIR_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	return cmd
}

// Run runs a command to its end and returns what it wrote to stdout. The error
// holds the end of what it wrote to stderr. Nothing of its group is left.
func Run(cmd *exec.Cmd) ([]byte, error) { return RunTo(cmd, io.Discard) }

// RunTo is Run; what is written to stdout goes to a writer as well, at once.
func RunTo(cmd *exec.Cmd, also io.Writer) ([]byte, error) {
	var out bytes.Buffer
	var said program.Tail
	wait, err := Launch(cmd, io.MultiWriter(&out, also), &said)
	if err == nil {
		err = wait()
	}
	if err != nil {
		return out.Bytes(), fmt.Errorf("%w: %s", err, said.String())
	}
	return out.Bytes(), nil
}

// Launch starts a command. The function that it returns waits until the command
// has ended, kills what is left of its group, and so comes to the end of what
// they wrote.
func Launch(cmd *exec.Cmd, stdout, stderr io.Writer) (wait func() error, err error) {
	// Pipes of our own: those of exec.Cmd would wait for every process that
	// holds an end.
	var copies sync.WaitGroup
	var ends []*os.File
	defer func() {
		for _, w := range ends {
			w.Close() // the child has its own
		}
	}()
	pipe := func(to io.Writer) (*os.File, error) {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		ends = append(ends, w)
		copies.Go(func() { // ends when nobody holds the other end
			_, _ = io.Copy(to, r) // neither end can fail before that
			r.Close()
		})
		return w, nil
	}
	out, err := pipe(stdout)
	if err != nil {
		return nil, err
	}
	cmd.Stdout = out
	if stderr == stdout {
		cmd.Stderr = out
	} else if cmd.Stderr, err = pipe(stderr); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() error {
		err := cmd.Wait()
		_ = killGroup(cmd) // there may be nobody left
		copies.Wait()
		return err
	}, nil
}

// Process is a program that runs until Stop.
type Process struct {
	Name string
	Addr string // where it listens, HOST:PORT

	cmd      *exec.Cmd
	said     *program.Tail
	patience time.Duration // how long it may take to end when it is asked to
	ended    chan struct{} // closed when it has ended
}

// start starts a command whose context has no end, as that of a Process must.
func start(name, addr string, cmd *exec.Cmd) (*Process, error) {
	p := &Process{Name: name, Addr: addr, cmd: cmd, said: &program.Tail{}, patience: 5 * time.Second, ended: make(chan struct{})}
	wait, err := Launch(cmd, p.said, p.said)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() { // ends when the process does
		_ = wait() // how it ended is told by what it said
		close(p.ended)
	}()
	return p, nil
}

// Stop ends the process and whatever is left of its group. The error says that
// asking was not enough.
func (p *Process) Stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	patience := time.NewTimer(p.patience)
	defer patience.Stop()
	var err error
	select {
	case <-p.ended:
	case <-patience.C:
		err = fmt.Errorf("%s did not end within %s of SIGTERM", p.Name, p.patience)
	}
	if err != nil {
		_ = killGroup(p.cmd)
		<-p.ended
	}
	return err
}

// Said is the end of what the process wrote to stdout and stderr.
func (p *Process) Said() string { return p.said.String() }

// fault adds what the process said to an error.
func (p *Process) fault(err error) error {
	if said := p.Said(); said != "" {
		return fmt.Errorf("%w; %s said: %s", err, p.Name, said)
	}
	return err
}

// startLimit bounds how long a program may take until it can be used.
const startLimit = 20 * time.Second

// await asks try again and again until it says yes. It fails when the process
// ends before, when startLimit is over, and when ctx ends.
func (p *Process) await(ctx context.Context, try func(context.Context) bool) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if try(ctx) {
			return nil
		}
		select {
		case <-p.ended:
			return p.fault(fmt.Errorf("start %s: it ended", p.Name))
		case <-ctx.Done():
			return p.fault(fmt.Errorf("start %s: not ready: %w", p.Name, ctx.Err()))
		case <-tick.C:
		}
	}
}

// listens reports whether something accepts connections at the address.
func (p *Process) listens(ctx context.Context) bool {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.Addr)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

// ready reports whether GET /readyz is answered with 200.
func (p *Process) ready(ctx context.Context) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.Addr+"/readyz", nil)
	if err != nil {
		return false
	}
	req.Close = true
	client := http.Client{Timeout: time.Second}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	return resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
}
