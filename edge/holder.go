package edge

import "net/netip"

// Holder returns whom what one client may have, such as sessions and streams, is
// counted for: its principal; where nobody is asked who they are, or anybody can be
// anybody, the address that it comes from. who is nil where nobody is asked.
func Holder(who *Identity, address string) string {
	if !who.Anonymous() && who.Issuer != UnverifiedIssuer {
		return who.Principal()
	}
	const anonymous = "\x00" // no principal begins with it
	addr, err := netip.ParseAddr(address)
	if err != nil {
		return anonymous + address
	}
	addr = addr.Unmap().WithZone("")
	if network, ok := Network(addr); ok {
		return anonymous + network.String()
	}
	return anonymous + addr.String()
}

// Network returns the network that whoever has an address has with it: one of
// the sixth version stands for 64 bits of them (RFC 6177 §2). It reports false
// for an address that stands for itself.
func Network(addr netip.Addr) (netip.Prefix, bool) {
	if !addr.Is6() || addr.IsLoopback() {
		return netip.Prefix{}, false
	}
	network, err := addr.Prefix(64)
	return network, err == nil
}
