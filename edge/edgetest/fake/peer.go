package fake

import (
	"net"
	"sync"
	"testing"
)

// Peer takes connections on a loopback address and leaves what is said on them
// to the test.
type Peer struct {
	Addr string // host:port

	ln    net.Listener
	serve func(net.Conn)
	all   sync.WaitGroup

	mu   sync.Mutex
	over bool
	open map[net.Conn]bool
}

// Listen starts a peer that serves each connection in a goroutine of its own,
// and closes it when serve returns. The peer ends with the test.
func Listen(t testing.TB, serve func(net.Conn)) *Peer {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Peer{Addr: ln.Addr().String(), ln: ln, serve: serve, open: map[net.Conn]bool{}}
	p.all.Go(p.accept)
	t.Cleanup(p.Close)
	return p
}

// Close takes no further connection, closes those that are open, and waits until
// all are served.
func (p *Peer) Close() {
	p.ln.Close()
	p.mu.Lock()
	p.over = true
	for c := range p.open {
		c.Close()
	}
	p.mu.Unlock()
	p.all.Wait()
}

// accept ends with the listener.
func (p *Peer) accept() {
	for {
		c, err := p.ln.Accept()
		if err != nil {
			return
		}
		if !p.keep(c) {
			c.Close()
			return
		}
		p.all.Go(func() {
			defer p.end(c)
			p.serve(c)
		})
	}
}

func (p *Peer) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return false
	}
	p.open[c] = true
	return true
}

func (p *Peer) end(c net.Conn) {
	c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
}
