package serve

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/door"
	"github.com/weir-edge/weir/edge/mcp"
)

// The door reads the bodies of requests itself. The HTTP server would make
// memory for what a head announces, before any of it has come and before
// anybody knows who announces it. Here a body is read when its client has been
// let in, and the memory for it follows the bytes that have come; what does not
// fit the first buffer of its connection is taken from a budget.

const (
	// growth is how many times larger each next buffer of a body is. The first
	// are kept for later bodies, the others are as large as they have to be.
	growth     = 8
	smallBody  = 8 << 10
	middleBody = growth * smallBody

	// enough is how much of a body has to have come before it gets a buffer of
	// its own. Of one that fits the smallest anything will do.
	enough = smallBody / growth

	// skipMost is the most of a body that nobody wanted which is read over for
	// the next request to come. The connection ends with one that is larger.
	skipMost = 64 << 10

	// maxLasting is the most bytes of the body of a request that lasts until
	// somebody ends it.
	maxLasting = 64 << 10

	// maxHex is how many digits the size of a chunk may have.
	maxHex = 15
)

var (
	errTooMuch = errors.New("the request is too large")
	errBusy    = errors.New("there is no room for the request")
	errChunks  = errors.New("the chunks of the request cannot be read")
	errTrailer = errors.New("the trailer of the request is too large")
)

var (
	smallBodies  = sync.Pool{New: func() any { return new([smallBody]byte) }}
	middleBodies = sync.Pool{New: func() any { return new([middleBody]byte) }}
)

// body reads the body of a request whose client may send one, into h. It
// reports false when that has been refused.
func (e *Edge) body(ctx *fasthttp.RequestCtx, h *head) bool {
	conn := ctx.Conn().(*clientConn)
	if n := conn.await.Size; n >= 0 && n <= conn.end-conn.at { // all of it came with its head
		h.body = conn.cut(n)
		return true
	}
	who := owner{principal: h.who.Principal()}
	if h.who == nil || h.who.Token == "" {
		who = strangerAt(e.clientOf(conn, &ctx.Request.Header))
	}
	var err error
	if h.body, err = conn.collect(who); err == nil {
		return true
	}
	conn.unread = true
	ctx.SetConnectionClose()
	var timeout net.Error
	switch {
	case errors.Is(err, errBusy), conn.reserved != nil && !e.budget.whole(conn.reserved):
		e.refuse(ctx, h, headEra(h), nil, edge.Errorf(edge.Overload, "door", "there is no room for so many large requests; send fewer at a time"))
	case errors.Is(err, errTooMuch):
		e.unreadable(ctx, 413, "the body is larger than "+strconv.Itoa(e.settings.MaxBody)+" bytes")
	case errors.Is(err, errTrailer):
		e.unreadable(ctx, 431, "the trailer is larger than "+strconv.Itoa(e.settings.MaxHeader)+" bytes")
	case errors.As(err, &timeout) && e.closing.Load():
		e.refuse(ctx, h, headEra(h), nil, &edge.Error{Kind: edge.Overload, Op: "door", After: time.Second, Err: errors.New("this edge ends, and the request did not arrive in time; send it again")})
	case errors.As(err, &timeout) && timeout.Timeout():
		e.unreadable(ctx, 408, "the request did not arrive in time")
	default:
		e.unreadable(ctx, 400, "the HTTP request cannot be read")
	}
	return false
}

// cut returns the next n bytes of what has come, which are the body.
func (c *clientConn) cut(n int) []byte {
	if n == 0 {
		c.await = door.Awaited{}
		return nil
	}
	text := c.first[c.at : c.at+n : c.at+n]
	c.at += n
	c.await = door.Awaited{}
	return text
}

// collect reads a body of which something has not come yet, for a client.
func (c *clientConn) collect(who owner) ([]byte, error) {
	if c.await.Expects && c.at == c.end {
		if _, err := c.send(goOn); err != nil {
			return nil, err
		}
	}
	if c.await.Size == door.InChunks {
		return c.collectChunks(who)
	}
	n := c.await.Size
	for n <= firstRead || c.end-c.at < enough && (n > smallBody || c.end == c.at) {
		if err := c.more(); err != nil {
			return nil, err
		}
		if c.end-c.at >= n {
			return c.cut(n), nil
		}
	}
	b := grown{c: c, who: who, most: n}
	if err := b.add(n); err != nil {
		return nil, err
	}
	return b.whole()
}

var goOn = []byte("HTTP/1.1 100 Continue\r\n\r\n")

