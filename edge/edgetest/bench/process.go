package main

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// handshakeLimit bounds what a client or a helper does before its first call.
const handshakeLimit = 10 * time.Second

// helper is this program again as one of its helpers.
type helper struct {
	*kit.Process
	addrs []string // where it listens, Addr the first among them
}

// startHelper starts a helper, which ends with the case, and waits until it says
// where it listens.
func (b *bench) startHelper(ctx context.Context, args ...string) *helper {
	cmd := exec.Command(kit.Must(os.Executable()), append(args, "--attached")...)
	stdin := kit.Must(cmd.StdinPipe())
	said, tells, err := os.Pipe()
	kit.Check(err)
	defer said.Close()
	cmd.Stdout = tells
	p, err := kit.Start(args[0], cmd, stdin, environment(b.procs)...)
	tells.Close()
	kit.Check(err)
	b.started = append(b.started, p)
	ctx, cancel := context.WithTimeout(ctx, handshakeLimit)
	defer cancel()
	defer context.AfterFunc(ctx, p.Kill)()
	line, err := bufio.NewReader(said).ReadString('\n')
	addrs := strings.Fields(line)
	if len(addrs) < 2 || addrs[0] != "ready" {
		kit.Fail("%s: it did not start: %v", p.Name, err)
	}
	p.Addr = addrs[1]
	return &helper{p, addrs[1:]}
}

// environment is GOMAXPROCS of a process as the run wants it.
func environment(procs int) []string {
	if procs == 0 {
		return nil
	}
	return []string{"GOMAXPROCS=" + strconv.Itoa(procs)}
}
