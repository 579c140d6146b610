//go:build unix

package kv_test

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
)

// wire stands between a store and its Redis and does to connections what
// networks and servers do.
type wire struct {
	Addr string

	ln    net.Listener
	back  string
	delay atomic.Int64 // nanoseconds before anything comes back
	rate  atomic.Int64 // bytes a second that come back on a connection; 0 for no bound
	reset atomic.Bool  // connections break when something is asked
	asked atomic.Int64 // how often something was asked
	says  atomic.Value // string: the answer to everything; "" for the Redis's own

	mu    sync.Mutex
	conns []net.Conn
	all   sync.WaitGroup
}

func newWire(t *testing.T, back string) *wire {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{Addr: ln.Addr().String(), ln: ln, back: back}
	w.says.Store("")
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
		w.cut()
		w.all.Wait()
	})
	return w
}

// cut breaks every connection.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		c.Close()
	}
	w.conns = nil
}

func (w *wire) serve(front net.Conn) {
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
		w.pump(front, back, func(n int) {
			wait := time.Duration(w.delay.Load())
			if rate := w.rate.Load(); rate > 0 {
				wait += time.Duration(n) * time.Second / time.Duration(rate)
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
		w.asked.Add(1)
		if w.reset.Load() {
			front.(*net.TCPConn).SetLinger(0)
			return
		}
		if says := w.says.Load().(string); says != "" {
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

func (w *wire) pump(to, from net.Conn, before func(int)) {
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

// load is what calls at a steady rate saw.
type load struct {
	mu    sync.Mutex
	took  []time.Duration
	fails int
	wrong []error // that are not of a store that is away
}

func (l *load) p99() time.Duration {
	slices.Sort(l.took)
	return l.took[len(l.took)*99/100]
}

// run makes 1,000 calls a second, whatever becomes of them.
func run(t *testing.T, s edge.Store, during time.Duration) *load {
	t.Helper()
	l := &load{}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	var all sync.WaitGroup
	for end := time.Now().Add(during); time.Now().Before(end); <-tick.C {
		all.Go(func() {
			began := time.Now()
			_, _, err := s.Take(context.Background(), edge.Bucket{Key: "rl:{load}", Capacity: 1 << 30, Refill: time.Second})
			took := time.Since(began)
			l.mu.Lock()
			defer l.mu.Unlock()
			l.took = append(l.took, took)
			var e *edge.Error
			switch {
			case err == nil:
			case errors.As(err, &e) && e.Kind == edge.Overload && e.After > 0:
				l.fails++
			default:
				l.wrong = append(l.wrong, err)
			}
		})
	}
	all.Wait()
	return l
}
