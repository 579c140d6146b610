package edge

import (
	"fmt"
	"net/netip"
	"net/url"
)

// AddressError says that an address is one that the edge does not connect to.
type AddressError struct {
	Addr netip.Addr
	What string // what kind of address it is
}

func (e *AddressError) Error() string { return fmt.Sprintf("%s is %s", e.Addr, e.What) }

// MayDial says whether the edge may connect to an address that a name stands
// for; the error is an *AddressError. Link-local addresses and those where
// clouds hand out credentials are never dialled; private allows every other,
// and without it only addresses of the public internet are. An IPv4 address
// inside an IPv6 one is judged as IPv4.
func MayDial(addr netip.Addr, private bool) error {
	inner := embedded(addr.WithZone("").Unmap())
	switch {
	case !inner.IsValid():
		return &AddressError{addr, "no address"}
	case addr.IsLinkLocalUnicast() || inner.IsLinkLocalUnicast(), inner.IsLinkLocalMulticast(), inner.IsInterfaceLocalMulticast():
		return &AddressError{addr, "a link-local address"}
	case within(inner, metadata()):
		return &AddressError{addr, "a cloud metadata address"}
	case private:
		return nil
	case inner.Is4() && within(inner, special4()), inner.Is6() && (!within(inner, global6()) || within(inner, special6())):
		return &AddressError{addr, "not a public address"}
	}
	return nil
}

// embedded is the IPv4 address that a translator makes of an IPv6 address
// (RFC 6052 §2.1), else the address itself.
func embedded(addr netip.Addr) netip.Addr {
	if !addr.Is6() || !netip.MustParsePrefix("64:ff9b::/96").Contains(addr) {
		return addr
	}
	b := addr.As16()
	return netip.AddrFrom4([4]byte(b[12:]))
}

func within(addr netip.Addr, prefixes []string) bool {
	for _, p := range prefixes {
		if netip.MustParsePrefix(p).Contains(addr) {
			return true
		}
	}
	return false
}

// metadata are the addresses, besides 169.254.169.254, at which clouds answer
// their machines.
func metadata() []string {
	return []string{"100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32", "fd00:ec2::/32", "fd20:ce::254/128"}
}

// special4 are the IPv4 blocks that are not of the public internet (RFC 6890
// and the IANA registry of special-purpose addresses).
func special4() []string {
	return []string{
		"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
		"192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15",
		"198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
	}
}

// global6 is all that is routed in the public internet (RFC 4291 §2.4).
func global6() []string { return []string{"2000::/3"} }

// special6 are the blocks of it that are not, or that hide an IPv4 address
// (6to4, Teredo).
func special6() []string {
	return []string{"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"}
}

// HostOf is the host of a URL; "" for what is none.
func HostOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// Loopback reports whether an address, without a port, is of this machine.
func Loopback(address string) bool {
	addr, err := netip.ParseAddr(address)
	return err == nil && addr.Unmap().IsLoopback()
}
