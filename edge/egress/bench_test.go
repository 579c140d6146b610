package egress

import (
	"net/netip"
	"strconv"
	"testing"
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
