package kv

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"time"
)

// The client library makes room for what a reply announces before it has come:
// a length of twenty bytes is enough to end a process. What a store says
// therefore passes a connection that reads the frames of replies on their way
// (RESP2, the protocol of Redis; the edge asks for no other), fails for what no
// store of ours says, and holds back what announces much until it is there.

const (
	// maxLine is how many bytes a line may have: a status, an error or a number.
	maxLine = 64 << 10

	// maxDepth is how deep arrays may be in one another.
	maxDepth = 6

	// heldBulk and heldElements are above how many bytes a string, and above how
	// many elements a reply, is held back until it is whole.
	heldBulk     = 16 << 10
	heldElements = 256

	// heldChunk is how much room is made at a time for what is held back.
	heldChunk = 32 << 10

	// collectAfter is after how many bytes of large replies, of heldMuch and more,
	// garbage is collected before more is held back: each of them is somewhere
	// else a second time, as what the client library made of it.
	collectAfter = 4 << 20
	heldMuch     = 1 << 20

	// errorHead is how much of an error is looked at.
	errorHead = 192
)

// allowed is what one reply may have.
type allowed struct {
	bulk     int // bytes of one string
	bytes    int // in all
	elements int // in all, those of arrays in arrays with them

	// redirect is asked for each address that an error sends the client to; nil
	// for stores that send nobody elsewhere.
	redirect func(address string) error
}

// errFrames is what every failure of frames is: an answer that no Redis gives
// to what it was asked.
var errFrames = errors.New("an answer that no Redis gives")

// errCrowded is a reply that there is no room for beside the others. It says nothing about
// the store.
var errCrowded = errors.New("too many large answers at the same time")

func badFrame(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errFrames, fmt.Sprintf(format, args...))
}

// The parts of a frame.
const (
	atType   = iota // the first byte of an element
	atLine          // in a line that is all of an element
	atLength        // in the length of a string or an array
	atBulk          // in a string
	atCR            // after a string
	atLF
)

// frames reads the frames of replies, however they are cut. It makes nothing.
type frames struct {
	allowed *allowed

	state    uint8
	kind     byte
	cr       bool // the last byte of a line was a CR
	length   int  // of the line so far
	number   int  // a length as far as it is known
	negative bool
	digits   int
	left     int // bytes of a string that are to come

	depth int
	open  [maxDepth]int // elements to come of the arrays that are open

	bytes, elements int // of the reply so far

	seen int64 // bytes in all
	held int64 // the place from which bytes are held back; -1 for none
	many bool  // the whole reply is held back, and not only a string of it

	head     [errorHead]byte // of an error
	headSize int
}

func newFrames(a *allowed) frames { return frames{allowed: a, held: -1} }

// passable is how many of the bytes that were seen may be passed on.
func (f *frames) passable() int64 {
	if f.held >= 0 {
		return f.held
	}
	return f.seen
}

// whole reports whether what was seen ends with a reply.
func (f *frames) whole() bool { return f.state == atType && f.depth == 0 }

// see reads on.
func (f *frames) see(p []byte) error {
	for len(p) > 0 {
		n, err := f.step(p)
		if err != nil {
			return err
		}
		f.seen += int64(n)
		if f.bytes += n; f.bytes > f.allowed.bytes {
			return badFrame("more than %d bytes at once", f.allowed.bytes)
		}
		if f.whole() {
			f.bytes, f.elements = 0, 0
		}
		p = p[n:]
	}
	return nil
}

// step reads some bytes and returns how many.
func (f *frames) step(p []byte) (n int, err error) {
	switch b := p[0]; f.state {
	case atType:
		f.kind, f.cr, f.length, f.number, f.negative, f.digits, f.headSize = b, false, 0, 0, false, 0, 0
		switch b {
		case '+', '-', ':':
			f.state = atLine
		case '$', '*':
			f.state = atLength
		default:
			return 0, badFrame("the type %q", b)
		}
		return 1, nil
	case atLine:
		return f.line(p)
	case atLength:
		return 1, f.digit(b)
	case atBulk:
		n = min(f.left, len(p))
		if f.left -= n; f.left == 0 {
			f.state = atCR
		}
		return n, nil
	case atCR:
		if b != '\r' {
			return 0, badFrame("a string is longer than announced")
		}
		f.state = atLF
		return 1, nil
	default:
		if b != '\n' {
			return 0, badFrame("a string is longer than announced")
		}
		f.ended()
		return 1, nil
	}
}

