// Package wire is HTTP/1.1 connections to one backend: a pool of them, a write and a read
// for each request, and the head of an answer.
package wire

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/turn"
)

const (
	// DialTimeout bounds connecting, the TLS handshake included.
	DialTimeout = 5 * time.Second

	// idleDefault is how long a connection may wait for its next call when the
	// backend does not say: Node servers close after 5 s and do not say so.
	idleDefault = 4 * time.Second

	// idleMost caps what a backend's Keep-Alive header may ask for.
	idleMost = 90 * time.Second

	// MaxConns is how many connections one backend may have open when its
	// configuration does not say.
	MaxConns = 1024

	// forCalls is how many of them, and a quarter at most, are not for streams: those who
	// only listen are to leave room for calls. As many there may be besides for answers to
	// questions and the like: the calls that wait for them may have all connections.
	forCalls = 64

	// ReceiveBuffer is how many bytes the kernel is to hold of what a backend
	// sends and nobody reads; Linux doubles the number (socket(7), SO_RCVBUF).
	// Left to itself it lets the buffer of a connection that was once read fast
	// grow to the end of tcp_rmem, some MiB for every stream that is stuck.
	ReceiveBuffer = 24 << 10

	// readBuffer is the size of the buffer that a connection is read through,
	// and SlimBuffer that of one which is a stream without an end.
	readBuffer = 8 << 10
	SlimBuffer = 1 << 10

	// keepOut is the size up to which a connection keeps its output buffer.
	keepOut = 64 << 10
)

// Conn is a connection to a backend. One request has it at a time.
type Conn struct {
	net.Conn
	Reader *bufio.Reader // of what the backend sends
	Out    []byte        // a buffer for requests, which the connection keeps
	Head   Head          // of the last answer
	Use    any           // a value that its user keeps with the connection

	turn  turn.Turn
	ask   []byte // the request that the next read sends before; nil for none
	probe probe
	read  time.Time     // the deadline set for reading; zero for none
	write time.Time     // the deadline set for writing
	used  time.Time     // when its last request ended
	idle  time.Duration // how long it may wait for the next
	lasts bool          // it has a stream without an end
}

// Ask sends a request: now, or together with the next read where that is one step for the
// kernel. The request must not change until something has been read.
func (c *Conn) Ask(request []byte) error {
	if c.turn.Able() {
		c.ask = request
		return nil
	}
	_, err := c.send(request)
	return err
}

// Close closes at once: a TLS connection is not given the time to say goodbye,
// since whoever closes one in use cannot wait.
func (c *Conn) Close() error {
	if t, ok := c.Conn.(*tls.Conn); ok {
		return t.NetConn().Close()
	}
	return c.Conn.Close()
}

// Read reads from the connection. Where a request waits to be sent, it sends
// that first.
func (c *Conn) Read(p []byte) (int, error) {
	ask := c.ask
	if ask == nil {
		return c.Conn.Read(p)
	}
	c.ask = nil
	n, err := c.turn.Take(ask, p, !c.used.IsZero(), c.send)
	if n == 0 && err == nil {
		return c.Conn.Read(p)
	}
	return n, err
}

// send writes, for as long as a write may take.
func (c *Conn) send(p []byte) (int, error) {
	c.writeBy(time.Now())
	return c.Conn.Write(p)
}

// Setting a deadline costs as much as parsing a header. One that is a little
// late does no harm, so that it need not be set for every call.
const (
	slack    = time.Second
	writeFor = 30 * time.Second
)

