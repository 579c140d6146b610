package turn_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/turn"
)

// pair returns the two ends of a connection, and the turns of the first.
func pair(t *testing.T) (*turn.Turn, *net.TCPConn, *net.TCPConn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	a, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	one := new(turn.Turn)
	if able := one.Of(a); able != one.Able() || able != (runtime.GOOS == "linux" && (runtime.GOARCH == "amd64" || runtime.GOARCH == "arm64")) {
		t.Fatalf("a TCP connection has turns: %v", able)
	}
	if !one.Able() {
		t.Log("no turns on this system: every write goes the ordinary way")
	}
	return one, a.(*net.TCPConn), b.(*net.TCPConn)
}

// take is Take with what its caller does where no turn comes of it.
func take(one *turn.Turn, c net.Conn, out, in []byte, look bool) (int, error) {
	n, err := one.Take(out, in, look, c.Write)
	if n == 0 && err == nil {
		return c.Read(in)
	}
	return n, err
}

// What is to be said is said also where the time for reading is over: an answer
// goes out on a connection that takes no further request.
func TestTakeSpeaksAfterTheDeadline(t *testing.T) {
	one, a, b := pair(t)
	a.SetReadDeadline(time.Unix(1, 0))
	if _, err := take(one, a, []byte("answer"), make([]byte, 16), false); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the read: %v", err)
	}
	b.SetReadDeadline(time.Now().Add(5 * time.Second))
	in := make([]byte, len("answer"))
	if _, err := io.ReadFull(b, in); err != nil || string(in) != "answer" {
		t.Errorf("%q, %v", in, err)
	}
	if one.Able() {
		if _, err := one.Take([]byte("call"), make([]byte, 16), true, a.Write); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("with a look: %v", err)
		}
		b.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		if n, _ := b.Read(in); n > 0 {
			t.Errorf("with a look %q was written", in[:n])
		}
	}
}

func TestTake(t *testing.T) {
	one, a, b := pair(t)
	go func() { // ends with the connection
		buf := make([]byte, 64)
		for {
			n, err := b.Read(buf)
			if err != nil {
				return
			}
			b.Write(bytes.ToUpper(buf[:n]))
		}
	}()
	in := make([]byte, 64)
	for range 1000 {
		n, err := take(one, a, []byte("hello"), in, true)
		if err != nil || string(in[:n]) != "HELLO" {
			t.Fatalf("%q, %v", in[:n], err)
		}
	}
}

// The answer may be there before the reader waits, or long after.
func TestTakeWaits(t *testing.T) {
	one, a, b := pair(t)
	buf := make([]byte, 8)
	for range 200 {
		asked := make(chan struct{})
		go func() {
			defer close(asked)
			io.ReadFull(b, buf[:4])
			runtime.Gosched()
			b.Write([]byte("pong"))
		}()
		in := make([]byte, 8)
		if n, err := take(one, a, []byte("ping"), in, false); err != nil || string(in[:n]) != "pong" {
			t.Fatalf("%q, %v", in[:n], err)
		}
		<-asked
	}
}

func TestTakeEnds(t *testing.T) {
	t.Run("in order", func(t *testing.T) {
		one, a, b := pair(t)
		b.CloseWrite()
		if n, err := take(one, a, []byte("x"), make([]byte, 1), false); n != 0 || err != io.EOF {
			t.Errorf("%d, %v", n, err)
		}
	})
	t.Run("by a reset", func(t *testing.T) {
		one, a, b := pair(t)
		go func() { // ends with the first byte
			io.ReadFull(b, make([]byte, 1))
			b.SetLinger(0)
			b.Close()
		}()
		if n, err := take(one, a, []byte("x"), make([]byte, 1), false); n != 0 || err == nil {
			t.Errorf("%d, %v", n, err)
		}
	})
	t.Run("by a deadline", func(t *testing.T) {
		one, a, _ := pair(t)
		a.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		if _, err := take(one, a, []byte("x"), make([]byte, 1), false); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
	})
	t.Run("by closing", func(t *testing.T) {
		one, a, b := pair(t)
		go func() { // ends with the first byte
			io.ReadFull(b, make([]byte, 1))
			a.Close()
		}()
		if _, err := take(one, a, []byte("x"), make([]byte, 1), false); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
}

// What the kernel has no room for goes out in the ordinary way, once.
func TestTakeMuch(t *testing.T) {
	one, a, b := pair(t)
	a.SetWriteBuffer(4 << 10)
	out := make([]byte, 4<<20)
	for i := range out {
		out[i] = byte(i >> 8)
	}
	got := make(chan []byte, 1)
	go func() {
		all := make([]byte, len(out))
		io.ReadFull(b, all)
		b.Write([]byte("thanks"))
		got <- all
	}()
	in := make([]byte, 16)
	if n, err := take(one, a, out, in, true); err != nil || string(in[:n]) != "thanks" {
		t.Fatalf("%q, %v", in[:n], err)
	}
	if !bytes.Equal(<-got, out) {
		t.Error("what arrived is not what was said")
	}
}

func TestTakeAllocatesNothing(t *testing.T) {
	one, a, b := pair(t)
	go io.Copy(b, b) // ends with the connection
	in, out, write := make([]byte, 64), []byte("hello"), a.Write
	if n := testing.AllocsPerRun(100, func() {
		if n, _ := one.Take(out, in, true, write); n == 0 {
			a.Read(in)
		}
	}); n != 0 {
		t.Errorf("a turn costs %v allocations", n)
	}
}
