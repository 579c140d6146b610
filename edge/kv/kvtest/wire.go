//go:build unix

package kvtest

import (
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Wire stands between a store and its Redis and does to connections what
// networks and servers do.
type Wire struct {
	Addr string // host:port

	ln    net.Listener
	back  string
	Delay atomic.Int64 // nanoseconds before anything comes back
	Rate  atomic.Int64 // bytes a second that come back on a connection; 0 for no bound
	Reset atomic.Bool  // connections break when something is asked
	Asked atomic.Int64 // how often something was asked
	Says  atomic.Value // string: the answer to everything; "" for the Redis's own

	mu    sync.Mutex
	conns []net.Conn
	all   sync.WaitGroup
}

// NewWire starts one before the server at an address.
func NewWire(t testing.TB, back string) *Wire {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &Wire{Addr: ln.Addr().String(), ln: ln, back: back}
	w.Says.Store("")
	w.all.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			w.all.Go(func() { w.serve(c) })
		}
	})
	t.Cleanup(func() {
		ln.Close()
		w.Cut()
		w.all.Wait()
	})
	return w
}

// Cut breaks every connection.
func (w *Wire) Cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		c.Close()
	}
	w.conns = nil
}

func (w *Wire) serve(front net.Conn) {
	back, err := net.Dial("tcp", w.back)
	if err != nil {
		front.Close()
		return
	}
	w.mu.Lock()
	w.conns = append(w.conns, front, back)
	w.mu.Unlock()
	defer front.Close()
	defer back.Close()
	w.all.Go(func() {
		var due time.Time // when the rate allows what was said so far: a timer that is late does not lower it
		w.pump(front, back, func(n int) {
			wait := time.Duration(w.Delay.Load())
			if rate := w.Rate.Load(); rate > 0 {
				if now := time.Now(); due.Before(now.Add(-50 * time.Millisecond)) {
					due = now
				}
				due = due.Add(time.Duration(n) * time.Second / time.Duration(rate))
				wait += time.Until(due)
			}
			<-time.After(wait)
		})
		front.Close()
	})
	buf := make([]byte, 64<<10)
	for {
		n, err := front.Read(buf)
		if err != nil {
			return
		}
		w.Asked.Add(1)
		if w.Reset.Load() {
			front.(*net.TCPConn).SetLinger(0)
			return
		}
		if says := w.Says.Load().(string); says != "" {
			if _, err := io.WriteString(front, says); err != nil {
				return
			}
			continue
		}
		if _, err := back.Write(buf[:n]); err != nil {
			return
		}
	}
}

// Harm has the network delay, break and reset, each as a seed has it, until stop is called.
func (w *Wire) Harm(seed uint64) (stop func()) {
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		harm := rand.New(rand.NewPCG(seed, 1))
		for {
			switch harm.IntN(6) {
			case 0:
				w.Delay.Store(int64(harm.IntN(15)) * int64(time.Millisecond))
			case 1:
				w.Cut()
			case 2:
				w.Reset.Store(true)
			default:
				w.Reset.Store(false)
				w.Delay.Store(int64(harm.IntN(2)) * int64(time.Millisecond))
			}
			select {
			case <-over:
				w.Reset.Store(false)
				w.Delay.Store(0)
				return
			case <-time.After(time.Duration(1+harm.IntN(4)) * time.Millisecond):
			}
		}
	}()
	return func() { close(over); <-done }
}

func (w *Wire) pump(to, from net.Conn, before func(int)) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		before(n)
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}
