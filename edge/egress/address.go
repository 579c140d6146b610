package egress

import "net/netip"

// Class is what kind of address one is.
type Class uint8

// The classes, the worse the higher.
const (
	Public  Class = iota // of the public internet
	Private              // of a network that is somebody's own: allowed where the profile names it
	Never                // nothing that a server is to reach, whatever a profile says
)

// Classify says what kind of address one is, and in words what makes it so. An IPv4 address
// inside an IPv6 one (mapped, NAT64, 6to4, ISATAP) is judged as what it stands for.
//
// Sources: the IANA registries of special-purpose addresses (RFC 6890), RFC 4291 §2.4, RFC
// 6052 §2.1 (NAT64), RFC 8215 (its local prefix), RFC 3056 (6to4), RFC 4380 (Teredo), RFC
// 5214 §6.1 (ISATAP), and the addresses at which clouds answer their machines.
func Classify(a netip.Addr) (Class, string) {
	switch {
	case !a.IsValid() || a.Zone() != "":
		return Never, "no address that can be judged"
	case a.Is4():
		return classify4(a.As4())
	case a.Is4In6():
		return classify4(a.Unmap().As4())
	}
	return classify6(a.As16())
}

func classify4(b [4]byte) (Class, string) {
	switch {
	case b[0] == 0:
		return Never, "an unspecified address"
	case b[0] == 127:
		return Never, "a loopback address"
	case b == [4]byte{169, 254, 169, 254}, b == [4]byte{100, 100, 100, 200}, b == [4]byte{168, 63, 129, 16}, b == [4]byte{192, 0, 0, 192}:
		return Never, "a cloud metadata address"
	case b[0] == 169 && b[1] == 254:
		return Never, "a link-local address"
	case b[0]&0xf0 == 224:
		return Never, "a multicast address"
	case b[0]&0xf0 == 240:
		return Never, "a reserved address"
	case b == [4]byte{172, 17, 0, 1}:
		return Never, "the gateway of a container engine"
	case b[0] == 10, b[0] == 172 && b[1]&0xf0 == 16, b[0] == 192 && b[1] == 168:
		return Private, "a private address"
	case b[0] == 100 && b[1]&0xc0 == 64:
		return Private, "an address shared by customers of a provider (100.64.0.0/10)"
	case b[0] == 192 && b[1] == 0 && (b[2] == 0 || b[2] == 2), b[0] == 192 && b[1] == 88 && b[2] == 99,
		b[0] == 198 && b[1]&0xfe == 18, b[0] == 198 && b[1] == 51 && b[2] == 100, b[0] == 203 && b[1] == 0 && b[2] == 113:
		return Private, "not an address of the public internet"
	}
	return Public, ""
}

func classify6(b [16]byte) (Class, string) {
	inner := func(at int) (Class, string) { return classify4([4]byte(b[at : at+4])) }
	begins := func(prefix ...byte) bool { return string(b[:len(prefix)]) == string(prefix) }
	zeros := func(from, to int) bool {
		for _, c := range b[from:to] {
			if c != 0 {
				return false
			}
		}
		return true
	}
	switch {
	case zeros(0, 12):
		if zeros(12, 15) && b[15] <= 1 {
			return Never, "a loopback or unspecified address"
		}
		return Never, "an IPv4 address in an IPv6 one of a form that is not used any more"
	case begins(0x00, 0x64, 0xff, 0x9b) && zeros(4, 12):
		return inner(12)
	case begins(0x00, 0x64, 0xff, 0x9b):
		return Never, "an address of a translator of its own network"
	case begins(0x20, 0x02):
		if c, what := inner(2); c != Public {
			return c, what
		}
		return Private, "not an address of the public internet (6to4)"
	case begins(0x20, 0x01, 0, 0):
		return Never, "an address of a tunnel (Teredo)"
	case begins(0xfd, 0x00, 0x0e, 0xc2), b == [16]byte{0xfd, 0x20, 0, 0xce, 14: 0x02, 15: 0x54}:
		return Never, "a cloud metadata address"
	case b[0] == 0xfe && b[1]&0xc0 == 0x80:
		return Never, "a link-local address"
	case b[0] == 0xfe && b[1]&0xc0 == 0xc0:
		return Never, "a site-local address"
	case b[0] == 0xff:
		return Never, "a multicast address"
	}
	if (b[8] == 0 || b[8] == 2) && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe {
		if c, what := inner(12); c != Public {
			return c, what
		}
	}
	switch {
	case b[0]&0xfe == 0xfc:
		return Private, "a private address"
	case b[0]&0xe0 != 0x20:
		return Never, "not an address of the internet"
	case begins(0x20, 0x01) && b[2]&0xfe == 0, begins(0x20, 0x01, 0x0d, 0xb8), begins(0x3f, 0xff) && b[2]&0xf0 == 0:
		return Private, "not an address of the public internet"
	}
	return Public, ""
}

// neverBits is the length of the block around an address of class Never all of which is of
// that class; no prefix has 129 bits, which stands for a block that is not known here.
func neverBits(a netip.Addr) int {
	for _, block := range neverBlocks {
		if block.Contains(a) {
			return block.Bits()
		}
	}
	return 129
}

// neverBlocks are those by which somebody may want to allow what never is.
var neverBlocks = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("224.0.0.0/3"),
	netip.MustParsePrefix("fe80::/9"), netip.MustParsePrefix("ff00::/8"),
}

// embedded is the IPv4 address that one of IPv6 stands for, by translation (NAT64) or a
// tunnel (6to4, ISATAP); the zero one for none.
func embedded(a netip.Addr) netip.Addr {
	if !a.Is6() || a.Is4In6() {
		return netip.Addr{}
	}
	b := a.As16()
	switch {
	case b[0] == 0 && b[1] == 0x64 && b[2] == 0xff && b[3] == 0x9b:
		return netip.AddrFrom4([4]byte(b[12:]))
	case b[0] == 0x20 && b[1] == 0x02:
		return netip.AddrFrom4([4]byte(b[2:]))
	case (b[8] == 0 || b[8] == 2) && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe:
		return netip.AddrFrom4([4]byte(b[12:]))
	}
	return netip.Addr{}
}
