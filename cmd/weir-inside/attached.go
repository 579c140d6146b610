//go:build linux

package main

import (
	"encoding/binary"
	"io"
	"os"
	"time"

	"github.com/hashicorp/yamux"
	"golang.org/x/sys/unix"

	"github.com/weir-edge/weir/edge/sandbox/link"
)

// attached is a link over the container's own standard input and output, where no descriptor
// can be handed over: the bytes of each are carried by a stream. The manager opens the stream
// of the frames; the others are opened here, in the order in which frames announce them.
type attached struct {
	session *yamux.Session
	frames  *yamux.Stream
}

// standard is the connection.
type standard struct{}

func (standard) Read(p []byte) (int, error)  { return os.Stdin.Read(p) }
func (standard) Write(p []byte) (int, error) { return os.Stdout.Write(p) }
func (standard) Close() error                { return nil }

// attach takes up the link.
func attach() (*attached, error) {
	c := yamux.DefaultConfig()
	c.EnableKeepAlive, c.LogOutput = false, io.Discard
	c.AcceptBacklog = link.MaxStreams // so many may wait for the manager
	session, err := yamux.Server(standard{}, c)
	if err != nil {
		return nil, err
	}
	frames, err := session.AcceptStream()
	return &attached{session, frames}, err
}

// send sends m, and carries what descriptors say from now on; the caller keeps its own.
func (a *attached) send(m *link.Message, fds []int) error {
	if m.Kind == link.Accepted { // where it was meant to go cannot be seen from outside
		at, err := unix.Getsockname(fds[0])
		if own, ok := at.(*unix.SockaddrInet4); err == nil && ok {
			m.A, m.B = uint32(own.Port), binary.BigEndian.Uint32(own.Addr[:])
		}
	}
	for i, fd := range fds {
		own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return err
		}
		_ = unix.SetNonblock(own, true)
		stream, err := a.session.OpenStream()
		if err != nil {
			_ = unix.Close(own)
			return err
		}
		// A server's pipes go one way, connections both.
		pipe := m.Kind == link.Started
		go carry(os.NewFile(uintptr(own), "server"), stream, !pipe || i == 0, !pipe || i > 0)
	}
	p, err := m.Append(nil, len(fds))
	if err == nil {
		_, err = a.frames.Write(p)
	}
	return err
}

// carry carries bytes between a server and a stream until both directions have ended, and a
// while longer for the second one.
func carry(f *os.File, s *yamux.Stream, in, out bool) {
	ends := make(chan struct{}, 2)
	if in {
		go func() {
			_, _ = io.Copy(f, s)
			if raw, err := f.SyscallConn(); err == nil && out { // else it is closed below
				_ = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_WR) })
			}
			ends <- struct{}{}
		}()
	}
	if out {
		go func() {
			_, _ = io.Copy(s, f)
			_ = s.Close()
			ends <- struct{}{}
		}()
	}
	<-ends
	if in && out {
		select {
		case <-ends:
		case <-time.After(link.StreamClose):
		}
	}
	_, _ = f.Close(), s.Close()
}
