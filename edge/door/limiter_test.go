package door

import (
	"net"
	"testing"
)

// peer is a connection from an address.
type peer struct {
	net.Conn
	from net.Addr
}

func (p peer) RemoteAddr() net.Addr { return p.from }

// TestZ01CrowdOfANetwork: the addresses of a network that is given out as one
// count as one; those of version 4 each for itself, however they are written.
func TestZ01CrowdOfANetwork(t *testing.T) {
	const most = 2
	for _, c := range []struct {
		name string
		from []string
		in   int // how many of them are let in
	}{
		{"one network", []string{"2001:db8:1:2::1", "2001:db8:1:2::2", "2001:db8:1:2:ffff::3"}, 2},
		{"two networks", []string{"2001:db8:1:2::1", "2001:db8:1:2::2", "2001:db8:1:3::1", "2001:db8:1:3::2"}, 4},
		{"version 4", []string{"192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.2"}, 3},
		{"version 4 in version 6", []string{"192.0.2.1", "::ffff:192.0.2.1", "192.0.2.1"}, 2},
		{"this host", []string{"::1", "::1", "::1"}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			var w Limiter
			var in []net.Conn
			for i, from := range c.from {
				p := peer{from: &net.TCPAddr{IP: net.ParseIP(from), Port: 1000 + i}}
				if w.Enter(p, most) {
					in = append(in, p)
				}
			}
			if len(in) != c.in {
				t.Errorf("%d of %d are let in, not %d", len(in), len(c.from), c.in)
			}
			for _, p := range in {
				w.Leave(p, most)
			}
			if len(w.count) != 0 {
				t.Errorf("%v is counted when all have left", w.count)
			}
		})
	}
}
