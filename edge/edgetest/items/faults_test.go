package items_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
)

// wire is a TCP proxy before a backend that does to what comes back what a bad
// network does.
type wire struct {
	ln   net.Listener
	to   string
	work sync.WaitGroup

	mu    sync.Mutex
	fault fault
	conns map[net.Conn]bool
	ended bool
}

// fault is what happens to the bytes of a backend. The zero fault is none.
type fault struct {
	latency time.Duration // before each piece, a half more or less
	rate    int           // bytes a second
	slice   int           // bytes of a piece at most
	linger  time.Duration // between the backend's end and the end for the edge
	most    int           // bytes until the connection is closed
	reset   bool          // the connection is reset when the backend answers
	silent  bool          // nothing comes, and nothing ends
}

func newWire(t *testing.T, to string) *wire {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{ln: ln, to: to, conns: map[net.Conn]bool{}}
	w.work.Go(func() { // ends with the listener
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			w.work.Go(func() { w.carry(conn) })
		}
	})
	t.Cleanup(w.close)
	return w
}

func (w *wire) close() {
	w.mu.Lock()
	w.ended = true
	for c := range w.conns {
		c.Close()
	}
	w.mu.Unlock()
	w.ln.Close()
	w.work.Wait()
}

// set changes the fault for connections old and new.
func (w *wire) set(f fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault = f
}

func (w *wire) now() fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fault
}

// open returns how many connections there are.
func (w *wire) open() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.conns) / 2
}

// keep takes connections down so that they end with the proxy.
func (w *wire) keep(conns ...net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range conns {
		w.conns[c] = true
	}
	return !w.ended
}

func (w *wire) carry(near net.Conn) {
	far, err := net.Dial("tcp", w.to)
	if err != nil {
		near.Close()
		return
	}
	defer func() {
		near.Close()
		far.Close()
		w.mu.Lock()
		delete(w.conns, near)
		delete(w.conns, far)
		w.mu.Unlock()
	}()
	if !w.keep(near, far) {
		return
	}
	w.work.Go(func() { // ends with either connection
		_, _ = io.Copy(far, near)
		far.Close()
	})
	buf := make([]byte, 32<<10)
	for sent := 0; ; {
		n, err := far.Read(buf)
		f := w.now()
		if n > 0 && f.reset {
			_ = near.(*net.TCPConn).SetLinger(0) // what is closed is reset
			return
		}
		for rest := buf[:n]; len(rest) > 0; {
			if f = w.now(); f.silent {
				wait(20 * time.Millisecond)
				if w.over() {
					return
				}
				continue
			}
			piece := rest
			if f.slice > 0 && len(piece) > f.slice {
				piece = piece[:f.slice]
			}
			if f.most > 0 && sent+len(piece) > f.most {
				_, _ = near.Write(piece[:max(0, f.most-sent)])
				return
			}
			wait(f.latency/2 + f.latency*time.Duration(sent%100)/100)
			if f.rate > 0 {
				wait(time.Duration(len(piece)) * time.Second / time.Duration(f.rate))
			}
			if _, err := near.Write(piece); err != nil {
				return
			}
			sent += len(piece)
			rest = rest[len(piece):]
		}
		if err != nil {
			wait(f.linger)
			return
		}
	}
}

func (w *wire) over() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ended
}

// wait is the network taking its time.
func wait(d time.Duration) {
	if d > 0 {
		<-time.After(d)
	}
}

// Whatever the network does to a backend, its calls end with the answer or as
// those of a backend that is down or silent, the breaker spares who comes after,
// other backends go on, and all is well soon after the network is. Times are a
// tenth of those of the row: latency 200 ms with a half more or less, 100 KB/s;
// a backend may be silent for 1 s.
func TestL12(t *testing.T) {
	for _, one := range []struct {
		name  string
		fault fault
		good  bool // calls still succeed
	}{
		{"latency", fault{latency: 200 * time.Millisecond}, true},
		{"bandwidth", fault{rate: 100 << 10, slice: 4 << 10}, true},
		{"slicer", fault{slice: 61, latency: 100 * time.Microsecond}, true},
		{"slow close", fault{linger: 500 * time.Millisecond}, true},
		{"reset peer", fault{reset: true}, false},
		{"limit data", fault{most: 150}, false},
		{"timeout", fault{silent: true}, false},
	} {
		for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern, edgetest.SSE} {
			t.Run(one.name+", "+era.String(), func(t *testing.T) {
				t.Parallel()
				far, near := edgetest.NewServer(t, era), edgetest.NewServer(t, edgetest.Legacy)
				text := strings.Repeat("x", 8<<10)
				far.Always("tools/call", answer(far, `"content":[{"type":"text","text":"`+text+`"}]`))
				w := newWire(t, far.Addr())
				config := strings.Replace(group(servers{"far": far, "near": near},
					"operational: {timeouts: {default: 1s}, failureHandling: {partialFailureMode: best_effort, healthCheckInterval: 1s, healthCheckTimeout: 900ms, circuitBreaker: {enabled: true, failureThreshold: 3, timeout: 1s}}}"),
					far.Addr(), w.ln.Addr().String(), 1)
				f := &stage{Edge: edgetest.Start(t, config), backs: servers{"far": far, "near": near}}
				legacy, modern := f.as(edgetest.Legacy, ""), f.as(edgetest.Modern, "")
				if got := modern.tools(t); got != "far_echo near_echo" {
					t.Fatalf("tools %s", got)
				}
				for _, c := range []caller{legacy, modern} {
					c.CallTool("1", "far_echo", "{}").Result()
				}
				w.set(one.fault)
				opened := false
				for i := range 6 {
					for _, c := range []caller{legacy, modern} {
						began := time.Now()
						r := c.CallTool(fmt.Sprint(i), "far_echo", "{}")
						took := time.Since(began)
						m := r.Message()
						switch {
						case m.Error == nil && strings.Contains(string(m.Result), text):
							if !one.good {
								continue // a connection of before, or the last of it
							}
						case one.good:
							t.Errorf("%s", r.Answer())
						case m.Error == nil || m.Error.Code != 502 && m.Error.Code != 504 || c.Session == nil && !r.Stream() && r.Status != m.Error.Code:
							t.Errorf("status %d: %s", r.Status, r.Answer())
						}
						if took > 8*time.Second {
							t.Errorf("the call took %s", took)
						}
						c.CallTool("2", "near_echo", "{}").Result()
					}
					_, circuit := f.status(t).of("far")
					opened = opened || circuit == "open" || circuit == "half-open"
				}
				if opened == one.good {
					t.Errorf("the breaker has opened: %t", opened)
				}
				w.set(fault{})
				began := time.Now()
				for _, c := range []caller{legacy, modern} {
					edgetest.Until(t, "a call that succeeds", func() bool {
						m := c.CallTool("3", "far_echo", "{}").Message()
						return m.Error == nil
					})
				}
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("all was well after %s", took)
				}
				edgetest.Until(t, "no more connections than are used", func() bool { return w.open() <= 8 })
			})
		}
	}
}
