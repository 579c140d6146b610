package fake_test

import (
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest/fake"
)

// A peer serves every connection, and has ended all of them, those in the middle
// of something as well, when it is closed.
func TestPeer(t *testing.T) {
	var served atomic.Int64
	p := fake.Listen(t, func(c net.Conn) {
		_, _ = io.Copy(c, c)
		served.Add(1)
	})
	var conns []net.Conn
	for range 3 {
		c, err := net.Dial("tcp", p.Addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, c)
		echo := make([]byte, 5)
		if _, err := io.WriteString(c, "hello"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, echo); err != nil || string(echo) != "hello" {
			t.Fatalf("%q, %v", echo, err)
		}
	}
	p.Close()
	if n := served.Load(); n != 3 {
		t.Errorf("%d connections of 3 were served to the end", n)
	}
	for _, c := range conns {
		if n, err := c.Read(make([]byte, 1)); err == nil {
			t.Errorf("%d bytes on a connection of a peer that has ended", n)
		}
	}
	if c, err := net.Dial("tcp", p.Addr); err == nil {
		c.Close()
		t.Error("a peer that has ended takes a connection")
	}
}
