package main

import (
	"bufio"
	"context"
	"fmt"
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

// startHelper starts a helper and waits until it says where it listens.
func startHelper(ctx context.Context, procs int, args ...string) (*helper, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, append(args, "--attached")...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	said, tells, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer said.Close()
	cmd.Stdout = tells
	p, err := kit.Start(args[0], cmd, stdin, environment(procs)...)
	tells.Close()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeLimit)
	stop := context.AfterFunc(ctx, p.Kill)
	line, err := bufio.NewReader(said).ReadString('\n')
	stop()
	cancel()
	addrs := strings.Fields(line)
	if len(addrs) < 2 || addrs[0] != "ready" {
		p.Stop()
		return nil, p.Fault(fmt.Errorf("%s: it did not start: %v", p.Name, err))
	}
	p.Addr = addrs[1]
	return &helper{p, addrs[1:]}, nil
}

// environment is GOMAXPROCS of a process as the run wants it.
func environment(procs int) []string {
	if procs == 0 {
		return nil
	}
	return []string{"GOMAXPROCS=" + strconv.Itoa(procs)}
}
