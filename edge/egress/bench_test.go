package egress

import (
	"io"
	"net"
	"net/netip"
	"runtime"
	"strconv"
	"testing"
	"time"
)

func itoa(n int) string { return strconv.Itoa(n) }

// BenchmarkDecide judges a host, its port and its address, as one that a client wrote.
func BenchmarkDecide(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run("hosts="+itoa(n), func(b *testing.B) {
			r := rules(b, Options{}, many(n))
			a := netip.MustParseAddr("93.184.216.34")
			b.ReportAllocs()
			for b.Loop() {
				h, port, err := ParseTarget("a.b.h8.example.com:443", 0)
				d := r.Decide(h, port)
				if reason, _ := r.Address(d, a); err != nil || !d.OK() || reason != Allowed {
					b.Fatal(d, reason, err)
				}
			}
		})
	}
}

// BenchmarkTunnel sends bytes to a host through a tunnel, beside a relay that judges nothing and
// that has the kernel move them.
func BenchmarkTunnel(b *testing.B) {
	chunk := make([]byte, 1<<20)
	for _, way := range []string{"relay", "proxy"} {
		b.Run(way, func(b *testing.B) {
			w := open(b, public, Options{})
			h := w.host("93.184.216.34:8080", func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
			var c net.Conn
			if way == "proxy" {
				c = w.tunnel("allowed.test:8080")
			} else {
				c = relayed(b, h.ln.Addr().String())
			}
			_ = c.SetDeadline(time.Time{})
			b.SetBytes(int64(len(chunk)))
			for b.Loop() {
				if _, err := c.Write(chunk); err != nil {
					b.Fatal(err)
				}
			}
			_ = c.Close()
		})
	}
}

// relayed is a connection to an address by way of a relay.
func relayed(b *testing.B, to string) net.Conn {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	in, err := ln.Accept()
	if err != nil {
		b.Fatal(err)
	}
	out, err := net.Dial("tcp", to)
	if err != nil {
		b.Fatal(err)
	}
	for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
		go func() {
			_, _ = io.Copy(way[0], way[1])
			_ = way[0].Close()
		}()
	}
	b.Cleanup(func() { _ = c.Close() })
	return c
}

// BenchmarkIdleTunnels is the memory of a tunnel that nobody uses: heap after a collection, and
// stacks, with those of the client and of the host, which are of this process, too.
func BenchmarkIdleTunnels(b *testing.B) {
	const tunnels = 500
	memory := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	var most uint64 // of all rounds: later ones use the stacks of earlier ones
	for b.Loop() {
		w := open(b, public, Options{})
		w.host("93.184.216.34:8080", echo)
		before := memory()
		var all []net.Conn
		for range tunnels {
			all = append(all, w.tunnel("allowed.test:8080"))
		}
		if now := memory(); now > before {
			most = max(most, (now-before)/tunnels)
		}
		b.ReportMetric(float64(most), "bytes/tunnel")
		for _, c := range all {
			_ = c.Close()
		}
	}
}
