package mcp

import (
	"bytes"
	"encoding/binary"
)

// What both doors ask of the header lines of HTTP, each byte of which they look
// at before anything else does.

// SameName compares the name of a header line, or a word in its value, with one
// in lower case.
func SameName(text []byte, lower string) bool {
	if len(text) != len(lower) {
		return false
	}
	for i := range len(lower) {
		c := text[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// HasControl reports whether a value has a control character other than a tab.
// Eight bytes of plain ASCII pass at once.
func HasControl(v []byte) bool {
	const (
		low  = 0x0101010101010101
		high = 0x8080808080808080
	)
	for len(v) >= 32 { // such as a token
		a, b := binary.LittleEndian.Uint64(v), binary.LittleEndian.Uint64(v[8:])
		c, d := binary.LittleEndian.Uint64(v[16:]), binary.LittleEndian.Uint64(v[24:])
		odd := a | (a - low*0x20) | (a + low) | b | (b - low*0x20) | (b + low) | c | (c - low*0x20) | (c + low) | d | (d - low*0x20) | (d + low)
		if odd&high != 0 && anyControl(v[:32]) {
			return true
		}
		v = v[32:]
	}
	for len(v) >= 8 {
		w := binary.LittleEndian.Uint64(v)
		if (w|(w-low*0x20)|(w+low))&high != 0 && anyControl(v[:8]) { // not ASCII, below a space, or DEL
			return true
		}
		v = v[8:]
	}
	return anyControl(v)
}

func anyControl(v []byte) bool {
	for _, c := range v {
		if c < ' ' && c != '\t' || c == 0x7f {
			return true
		}
	}
	return false
}

// IsToken reports whether s is a token (RFC 9110 §5.6.2), as the name of a header line is.
func IsToken(s string) bool {
	for i := range len(s) {
		if !NameBytes[s[i]] {
			return false
		}
	}
	return s != ""
}

// NameBytes tells of each byte whether the name of a header line may have it
// (RFC 9110 §5.6.2). It is never changed.
var NameBytes = func() (t [256]bool) {
	for c := range byte(0x7f) {
		t[c] = '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || bytes.IndexByte([]byte("!#$%&'*+-.^_`|~"), c) >= 0
	}
	return t
}()
