package door

import (
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
)

// turnDownWithin is how long a client may take to hear that it is turned down.
const turnDownWithin = time.Second

// Limiter counts the connections of each client address, or network that one has
// like an address, when they are limited.
type Limiter struct {
	mu    sync.Mutex
	count map[netip.Prefix]int
}

// networkOf returns where a connection comes from.
func networkOf(c net.Conn) netip.Prefix {
	var addr netip.Addr
	if at, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		addr = at.AddrPort().Addr()
	} else if at, err := netip.ParseAddrPort(c.RemoteAddr().String()); err == nil {
		addr = at.Addr()
	}
	addr = addr.Unmap().WithZone("")
	if network, ok := edge.Network(addr); ok {
		return network
	}
	return netip.PrefixFrom(addr, addr.BitLen())
}

// Enter counts a connection. It reports false when its address has most of them
// already; 0 is no limit.
func (w *Limiter) Enter(c net.Conn, most int) bool {
	if most == 0 {
		return true
	}
	from := networkOf(c)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count[from] >= most {
		return false
	}
	if w.count == nil {
		w.count = make(map[netip.Prefix]int)
	}
	w.count[from]++
	return true
}

// Leave ends what Enter counted.
func (w *Limiter) Leave(c net.Conn, most int) {
	if most == 0 {
		return
	}
	from := networkOf(c)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count[from]--; w.count[from] <= 0 {
		delete(w.count, from)
	}
}

// TurnDown tells a client that its address has too many connections.
func TurnDown(c net.Conn) {
	_ = c.SetDeadline(time.Now().Add(turnDownWithin))
	_, _ = io.WriteString(c, "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	_ = c.Close()
}
