package serve

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
	"github.com/weir-edge/weir/edge/turn"
)

const (
	// firstRead is the size of the buffer that the beginning of a request is
	// read into. It holds an ordinary call with its header, so that a request
	// costs one system call to read.
	firstRead = 2 << 10

	// writeWithin is how long one write to a client may take, and writeRenew
	// how old that deadline may grow before it is set anew: it rolls along
	// with a stream and costs next to nothing for a call.
	writeWithin = 30 * time.Second
	writeRenew  = 10 * time.Second

	// writeBuffer is how much the kernel may hold for a client that does not
	// read, in bytes.
	writeBuffer = 48 << 10

	// lingerFor and lingerBytes bound what is read of a refused request.
	lingerFor   = time.Second
	lingerBytes = 16 << 20

	// slack is how late the deadline of a read may be.
	slack = time.Second
)

// listener gives every client connection the form that the door needs.
type listener struct {
	net.Listener
	edge *Edge
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.accept()
	for err == nil && !l.edge.crowd.enter(c, l.edge.settings.MaxConnectionsPerAddress) {
		go turnDown(c)
		c, err = l.accept()
	}
	if err != nil {
		return nil, err
	}
	client := &clientConn{Conn: c, edge: l.edge}
	client.from, _, _ = net.SplitHostPort(c.RemoteAddr().String())
	under := c
	if t, ok := c.(*tls.Conn); ok {
		under = t.NetConn()
	}
	if t, ok := under.(*net.TCPConn); ok {
		// The kernel would let what a slow reader does not take grow to
		// megabytes for each connection, where no limit of the edge sees it.
		_ = t.SetWriteBuffer(writeBuffer)
	}
	client.turn.Of(c)
	l.edge.underway.add(client)
	l.edge.watcher.add(client, under)
	return client, nil
}

// accept takes the next connection. A process that is out of descriptors or
// memory waits for some to come free: its door does not close for that.
func (l *listener) accept() (net.Conn, error) {
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		c, err := l.Listener.Accept()
		if err == nil || !passes(err) {
			return c, err
		}
		l.edge.log.Warn("no connection can be taken for now", "error", err, "again in", wait)
		select {
		case <-l.edge.end:
			return nil, err
		case <-time.After(wait):
		}
	}
}

// crowd counts the connections of each client address, when they are limited.
type crowd struct {
	mu    sync.Mutex
	count map[string]int
}

// enter counts a connection. It reports false when its address has most of them
// already; 0 is no limit.
func (w *crowd) enter(c net.Conn, most int) bool {
	if most == 0 {
		return true
	}
	host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count[host] >= most {
		return false
	}
	if w.count == nil {
		w.count = make(map[string]int)
	}
	w.count[host]++
	return true
}

func (w *crowd) leave(c net.Conn, most int) {
	if most == 0 {
		return
	}
	host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count[host]--; w.count[host] <= 0 {
		delete(w.count, host)
	}
}

