package sandbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-edge/weir/edge/sandbox/link"
)

// stranger is the other end of a link, in the hands of somebody else than the helper.
type stranger struct {
	t    *testing.T
	s    *session
	conn *net.UnixConn
}

func newStranger(t *testing.T) *stranger {
	t.Helper()
	ours, theirs, err := pair()
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.FileConn(theirs)
	_ = theirs.Close()
	if err != nil {
		t.Fatal(err)
	}
	x := &stranger{t: t, s: newSession(ours, "test", nil, nil, nil), conn: c.(*net.UnixConn)}
	t.Cleanup(func() {
		_ = x.conn.Close()
		<-x.s.ended
	})
	return x
}

func (x *stranger) send(m *link.Message, fds ...int) {
	x.t.Helper()
	err := link.Send(func(p, oob []byte) (int, error) {
		n, _, err := x.conn.WriteMsgUnix(p, oob, nil)
		return n, err
	}, m, fds...)
	if err != nil && !errors.Is(err, unix.EPIPE) {
		x.t.Error(err)
	}
}

// ended waits until the manager has ended the link.
func (x *stranger) ended() bool {
	select {
	case <-x.s.ended:
		return true
	case <-time.After(5 * time.Second):
		return false
	}
}

// descriptors are how many this process has open.
func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// question asks the stranger something as the manager does, on a goroutine, and returns what
// came of it.
func (x *stranger) ask(f func() error) (link.Message, <-chan error) {
	x.t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	r := link.Reader{Receive: func(p, oob []byte) (int, int, int, error) {
		n, oobn, flags, _, err := x.conn.ReadMsgUnix(p, oob)
		return n, oobn, flags, err
	}}
	m, _, err := r.Next()
	if err != nil {
		x.t.Fatal(err)
	}
	return m, done
}