// collectChunks reads a body in chunks (RFC 9112 §7.1). What is announced of a
// chunk is held against the limit at once. Chunk extensions and the trailer are
// read over.
func (c *clientConn) collectChunks(who owner) ([]byte, error) {
	b := grown{c: c, who: who, most: c.edge.settings.MaxBody}
	for {
		n, err := c.chunkSize()
		if err != nil {
			return nil, err
		}
		if n == 0 {
			break
		}
		if n > b.most-len(b.text) {
			return nil, errTooMuch
		}
		if err := b.add(n); err != nil {
			return nil, err
		}
		if err := c.lineEnd(); err != nil {
			return nil, err
		}
	}
	if err := c.trailer(); err != nil {
		return nil, err
	}
	return b.whole()
}

// chunkSize reads the line before the data of a chunk.
func (c *clientConn) chunkSize() (size int, err error) {
	digits := 0
	const (
		number = iota
		blanks // after the number, before the end of the line
		extension
	)
	for at := number; ; {
		b, err := c.next()
		if err != nil {
			return 0, err
		}
		switch {
		case b == '\r':
			if digits == 0 {
				return 0, errChunks
			}
			if b, err = c.next(); err == nil && b != '\n' {
				err = errChunks
			}
			return size, err
		case b == '\n':
			return 0, errChunks
		case at == extension:
		case digits > 0 && (b == ' ' || b == '\t'):
			at = blanks
		case at == blanks || digits == 0 && b == ';':
			return 0, errChunks
		case b == ';':
			at = extension
		default:
			d := unhex(b)
			if d < 0 || digits == maxHex {
				return 0, errChunks
			}
			size = size<<4 | d
			digits++
		}
	}
}

func unhex(b byte) int {
	switch {
	case '0' <= b && b <= '9':
		return int(b - '0')
	case 'a' <= b && b <= 'f':
		return int(b-'a') + 10
	case 'A' <= b && b <= 'F':
		return int(b-'A') + 10
	}
	return -1
}

// lineEnd reads the CRLF after the data of a chunk.
func (c *clientConn) lineEnd() error {
	for _, want := range []byte("\r\n") {
		b, err := c.next()
		if err != nil {
			return err
		}
		if b != want {
			return errChunks
		}
	}
	return nil
}

// trailer reads what stands after the last chunk. A field that would mean
// something in a header does not belong there (RFC 9110 §6.5.1).
func (c *clientConn) trailer() error {
	var line []byte
	for size := 0; ; {
		line = line[:0]
		for !bytes.HasSuffix(line, []byte{'\n'}) {
			b, err := c.next()
			if err != nil {
				return err
			}
			if size++; size > c.edge.settings.MaxHeader {
				return errTrailer
			}
			line = append(line, b)
		}
		text, ok := bytes.CutSuffix(line, []byte("\r\n"))
		if !ok {
			return errChunks
		}
		if len(text) == 0 {
			return nil
		}
		if !door.Harmless(text) {
			return errChunks
		}
	}
}

// next returns the next byte of a request.
func (c *clientConn) next() (byte, error) {
	if c.at == c.end {
		if err := c.more(); err != nil {
			return 0, err
		}
	}
	b := c.first[c.at]
	c.at++
	return b, nil
}

// more reads more of a request behind what is in the first buffer, which has
// room for it.
func (c *clientConn) more() error {
	switch {
	case c.first == nil:
		c.first = firstReads.Get().(*[firstRead]byte)
	case c.at > 0:
		c.end = copy(c.first[:], c.first[c.at:c.end])
		c.at = 0
	}
	n, err := c.readOn(c.first[c.end:])
	c.end += n
	return err
}

