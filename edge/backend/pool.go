package backend

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

const (
	// dialTimeout bounds connecting, the TLS handshake included.
	dialTimeout = 5 * time.Second

	// idleDefault is how long a connection may wait for its next call when the
	// backend does not say: Node servers close after 5 s and do not say so.
	idleDefault = 4 * time.Second

	// idleMost caps what a backend's Keep-Alive header may ask for.
	idleMost = 90 * time.Second

	// maxConns is how many connections one backend may have open.
	maxConns = 1024

	// keepOut is the size up to which a connection keeps its output buffer.
	keepOut = 64 << 10
)

// conn is a connection to a backend. One call has it at a time.
type conn struct {
	net.Conn
	br     *bufio.Reader
	out    []byte
	head   fasthttp.ResponseHeader
	reply  reply            // of the call that has the connection
	events *mcp.EventReader // of its streams; nil until the first
	probe  probe
	read   time.Time     // the deadline set for reading; zero for none
	write  time.Time     // the deadline set for writing
	used   time.Time     // when its last call ended
	idle   time.Duration // how long it may wait for the next
}

// Close closes at once: a TLS connection is not given the time to say goodbye,
// since whoever closes one in use cannot wait.
func (c *conn) Close() error {
	if t, ok := c.Conn.(*tls.Conn); ok {
		return t.NetConn().Close()
	}
	return c.Conn.Close()
}

// Setting a deadline costs as much as parsing a header. One that is a little
// late does no harm, so that it need not be set for every call.
const (
	slack    = time.Second
	writeFor = 30 * time.Second
)

// readBy sets the deadline for reading, up to slack or an eighth of the time
// that is left later than asked; zero for none.
func (c *conn) readBy(by, now time.Time) {
	if by.IsZero() {
		if !c.read.IsZero() {
			c.read = by
			_ = c.SetReadDeadline(by)
		}
		return
	}
	late := by.Add(min(slack, by.Sub(now)/8))
	if !c.read.Before(by) && !c.read.After(late) {
		return
	}
	c.read = late
	_ = c.SetReadDeadline(late)
}

// writeBy gives a write some time.
func (c *conn) writeBy(now time.Time) {
	if c.write.Sub(now) < writeFor/2 {
		c.write = now.Add(writeFor)
		_ = c.SetWriteDeadline(c.write)
	}
}

// pool keeps the connections of one backend.
type pool struct {
	address string // host:port
	private bool   // may be a private address
	tls     *tls.Config

	mu   sync.Mutex
	free []*conn // the last used is the last
	done bool
	open atomic.Int64
}

func newPool(u *url.URL, roots *tls.Config, private bool) *pool {
	port := u.Port()
	if port == "" {
		port = "80"
		if u.Scheme == "https" {
			port = "443"
		}
	}
	p := &pool{address: net.JoinHostPort(u.Hostname(), port), private: private}
	if u.Scheme == "https" {
		p.tls = roots.Clone()
		p.tls.ServerName = u.Hostname()
		p.tls.NextProtos = []string{"http/1.1"}
	}
	return p
}

// get returns a connection that the backend has not closed, as far as can be
// known before writing to it.
func (p *pool) get(ctx context.Context, now time.Time) (*conn, error) {
	for {
		p.mu.Lock()
		n := len(p.free)
		if n == 0 {
			p.mu.Unlock()
			return p.dial(ctx)
		}
		c := p.free[n-1]
		p.free[n-1] = nil
		p.free = p.free[:n-1]
		p.mu.Unlock()
		waited := now.Sub(c.used)
		if waited < c.idle && c.probe.quiet() {
			return c, nil
		}
		p.drop(c)
	}
}

func (p *pool) dial(ctx context.Context) (*conn, error) {
	if p.open.Add(1) > maxConns {
		p.open.Add(-1)
		return nil, edge.Errorf(edge.Overload, "dial", "all %d connections are in use", maxConns)
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	d := net.Dialer{Control: p.judge}
	nc, err := d.DialContext(ctx, "tcp", p.address)
	if err == nil && p.tls != nil {
		t := tls.Client(nc, p.tls)
		if err = t.HandshakeContext(ctx); err != nil {
			nc.Close()
		}
		nc = t
	}
	if err != nil {
		p.open.Add(-1)
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return nil, edge.Errorf(edge.Timeout, "dial", "%s did not answer within %s", p.address, dialTimeout)
		}
		return nil, &edge.Error{Kind: edge.Unavailable, Op: "dial", Err: err}
	}
	c := &conn{Conn: nc, br: bufio.NewReaderSize(nc, 8<<10), idle: idleDefault}
	c.probe.at(c)
	return c, nil
}

// judge looks at the address that a name turned out to stand for.
func (p *pool) judge(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	err = edge.MayDial(at.Addr(), p.private)
	if err != nil && !p.private && edge.MayDial(at.Addr(), true) == nil {
		return fmt.Errorf("%w: set allowPrivateEndpoint if it is meant", err)
	}
	return err
}

// put takes back a connection whose answer has been read to its end.
func (p *pool) put(c *conn, now time.Time) {
	if cap(c.out) > keepOut {
		c.out = nil
	}
	c.used = now
	c.idle = idleDefault
	if v := c.head.Peek("Keep-Alive"); len(v) > 0 {
		if _, rest, ok := bytes.Cut(v, []byte("timeout=")); ok {
			digits, _, _ := bytes.Cut(rest, []byte{','})
			if n, err := strconv.Atoi(string(bytes.TrimSpace(digits))); err == nil {
				c.idle = min(time.Duration(n)*time.Second-time.Second, idleMost)
			}
		}
	}
	p.mu.Lock()
	if p.done || c.br.Buffered() > 0 || c.head.ConnectionClose() {
		p.mu.Unlock()
		p.drop(c)
		return
	}
	p.free = append(p.free, c)
	var stale *conn
	if old := p.free[0]; old != c && now.Sub(old.used) >= old.idle {
		stale = old // one a call keeps the pool as small as its use
		p.free = append(p.free[:0], p.free[1:]...)
	}
	p.mu.Unlock()
	if stale != nil {
		p.drop(stale)
	}
}

func (p *pool) drop(c *conn) {
	c.Close()
	p.open.Add(-1)
}

// close closes the connections that wait; those in use are closed when their
// calls end.
func (p *pool) close() {
	p.mu.Lock()
	free := p.free
	p.free, p.done = nil, true
	p.mu.Unlock()
	for _, c := range free {
		p.drop(c)
	}
}
