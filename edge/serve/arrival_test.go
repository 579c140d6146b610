package serve_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/door"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
)

// TestZ01HeadOfAlmostTheMost: a header has one time to arrive, however much of
// what it may have has come and however little room that leaves.
func TestZ01HeadOfAlmostTheMost(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy, edgetest.With(serve.WithDoor(func(o *door.Options) { o.Within = 200 * time.Millisecond })))
	most := serve.Defaults().MaxHeader
	for _, n := range []int{1, 2, most / 2, most - 2, most - 1} {
		c := f.Dial()
		head := "POST /mcp HTTP/1.1\r\nHost: " + f.Addr() + "\r\nX-A: "
		if n > len(head) { // the rest comes behind what was read first
			c.Write(head)
			time.Sleep(50 * time.Millisecond)
			c.Write(strings.Repeat("a", n-len(head)))
		} else {
			c.Write(head[:n])
		}
		began := time.Now()
		if h, text := c.Read(); h.StatusCode != 408 || !c.Ended() {
			t.Errorf("%d bytes: status %d: %s", n, h.StatusCode, text)
		}
		if waited := time.Since(began); waited > 20*time.Second {
			t.Errorf("%d bytes of a header are waited for %v", n, waited)
		}
	}
}

// A client that sends on after its request was refused reads why: the edge takes
// what still comes, for as long as it comes, up to a bound.
func TestRefusedWhileItSends(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Modern, edgetest.Settings(func(s *serve.Settings) { s.MaxBody = 1 << 20 }))
	c := f.Dial()
	c.Write("POST /mcp HTTP/1.1\r\nHost: " + f.Addr() + "\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: 4194304\r\n\r\n")
	const gap = 300 * time.Millisecond // shorter than the edge waits for more
	for range 8 {
		c.Write(strings.Repeat("x", 100<<10))
		time.Sleep(gap) // it is the time that is looked at
	}
	h, text := c.Read()
	if h.StatusCode != 413 || !h.Close {
		t.Errorf("status %d, header %v: %s", h.StatusCode, h.Header, text)
	}
	began := time.Now()
	if !c.Ended() || time.Since(began) > 20*time.Second {
		t.Errorf("the edge keeps the connection for %s", time.Since(began))
	}
}