// ReadBy sets the deadline for reading, up to slack or an eighth of the time
// that is left later than asked; zero for none.
func (c *Conn) ReadBy(by, now time.Time) {
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
func (c *Conn) writeBy(now time.Time) {
	if c.write.Sub(now) < writeFor/2 {
		c.write = now.Add(writeFor)
		_ = c.SetWriteDeadline(c.write)
	}
}

// Pool keeps the connections to one backend. It is safe for concurrent use.
type Pool struct {
	address string // host:port
	dialer  *net.Dialer
	via     func(context.Context) (net.Conn, error) // in place of dialer; nil for that
	most    int                                     // connections that may be open
	tls     *tls.Config

	mu   sync.Mutex
	free []*Conn // the last used is the last
	done bool
	open atomic.Int64
	last atomic.Int64 // of these have streams without an end

	// One timer drops those that have waited for too long. It runs while wake
	// is set, which it is while there are free connections.
	timer *time.Timer
	wake  time.Time // when the timer next looks; zero for never
}

// New returns the pool for the host of u. most is how many connections may
// be open; 0 for MaxConns.
func New(u *url.URL, roots *x509.CertPool, private bool, most int) *Pool {
	if most == 0 {
		most = MaxConns
	}
	p := &Pool{address: Address(u), dialer: Dialer(private), most: most}
	if u.Scheme == "https" {
		p.tls = TLS(u, roots)
	}
	return p
}

// Via has the pool make its connections with dial, whose errors are of the edge. It is called
// before any other method.
func (p *Pool) Via(dial func(context.Context) (net.Conn, error)) { p.via = dial }

// Address is host:port of u.
func Address(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = "80"
		if u.Scheme == "https" {
			port = "443"
		}
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// TLS is how the host of u is trusted; roots nil are those of the system.
func TLS(u *url.URL, roots *x509.CertPool) *tls.Config {
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12, ServerName: u.Hostname(), NextProtos: []string{"http/1.1"}}
}

// Get returns a connection that the backend has not closed, as far as can be
// known before writing to it. One that takes turns looks once more when it does.
// lasts says that it is for a stream without an end, and beside that it is for what calls may
// be waiting for: of these there are a few connections more.
func (p *Pool) Get(ctx context.Context, now time.Time, lasts, beside bool) (*Conn, error) {
	if !lasts {
		return p.get(ctx, now, beside)
	}
	if most := p.most - min(forCalls, p.most/4); p.last.Add(1) > int64(most) {
		p.last.Add(-1)
		return nil, edge.Errorf(edge.Overload, "dial", "all %d connections for streams are in use, and the other %d are for calls", most, p.most-most)
	}
	c, err := p.get(ctx, now, beside)
	if err != nil {
		p.last.Add(-1)
		return nil, err
	}
	c.lasts = true
	return c, nil
}

func (p *Pool) get(ctx context.Context, now time.Time, beside bool) (*Conn, error) {
	for {
		p.mu.Lock()
		n := len(p.free)
		if n == 0 {
			p.mu.Unlock()
			return p.dial(ctx, beside)
		}
		c := p.free[n-1]
		p.free[n-1] = nil
		p.free = p.free[:n-1]
		p.mu.Unlock()
		if now.Sub(c.used) < c.idle && (c.turn.Able() || c.probe.quiet()) {
			return c, nil
		}
		p.Drop(c)
	}
}

// Open returns how many connections are open.
func (p *Pool) Open() int { return int(p.open.Load()) }

// Free returns how many of them wait for a request.
func (p *Pool) Free() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.free)
}

// Most returns how many connections may be open.
func (p *Pool) Most() int { return p.most }

func (p *Pool) dial(ctx context.Context, beside bool) (*Conn, error) {
	most := p.most
	if beside {
		most += max(1, min(forCalls, p.most/4))
	}
	if p.open.Add(1) > int64(most) {
		p.open.Add(-1)
		return nil, edge.Errorf(edge.Overload, "dial", "all %d connections are in use", p.most)
	}
	if p.via != nil {
		nc, err := p.via(ctx)
		if err != nil {
			p.open.Add(-1)
			return nil, err
		}
		return newConn(nc), nil
	}
	ctx, cancel := context.WithTimeout(ctx, DialTimeout)
	defer cancel()
	nc, err := p.dialer.DialContext(ctx, "tcp", p.address)
	if t, ok := nc.(*net.TCPConn); ok {
		_ = t.SetReadBuffer(ReceiveBuffer) // without it the connection only costs more
	}
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
			return nil, edge.Errorf(edge.Timeout, "dial", "%s did not answer within %s", p.address, DialTimeout)
		}
		return nil, &edge.Error{Kind: edge.Unavailable, Op: "dial", Err: err}
	}
	return newConn(nc), nil
}