// made is a descriptor for a test, closed at its end.
func made(t *testing.T, fd int, err error) int {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

// TestV26 hands the manager descriptors that it did not ask for: all are closed, and the
// link with them.
func TestV26(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	open := func(t *testing.T, path string, flag int) int {
		fd, err := unix.Open(path, flag|unix.O_CLOEXEC, 0)
		return made(t, fd, err)
	}
	pipe := func(t *testing.T) (r, w int) {
		var fds [2]int
		err := unix.Pipe2(fds[:], unix.O_CLOEXEC)
		return made(t, fds[0], err), made(t, fds[1], err)
	}
	socket := func(t *testing.T, family, kind int) int {
		fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
		return made(t, fd, err)
	}
	hostile := map[string]func(t *testing.T) int{
		"a file":      func(t *testing.T) int { return open(t, file, unix.O_RDWR) },
		"a directory": func(t *testing.T) int { return open(t, "/usr", unix.O_RDONLY) },
		"a device":    func(t *testing.T) int { return open(t, "/dev/null", unix.O_RDWR) },
		"an O_PATH":   func(t *testing.T) int { return open(t, file, unix.O_PATH) },
		"an O_PATH of a pipe": func(t *testing.T) int {
			r, _ := pipe(t)
			return open(t, fmt.Sprintf("/proc/self/fd/%d", r), unix.O_PATH)
		},
		"a FIFO": func(t *testing.T) int { return open(t, fifo, unix.O_RDWR) },
		"a pipe both ways": func(t *testing.T) int {
			r, _ := pipe(t)
			return open(t, fmt.Sprintf("/proc/self/fd/%d", r), unix.O_RDWR)
		},
		"memory":                         func(t *testing.T) int { fd, err := unix.MemfdCreate("x", 0); return made(t, fd, err) },
		"an epoll":                       func(t *testing.T) int { fd, err := unix.EpollCreate1(0); return made(t, fd, err) },
		"an eventfd":                     func(t *testing.T) int { fd, err := unix.Eventfd(0, 0); return made(t, fd, err) },
		"a datagram socket":              func(t *testing.T) int { return socket(t, unix.AF_INET, unix.SOCK_DGRAM) },
		"a Unix socket":                  func(t *testing.T) int { return socket(t, unix.AF_UNIX, unix.SOCK_STREAM) },
		"a socket that is not connected": func(t *testing.T) int { return socket(t, unix.AF_INET, unix.SOCK_STREAM) },
		"a listener": func(t *testing.T) int {
			fd := socket(t, unix.AF_INET, unix.SOCK_STREAM)
			if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, 1)); err != nil {
				t.Fatal(err)
			}
			return fd
		},
		"a connection to elsewhere": func(t *testing.T) int {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = ln.Close() })
			fd := socket(t, unix.AF_INET, unix.SOCK_STREAM)
			if err := unix.Connect(fd, &unix.SockaddrInet4{Port: ln.Addr().(*net.TCPAddr).Port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
				t.Fatal(err)
			}
			return fd
		},
	}
	for name, one := range hostile {
		t.Run("as a stream, "+name, func(t *testing.T) {
			fd := one(t)
			r, w := pipe(t)
			for at := range 3 {
				x := newStranger(t)
				before := descriptors(t)
				m, done := x.ask(func() error {
					_, err := x.s.start(t.Context(), []string{"x"}, nil, "/")
					return err
				})
				fds := []int{w, r, r}
				fds[at] = fd
				x.send(&link.Message{Kind: link.Started, ID: m.ID}, fds...)
				if err := <-done; !errors.Is(err, errDescriptor) {
					t.Errorf("at %d: %v", at, err)
				}
				if !x.ended() {
					t.Errorf("at %d: the link goes on", at)
				}
				if after := descriptors(t); after > before-1 { // the link's own is closed
					t.Errorf("at %d: %d descriptors, and %d before", at, after, before)
				}
			}
		})
		t.Run("as a connection, "+name, func(t *testing.T) {
			fd := one(t)
			x := newStranger(t)
			before := descriptors(t)
			m, done := x.ask(func() error { _, err := x.s.dial(t.Context(), 80); return err })
			x.send(&link.Message{Kind: link.Dialed, ID: m.ID}, fd)
			if err := <-done; !errors.Is(err, errDescriptor) {
				t.Error(err)
			}
			if !x.ended() {
				t.Error("the link goes on")
			}
			if after := descriptors(t); after > before-1 { // the link's own is closed
				t.Errorf("%d descriptors, and %d before", after, before)
			}
		})
	}
	t.Run("a pipe of the wrong direction", func(t *testing.T) {
		r, w := pipe(t)
		x := newStranger(t)
		m, done := x.ask(func() error {
			_, err := x.s.start(t.Context(), []string{"x"}, nil, "/")
			return err
		})
		x.send(&link.Message{Kind: link.Started, ID: m.ID}, r, r, w)
		if err := <-done; !errors.Is(err, errDescriptor) || !x.ended() {
			t.Error(err)
		}
	})
	t.Run("too many", func(t *testing.T) {
		r, _ := pipe(t)
		for _, n := range []int{4, 11, 12, 13, 100, 253} {
			x := newStranger(t)
			before := descriptors(t)
			fds := make([]int, n)
			for i := range fds {
				fds[i] = r
			}
			head := []byte{0, 0, 0, 19, byte(link.Started), byte(n), 0, 0}
			if _, _, err := x.conn.WriteMsgUnix(head, unix.UnixRights(fds...), nil); err != nil {
				t.Fatal(err)
			}
			if !x.ended() {
				t.Errorf("%d in one message: the link goes on", n)
			}
			if after := descriptors(t); after > before-1 {
				t.Errorf("%d in one message: %d descriptors, and %d before", n, after, before)
			}
		}
	})
	t.Run("unasked", func(t *testing.T) {
		r, _ := pipe(t)
		for _, kind := range []link.Kind{link.Started, link.Dialed, link.Ended, link.Hello, link.Start} {
			x := newStranger(t)
			before := descriptors(t)
			x.send(&link.Message{Kind: kind, ID: 7, A: link.Version, B: 1}, r)
			if !x.ended() {
				t.Errorf("kind %d: the link goes on", kind)
			}
			if after := descriptors(t); after > before-1 {
				t.Errorf("kind %d: %d descriptors, and %d before", kind, after, before)
			}
		}
	})
	t.Run("beside the middle of a frame", func(t *testing.T) {
		r, _ := pipe(t)
		x := newStranger(t)
		before := descriptors(t)
		frame, err := (&link.Message{Kind: link.Started, ID: 1}).Append(nil, 1)
		if err != nil {
			t.Fatal(err)
		}
		_, err1 := x.conn.Write(frame[:5])
		_, _, err2 := x.conn.WriteMsgUnix(frame[5:], unix.UnixRights(r), nil)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		if !x.ended() {
			t.Error("the link goes on")
		}
		if after := descriptors(t); after > before-1 {
			t.Errorf("%d descriptors, and %d before", after, before)
		}
	})
}

// TestV26Bound holds a link to what it may have open at a time, and counts what is closed.
func TestV26Bound(t *testing.T) {
	x := newStranger(t)
	x.s.held = maxHeld - 3
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	var p *Process
	m, done := x.ask(func() (err error) {
		p, err = x.s.start(t.Context(), []string{"x"}, nil, "/")
		return err
	})
	x.send(&link.Message{Kind: link.Started, ID: m.ID}, fds[1], fds[0], fds[0])
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if _, err := x.s.dial(t.Context(), 80); err == nil || !strings.Contains(err.Error(), "1024 descriptors") {
		t.Errorf("one more: %v", err)
	}
	// What the stranger does to its own descriptor does nothing to ours.
	_ = unix.SetNonblock(fds[0], false)
	_ = p.Stdout().(*stream).SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if _, err := p.Stdout().Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a read of nothing: %v", err)
	}
	_, _, _ = p.Stdin().Close(), p.Stdout().Close(), p.Stderr().Close()
	_ = p.Stderr().Close() // counts once
	if x.s.held != maxHeld-3 {
		t.Errorf("%d are held", x.s.held)
	}
	x.send(&link.Message{Kind: link.Ended, ID: m.ID, B: 9})
	if exit := p.Wait(); exit != (Exit{Code: -1, Signal: "killed"}) {
		t.Errorf("exit %+v", exit)
	}
	// Its end is told once.
	x.send(&link.Message{Kind: link.Ended, ID: m.ID})
	if !x.ended() {
		t.Error("the link goes on after a second end")
	}
}

