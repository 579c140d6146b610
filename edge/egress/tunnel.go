package egress

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
)

// tunnel carries bytes between a connection out of the sandbox and one to its host, until
// both have ended. in is what is read of c.
func (g *Passage) tunnel(c *inner, in io.Reader, out net.Conn, d Decision, h Host, port int) {
	if !g.hold(out) {
		return
	}
	defer g.drop(out)
	c.busy()
	pair := newPair(c, out)
	defer pair.end()
	back := make(chan struct{})
	judged := make(chan struct{}) // closed when bytes of the host may pass
	go func() {
		defer edge.Contain(g.p.log, "egress")
		defer close(back)
		select {
		case <-judged:
		case <-c.ended:
			return
		}
		pair.carry(c, out)
		_ = c.CloseWrite()
	}()
	pass := func() {
		g.p.allow(h, port, d)
		close(judged)
	}
	ok := true
	switch {
	case d.AnyName:
		pass()
	case port == 443:
		if ok = g.greet(c, in, out, nil, h, port); ok {
			pass()
		}
	default: // the host may be the first to speak, and the client may never
		pass()
		ok = g.first(c, in, out, h, port)
	}
	if !ok {
		pair.abort()
		<-back
		return
	}
	pair.carry(out, in)
	_ = closeWrite(out)
	<-back
}

// first passes on the first bytes of a client on another port than 443. Those of TLS are
// judged.
func (g *Passage) first(c *inner, in io.Reader, out net.Conn, h Host, port int) bool {
	var b [6]byte
	var err error
	n, is := 0, false
	for more := true; more && err == nil; {
		var took int
		took, err = io.ReadFull(in, b[n:n+1])
		n += took
		is, more = beginsTLS(b[:n])
	}
	if is {
		return g.greet(c, in, out, b[:n], h, port)
	}
	if n > 0 {
		if _, failed := out.Write(b[:n]); failed != nil {
			return false
		}
	}
	return err == nil || errors.Is(err, io.EOF)
}

// greet reads the ClientHello, and passes it on when it asks for the host.
func (g *Passage) greet(c *inner, in io.Reader, out net.Conn, begun []byte, h Host, port int) bool {
	late := time.AfterFunc(g.p.times.hello, func() { _ = c.Close() })
	hello, err := readHello(in, begun)
	if !late.Stop() {
		g.p.refuse(&Refusal{Host: h.String(), Port: port, Reason: WrongName, What: "no ClientHello came in time"})
		return false
	}
	if err != nil || !hello.asksFor(h) {
		what := "it asks for no name"
		switch {
		case errors.Is(err, errHelloSize):
			what = err.Error()
		case err != nil:
			what = errHello.Error()
		case hello.name != "":
			what = "it asks for " + edge.Clean(edge.Brief(hello.name))
		}
		g.p.refuse(&Refusal{Host: h.String(), Port: port, Reason: WrongName, What: what})
		return false
	}
	_, err = out.Write(hello.raw)
	return err == nil
}

// pair are the two ends of a tunnel. When nothing has moved in either direction for so long
// as it may, both are closed: that also ends a read or a write which waits.
type pair struct {
	c    *inner
	out  net.Conn
	last atomic.Int64 // when a byte moved, in nanoseconds
	idle atomic.Int64 // for how long none has to, in nanoseconds
	deaf bool         // the host takes no more of the request

	sending atomic.Bool // the request is not all sent: its host may end both with the answer

	mu    sync.Mutex
	timer *time.Timer // nil once it has ended
}

// newPair looks after two ends, until end is called.
func newPair(c *inner, out net.Conn) *pair {
	p := &pair{c: c, out: out}
	p.idle.Store(int64(c.passage.p.times.idle))
	p.moved()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = time.AfterFunc(c.passage.p.times.idle, p.look)
	return p
}

func (p *pair) moved() { p.last.Store(time.Now().UnixNano()) }

// look ends what is idle, or looks again when it would be.
func (p *pair) look() {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch left := p.idle.Load() - (time.Now().UnixNano() - p.last.Load()); {
	case p.timer == nil:
	case left <= 0:
		p.abort()
	default:
		p.timer.Reset(time.Duration(left))
	}
}

// hurry has it be idle after a shorter while.
func (p *pair) hurry(idle time.Duration) {
	p.idle.Store(int64(idle))
	p.look()
}

func (p *pair) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer.Stop()
	p.timer = nil
}

// Buffers of a tunnel, in bytes: that of one on which little moves, and that of one on which
// much does.
const (
	smallBuffer = 2 << 10
	largeBuffer = 32 << 10
)

// carry carries bytes until there are no more. An error of either side ends both.
func (p *pair) carry(to io.Writer, from io.Reader) {
	b := make([]byte, smallBuffer)
	for {
		n, err := from.Read(b)
		if n > 0 {
			p.moved()
			if _, failed := to.Write(b[:n]); failed != nil {
				p.abort()
				return
			}
			p.moved()
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF), p.sending.Load():
			return
		default:
			p.abort()
			return
		}
		switch { // what is idle holds little
		case n == len(b) && n < largeBuffer:
			b = make([]byte, largeBuffer)
		case n < smallBuffer && len(b) > smallBuffer:
			b = make([]byte, smallBuffer)
		}
	}
}

// abort ends both sides.
func (p *pair) abort() {
	_ = p.c.Close()
	_ = p.out.Close()
}
