package door

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"time"
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
)

var (
	// ErrTooLarge: the body is larger than Options.MaxBody.
	ErrTooLarge = errors.New("the request is too large")

	// ErrBusy: the budget of large requests has no room for the body.
	ErrBusy = errors.New("there is no room for the request")

	// ErrTrailer: the trailer is larger than Options.MaxHeader.
	ErrTrailer = errors.New("the trailer of the request is too large")

	errChunks = errors.New("the chunks of the request cannot be read")
)

var (
	smallBodies  = sync.Pool{New: func() any { return new([smallBody]byte) }}
	middleBodies = sync.Pool{New: func() any { return new([middleBody]byte) }}
)

// Whole returns the body of a request, if all of it came with the header. It reports
// false for one that Body has to read.
func (c *Conn) Whole() ([]byte, bool) {
	if n := c.await.Size; n >= 0 && n <= c.end-c.at && n <= c.most {
		return c.cut(n), true
	}
	return nil, false
}

// Body reads the body of a request of which something has not come yet. Its errors
// are ErrTooLarge, ErrBusy, ErrTrailer, net.Errors that are timeouts, and others for
// what cannot be read.
func (c *Conn) Body(from Sender) ([]byte, error) {
	text, err := c.collect(from)
	if err == nil {
		return text, nil
	}
	c.unread = true
	if c.reserved != nil && !c.door.budget.whole(c.reserved) {
		err = ErrBusy
	}
	return nil, err
}

// cut returns the next n bytes of what has come, which are the body.
func (c *Conn) cut(n int) []byte {
	if n == 0 {
		c.await = Awaited{}
		return nil
	}
	text := c.first[c.at : c.at+n : c.at+n]
	c.at += n
	c.await = Awaited{}
	return text
}

// collect reads a body of which something has not come yet, for a client.
func (c *Conn) collect(from Sender) ([]byte, error) {
	if c.await.Expects && c.at == c.end && c.await.Size <= c.most {
		if _, err := c.Send(goOn); err != nil {
			return nil, err
		}
	}
	if c.await.Size == InChunks {
		return c.collectChunks(from)
	}
	n := c.await.Size
	if n > c.most {
		return nil, ErrTooLarge
	}
	for n <= firstRead || c.end-c.at < enough && (n > smallBody || c.end == c.at) {
		if err := c.more(); err != nil {
			return nil, err
		}
		if c.end-c.at >= n {
			return c.cut(n), nil
		}
	}
	b := grown{c: c, from: from, most: n}
	if err := b.add(n); err != nil {
		return nil, err
	}
	return b.whole()
}

var goOn = []byte("HTTP/1.1 100 Continue\r\n\r\n")

// more reads more of a request behind what is in the first buffer, which has
// room for it.
func (c *Conn) more() error {
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
func (c *Conn) readOn(p []byte) (int, error) {
	if !c.slow {
		c.slow = true
		c.readBy(c.door.Clock.Now().Add(c.door.o.Within))
	}
	// What a body in chunks holds besides its data is in no other limit.
	if c.taken > c.door.o.MaxHeader+2*c.most {
		return 0, ErrTooLarge
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
	c    *Conn
	from Sender
	most int // bytes that it may have
	text []byte

	marked time.Time // when it was last noted how much has come
}

// whole returns the body, all of which has come.
func (b *grown) whole() ([]byte, error) {
	c := b.c
	c.await = Awaited{}
	if c.reserved != nil && !c.door.budget.whole(c.reserved) {
		return nil, ErrBusy
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
		if now := c.door.Clock.Now(); now.Sub(b.marked) >= c.door.budget.grace {
			b.marked = now
			c.door.budget.mark(c.reserved, now)
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
	now := c.door.Clock.Now()
	if c.reserved == nil {
		c.reserved = &Reservation{budget: c.door.budget, from: b.from, conn: c.Conn, size: b.most}
		b.marked = now
	}
	if !c.door.budget.take(c.reserved, int64(size), now) {
		return ErrBusy
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

// Release gives back what the body of the last request took.
func (c *Conn) Release() {
	if c.reserved == nil {
		return
	}
	c.door.budget.give(c.reserved)
	c.reserved = nil
	c.drain()
}

// drain gives the buffers back that the body of the last request was in.
func (c *Conn) drain() {
	if c.small != nil {
		smallBodies.Put(c.small)
		c.small = nil
	}
	if c.middle != nil {
		middleBodies.Put(c.middle)
		c.middle = nil
	}
}

// Holds reports whether the body of the request has some of the budget.
func (c *Conn) Holds() bool { return c.reserved != nil }

// Own returns the body of a request in memory that no other request will have.
func (c *Conn) Own(body []byte) []byte {
	if c.reserved != nil && c.small == nil && c.middle == nil {
		return body // it was made for this one
	}
	return bytes.Clone(body)
}

// Keep makes what the body of a request has of the budget outlast the request, with
// the memory that Own returned. The caller gives it back; it is nil for a body that
// has nothing.
func (c *Conn) Keep() *Reservation {
	kept := c.reserved
	c.reserved = nil
	c.drain()
	return kept
}

// pass goes over a body that nobody has read. It reports false where the
// connection is to end with the answer instead.
func (c *Conn) pass() bool {
	n := c.await.Size
	switch {
	case n == 0:
		return true
	case n == InChunks || c.await.Expects || c.unread:
		return false
	}
	came := min(n, c.end-c.at)
	c.at += came
	if n -= came; n > skipMost {
		return false
	}
	c.skip = n
	c.await = Awaited{}
	c.slow, c.taken = false, 0
	return true
}

// skipped reads over what is left of a body that nobody wanted.
func (c *Conn) skipped() error {
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
