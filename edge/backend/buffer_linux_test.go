package backend

import (
	"io"
	"net/http"
	"strconv"
	"syscall"
	"testing"
	"time"

	"net/url"

	"github.com/weir-edge/weir/edge/wire"
)

// The kernel holds a bounded part of what a backend sends and nobody reads, on
// a connection that was read fast before, too.
func TestReceiveBuffer(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	b := open(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Length", strconv.Itoa(size))
		_, _ = w.Write(make([]byte, size))
	}, nil)
	u, err := url.Parse(b.URL)
	if err != nil {
		t.Fatal(err)
	}
	p := newPeer(u, wire.New(u, nil, true, 0), &b.Config)
	defer p.pool.Close()
	for range 100 { // by now the kernel has learnt how fast this one reads
		o := outgoing{method: "POST", body: []byte("{}"), silence: time.Minute}
		r, _, err := p.send(t.Context(), &o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.read(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	c, err := p.pool.Get(t.Context(), time.Now(), false, false)
	if err != nil {
		t.Fatal(err)
	}
	defer p.pool.Drop(c)
	raw, err := c.Conn.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	held := 0
	if err := raw.Control(func(fd uintptr) { held, err = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF) }); err != nil {
		t.Fatal(err)
	}
	t.Logf("the kernel holds up to %d bytes", held)
	if err != nil || held > 2*wire.ReceiveBuffer {
		t.Errorf("the kernel holds up to %d bytes (%v)", held, err)
	}
}
