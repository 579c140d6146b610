package door

import (
	"bytes"
	"net"
	"strconv"

	"github.com/valyala/fasthttp"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

const (
	// largeAnswer is the size from which an answer goes out in the pieces that
	// it is made of. The HTTP server would put those of a shared one together
	// first; below this size that costs no more than the pieces do.
	largeAnswer = 16 << 10

	// wideBuffer is how much the kernel may hold of a large answer, in bytes;
	// Linux doubles the number. With writeBuffer the writing of a list of 1,000
	// tools has to wait two or three times, which costs as much as the writing.
	wideBuffer = 128 << 10

	// mostWide is how many connections may have so much at a time: what the
	// kernel can be made to hold besides by clients that ask for lists and do
	// not read them is bounded by 64 MiB. The others write as they did.
	mostWide = 64 << 20 / (2 * wideBuffer)
)

// pieces is the body of a large answer, none of which is copied. It follows the
// head, which the server writes alone.
type pieces struct {
	vector [4][]byte   // the head and the body's parts
	rest   net.Buffers // of the vector, what has not been written
}

var (
	closingBrace = []byte("}")
	endOfHead    = []byte("\r\n\r\n")
)

// SendLarge sends the body of a large answer behind the head that the server writes.
// It reports false for an answer that the server has to write itself: a small one,
// and any that goes through TLS, which copies everything.
func SendLarge(ctx *fasthttp.RequestCtx, r *edge.Response) bool {
	size := len(r.Raw)
	if r.Shared != nil {
		size += len(r.Shared) + len(closingBrace)
	}
	conn := ctx.Conn().(*Conn)
	under, plain := conn.Conn.(*net.TCPConn)
	if size < largeAnswer || !plain {
		return false
	}
	conn.widen(under)
	if conn.pieces == nil {
		conn.pieces = new(pieces)
	}
	conn.pieces.vector = [4][]byte{nil, r.Raw}
	if r.Shared != nil {
		conn.pieces.vector[2], conn.pieces.vector[3] = r.Shared, closingBrace
	}
	conn.follows = true
	ctx.Response.SkipBody = true
	ctx.Response.Header.SetContentLength(size)
	return true
}

// sendPieces sends the head of an answer and the pieces that follow it.
func (c *Conn) sendPieces(head []byte) (int, error) {
	c.follows = false
	c.pieces.vector[0] = head
	if err := c.sendAll(c.pieces); err != nil {
		return 0, err
	}
	return len(head), nil
}

// sendAll is Send for pieces, which it forgets.
func (c *Conn) sendAll(p *pieces) error {
	size := 0
	for _, one := range p.vector {
		size += len(one)
	}
	var err error
	if size > writePiece {
		for i := 0; i < len(p.vector) && err == nil; i++ {
			_, err = c.Send(p.vector[i])
		}
	} else if err = c.ready(); err == nil {
		p.rest = p.vector[:]
		if _, err = p.rest.WriteTo(c.Conn); err != nil {
			c.failed(err)
		}
	}
	p.vector, p.rest = [4][]byte{}, nil
	return err
}

// largeEvent is the size from which the text of an event is not copied.
const largeEvent = 1 << 10

// SendEvent sends an event as a chunk. A client that does not read may leave a
// large one lying for long: no copy of it is made.
func (c *Conn) SendEvent(name string, data []byte) error {
	_, plain := c.Conn.(*net.TCPConn)
	if !plain || len(data) < largeEvent || bytes.IndexByte(data, '\n') >= 0 || bytes.IndexByte(data, '\r') >= 0 {
		_, err := c.Send(AppendEvent(nil, name, "", data))
		return err
	}
	const end = "\n\n"
	event := mcp.AppendEvent(make([]byte, 0, 64), name, "", nil)
	head := strconv.AppendInt(make([]byte, 0, 64), int64(len(event)+len(data)), 16)
	head = append(append(head, "\r\n"...), event[:len(event)-len(end)]...)
	return c.sendAll(&pieces{vector: [4][]byte{head, data, []byte(end + "\r\n")}})
}

// awaits reports whether what the server writes is the head that the pieces of
// an answer are to follow.
func (c *Conn) awaits(text []byte) bool { return c.follows && bytes.HasSuffix(text, endOfHead) }

// widen lets the kernel hold more of what the connection sends, if it may.
func (c *Conn) widen(under *net.TCPConn) {
	if c.wide.Load() {
		return
	}
	if c.door.wide.Add(1) > int64(c.door.o.MaxWide) {
		c.door.wide.Add(-1)
		return
	}
	c.wide.Store(true)
	_ = under.SetWriteBuffer(wideBuffer)
}

// DropPieces forgets the body that was to follow the head of a large answer.
func (c *Conn) DropPieces() { c.follows = false }

// Narrow takes the room in the kernel back that a large answer had: from a
// connection that is closed, and from one that becomes a stream, whose client may
// leave it unread for long.
func (c *Conn) Narrow() {
	if !c.wide.CompareAndSwap(true, false) {
		return
	}
	c.door.wide.Add(-1)
	if t, ok := c.Conn.(*net.TCPConn); ok {
		_ = t.SetWriteBuffer(writeBuffer)
	}
}