// turnDown tells a client that its address has too many connections.
func turnDown(c net.Conn) {
	_ = c.SetDeadline(time.Now().Add(lingerFor))
	_, _ = io.WriteString(c, "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	_ = c.Close()
}

// clientConn is a client's connection. Between requests it holds no buffers,
// so that an idle connection is small.
//
// The door answers an exchange that became a stream by writing to the
// connection itself, and then has the server's own answer swallowed; the
// server flushes each answer before it reads on, so that the order is kept.
type clientConn struct {
	net.Conn
	edge     *Edge
	from     string           // the address of the other end, without its port
	agent    string           // what its client last called itself, where somebody wants to know
	first    *[firstRead]byte // what was read and not yet taken: first[at:end]
	at, end  int
	turn     turn.Turn
	answer   atomic.Pointer[[firstRead]byte] // what the next read sends before: answer[:size]
	size     int
	handed   int  // bytes handed to the server since its last request
	alone    bool // no other request came behind the one that is served
	swallow  atomic.Bool
	renewed  time.Time // when the write deadline was set
	deadline time.Time // for reading, as it was set
	slow     bool      // the request did not come at once
	unread   bool      // a request was refused before it was read
	taken    int       // bytes read of a request after its first ones
	over     bool      // those were too many
	held     int64     // bytes of a request that the edge has room for
	busy     bool      // it has no room for more
	follows  bool      // the pieces of an answer go out behind its head
	pieces   *pieces   // nil until the first large answer
	wide     atomic.Bool

	watched uint64 // its number with the watcher

	mu   sync.Mutex
	gone bool      // the client has left
	x    *exchange // the first of those under way
}

var firstReads = sync.Pool{New: func() any { return new([firstRead]byte) }}

// Close closes the connection. One whose request was refused before all of it
// was read is closed for writing first and read on for a moment: to close at
// once would reset it, and the client would never see why (RFC 9112 §9.6).
func (c *clientConn) Close() error {
	c.edge.watcher.remove(c)
	_ = c.flush()
	c.release()
	c.narrow()
	if c.edge.underway.remove(c) {
		c.edge.crowd.leave(c, c.edge.settings.MaxConnectionsPerAddress)
	}
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && c.unread && half.CloseWrite() == nil {
		_ = c.Conn.SetReadDeadline(time.Now().Add(lingerFor))
		_, _ = io.CopyN(io.Discard, c.Conn, lingerBytes)
	}
	return c.Conn.Close()
}

// Read hands out what the first read of a request brought, then reads on.
func (c *clientConn) Read(p []byte) (int, error) {
	if c.first != nil {
		n := copy(p, c.first[c.at:c.end])
		c.handed += n
		if c.at += n; c.at == c.end {
			firstReads.Put(c.first)
			c.first = nil
		}
		return n, nil
	}
	if len(p) > 1 {
		// More of a request than came at once: all of it has one time to arrive.
		if !c.slow {
			c.slow = true
			c.readBy(c.edge.clock.now().Add(c.edge.arrival))
		}
		// What a body of chunks holds besides its data is in no other limit.
		if c.taken > c.edge.settings.MaxHeader+2*c.edge.settings.MaxBody {
			c.over = true
			return 0, errTooMuch
		}
		n, err := c.Conn.Read(p)
		c.handed += n
		c.taken += n
		c.held += int64(n)
		if c.edge.bodies.Add(int64(n)) > c.edge.mostBodies {
			c.busy = true
			return 0, errBusy
		}
		return n, err
	}
	// The server waits for the first byte of a request.
	c.slow = false
	c.release()
	c.readBy(c.edge.clock.now().Add(idleWithin))
	buf, n, err := c.takeTurn()
	if n == 0 {
		firstReads.Put(buf)
		return 0, err
	}
	p[0] = buf[0]
	c.handed, c.alone = 1, false
	if n == 1 {
		firstReads.Put(buf)
		return 1, nil
	}
	c.first, c.at, c.end = buf, 1, n
	return 1, nil
}

// release gives back the room that the last request took.
func (c *clientConn) release() {
	if c.held > 0 {
		c.edge.bodies.Add(-c.held)
		c.held = 0
	}
}

// errBusy ends the reading of a request for which there is no room in memory.
var errBusy = errors.New("there is no room for the request")

var errTooMuch = errors.New("the request is too large")

// arrived tells that a request has been read: what is read from here on
// belongs to the next.
func (c *clientConn) arrived(r *fasthttp.Request) {
	c.slow, c.taken = false, 0
	h := &r.Header
	size := len(h.Method()) + len(" ") + len(h.RequestURI()) + len(" ") + len(h.Protocol()) + len("\r\n") + len(h.RawHeaders()) + len(r.Body())
	c.alone = c.first == nil && c.handed == size
	c.handed = 0
}

// readBy sets the deadline for reading. One that is up to slack late does no
// harm, and so need not be set for every request.
func (c *clientConn) readBy(by time.Time) {
	if c.deadline.Before(by) || c.deadline.After(by.Add(slack)) {
		c.deadline = by.Add(slack)
		_ = c.Conn.SetReadDeadline(c.deadline)
	}
}

// SetDeadline is what the server calls to give a connection away.
func (c *clientConn) SetDeadline(t time.Time) error {
	c.deadline, c.renewed = t, time.Time{}
	return c.Conn.SetDeadline(t)
}

// Write sends, unless the answer has been sent already. The server writes an
// answer that has no body at once, so that one write is what is swallowed: the
// next belongs to the next request, which may have been read already.
func (c *clientConn) Write(p []byte) (int, error) {
	if c.swallow.CompareAndSwap(true, false) {
		return len(p), nil
	}
	if c.awaits(p) {
		return c.sendPieces(p)
	}
	if c.hold(p) {
		return len(p), nil
	}
	return c.send(p)
}

// takeTurn sends the answer that waits, if one does, and reads the beginning of
// the next request.
func (c *clientConn) takeTurn() (buf *[firstRead]byte, n int, err error) {
	buf = c.answer.Swap(nil)
	if buf == nil {
		buf = firstReads.Get().(*[firstRead]byte)
	} else if n, err = c.turn.Take(buf[:c.size], buf[:], false, c.send); n > 0 || err != nil {
		return buf, n, err
	}
	n, err = c.Conn.Read(buf[:])
	return buf, n, err
}

// hold keeps an answer for the turn that it is the first half of: the server
// reads on at once, and what it reads is the next request's first byte. It
// reports false for an answer that is to be written now. One whose client has
// sent the next request already is: the server has that, and will not read.
func (c *clientConn) hold(p []byte) bool {
	if !c.alone || len(p) > firstRead || !c.turn.Able() || c.answer.Load() != nil {
		return false
	}
	c.alone = false
	buf := firstReads.Get().(*[firstRead]byte)
	c.size = copy(buf[:], p)
	c.answer.Store(buf)
	return true
}

// flush sends the answer that waits for a turn where none comes.
func (c *clientConn) flush() error {
	buf := c.answer.Swap(nil)
	if buf == nil {
		return nil
	}
	_, err := c.send(buf[:c.size])
	firstReads.Put(buf)
	return err
}

// send writes with a deadline that rolls along.
func (c *clientConn) send(p []byte) (int, error) {
	if err := c.ready(); err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(p)
	if err != nil {
		c.failed(err)
	}
	return n, err
}

// ready sends what waits to be sent before the next write, and gives that its
// time.
func (c *clientConn) ready() error {
	if c.answer.Load() != nil {
		if err := c.flush(); err != nil {
			return err
		}
	}
	return c.roll()
}

// roll gives the next write its time.
func (c *clientConn) roll() error {
	now := c.edge.clock.now()
	if now.Sub(c.renewed) <= writeRenew {
		return nil
	}
	c.renewed = now
	return c.Conn.SetWriteDeadline(now.Add(writeWithin))
}

// failed is told of a write that failed. A client that did not read in time is
// given up.
func (c *clientConn) failed(err error) {
	if os.IsTimeout(err) {
		c.abandon()
	}
}

// abandon has the kernel throw away what the client does not take once the
// connection is closed, instead of trying on for minutes.
func (c *clientConn) abandon() {
	under := c.Conn
	if t, ok := under.(*tls.Conn); ok {
		under = t.NetConn()
	}
	if t, ok := under.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
}

// clock is the time of day, coarse and cheap.
type clock struct{ at atomic.Pointer[time.Time] }

func newClock() *clock {
	c := &clock{}
	c.tick(time.Now())
	return c
}

func (c *clock) tick(now time.Time) { c.at.Store(&now) }
func (c *clock) now() time.Time     { return *c.at.Load() }
