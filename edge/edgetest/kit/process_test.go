package kit

import (
	"runtime"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
)

// TestSockets finds both ends of a connection of this process, and what waits
// in it to be read.
func TestSockets(t *testing.T) {
	edgetest.Need(t, runtime.GOOS == "linux", "the list of sockets is Linux's")
	b := NewBackend(Modern)
	t.Cleanup(b.Close)
	if _, err := b.Listen("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	c, err := Dial(t.Context(), b.Addr, Modern, DialOptions{From: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Conn.Write([]byte("POST ")); err != nil {
		t.Fatal(err)
	}
	edgetest.Until(t, "both ends", func() bool {
		all, err := Sockets(map[uint16]bool{PortOf(b.Addr): true})
		if err != nil {
			t.Fatal(err)
		}
		ends := 0
		for _, k := range all {
			if k.State == Established && (k.Local == c.Local() || k.Peer == c.Local()) {
				ends++
			}
		}
		return ends == 2
	})
	if c.Closed() {
		t.Error("an open connection is said to be closed")
	}
	b.Down()
	edgetest.Until(t, "the end of the connection", c.Closed)
}
