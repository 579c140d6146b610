package door

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"time"

	"github.com/valyala/fasthttp"
)

// Incoming is a connection on which nothing comes but the bytes of a test.
type Incoming struct {
	conn *Conn
	br   *bufio.Reader
	raw  *bytes.Reader
}

// oneWay is a connection from which a text can be read.
type oneWay struct {
	net.Conn
	text io.Reader
}

func (oneWay) SetReadDeadline(time.Time) error  { return nil }
func (oneWay) SetWriteDeadline(time.Time) error { return nil }
func (oneWay) Write(p []byte) (int, error)      { return len(p), nil }
func (d oneWay) Read(p []byte) (int, error)     { return d.text.Read(p) }

// ReadHead reads a header as the HTTP server and the lint do, who take bodies of
// up to limit bytes. It reports false for one that is refused.
func ReadHead(raw []byte, limit int) (*fasthttp.RequestHeader, *Incoming, bool) {
	const maxHeader = 16 << 10
	d, err := New(Options{MaxBody: limit, MaxHeader: maxHeader, Within: time.Minute})
	if err != nil {
		panic(err)
	}
	defer d.Abandon()
	in := &Incoming{raw: bytes.NewReader(raw)}
	in.conn = &Conn{Conn: oneWay{text: in.raw}, door: d}
	var first [1]byte
	if n, err := in.conn.Read(first[:]); n == 0 || err != nil {
		return nil, nil, false
	}
	in.br = bufio.NewReaderSize(io.MultiReader(bytes.NewReader(first[:]), in.conn), maxHeader)
	var h fasthttp.RequestHeader
	if h.Read(in.br) != nil || d.received(&h).MaxRequestBodySize != 0 {
		return nil, nil, false
	}
	if _, bad := Refusal(&h); bad {
		return nil, nil, false
	}
	in.conn.Arrived(&h)
	if in.br.Buffered() > 0 && in.conn.await.Size != 0 {
		panic("the server has something of a body")
	}
	return &h, in, true
}

// Announced is the size of the body that the header announces; -1 in chunks.
func (in *Incoming) Announced() int { return in.conn.await.Size }

// Body reads it.
func (in *Incoming) Body() ([]byte, error) {
	c := in.conn
	if n := c.await.Size; n >= 0 && n <= c.end-c.at {
		return c.cut(n), nil
	}
	return c.Body(Sender{})
}

// Held is how much memory the body takes beyond the first buffer.
func (in *Incoming) Held() int64 { return in.conn.door.BodyBytes() }

// Rest is what comes after what has been read.
func (in *Incoming) Rest() []byte {
	has, _ := in.br.Peek(in.br.Buffered())
	rest := append(bytes.Clone(has), in.conn.unreadBytes()...)
	more, _ := io.ReadAll(in.raw)
	return append(rest, more...)
}

func (c *Conn) unreadBytes() []byte {
	if c.first == nil {
		return nil
	}
	return c.first[c.at:c.end]
}
