package egress

import (
	"errors"
	"io"
)

// maxHello bounds the records of a ClientHello, in bytes.
const maxHello = 16 << 10

// The errors of a ClientHello.
var (
	errHello     = errors.New("what came first is no TLS ClientHello")
	errHelloSize = errors.New("the ClientHello has 16 KiB or more")
)

// hello is what a ClientHello says.
type hello struct {
	raw  []byte // its records as they came
	name string // that it asks for (SNI); "" for none
}

// readHello reads the records of a ClientHello (RFC 8446 §4.1.2, §5.1), in however many
// pieces and records it comes, and nothing behind it. begun is what was read before.
func readHello(r io.Reader, begun []byte) (hello, error) {
	raw := make([]byte, 0, 2048)
	raw = append(raw, begun...)
	fill := func(n int) error {
		if n >= maxHello {
			return errHelloSize
		}
		if len(raw) >= n {
			return nil
		}
		at := len(raw)
		raw = append(raw, make([]byte, n-at)...)
		_, err := io.ReadFull(r, raw[at:])
		return err
	}
	var message []byte
	for at := 0; ; {
		// 1. A record of a handshake.
		if err := fill(at + 5); err != nil {
			return hello{}, err
		}
		size := int(raw[at+3])<<8 | int(raw[at+4])
		if raw[at] != 22 || raw[at+1] != 3 || size == 0 {
			return hello{}, errHello
		}
		if err := fill(at + 5 + size); err != nil {
			return hello{}, err
		}
		message = append(message, raw[at+5:at+5+size]...)
		at += 5 + size
		// 2. Whether the message is whole, and the only one.
		if len(message) < 4 {
			continue
		}
		want := 4 + (int(message[1])<<16 | int(message[2])<<8 | int(message[3]))
		switch {
		case message[0] != 1 || want >= maxHello:
			return hello{}, errHello
		case len(message) < want:
			continue
		case len(message) > want || len(raw) > at:
			return hello{}, errHello
		}
		name, err := serverName(message[4:])
		return hello{raw, name}, err
	}
}

// beginsTLS reports whether the first bytes of a client begin a record of TLS, or more of them,
// six at most, have to say so. It is as lax as servers are: crypto/tls, for one, reads past
// warnings to a ClientHello, and wants of the version only that it is below 16.0.
func beginsTLS(b []byte) (is, more bool) {
	const changeCipher, alert, handshake, data, hello, warning = 20, 21, 22, 23, 1, 1
	n := len(b)
	usual := n > 1 && b[1] == 3
	switch {
	case n > 0 && (b[0] < changeCipher || b[0] > data), n > 1 && b[1] >= 16:
		return false, false
	case usual && b[0] == handshake:
		return true, false
	case n < 6:
		return false, true
	}
	size := int(b[3])<<8 | int(b[4])
	switch b[0] {
	case changeCipher:
		return usual && size <= 1, false
	case alert:
		return usual && size <= 2 || size == 2 && b[5] == warning, false
	case handshake:
		return b[5] == hello, false
	}
	return usual && (size == 0 || b[2] >= 1 && b[2] <= 4), false
}

// serverName finds the name in the body of a ClientHello (RFC 6066 §3): "" for none. Two
// names, or two extensions with one, are an error.
func serverName(body []byte) (string, error) {
	b := bytesOf{rest: body, ok: true}
	b.take(2 + 32)      // version, random
	b.take(b.number(1)) // session
	b.take(b.number(2)) // cipher suites
	b.take(b.number(1)) // compression
	if b.ok && len(b.rest) == 0 {
		return "", nil // TLS 1.2 without extensions
	}
	all := bytesOf{rest: b.take(b.number(2)), ok: b.ok}
	if !b.ok || len(b.rest) > 0 {
		return "", errHello
	}
	name, seen := "", false
	for all.ok && len(all.rest) > 0 {
		kind := all.number(2)
		text := all.take(all.number(2))
		if kind != 0 || !all.ok {
			continue
		}
		list := bytesOf{rest: text, ok: true}
		entry := bytesOf{rest: list.take(list.number(2)), ok: list.ok}
		is := entry.number(1)
		value := entry.take(entry.number(2))
		if seen || !entry.ok || !list.ok || is != 0 || len(entry.rest) > 0 || len(list.rest) > 0 || len(value) == 0 {
			return "", errHello
		}
		name, seen = string(value), true
	}
	if !all.ok {
		return "", errHello
	}
	return name, nil
}

// bytesOf takes numbers and bytes off a text; ok is false once something was missing.
type bytesOf struct {
	rest []byte
	ok   bool
}

func (b *bytesOf) take(n int) []byte {
	if !b.ok || n > len(b.rest) {
		b.ok = false
		return nil
	}
	taken := b.rest[:n]
	b.rest = b.rest[n:]
	return taken
}

func (b *bytesOf) number(size int) (n int) {
	for _, c := range b.take(size) {
		n = n<<8 | int(c)
	}
	return n
}

// asksFor reports whether a ClientHello asks for the host that a list named: a name by that
// name, an address by none.
func (h hello) asksFor(host Host) bool {
	if host.IsAddr() {
		return h.name == ""
	}
	named, err := Canonical(h.name)
	return err == nil && named == host
}
