package door

import (
	"bytes"
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

	// lastRead is the size of the buffer that the rest of a refused one is read
	// into, and lastWait how long that waits for it.
	lastRead = 16 << 10
	lastWait = 5 * time.Millisecond

	// writeWithin is how long one write to a client may take, and writeRenew
	// how old that deadline may grow before it is set again: it rolls along
	// with a stream and costs next to nothing for a call.
	writeWithin = 30 * time.Second
	writeRenew  = 10 * time.Second

	// writePiece is how many bytes of what is sent have the whole time of a write: a client that
	// reads steadily gets an answer of any size.
	writePiece = 1 << 20

	// writeBuffer is how much the kernel may hold for a client that does not
	// read, in bytes.
	writeBuffer = 48 << 10

	// lingerFor is how long a refused request may be silent until it is read no
	// further, and lingerMost and lingerBytes what is read of it at the most.
	lingerFor   = time.Second
	lingerMost  = 5 * time.Second
	lingerBytes = 16 << 20

	// slack is how late the deadline of a read may be.
	slack = time.Second
)

// listener gives every client connection the form that the door needs.
type listener struct {
	net.Listener
	entrance *Entrance
	closed   chan struct{} // when no connection is taken any longer
	once     sync.Once
}

// Close ends the taking of connections.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

func (l *listener) Accept() (net.Conn, error) {
	d := l.entrance.door
	c, err := l.accept()
	for err == nil {
		if d.full() {
			go turnAway(c)
		} else if d.limiter.Enter(c, d.o.MaxPerAddress) {
			break
		} else {
			go TurnDown(c)
		}
		c, err = l.accept()
	}
	if err != nil {
		return nil, err
	}
	client := &Conn{Conn: c, door: d, entrance: l.entrance}
	client.From, _, _ = net.SplitHostPort(c.RemoteAddr().String())
	under := c
	if t, ok := c.(*tls.Conn); ok {
		under, client.greets = t.NetConn(), t
	}
	if t, ok := under.(*net.TCPConn); ok {
		// The kernel would let what a slow reader does not take grow to
		// megabytes for each connection, where no limit of the edge sees it.
		_ = t.SetWriteBuffer(writeBuffer)
	}
	client.turn.Of(c)
	d.underway.add(client)
	d.watcher.add(client, under)
	if l.entrance.leaving.Load() { // it was closed meanwhile
		client.retire()
	}
	return client, nil
}

// accept takes the next connection. A process that is out of descriptors or
// memory waits for some to come free: its door does not close for that.
func (l *listener) accept() (net.Conn, error) {
	d := l.entrance.door
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		c, err := l.Listener.Accept()
		if err != nil && d.paused.wait(l.closed) {
			continue
		}
		if err == nil || !passes(err) {
			return c, err
		}
		d.o.Log.Warn("no connection can be taken for now", "error", err, "again in", wait)
		select {
		case <-d.end:
			return nil, err
		case <-time.After(wait):
		}
	}
}

// Pause leaves new connections to another process that has the same socket: those
// that wait, wait in a queue that both have.
func (d *Door) Pause() {
	d.paused.begin()
	for _, en := range d.open() {
		if t, ok := en.bare.(*net.TCPListener); ok {
			_ = t.SetDeadline(time.Unix(1, 0))
		}
	}
}

// Resume ends Pause.
func (d *Door) Resume() {
	for _, en := range d.open() {
		if t, ok := en.bare.(*net.TCPListener); ok {
			_ = t.SetDeadline(time.Time{})
		}
	}
	d.paused.end()
}

// pausing is whether a door is paused.
type pausing struct {
	mu   sync.Mutex
	over chan struct{} // closed at the end of the pause; nil while there is none
}

func (p *pausing) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over == nil {
		p.over = make(chan struct{})
	}
}

func (p *pausing) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over != nil {
		close(p.over)
		p.over = nil
	}
}

// wait waits for the end of the pause, or of the door. It reports false when there
// is no pause.
func (p *pausing) wait(closed <-chan struct{}) bool {
	p.mu.Lock()
	over := p.over
	p.mu.Unlock()
	if over == nil {
		return false
	}
	select {
	case <-over:
	case <-closed:
		return false
	}
	return true
}