// line reads on in a line that is all of an element.
func (f *frames) line(p []byte) (n int, err error) {
	end := bytes.IndexByte(p, '\n')
	n = len(p)
	if end >= 0 {
		n = end + 1
	}
	if f.kind == '-' && f.allowed.redirect != nil {
		f.headSize += copy(f.head[f.headSize:], p[:n])
	}
	if f.length += n; f.length > maxLine {
		return 0, badFrame("a line of more than %d bytes", maxLine)
	}
	if end < 0 {
		f.cr = p[n-1] == '\r'
		return n, nil
	}
	if before := f.cr; n > 1 && p[n-2] != '\r' || n == 1 && !before {
		return 0, badFrame("a line without its end")
	}
	if f.headSize > 0 {
		if err := f.redirected(f.head[:f.headSize]); err != nil {
			return 0, err
		}
	}
	f.ended()
	return n, nil
}

// redirected looks at an error of a cluster, which may send the client to
// another address: MOVED SLOT ADDRESS.
func (f *frames) redirected(text []byte) error {
	words := bytes.Fields(text)
	if len(words) == 0 || !bytes.Equal(words[0], []byte("MOVED")) && !bytes.Equal(words[0], []byte("ASK")) {
		return nil
	}
	if len(words) != 3 || len(text) == errorHead {
		return badFrame("a redirection without an address")
	}
	return f.allowed.redirect(string(words[2]))
}

// digit reads on in a length.
func (f *frames) digit(b byte) error {
	f.length++
	switch {
	case b == '-' && f.length == 1:
		f.negative = true
		return nil
	case '0' <= b && b <= '9' && !f.cr && f.digits < 10:
		f.digits++
		f.number = f.number*10 + int(b-'0')
		return nil
	case b == '\r' && f.digits > 0 && !f.cr:
		f.cr = true
		return nil
	case b != '\n' || !f.cr:
		return badFrame("a length that is none")
	}
	if f.negative {
		if f.number != 1 {
			return badFrame("a length of -%d", f.number)
		}
		f.ended() // nil
		return nil
	}
	if f.kind == '$' {
		if f.number > f.allowed.bulk {
			return badFrame("a string of %d bytes, where at most %d were asked for", f.number, f.allowed.bulk)
		}
		if f.number > heldBulk {
			f.hold()
		}
		f.left, f.state = f.number, atBulk
		if f.left == 0 {
			f.state = atCR
		}
		return nil
	}
	if f.elements += f.number; f.number > f.allowed.elements || f.elements > f.allowed.elements {
		return badFrame("%d elements, where at most %d were asked for", f.elements, f.allowed.elements)
	}
	if f.elements > heldElements {
		f.hold()
		f.many = true
	}
	if f.number == 0 {
		f.ended()
		return nil
	}
	if f.depth == maxDepth {
		return badFrame("arrays more than %d deep", maxDepth)
	}
	f.open[f.depth] = f.number
	f.depth++
	f.state = atType
	return nil
}

// hold holds back what comes from here on, the end of the announcement with it:
// without that the client waits.
func (f *frames) hold() {
	if f.held < 0 {
		f.held = f.seen
	}
}

// ended notes the end of an element.
func (f *frames) ended() {
	f.state = atType
	for f.depth > 0 {
		if f.open[f.depth-1]--; f.open[f.depth-1] > 0 {
			break
		}
		f.depth--
	}
	if f.depth == 0 {
		f.many = false
	}
	if !f.many {
		f.held = -1
	}
}

// budget is how many bytes all connections of a store hold back together.
type budget struct {
	most   int64
	used   atomic.Int64
	passed atomic.Int64 // since garbage was collected
	later  atomic.Bool  // it will be
}

func (b *budget) take(n int) error {
	if passed := b.passed.Load(); passed >= collectAfter && b.passed.CompareAndSwap(passed, 0) {
		debug.FreeOSMemory()
	}
	if b.used.Add(int64(n)) > b.most {
		b.used.Add(-int64(n))
		return fmt.Errorf("%w: more than %d bytes", errCrowded, b.most)
	}
	return nil
}

// pass notes that a reply of so many bytes was passed on, or given up. After many
// such bytes garbage is collected a second later at the latest.
func (b *budget) pass(n int) {
	if n < heldMuch || b.passed.Add(int64(n)) < collectAfter || b.later.Swap(true) {
		return
	}
	time.AfterFunc(time.Second, func() {
		b.later.Store(false)
		b.passed.Store(0)
		debug.FreeOSMemory()
	})
}

