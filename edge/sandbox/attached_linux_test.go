package sandbox

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/weir-edge/weir/edge/sandbox/link"
)

// streams are the standard streams of a helper.
type streams struct {
	io.ReadCloser
	io.WriteCloser
}

func (s streams) Close() error { return errors.Join(s.WriteCloser.Close(), s.ReadCloser.Close()) }

// attachedHelper runs a helper in no sandbox, with a link over its standard streams.
func attachedHelper(t *testing.T, out Outlet) *Linked {
	t.Helper()
	path, err := Helper(machine(t).cache)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "attached", "files=256")
	in, err1 := cmd.StdinPipe()
	from, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	l, err := Attach(t.Context(), streams{from, in}, "test", out)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the helper ended with %v", err)
		}
	})
	return l
}

// A link over one connection does what one by a socket does: processes have their streams and
// their ends, ports are connected to, and all ends with it.
func TestAttached(t *testing.T) {
	l := attachedHelper(t, nil)
	p, err := l.Start(t.Context(), []string{probe(t), "echo"}, []string{"PATH=/usr/bin"}, "/")
	if err != nil {
		t.Fatal(err)
	}
	big := strings.Repeat("x", 3*link.StreamWindow) + "\n"
	lines := bufio.NewReaderSize(p.Stdout(), len(big))
	for _, line := range []string{"one\n", "two\n", big} {
		go func() { _, _ = io.WriteString(p.Stdin(), line) }()
		if got, err := lines.ReadString('\n'); got != line {
			t.Fatalf("%d bytes, %v; want %d", len(got), err, len(line))
		}
	}
	if exit := p.Stop(5 * time.Second); exit != (Exit{}) {
		t.Errorf("%+v", exit)
	}
	if rest, err := io.ReadAll(lines); string(rest) != "echo = end\n" || err != nil {
		t.Errorf("at its end: %q, %v", rest, err)
	}
	// What cannot be started says why.
	if _, err := l.Start(t.Context(), []string{"/nowhere"}, nil, "/"); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("%v", err)
	}
	// Standard error, and how it ends.
	p, err = l.Start(t.Context(), []string{"/bin/sh", "-c", "echo out; echo bad >&2; exit 3"}, nil, "/")
	if err != nil {
		t.Fatal(err)
	}
	out, _ := io.ReadAll(p.Stdout())
	bad, _ := io.ReadAll(p.Stderr())
	if exit := p.Wait(); exit != (Exit{Code: 3}) || string(out) != "out\n" || string(bad) != "bad\n" {
		t.Errorf("%+v, %q, %q", exit, out, bad)
	}
	// A port of its own.
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go func() {
		c, err := server.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		text, _ := io.ReadAll(c) // until the other end says nothing more
		fmt.Fprintf(c, "%d bytes", len(text))
	}()
	c, err := l.Dial(t.Context(), server.Addr().(*net.TCPAddr).Port)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(c, "hello")
	_ = c.(interface{ CloseWrite() error }).CloseWrite()
	if said, err := io.ReadAll(c); string(said) != "5 bytes" {
		t.Errorf("%q, %v", said, err)
	}
	_ = c.Close()
	if _, err := l.Dial(t.Context(), 1); err == nil {
		t.Error("a port that nobody listens on")
	}
	// A process that is killed, and all that is left at the end of the link.
	p, err = l.Start(t.Context(), []string{"/bin/sleep", "1000"}, nil, "/")
	if err != nil {
		t.Fatal(err)
	}
	p.Kill()
	if exit := p.Wait(); exit.Signal != "killed" {
		t.Errorf("%+v", exit)
	}
	p, err = l.Start(t.Context(), []string{"/bin/sleep", "1000"}, nil, "/")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if exit := p.Wait(); exit.Signal != "killed" {
		t.Errorf("%+v", exit)
	}
	if _, err := l.Start(t.Context(), []string{"/bin/true"}, nil, "/"); err == nil {
		t.Error("a start after the end")
	}
}

// mux is the other end of an attached link, in the hands of somebody else than the helper.
func muxed(t *testing.T) (raw net.Conn, l <-chan *Linked) {
	t.Helper()
	ours, theirs := net.Pipe()
	made := make(chan *Linked, 1)
	go func() {
		l, err := Attach(t.Context(), ours, "test", everything{})
		if err == nil {
			t.Cleanup(l.Close)
		}
		made <- l
		close(made)
	}()
	t.Cleanup(func() { _ = theirs.Close() })
	return theirs, made
}

// everything is an outlet of which only the ports count.
type everything struct{}

