//go:build unix

package turn_test

import (
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/weir-edge/weir/edge/turn"
)

func TestTakeLooksFirst(t *testing.T) {
	if one, a, b := pair(t); one.Able() {
		b.Write([]byte("unasked"))
		settle(t, a)
		if _, err := one.Take([]byte("x"), make([]byte, 1), true, a.Write); err != turn.ErrStale {
			t.Errorf("before what came unasked: %v", err)
		}
		if n, err := one.Take([]byte("x"), make([]byte, 16), false, a.Write); n != len("unasked") || err != nil {
			t.Errorf("without a look: %d, %v", n, err)
		}
	}
	if one, a, b := pair(t); one.Able() {
		b.Close()
		settle(t, a)
		if _, err := one.Take([]byte("x"), make([]byte, 1), true, a.Write); err != turn.ErrStale {
			t.Errorf("before the end: %v", err)
		}
	}
}

// What came before the turn began is not waited for: the scheduler has forgotten
// that it was told.
func TestTakeReadsWhatCameBefore(t *testing.T) {
	one, a, b := pair(t)
	in := make([]byte, 16)
	for _, before := range []string{"early", ""} { // the end last
		asked := make(chan struct{})
		go func() {
			defer close(asked)
			io.ReadFull(b, make([]byte, 1))
		}()
		if b.Write([]byte(before)); before == "" {
			b.CloseWrite()
		}
		settle(t, a)
		n, err := take(one, a, []byte("x"), in, false)
		if string(in[:n]) != before || (err == io.EOF) != (before == "") {
			t.Errorf("%q, %v", in[:n], err)
		}
		<-asked
	}
}

// settle waits until something has arrived, and takes nothing of it.
func settle(t *testing.T, c *net.TCPConn) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Read(func(fd uintptr) bool {
		_, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		return err != syscall.EAGAIN
	}); err != nil {
		t.Fatal(err)
	}
}
