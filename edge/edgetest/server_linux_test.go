package edgetest_test

import (
	"errors"
	"net"
	"syscall"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
)

// The port of a closed server refuses, is given to nobody else, and comes back
// to the server that asks for it.
func TestClosedServerKeepsItsPort(t *testing.T) {
	first := edgetest.NewServer(t, edgetest.Legacy)
	edgetest.NewClient(t, "http://"+first.Addr()).Initialize("")
	first.Close()
	if c, err := net.Dial("tcp", first.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("%v, %v", c, err)
	}
	if ln, err := net.Listen("tcp", first.Addr()); err == nil {
		t.Error(ln.Close(), "another was given the port")
	}
	again := edgetest.NewServer(t, edgetest.Legacy, func(s *edgetest.Server) { s.Address = first.Addr() })
	edgetest.NewClient(t, "http://"+again.Addr()).Initialize("")
}