func (everything) Ports() []int         { return []int{443} }
func (everything) Open() Passage        { return everything{} }
func (everything) Serve(c net.Conn)     { _ = c.Close() }
func (everything) Answer([]byte) []byte { return nil }
func (everything) Close()               {}

// V22, V26 of the attached form: what no helper sends ends the link, and nothing is left of it.
func TestAttachedHostile(t *testing.T) {
	hello := link.Message{Kind: link.Hello, A: link.Version, B: 1}
	frame := func(m link.Message, n int) []byte {
		p, err := m.Append(nil, n)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	head := func(version, kind byte, flags uint16, id, length uint32) []byte {
		p := []byte{version, kind}
		p = binary.BigEndian.AppendUint16(p, flags)
		return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(p, id), length)
	}
	for name, attack := range map[string]func(raw net.Conn, s *yamux.Session, frames *yamux.Stream){
		"a frame of 2³² bytes": func(_ net.Conn, _ *yamux.Session, f *yamux.Stream) {
			_, _ = f.Write([]byte{0xff, 0xff, 0xff, 0xff, byte(link.Query), 0, 0, 0})
		},
		"no frame":      func(_ net.Conn, _ *yamux.Session, f *yamux.Stream) { _, _ = f.Write([]byte("GET / HTTP/1.1\r\n\r\n")) },
		"another hello": func(_ net.Conn, _ *yamux.Session, f *yamux.Stream) { _, _ = f.Write(frame(hello, 0)) },
		"an unasked answer": func(_ net.Conn, _ *yamux.Session, f *yamux.Stream) {
			_, _ = f.Write(frame(link.Message{Kind: link.Dialed, ID: 7}, 0))
		},
		"an unasked stream": func(_ net.Conn, s *yamux.Session, f *yamux.Stream) {
			_, _ = s.OpenStream()
			_, _ = f.Write(frame(link.Message{Kind: link.Dialed, ID: 7}, 1))
		},
		"a stream that is not there": func(_ net.Conn, _ *yamux.Session, f *yamux.Stream) {
			_, _ = f.Write(frame(link.Message{Kind: link.Accepted, A: 443, B: 127 << 24}, 1))
		},
		"a port of nobody's": func(_ net.Conn, s *yamux.Session, f *yamux.Stream) {
			_, _ = s.OpenStream()
			_, _ = f.Write(frame(link.Message{Kind: link.Accepted, A: 22, B: 127 << 24}, 1))
		},
		"an address of somebody else's": func(_ net.Conn, s *yamux.Session, f *yamux.Stream) {
			_, _ = s.OpenStream()
			_, _ = f.Write(frame(link.Message{Kind: link.Accepted, A: 443, B: 10 << 24}, 1))
		},
		"10,000 streams": func(_ net.Conn, s *yamux.Session, _ *yamux.Stream) {
			for range 10_000 {
				if _, err := s.OpenStream(); err != nil {
					return
				}
			}
		},
		"more than a window": func(raw net.Conn, _ *yamux.Session, f *yamux.Stream) {
			_, _ = raw.Write(append(head(0, 0, 0, f.StreamID(), 1<<32-1), make([]byte, 100)...))
		},
		"a ping":           func(raw net.Conn, _ *yamux.Session, _ *yamux.Stream) { _, _ = raw.Write(head(0, 2, 1, 0, 1)) },
		"another version":  func(raw net.Conn, _ *yamux.Session, _ *yamux.Stream) { _, _ = raw.Write(head(9, 0, 0, 1, 0)) },
		"an unknown type":  func(raw net.Conn, _ *yamux.Session, _ *yamux.Stream) { _, _ = raw.Write(head(0, 7, 0, 1, 0)) },
		"a stream of ours": func(raw net.Conn, _ *yamux.Session, _ *yamux.Stream) { _, _ = raw.Write(head(0, 1, 1, 1, 0)) },
		"the end":          func(raw net.Conn, _ *yamux.Session, _ *yamux.Stream) { _ = raw.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			raw, made := muxed(t)
			c := yamux.DefaultConfig()
			c.EnableKeepAlive, c.LogOutput, c.AcceptBacklog = false, io.Discard, 20_000
			s, err := yamux.Server(raw, c)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			frames, err := s.AcceptStream()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := frames.Write(frame(hello, 0)); err != nil {
				t.Fatal(err)
			}
			l := <-made
			if l == nil {
				t.Fatal("no link")
			}
			attack(raw, s, frames)
			select {
			case <-l.Ended():
			case <-time.After(20 * time.Second):
				t.Error("the link goes on")
			}
		})
	}
	// Nobody greets.
	raw, made := muxed(t)
	_ = raw.Close()
	if l := <-made; l != nil {
		t.Error("a link with nobody")
	}
}