func newConn(nc net.Conn) *Conn {
	c := &Conn{Conn: nc, Reader: readers.Get().(*bufio.Reader), idle: idleDefault}
	c.Reader.Reset(c)
	if !c.turn.Of(nc) {
		c.probe.at(c)
	}
	return c
}

var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, readBuffer) }}

// Slim gives the connection a small buffer, once: it has become a stream that may be silent
// for long, beside thousands of others. No other request will have it.
func (c *Conn) Slim() {
	if c.Reader.Size() <= SlimBuffer {
		return
	}
	from, old := io.Reader(c.Conn), c.Reader
	if n := old.Buffered(); n > 0 {
		b, _ := old.Peek(n)
		from = io.MultiReader(bytes.NewReader(bytes.Clone(b)), c.Conn)
	}
	c.Reader, c.Out = bufio.NewReaderSize(from, SlimBuffer), nil
	old.Reset(nil)
	readers.Put(old)
}

// Dialer connects to the addresses of edge.MayDial alone: it looks at what a
// name turned out to stand for.
func Dialer(private bool) *net.Dialer {
	return &net.Dialer{Control: func(_, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		err = edge.MayDial(at.Addr(), private)
		if err != nil && !private && edge.MayDial(at.Addr(), true) == nil {
			return fmt.Errorf("%w: set allowPrivateEndpoint if it is meant", err)
		}
		return err
	}}
}

// Put takes back a connection whose answer has been read to its end.
func (p *Pool) Put(c *Conn, now time.Time) {
	if cap(c.Out) > keepOut {
		c.Out = nil
	}
	c.used = now
	c.idle = c.Head.idle
	p.ended(c)
	p.mu.Lock()
	if p.done || p.open.Load() > int64(p.most) || c.idle <= 0 || c.Reader.Size() <= SlimBuffer || c.Reader.Buffered() > 0 || c.Head.Closes {
		p.mu.Unlock()
		p.Drop(c)
		return
	}
	p.free = append(p.free, c)
	if end := now.Add(c.idle); p.wake.IsZero() || end.Before(p.wake) {
		p.wakeBy(end, now)
	}
	p.mu.Unlock()
}

// wakeBy has the timer look at the free connections at a time; p.mu is held.
func (p *Pool) wakeBy(at, now time.Time) {
	p.wake = at
	if p.timer == nil {
		p.timer = time.AfterFunc(at.Sub(now), p.sweep)
		return
	}
	p.timer.Reset(at.Sub(now))
}

// sweep drops the free connections whose time is over, and sleeps until that of
// the next one is.
func (p *Pool) sweep() {
	now := time.Now()
	var old []*Conn
	p.mu.Lock()
	keep := p.free[:0]
	p.wake = time.Time{}
	for _, c := range p.free {
		end := c.used.Add(c.idle)
		if !now.Before(end) {
			old = append(old, c)
			continue
		}
		keep = append(keep, c)
		if p.wake.IsZero() || end.Before(p.wake) {
			p.wake = end
		}
	}
	clear(p.free[len(keep):])
	p.free = keep
	if !p.wake.IsZero() {
		p.wakeBy(p.wake, now)
	}
	p.mu.Unlock()
	for _, c := range old {
		p.Drop(c)
	}
}

// Drop closes a connection, in place of Put.
func (p *Pool) Drop(c *Conn) {
	c.Close()
	p.ended(c)
	p.open.Add(-1)
}

// ended notes that a connection has no stream any more.
func (p *Pool) ended(c *Conn) {
	if c.lasts {
		c.lasts = false
		p.last.Add(-1)
	}
}

// Close closes the connections that wait; those in use are closed when their
// calls end.
func (p *Pool) Close() {
	p.mu.Lock()
	free := p.free
	p.free, p.done = nil, true
	if p.timer != nil {
		p.timer.Stop()
	}
	p.mu.Unlock()
	for _, c := range free {
		p.Drop(c)
	}
}
