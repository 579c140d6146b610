package serve

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"io"
	"net"
	"time"

	"github.com/valyala/fasthttp"
	"github.com/weir-edge/weir/edge/door"
	"github.com/weir-edge/weir/edge/route"
)

// SetArrival changes how long a request may take to arrive. It must be called
// before Serve.
func (e *Edge) SetArrival(d time.Duration) { e.arrival, e.budget.within = d, d }

// NewSealer returns a sealer with a key of its own.
func NewSealer() (*route.Sealer, error) {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	return route.NewSealer([][]byte{key})
}

// Sealer is the edge's own.
func (e *Edge) Sealer() *route.Sealer { return e.parked.Sealer() }

// Lint returns the status with which the edge refuses a header; 0 for one that
// it lets pass.
func Lint(h *fasthttp.RequestHeader, maxBody int) int {
	f, _ := door.Lint(h, maxBody)
	return f.Status
}

// Incoming is a connection on which nothing comes but the bytes of a test.
type Incoming struct {
	conn *clientConn
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
	s := Defaults()
	s.MaxBody = limit
	in := &Incoming{raw: bytes.NewReader(raw)}
	e := &Edge{settings: s, clock: door.NewClock(), budget: newBudget(limit, time.Minute), arrival: time.Minute}
	in.conn = &clientConn{Conn: oneWay{text: in.raw}, edge: e}
	var first [1]byte
	if n, err := in.conn.Read(first[:]); n == 0 || err != nil {
		return nil, nil, false
	}
	in.br = bufio.NewReaderSize(io.MultiReader(bytes.NewReader(first[:]), in.conn), s.MaxHeader)
	var h fasthttp.RequestHeader
	if h.Read(in.br) != nil || e.received(&h).MaxRequestBodySize != 0 {
		return nil, nil, false
	}
	if _, bad := door.Refusal(&h); bad {
		return nil, nil, false
	}
	in.conn.arrived(&h)
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
	return c.collect(owner{})
}

// Held is how much memory the body takes beyond the first buffer.
func (in *Incoming) Held() int64 { return in.conn.edge.budget.taken.Load() }

// Rest is what comes after what has been read.
func (in *Incoming) Rest() []byte {
	has, _ := in.br.Peek(in.br.Buffered())
	rest := append(bytes.Clone(has), in.conn.unreadBytes()...)
	more, _ := io.ReadAll(in.raw)
	return append(rest, more...)
}

func (c *clientConn) unreadBytes() []byte {
	if c.first == nil {
		return nil
	}
	return c.first[c.at:c.end]
}

// SetBudget changes how many bytes the bodies of large requests may take, and how
// many of them one client may have. It must be called before Serve.
func (e *Edge) SetBudget(most, share int64) { e.budget.most, e.budget.share = most, share }

// BudgetTaken returns how many bytes of it are taken.
func (e *Edge) BudgetTaken() int64 { return e.budget.taken.Load() }

// Owners returns how many clients have some of it.
func (e *Edge) Owners() int {
	e.budget.mu.Lock()
	defer e.budget.mu.Unlock()
	return len(e.budget.accounts)
}

// Connections returns how many client connections are open.
func (e *Edge) Connections() int { return e.underway.connections() }

// SetGrace changes over what time it is measured how fast a large body arrives.
// It must be called before Serve.
func (e *Edge) SetGrace(d time.Duration) { e.budget.grace = d }

// SetParked changes how many bytes the requests of parked calls may have, and how
// many of them those of one holder. It must be called before Serve.
func (e *Edge) SetParked(room, part int) { e.parked.Room, e.parked.Part = room, part }

// Arriving returns how many connections wait for more of a request.
func (e *Edge) Arriving() (n int) {
	e.underway.mu.Lock()
	defer e.underway.mu.Unlock()
	for c := range e.underway.conns {
		if c.place.Load() == arrives {
			n++
		}
	}
	return n
}
