package main

import (
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
	"github.com/weir-edge/weir/edge/edgetest/port"
)

// direction is a way through a relay.
type direction int

const (
	upstream   direction = iota // what the edge sends
	downstream                  // what the backend answers
)

func (d direction) String() string {
	if d == upstream {
		return "up"
	}
	return "down"
}

// toxin is the harm that a relay does to one direction of its connections. A
// zero field does none of its kind.
type toxin struct {
	delay, jitter time.Duration // before data goes on
	rate          int           // bytes a second
	slice         int           // data goes on in pieces of so many bytes, with a moment between
	linger        time.Duration // before the end of one side is passed on
	swallow       bool          // no data goes on, and nobody hears why
	reset         bool          // the first data resets the connection
	limit         int           // the connection ends after so many bytes
}

// relay is a TCP proxy before a backend. What it does to connections may change
// at any time.
type relay struct {
	addr string
	to   string
	work sync.WaitGroup

	mu    sync.Mutex
	ln    net.Listener
	way   direction
	toxin *toxin // of way; nil for none
	joins map[*join]struct{}
	over  bool
}

// join is a connection of the edge and the one to the backend that goes with it.
type join struct {
	edge, backend net.Conn
	stuck         bool // data has been swallowed; guarded by the relay's mu
}

func (j *join) close() {
	j.edge.Close()
	j.backend.Close()
}

// reset ends both sides so that whoever is there sees it at once.
func (j *join) reset() {
	for _, c := range []net.Conn{j.edge, j.backend} {
		if t, ok := c.(*net.TCPConn); ok {
			_ = t.SetLinger(0)
		}
	}
	j.close()
}

// newRelay starts a relay, which ends with the row.
func (s *storm) newRelay(to string) *relay {
	// The port is none of those that the system hands out for connections, so
	// that nobody has it while the relay is away.
	r := &relay{addr: kit.Must(port.Free()), to: to, joins: map[*join]struct{}{}}
	r.back()
	s.later(r.close)
	return r
}

// back takes connections, from the beginning or again after leave.
func (r *relay) back() {
	ln := kit.Must(net.Listen("tcp", r.addr))
	r.mu.Lock()
	r.ln = ln
	r.mu.Unlock()
	r.work.Go(func() { r.accept(ln) })
}

// leave cuts every connection and takes no other: whoever asks is refused.
func (r *relay) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ln.Close()
	for j := range r.joins {
		j.close()
	}
}

// accept ends with the listener.
func (r *relay) accept(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		r.work.Go(func() { r.carry(c) })
	}
}

// carry passes on what comes from either side until both have ended.
func (r *relay) carry(from net.Conn) {
	to, err := net.DialTimeout("tcp", r.to, kit.Patience)
	if err != nil {
		from.Close()
		return
	}
	j := &join{edge: from, backend: to}
	r.mu.Lock()
	over := r.over
	r.joins[j] = struct{}{}
	r.mu.Unlock()
	if !over {
		var both sync.WaitGroup
		both.Go(func() { r.pass(j, upstream, from, to) })
		both.Go(func() { r.pass(j, downstream, to, from) })
		both.Wait()
	}
	j.close()
	r.mu.Lock()
	delete(r.joins, j)
	r.mu.Unlock()
}

// piece is data on its way; its end is one without data.
type piece struct {
	data []byte
	came time.Time
}

// pass passes on one direction of a connection until it ends. What has come
// waits its time without holding up what comes after it.
func (r *relay) pass(j *join, way direction, from, to net.Conn) {
	queue := make(chan piece, 1024)
	var reader sync.WaitGroup
	reader.Go(func() { // ends with the connection, or when the writer has closed it
		defer close(queue)
		for {
			data := make([]byte, 4<<10)
			n, err := from.Read(data)
			if n > 0 {
				queue <- piece{data[:n], time.Now()}
			}
			if err != nil {
				return
			}
		}
	})
	passed := 0
	for p := range queue {
		if !r.deliver(j, way, p, to, &passed) {
			j.close()
			break
		}
	}
	for range queue {
		// what nobody wants, so that the reader ends
	}
	reader.Wait()
	if t := r.toxinOf(way); t != nil && t.linger > 0 {
		time.Sleep(t.linger)
	}
	if t, ok := to.(*net.TCPConn); ok {
		_ = t.CloseWrite() // one that has ended needs none
	}
}

// deliver passes on one piece as the toxin of the direction wants it; false ends
// the connection.
func (r *relay) deliver(j *join, way direction, p piece, to net.Conn, passed *int) bool {
	t := r.toxinOf(way)
	if t == nil {
		_, err := to.Write(p.data)
		return err == nil
	}
	switch {
	case t.reset:
		j.reset()
		return false
	case t.swallow:
		r.mu.Lock()
		defer r.mu.Unlock()
		j.stuck = true
		return r.toxin == t // else it has just been taken away, and what is lost is lost
	case t.delay > 0:
		late := t.delay
		if t.jitter > 0 {
			late += rand.N(2*t.jitter) - t.jitter
		}
		time.Sleep(time.Until(p.came.Add(late)))
	}
	for rest := p.data; len(rest) > 0; {
		n := len(rest)
		wait := time.Duration(0)
		switch {
		case t.rate > 0:
			n = min(n, max(t.rate/20, 1))
			wait = time.Duration(float64(n) / float64(t.rate) * float64(time.Second))
		case t.slice > 0:
			n, wait = min(n, t.slice), time.Millisecond
		case t.limit > 0:
			if n = min(n, t.limit-*passed); n == 0 {
				return false
			}
		}
		time.Sleep(wait)
		if _, err := to.Write(rest[:n]); err != nil {
			return false
		}
		*passed += n
		rest = rest[n:]
	}
	return true
}

func (r *relay) toxinOf(way direction) *toxin {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.way != way {
		return nil
	}
	return r.toxin
}

// poison does harm to one direction from now on, that of connections that are
// open, too.
func (r *relay) poison(way direction, t toxin) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.way, r.toxin = way, &t
}

// cure ends the harm. A connection of which data has been swallowed ends, since
// nobody can make sense of the rest.
func (r *relay) cure() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.toxin = nil
	for j := range r.joins {
		if j.stuck {
			j.close()
		}
	}
}

// open is how many connections there are.
func (r *relay) open() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.joins)
}

// close ends the relay and waits for what it does.
func (r *relay) close() {
	r.mu.Lock()
	r.ln.Close()
	r.over, r.toxin = true, nil
	for j := range r.joins {
		j.close()
	}
	r.mu.Unlock()
	r.work.Wait()
}
