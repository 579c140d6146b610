package serve

import (
	"net/netip"

	"github.com/weir-edge/weir/edge"
)

// What one client may have, such as sessions and streams, is counted for its
// holder: the principal; where nobody is asked who they are, the address that
// the client comes from, which behind proxies that are believed is the one that
// they tell.

// holder returns whom the things of the client of a request are counted for.
func (e *Edge) holder(h *head) string {
	if !h.who.Anonymous() {
		return h.who.Principal()
	}
	return holderOf(h.who, e.clientOf(h.ctx.Conn(), &h.ctx.Request.Header))
}

// holderOf is holder for an identity and an address.
func holderOf(who *edge.Identity, address string) string {
	if !who.Anonymous() {
		return who.Principal()
	}
	const anonymous = "\x00" // no principal begins with it
	addr, err := netip.ParseAddr(address)
	if err != nil {
		return anonymous + address
	}
	addr = addr.Unmap().WithZone("")
	if network, ok := networkOf(addr); ok {
		return anonymous + network.String()
	}
	return anonymous + addr.String()
}

// networkOf returns the network that whoever has an address has with it: one of
// the sixth version stands for 64 bits of them (RFC 6177 §2). It reports false
// for an address that stands for itself.
func networkOf(addr netip.Addr) (netip.Prefix, bool) {
	if !addr.Is6() || addr.IsLoopback() {
		return netip.Prefix{}, false
	}
	network, err := addr.Prefix(64)
	return network, err == nil
}