// TestV22 is a link in other hands: frames that are none, and answers nobody asked for.
func TestV22(t *testing.T) {
	hello := func() []byte {
		b, err := (&link.Message{Kind: link.Hello, A: link.Version, B: 1}).Append(nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	large := []byte{0xff, 0xff, 0xff, 0xff, byte(link.Hello), 0, 0, 0}
	huge := binary.BigEndian.AppendUint32(nil, link.MaxBody+1)
	for name, bytes := range map[string][]byte{
		"2³² bytes":           large,
		"one byte too many":   append(huge, byte(link.Hello), 0, 0, 0),
		"another kind":        {0, 0, 0, 0, 99, 0, 0, 0},
		"a kind of none":      {0, 0, 0, 0, 0, 0, 0, 0},
		"reserved bytes":      {0, 0, 0, 0, byte(link.Hello), 0, 1, 0},
		"no body":             {0, 0, 0, 0, byte(link.Hello), 0, 0, 0},
		"a list without end":  append([]byte{0, 0, 0, 21, byte(link.Hello), 0, 0, 0}, append(make([]byte, 16), 0xff, 0xff, 0xff, 0xff, 0x0f)...),
		"two greetings":       append(hello(), hello()...),
		"another version":     func() []byte { b, _ := (&link.Message{Kind: link.Hello, A: 99, B: 1}).Append(nil, 0); return b }(),
		"a manager's message": func() []byte { b, _ := (&link.Message{Kind: link.Start, ID: 1}).Append(nil, 0); return b }(),
		"an end of nothing":   func() []byte { b, _ := (&link.Message{Kind: link.Ended, ID: 1}).Append(nil, 0); return b }(),
		"descriptors missing": func() []byte { b, _ := (&link.Message{Kind: link.Started, ID: 1}).Append(nil, 3); return b }(),
	} {
		t.Run(name, func(t *testing.T) {
			x := newStranger(t)
			if _, err := x.conn.Write(bytes); err != nil {
				t.Fatal(err)
			}
			if !x.ended() {
				t.Error("the link goes on")
			}
			if _, err := x.s.start(t.Context(), []string{"x"}, nil, "/"); err == nil {
				t.Error("something was started on it")
			}
		})
	}
	t.Run("the text of an error", func(t *testing.T) {
		x := newStranger(t)
		m, done := x.ask(func() error { _, err := x.s.dial(t.Context(), 80); return err })
		x.send(&link.Message{Kind: link.Dialed, ID: m.ID, Text: "\x1b]0;owned\x07" + strings.Repeat("é", 1000)})
		if err := <-done; err == nil || strings.ContainsAny(err.Error(), "\x1b\x07") || len(err.Error()) > 1100 {
			t.Errorf("%q", err)
		}
	})
	t.Run("nothing is read", func(t *testing.T) {
		x := newStranger(t)
		began := time.Now()
		var err error
		for err == nil {
			err = x.s.send(&link.Message{Kind: link.Signal, Text: strings.Repeat("x", 1<<19)})
		}
		if took := time.Since(began); !errors.Is(err, os.ErrDeadlineExceeded) || took > 2*sendTimeout || !x.ended() {
			t.Errorf("%v after %v", err, took)
		}
	})
}

// FuzzLink reads what a stranger may send.
func FuzzLink(f *testing.F) {
	for _, m := range []link.Message{{Kind: link.Hello, A: 1, B: 1}, {Kind: link.Start, ID: 2, Args: []string{"a", ""}, Env: []string{"A=b"}, Text: "/"}} {
		b, err := m.Append(nil, 0)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		rest := b
		r := link.Reader{Receive: func(p, _ []byte) (int, int, int, error) {
			if len(rest) == 0 {
				return 0, 0, 0, io.EOF
			}
			n := copy(p, rest)
			rest = rest[n:]
			return n, 0, 0, nil
		}}
		for {
			m, fds, err := r.Next()
			if err != nil {
				return
			}
			if len(fds) > 0 {
				t.Fatal("descriptors out of nothing")
			}
			again, err := m.Append(nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			back := link.Reader{Receive: func(p, _ []byte) (int, int, int, error) {
				n := copy(p, again)
				again = again[n:]
				return n, 0, 0, nil
			}}
			if two, _, err := back.Next(); err != nil || fmt.Sprintf("%#v", two) != fmt.Sprintf("%#v", m) {
				t.Fatalf("%#v became %#v: %v", m, two, err)
			}
		}
	})
}