// Conn is a client's connection. Between requests it holds no buffers, so that an
// idle connection is small.
//
// A call that became a stream is answered by Send, and Swallow then drops the HTTP
// server's own answer; the server flushes each answer before it reads on, so that
// the order is kept.
type Conn struct {
	net.Conn
	From  string // the address of the other end, without its port
	Agent string // what its client last called itself, where somebody wants to know

	door     *Door
	entrance *Entrance        // that it came by; nil for a connection without a socket
	first    *[firstRead]byte // what was read and not yet taken: first[at:end]; nil where that is nothing
	at, end  int
	turn     turn.Turn
	answer   atomic.Pointer[[firstRead]byte] // what the next read sends before: answer[:size]
	size     int
	line     int  // bytes of the empty line that ends a header, at the end of what the server has
	ended    bool // the server has a header to its end, and nothing behind it
	alone    bool // no other request came behind the one that is served
	swallow  atomic.Bool
	renewed  time.Time         // when the write deadline was set
	lastBy   atomic.Int64      // by when all writes have to be over, Unix nanoseconds; 0 while each has its own time
	deadline time.Time         // for reading, as it was set
	greets   *tls.Conn         // until its handshake is done; nil without TLS
	heading  bool              // the header of a request is being read
	slow     bool              // the request did not come at once
	unread   bool              // a request was refused before it was read
	taken    int               // bytes read of a request after its first ones
	await    Awaited           // the body of the request that is served, until it is read
	most     int               // bytes that the body may have
	skip     int               // bytes of a body that nobody wanted, before the next request
	reserved *Reservation      // what the body of the request has of the budget; nil for nothing
	small    *[smallBody]byte  // that the body is in; nil for another
	middle   *[middleBody]byte // the same
	follows  bool              // the pieces of an answer go out behind its head
	pieces   *pieces           // nil until the first large answer
	wide     atomic.Bool

	watched uint64       // its number with the watcher
	place   atomic.Int32 // where it is between two requests
	later   atomic.Int32 // how often more has come of a request which did not come at once

	mu   sync.Mutex
	gone bool  // the client has left
	call *Call // the first of those under way
}

// The places of a connection. Whoever closes one that waits says so first: a
// request that comes at that moment is not served, and so has not run when its
// client finds the connection closed.
const (
	waits   int32 = iota // for a request
	serves               // one that has come
	arrives              // for more of one that has begun
	retires              // no further one is served
)

// retire ends the connection if it waits for a request.
func (c *Conn) retire() {
	if c.place.CompareAndSwap(waits, retires) {
		_ = c.Conn.SetReadDeadline(time.Unix(1, 0))
	}
}

var (
	firstReads = sync.Pool{New: func() any { return new([firstRead]byte) }}
	lastReads  = sync.Pool{New: func() any { return new([lastRead]byte) }}
)

// Client is the address of the client of a request, without a port, for records: it may be the client's
// own word where a trusted proxy writes Forwarded alone. All else rests on Certain.
func (c *Conn) Client(h *fasthttp.RequestHeader) string {
	at, _ := c.entrance.clientOf(c.From, h)
	return at
}

// Certain is Client for all that rests on an address, such as limits: "unknown" where it is doubted.
func (c *Conn) Certain(h *fasthttp.RequestHeader) string {
	at, doubted := c.entrance.clientOf(c.From, h)
	if doubted {
		return unknownClient
	}
	return at
}

// Entrance is where the client came in; nil for a connection without a socket.
func (c *Conn) Entrance() *Entrance { return c.entrance }

// Refused notes that a request was refused before all of it was read.
func (c *Conn) Refused() { c.unread = true }

// Swallow drops the next answer of the HTTP server, in whose place another was sent.
func (c *Conn) Swallow() { c.swallow.Store(true) }

// Swallows reports whether the next answer of the HTTP server is dropped.
func (c *Conn) Swallows() bool { return c.swallow.Load() }

