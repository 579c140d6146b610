package port_test

import (
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest/port"
)

// TestFree listens on what Free finds, which neither a connection of the system's own
// choosing nor a workload can have taken, and which is not given away twice; processes that
// begin meanwhile keep none of it.
func TestFree(t *testing.T) {
	begun := make(chan struct{})
	var beginning sync.WaitGroup
	for range 4 {
		beginning.Go(func() {
			for {
				select {
				case <-begun:
					return
				default:
					_ = exec.Command(os.Args[0], "-test.run=^$").Run() // it only has to begin
				}
			}
		})
	}
	defer beginning.Wait()
	defer close(begun)
	given := make(map[string]bool)
	for range 3000 {
		address, err := port.Free()
		if err != nil {
			t.Fatal(err)
		}
		_, p, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := strconv.Atoi(p); err != nil || n >= 20000 {
			t.Fatalf("%s is among the ports that the system or the manager of workloads hands out", address)
		}
		ln, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if err := ln.Close(); err != nil { // nothing listens there, and it stays given away
			t.Fatal(err)
		}
		if given[address] {
			t.Fatalf("%s is given away twice", address)
		}
		given[address] = true
	}
}
