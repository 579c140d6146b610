package sandbox

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/weir-edge/weir/edge/sandbox/link"
)

// attached is a wire over one connection, such as the standard streams of a container: what
// comes beside frames are streams, in the order in which they were opened.
type attached struct {
	session *yamux.Session
	frames  *yamux.Stream
	reader  link.Reader

	mu    sync.Mutex
	last  int
	given map[int]*carriedConn // that came and nobody has taken
}

// streamWithin is how long a stream may take that a frame has announced: it was opened before.
const streamWithin = 5 * time.Second

// Attach is as Link, with a helper in the attached form: conn carries all that it and its
// servers say. It takes conn over.
func Attach(ctx context.Context, conn io.ReadWriteCloser, name string, out Outlet) (*Linked, error) {
	g := &guard{from: conn}
	c := yamux.DefaultConfig()
	c.EnableKeepAlive, c.LogOutput = false, io.Discard
	c.AcceptBacklog, c.MaxStreamWindowSize, c.StreamCloseTimeout, c.ConnectionWriteTimeout = link.MaxStreams, link.StreamWindow, link.StreamClose, sendTimeout
	session, err := yamux.Client(guarded{g, conn}, c)
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("link: %w", err)
	}
	g.session.Store(session)
	frames, err := session.OpenStream()
	if err != nil {
		_ = session.Close()
		return nil, fmt.Errorf("link: %w", err)
	}
	w := &attached{session: session, frames: frames, given: map[int]*carriedConn{}}
	w.reader = link.Reader{Streams: true, Receive: func(p, _ []byte) (int, int, int, error) {
		n, err := frames.Read(p)
		return n, 0, 0, err
	}}
	var passage Passage
	var ports []int
	if out != nil {
		passage, ports = openOutlet(out)
	}
	l := &Linked{newSessionOver(w, name, passage, ports, nil)}
	if err := l.session.greet(ctx); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func (a *attached) next() (link.Message, []int, error) {
	m, beside, err := a.reader.Next()
	for i := range beside {
		if err != nil {
			break
		}
		beside[i], err = a.take()
	}
	if err != nil {
		a.drop(beside)
		return link.Message{}, nil, err
	}
	return m, beside, nil
}

// take takes the stream that was opened next.
func (a *attached) take() (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), streamWithin)
	defer cancel()
	s, err := a.session.AcceptStreamWithContext(ctx)
	if err != nil {
		return -1, errDescriptor
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last++
	a.given[a.last] = &carriedConn{Stream: s}
	return a.last, nil
}

// took gives what came to who takes it.
func (a *attached) took(beside int) *carriedConn {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.given[beside]
	delete(a.given, beside)
	return c
}

func (a *attached) send(m *link.Message) error {
	p, err := m.Append(nil, 0)
	if err != nil {
		return err
	}
	defer clear(p)
	_ = a.frames.SetWriteDeadline(time.Now().Add(sendTimeout))
	_, err = a.frames.Write(p)
	return err
}

func (a *attached) close() { _ = a.session.Close() }

func (a *attached) pipe(beside, _ int, _ string) (end, error) {
	if c := a.took(beside); c != nil {
		return c, nil
	}
	return nil, errDescriptor
}

func (a *attached) dialed(beside, port int) (held, error) {
	c := a.took(beside)
	if c == nil {
		return nil, errDescriptor
	}
	c.remote = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}
	return c, nil
}

// accepted believes the helper where a connection was meant to go: to one of the addresses of
// its own sandbox, which lead nowhere but where its servers are let out to.
func (a *attached) accepted(beside int, m *link.Message, ports []int) (held, error) {
	c := a.took(beside)
	if c == nil {
		return nil, errDescriptor
	}
	var ip [4]byte
	binary.BigEndian.PutUint32(ip[:], m.B)
	if ip[0] != 127 || !slices.Contains(ports, int(m.A)) {
		_ = c.Close()
		return nil, errDescriptor
	}
	c.local = &net.TCPAddr{IP: ip[:], Port: int(m.A)}
	return c, nil
}

func (a *attached) drop(beside []int) {
	for _, one := range beside {
		if c := a.took(one); c != nil {
			_ = c.Close()
		}
	}
}

// carriedConn is a stream that stands for a connection, or for an end of a pipe.
type carriedConn struct {
	*yamux.Stream
	local, remote net.Addr // nil for no address

	mu     sync.Mutex
	closed func()
}

func (c *carriedConn) LocalAddr() net.Addr  { return addressOr(c.local, c.Stream.LocalAddr()) }
func (c *carriedConn) RemoteAddr() net.Addr { return addressOr(c.remote, c.Stream.RemoteAddr()) }

func addressOr(a, otherwise net.Addr) net.Addr {
	if a != nil {
		return a
	}
	return otherwise
}

// CloseWrite says that nothing more comes.
func (c *carriedConn) CloseWrite() error { return c.Stream.Close() }

// Close ends both directions; a read that waits returns.
func (c *carriedConn) Close() error {
	err := c.Stream.Close()
	_ = c.Stream.SetReadDeadline(time.Now().Add(-time.Second))
	c.mu.Lock()
	closed := c.closed
	c.closed = nil
	c.mu.Unlock()
	if closed != nil {
		closed()
	}
	return err
}

func (c *carriedConn) onClose(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = f
}

// guard reads what a helper sends, which is a stranger's, frame by frame of the multiplexer, and
// lets no more through than ours would send: no ping, each of which costs an answer, no data
// beyond a window, no more streams than may be.
type guard struct {
	from    io.Reader
	session atomic.Pointer[yamux.Session]

	head [12]byte // version, type, flags (2), stream (4), length (4)
	left int      // of head, to be handed on
	body int      // bytes of data that follow
}

var errGuard = errors.New("malformed frame on the link")

func (g *guard) Read(p []byte) (int, error) {
	if g.left == 0 && g.body == 0 {
		if _, err := io.ReadFull(g.from, g.head[:]); err != nil {
			return 0, err
		}
		const data, update, goAway, syn = 0, 1, 3, 1
		kind, flags, length := g.head[1], binary.BigEndian.Uint16(g.head[2:]), binary.BigEndian.Uint32(g.head[8:])
		s := g.session.Load()
		switch {
		case g.head[0] != 0, kind != data && kind != update && kind != goAway, flags > 15:
			return 0, errGuard
		case kind == data && length > link.StreamWindow:
			return 0, errGuard
		case flags&syn != 0 && (s == nil || s.NumStreams() > link.MaxStreams):
			return 0, errGuard
		}
		if g.left = len(g.head); kind == data {
			g.body = int(length)
		}
	}
	if g.left > 0 {
		n := copy(p, g.head[len(g.head)-g.left:])
		g.left -= n
		return n, nil
	}
	n, err := g.from.Read(p[:min(len(p), g.body)])
	g.body -= n
	return n, err
}

// guarded is a connection whose other end is a stranger.
type guarded struct {
	io.Reader
	conn io.ReadWriteCloser
}

func (g guarded) Write(p []byte) (int, error) { return g.conn.Write(p) }
func (g guarded) Close() error                { return g.conn.Close() }
