package stdio

import (
	"context"
	"io"
	"os"
	"os/exec"
	"sync"
)

// Command is a Starter of children of this process, without a sandbox: each is the first
// of a process group of its own, and what leaves that outlives it.
type Command struct {
	Path string   // of the program
	Args []string // after the program's name
	Env  []string // NAME=VALUE, all that it has
	Dir  string   // "" for that of this process
}

// Start is Starter.Start.
func (c Command) Start(ctx context.Context, _ string) (Process, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Env, cmd.Dir = append([]string{}, c.Env...), c.Dir
	alone(cmd)
	p := &childProcess{cmd: cmd}
	var theirs []*os.File
	fail := func(err error) (Process, error) {
		for _, f := range theirs {
			f.Close()
		}
		for _, f := range []*os.File{p.stdin, p.stdout, p.stderr} {
			if f != nil {
				f.Close()
			}
		}
		return nil, err
	}
	// Not exec.Cmd's own pipes: Wait would close them before all is read.
	in, stdin, err := os.Pipe()
	if err != nil {
		return fail(err)
	}
	theirs, p.stdin = append(theirs, in), stdin
	stdout, out, err := os.Pipe()
	if err != nil {
		return fail(err)
	}
	theirs, p.stdout = append(theirs, out), stdout
	stderr, errs, err := os.Pipe()
	if err != nil {
		return fail(err)
	}
	theirs, p.stderr = append(theirs, errs), stderr
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, errs
	if err := cmd.Start(); err != nil {
		return fail(err)
	}
	for _, f := range theirs {
		f.Close()
	}
	return p, nil
}

// childProcess is a child of this process.
type childProcess struct {
	cmd                   *exec.Cmd
	stdin, stdout, stderr *os.File

	mu     sync.Mutex
	reaped bool // its number may be another's
}

func (p *childProcess) Stdin() io.WriteCloser { return p.stdin }
func (p *childProcess) Stdout() io.ReadCloser { return p.stdout }
func (p *childProcess) Stderr() io.ReadCloser { return p.stderr }