// readOn reads more of a request than came at once: all of it has one time to
// arrive.
func (c *clientConn) readOn(p []byte) (int, error) {
	if !c.slow {
		c.slow = true
		c.readBy(c.edge.clock.Now().Add(c.edge.arrival))
	}
	// What a body in chunks holds besides its data is in no other limit.
	if c.taken > c.edge.settings.MaxHeader+2*c.edge.settings.MaxBody {
		return 0, errTooMuch
	}
	if c.answer.Load() != nil { // the client waits for that, and may send nothing before
		if err := c.flush(); err != nil {
			return 0, err
		}
	}
	c.place.Store(arrives)
	n, err := c.Conn.Read(p)
	c.later.Add(1)
	c.place.Store(serves)
	c.taken += n
	if n > 0 {
		return n, nil // the connection says err again when there is no more
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return 0, err
}

// grown is a body that does not fit the first buffer of its connection.
type grown struct {
	c    *clientConn
	who  owner
	most int // bytes that it may have
	text []byte

	marked time.Time // when it was last noted how much has come
}

// whole returns the body, all of which has come.
func (b *grown) whole() ([]byte, error) {
	c := b.c
	c.await = door.Awaited{}
	if c.reserved != nil && !c.edge.budget.whole(c.reserved) {
		return nil, errBusy
	}
	return b.text, nil
}

// add reads n bytes more.
func (b *grown) add(n int) error {
	for n > 0 {
		c, k := b.c, 0
		if len(b.text) == cap(b.text) {
			if c.at == c.end { // a larger buffer is for what has come
				if err := c.more(); err != nil {
					return err
				}
			}
			if err := b.grow(); err != nil {
				return err
			}
		}
		into := b.text[len(b.text):min(cap(b.text), len(b.text)+n)]
		if c.at < c.end {
			k = copy(into, c.first[c.at:c.end])
			c.at += k
		} else {
			var err error
			if k, err = c.readOn(into); err != nil {
				return err
			}
		}
		b.text = b.text[:len(b.text)+k]
		n -= k
		c.reserved.came.Store(int64(len(b.text)))
		if now := c.edge.clock.Now(); now.Sub(b.marked) >= c.edge.budget.grace {
			b.marked = now
			c.edge.budget.mark(c.reserved, now)
		}
	}
	return nil
}

// grow gives the body its next buffer, if the budget has it.
func (b *grown) grow() error {
	c := b.c
	size := smallBody
	switch cap(b.text) {
	case 0:
	case smallBody:
		size = middleBody
	default:
		size = min(growth*cap(b.text), b.most)
	}
	now := c.edge.clock.Now()
	if c.reserved == nil {
		c.reserved = &reservation{who: b.who, conn: c.Conn, size: b.most}
		b.marked = now
	}
	if !c.edge.budget.take(c.reserved, int64(size), now) {
		return errBusy
	}
	var next []byte
	switch size {
	case smallBody:
		c.small = smallBodies.Get().(*[smallBody]byte)
		next = c.small[:]
	case middleBody:
		c.middle = middleBodies.Get().(*[middleBody]byte)
		next = c.middle[:]
	default:
		next = make([]byte, size)
	}
	b.text = next[:copy(next, b.text)]
	if size != smallBody && c.small != nil {
		smallBodies.Put(c.small)
		c.small = nil
	}
	if size != middleBody && c.middle != nil {
		middleBodies.Put(c.middle)
		c.middle = nil
	}
	return nil
}

// release gives back what the body of the last request took.
func (c *clientConn) release() {
	if c.reserved == nil {
		return
	}
	c.edge.budget.give(c.reserved)
	c.reserved = nil
	c.drain()
}

// drain gives the buffers back that the body of the last request was in.
func (c *clientConn) drain() {
	if c.small != nil {
		smallBodies.Put(c.small)
		c.small = nil
	}
	if c.middle != nil {
		middleBodies.Put(c.middle)
		c.middle = nil
	}
}

// outlasts has the body of a request that lasts until somebody ends it take no
// room of the budget for so long: it is small, and goes on in memory of its own.
func (c *clientConn) outlasts(m *mcp.Message, h *head) error {
	if c.reserved == nil {
		return nil
	}
	if len(h.body) > maxLasting {
		return edge.Errorf(edge.Params, "door", "the body of %s has %d bytes: at most %d", m.Method, len(h.body), maxLasting)
	}
	h.body = bytes.Clone(h.body)
	if err := m.Decode(h.body); err != nil {
		return edge.Errorf(edge.Malformed, "door", "%w", err)
	}
	c.release()
	return nil
}

// own returns the body of a request in memory that no other request will have.
func (c *clientConn) own(body []byte) []byte {
	if c.reserved != nil && c.small == nil && c.middle == nil {
		return body // it was made for this one
	}
	return bytes.Clone(body)
}

// keep has what the body of a request has of the budget outlast the request, with
// the memory that own returned. Whoever keeps it gives it back; it is nil for a
// body that has nothing.
func (c *clientConn) keep() *reservation {
	kept := c.reserved
	c.reserved = nil
	c.drain()
	return kept
}

// pass goes over a body that nobody has read. It reports false where the
// connection is to end with the answer instead.
func (c *clientConn) pass() bool {
	n := c.await.Size
	switch {
	case n == 0:
		return true
	case n == door.InChunks || c.await.Expects || c.unread:
		return false
	}
	came := min(n, c.end-c.at)
	c.at += came
	if n -= came; n > skipMost {
		return false
	}
	c.skip = n
	c.await = door.Awaited{}
	c.slow, c.taken = false, 0
	return true
}

// skipped reads over what is left of a body that nobody wanted.
func (c *clientConn) skipped() error {
	for c.skip > 0 {
		if c.at == c.end {
			c.at, c.end = 0, 0
			if err := c.more(); err != nil {
				return err
			}
		}
		n := min(c.skip, c.end-c.at)
		c.at += n
		c.skip -= n
	}
	return nil
}
