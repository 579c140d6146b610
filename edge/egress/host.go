package egress

import (
	"errors"
	"net/netip"
	"strings"
)

// Host is a host in its canonical form: a name in lower case without a trailing dot, or an
// address. Its zero value is none.
type Host struct {
	name string
	addr netip.Addr
}

func (h Host) String() string {
	if h.addr.IsValid() {
		return h.addr.String()
	}
	return h.name
}

// IsAddr reports whether the host is an address and no name.
func (h Host) IsAddr() bool { return h.addr.IsValid() }

// The errors of hosts and ports. They repeat nothing of what was written.
var (
	errNoHost   = errors.New("no host")
	errTooLong  = errors.New("the host has more than 253 characters")
	errBytes    = errors.New("the host has a character that no name has: write letters, digits, - and ., and other alphabets as xn--")
	errAlphabet = errors.New("the name cannot be written as xn-- (IDNA 2008)")
	errLabel    = errors.New("a part of the host between dots is empty, or has more than 63 characters")
	errNumber   = errors.New("the host is a number and no address: write four decimal numbers with dots")
	errAddress  = errors.New("the address is not written in its usual form")
	errUser     = errors.New("a user name stands before the host: URLs with one are not taken, so leave it out")
	errPort     = errors.New("no port from 1 to 65535")
	errBrackets = errors.New("an IPv6 address stands in brackets, and nothing else does")
)

const maxHost = 253

// Canonical reads a host as a client writes it, without brackets and port. What another
// reader could take for another host is an error: numbers that some resolvers read as
// addresses (0x7f.1, 2130706433, 017700000001), IPv6 in another form than that of RFC 5952,
// IPv4 in IPv6, zones, escapes, user names, empty labels, other alphabets than ASCII.
func Canonical(text string) (Host, error) {
	if text == "" {
		return Host{}, errNoHost
	}
	if len(text) > maxHost+1 {
		return Host{}, errTooLong
	}
	if strings.IndexByte(text, ':') >= 0 {
		return canonical6(text)
	}
	qualified := text[len(text)-1] == '.'
	if qualified {
		text = text[:len(text)-1]
	}
	if len(text) > maxHost {
		return Host{}, errTooLong
	}
	last, numeric, begins := 0, true, true // the last label: where it begins, and whether it is a number
	upper := false
	for i := range len(text) {
		c := text[i]
		switch {
		case 'a' <= c && c <= 'z', c == '-':
			numeric = false
		case 'A' <= c && c <= 'Z':
			upper, numeric = true, false
		case '0' <= c && c <= '9':
		case c == '.':
			if n := i - last; n == 0 || n > 63 {
				return Host{}, errLabel
			}
			last, numeric, begins = i+1, true, true
			continue
		default:
			return Host{}, errBytes
		}
		begins = false
	}
	if n := len(text) - last; begins || n > 63 {
		return Host{}, errLabel
	}
	if upper {
		text = strings.ToLower(text)
	}
	if numeric || isHex(text[last:]) {
		addr, err := netip.ParseAddr(text)
		if err != nil || !addr.Is4() || qualified { // also with leading zeros
			return Host{}, errNumber
		}
		return Host{addr: addr}, nil
	}
	return Host{name: text}, nil
}

// isHex reports whether a label is one that inet_aton reads as a number: 0x and digits.
func isHex(label string) bool {
	if len(label) < 2 || label[:2] != "0x" {
		return false
	}
	return strings.Trim(label[2:], "0123456789abcdef") == ""
}

// canonical6 reads an IPv6 address in the form of RFC 5952.
func canonical6(text string) (Host, error) {
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" || addr.Is4In6() {
		return Host{}, errAddress
	}
	var b [64]byte
	if string(addr.AppendTo(b[:0])) != text {
		return Host{}, errAddress
	}
	return Host{addr: addr}, nil
}

// ParseTarget reads HOST:PORT, as CONNECT has it. Where the port is missing it is otherwise;
// 0 says that it may not be.
func ParseTarget(text string, otherwise int) (Host, int, error) {
	var host, port string
	if strings.IndexByte(text, '@') >= 0 {
		return Host{}, 0, errUser
	}
	switch colon := strings.LastIndexByte(text, ':'); {
	case strings.HasPrefix(text, "["):
		end := strings.IndexByte(text, ']')
		if end < 0 || strings.IndexByte(text[:end], ':') < 0 {
			return Host{}, 0, errBrackets
		}
		host, port = text[1:end], text[end+1:]
		if port != "" && port[0] != ':' {
			return Host{}, 0, errBrackets
		}
	case colon >= 0 && strings.IndexByte(text, ':') != colon:
		return Host{}, 0, errBrackets
	case colon >= 0:
		host, port = text[:colon], text[colon:]
	default:
		host = text
	}
	n := otherwise
	if port != "" {
		if n = parsePort(port[1:]); n == 0 {
			return Host{}, 0, errPort
		}
	}
	if n == 0 {
		return Host{}, 0, errPort
	}
	h, err := Canonical(host)
	return h, n, err
}

// parsePort reads a port; 0 for none.
func parsePort(text string) (n int) {
	if len(text) == 0 || len(text) > 5 || text[0] == '0' {
		return 0
	}
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return 0
		}
		n = n*10 + int(text[i]-'0')
	}
	if n > 65535 {
		return 0
	}
	return n
}