// checked is a connection whose replies are checked. One reads from it at a
// time; it may be closed meanwhile.
type checked struct {
	net.Conn
	frames frames
	budget *budget

	passed int64    // bytes that were passed on
	held   [][]byte // chunks that were not, in their order
	offset int      // of the first of them that were
	size   int      // bytes of them, those that have been passed on with them
	err    error    // why nothing is read any more

	charged atomic.Int64 // of the budget
	closed  atomic.Bool
	gone    func(*checked) // is told when it is closed; may be nil
}

// newChecked checks the replies of a connection.
func newChecked(c net.Conn, a *allowed, b *budget) *checked {
	return &checked{Conn: c, frames: newFrames(a), budget: b}
}

// plain is a checked connection of TCP without TLS. The client library looks
// through it whether the other side has closed it, before it is used again.
type plain struct {
	*checked
	raw syscall.Conn
}

// SyscallConn implements syscall.Conn.
func (p plain) SyscallConn() (syscall.RawConn, error) { return p.raw.SyscallConn() }

// Close implements net.Conn.
func (c *checked) Close() error {
	if !c.closed.Swap(true) && c.gone != nil {
		c.gone(c)
	}
	c.release()
	return c.Conn.Close()
}

func (c *checked) release() { c.budget.used.Add(-c.charged.Swap(0)) }

// Read implements net.Conn.
func (c *checked) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, c.err
	}
	for c.err == nil {
		if n := c.pass(p); n > 0 {
			return n, nil
		}
		into := p
		if len(c.held) > 0 {
			var err error
			if into, err = c.room(); err != nil {
				return 0, c.fail(err)
			}
		}
		n, err := c.Conn.Read(into)
		if n > 0 {
			if err := c.frames.see(into[:n]); err != nil {
				return 0, c.fail(err)
			}
			if len(c.held) > 0 {
				last := &c.held[len(c.held)-1]
				*last = (*last)[:len(*last)+n]
				continue
			}
			now := int(c.frames.passable() - c.passed)
			c.passed += int64(now)
			if now < n {
				if err := c.begin(into[now:n]); err != nil {
					return 0, c.fail(err)
				}
			}
			if now > 0 {
				return now, nil
			}
			continue
		}
		if err != nil {
			if c.closed.Load() {
				c.release()
			}
			return 0, err
		}
	}
	return 0, c.err
}

// pass passes on what was held back and may go.
func (c *checked) pass(p []byte) (n int) {
	for len(c.held) > 0 && n < len(p) {
		may := int(c.frames.passable() - c.passed)
		first := c.held[0][c.offset:]
		k := copy(p[n:], first[:min(may, len(first))])
		if k == 0 {
			break
		}
		n += k
		c.passed += int64(k)
		if c.offset += k; c.offset == len(c.held[0]) {
			c.uncharge(cap(c.held[0]))
			c.held[0], c.offset = nil, 0
			if c.held = c.held[1:]; len(c.held) == 0 {
				c.held = nil
				c.budget.pass(c.size)
				c.size = 0
			}
		}
	}
	return n
}

// begin begins to hold back.
func (c *checked) begin(p []byte) error {
	for len(p) > 0 {
		into, err := c.room()
		if err != nil {
			return err
		}
		n := copy(into, p)
		last := &c.held[len(c.held)-1]
		*last = (*last)[:len(*last)+n]
		p = p[n:]
	}
	return nil
}

// room is where the next bytes that are held back go.
func (c *checked) room() ([]byte, error) {
	if n := len(c.held); n > 0 && len(c.held[n-1]) < cap(c.held[n-1]) {
		last := c.held[n-1]
		return last[len(last):cap(last)], nil
	}
	if err := c.budget.take(heldChunk); err != nil {
		return nil, err
	}
	c.charged.Add(heldChunk)
	c.size += heldChunk
	c.held = append(c.held, make([]byte, 0, heldChunk))
	return c.held[len(c.held)-1][:heldChunk], nil
}

// uncharge gives a part of the budget back, unless that has been done with all
// of it.
func (c *checked) uncharge(n int) {
	for {
		was := c.charged.Load()
		back := min(was, int64(n))
		if c.charged.CompareAndSwap(was, was-back) {
			c.budget.used.Add(-back)
			return
		}
	}
}

// fail ends the reading: where frames are wrong nobody knows what comes next.
func (c *checked) fail(err error) error {
	c.err, c.held = err, nil
	c.budget.pass(c.size)
	c.size = 0
	c.release()
	_ = c.Conn.Close() // who reads closes it, too
	return err
}