// Leaving reports whether every answer is the last on its connection.
func (c *Conn) Leaving() bool {
	return c.door.Leaving() || c.entrance != nil && c.entrance.leaving.Load()
}

// Now is the time of the door's clock.
func (c *Conn) Now() time.Time { return c.door.Clock.Now() }

// Close closes the connection. One whose request was refused before all of it
// was read is closed for writing first and read on for a moment: to close at
// once would reset it, and the client would never see why (RFC 9112 §9.6).
func (c *Conn) Close() error {
	c.door.watcher.remove(c)
	_ = c.flush()
	c.Release()
	c.Narrow()
	if c.door.underway.remove(c) {
		c.door.limiter.Leave(c, c.door.o.MaxPerAddress)
	}
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && c.unread && half.CloseWrite() == nil {
		c.linger()
	}
	return c.Conn.Close()
}

// linger reads what is left of a refused request. It waits with a buffer as small
// as that of connections which wait for a request, since thousands may be refused
// at a time, and reads what has come with a large one.
func (c *Conn) linger() {
	small := firstReads.Get().(*[firstRead]byte)
	defer firstReads.Put(small)
	began, silence, most := time.Now(), lingerFor, lingerMost
	for read := 0; read < lingerBytes && time.Since(began) < most; {
		if c.door.closing.Load() {
			silence, most = quiet, lingerFor
		}
		_ = c.Conn.SetReadDeadline(time.Now().Add(silence))
		n, err := c.Conn.Read(small[:])
		for ; n > 0 && err == nil && read < lingerBytes && time.Since(began) < most; n, err = c.discard() {
			read += n
		}
		if err != nil {
			return
		}
	}
}

// discard reads once what has come, into a large buffer; 0 for nothing.
func (c *Conn) discard() (int, error) {
	_ = c.Conn.SetReadDeadline(time.Now().Add(lastWait))
	large := lastReads.Get().(*[lastRead]byte)
	defer lastReads.Put(large)
	n, err := c.Conn.Read(large[:])
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil
	}
	return n, err
}

// Read hands the server what has come of a request, but never more than up to
// the end of its header: the body is the door's to read, and the next request
// comes when the server asks for it.
func (c *Conn) Read(p []byte) (int, error) {
	if !c.heading { // the server waits for the first byte of a request
		if err := c.awaitNext(); err != nil {
			return 0, err
		}
		c.heading = true
	} else if c.at == c.end { // more of a header than came at once
		if err := c.more(); err != nil {
			return 0, err
		}
	}
	n := copy(p, c.first[c.at:c.end])
	if n == 1 && p[0] != endOfHead[0] && c.line == 0 {
		c.ended = false // as with every first byte
	} else {
		n = c.headEnd(p[:n])
	}
	if c.at += n; c.at == c.end {
		c.drop()
	}
	return n, nil
}

// awaitNext waits for the next request, after the end of the one before.
func (c *Conn) awaitNext() error {
	c.Release()
	if c.skip > 0 {
		if err := c.skipped(); err != nil {
			return err
		}
	}
	c.slow, c.alone, c.ended = false, false, false
	if c.at < c.end {
		return nil
	}
	c.drop()
	c.place.Store(waits)
	if c.door.closing.Load() {
		return io.EOF
	}
	if t := c.greets; t != nil {
		c.greets = nil
		c.readBy(c.door.Clock.Now().Add(c.door.o.Within))
		if err := t.Handshake(); err != nil {
			return err
		}
	}
	c.readBy(c.door.Clock.Now().Add(IdleWithin))
	buf, n, err := c.takeTurn()
	if n > 0 && !c.place.CompareAndSwap(waits, serves) {
		n, err = 0, io.EOF
	}
	if n == 0 {
		firstReads.Put(buf)
		return err
	}
	c.first, c.at, c.end = buf, 0, n
	return nil
}

// drop gives the first buffer back, of which nothing is needed any longer.
func (c *Conn) drop() {
	if c.first != nil {
		firstReads.Put(c.first)
		c.first = nil
	}
	c.at, c.end = 0, 0
}

// headEnd returns how much of what has come is not behind the end of a header.
// The empty line there may come in pieces.
func (c *Conn) headEnd(b []byte) int {
	i := 0
	for c.line > 0 && i < len(b) {
		switch {
		case b[i] == endOfHead[c.line]:
			c.line++
		case b[i] == endOfHead[0]:
			c.line = 1
		default:
			c.line = 0
		}
		i++
		if c.line == len(endOfHead) {
			c.line, c.ended = 0, true
			return i
		}
	}
	// To go from line to line takes half the time of a search for the whole end.
	for at := i; ; {
		n := bytes.IndexByte(b[at:], '\n')
		if n < 0 {
			break
		}
		if at += n + 1; bytes.HasSuffix(b[i:at], endOfHead) {
			c.ended = true
			return at
		}
	}
	c.ended = false
	for n := len(endOfHead) - 1; n > 0 && c.line == 0; n-- {
		if bytes.HasSuffix(b[i:], endOfHead[:n]) {
			c.line = n
		}
	}
	return len(b)
}

// Arrived begins a request whose header has been read.
func (c *Conn) Arrived(h *fasthttp.RequestHeader) {
	c.Release()
	c.heading, c.slow, c.taken = false, false, 0
	c.await, c.most = Announced(h), c.door.o.MaxBody
}

// Bound sets how many bytes the body of the request may have, where that is less than
// Options.MaxBody.
func (c *Conn) Bound(most int) { c.most = min(most, c.most) }

// Served ends a request that has been answered: what is read from here on belongs
// to the next. It reports false where the connection has to end with the answer,
// because to find the beginning of the next request would mean reading all of a
// body that nobody wanted.
func (c *Conn) Served() bool {
	if !c.pass() {
		c.unread = true
		return false
	}
	c.alone = c.ended && c.at == c.end && c.skip == 0
	return true
}

// readBy sets the deadline for reading. One that is up to slack late does no
// harm, and so need not be set for every request.
func (c *Conn) readBy(by time.Time) {
	if c.deadline.Before(by) || c.deadline.After(by.Add(slack)) {
		c.deadline = by.Add(slack)
		_ = c.Conn.SetReadDeadline(c.deadline)
	}
}

// SetDeadline is what the server calls to give a connection away.
func (c *Conn) SetDeadline(t time.Time) error {
	c.deadline, c.renewed = t, time.Time{}
	return c.Conn.SetDeadline(t)
}

// Write sends, unless the answer has been sent already. The server writes an
// answer that has no body at once, so that one write is what is swallowed: the
// next belongs to the next request, which may have been read already.
func (c *Conn) Write(p []byte) (int, error) {
	if c.swallow.CompareAndSwap(true, false) {
		return len(p), nil
	}
	if c.greets != nil { // it is turned away where connections are taken: nobody may wait for its greeting there
		return 0, errNoGreeting
	}
	if c.awaits(p) {
		return c.sendPieces(p)
	}
	if c.hold(p) {
		return len(p), nil
	}
	return c.Send(p)
}

// errNoGreeting is the error of a write before the handshake of TLS.
var errNoGreeting = errors.New("the client has not greeted")

// takeTurn sends the answer that waits, if one does, and reads the beginning of
// the next request.
func (c *Conn) takeTurn() (buf *[firstRead]byte, n int, err error) {
	buf = c.answer.Swap(nil)
	if buf == nil {
		buf = firstReads.Get().(*[firstRead]byte)
	} else if n, err = c.turn.Take(buf[:c.size], buf[:], false, c.Send); n > 0 || err != nil {
		return buf, n, err
	}
	n, err = c.Conn.Read(buf[:])
	return buf, n, err
}

// hold keeps an answer for the turn that it is the first half of: the server
// reads on at once, and what it reads is the next request's first byte. It
// reports false for an answer that is to be written now. One whose client has
// sent the next request already is: the server has that, and will not read.
func (c *Conn) hold(p []byte) bool {
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
func (c *Conn) flush() error {
	buf := c.answer.Swap(nil)
	if buf == nil {
		return nil
	}
	_, err := c.Send(buf[:c.size])
	firstReads.Put(buf)
	return err
}
