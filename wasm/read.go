package wasm

import (
	"fmt"
	"unicode/utf8"
)

// Refusal says why a module is not accepted: in which section, and what is
// wrong there.
type Refusal struct {
	Section string // of the binary format: "type", "import", …, "code"; "module" for the whole
	Reason  string
}

func (r *Refusal) Error() string { return "module: " + r.Section + " section: " + r.Reason }

// reader decodes the bytes of a module. The first thing that is wrong stays in
// err, and all that is read after it is zero.
type reader struct {
	b       []byte
	pos     int
	section string
	err     error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = &Refusal{r.section, fmt.Sprintf(format, args...)}
		r.pos = len(r.b)
	}
}

func (r *reader) left() int { return len(r.b) - r.pos }

func (r *reader) byte() byte {
	if r.pos >= len(r.b) {
		r.fail("ends too early")
		return 0
	}
	c := r.b[r.pos]
	r.pos++
	return c
}

func (r *reader) bytes(n int) []byte {
	if n < 0 || n > r.left() {
		r.fail("ends too early")
		return nil
	}
	p := r.b[r.pos : r.pos+n : r.pos+n]
	r.pos += n
	return p
}

// u32 reads an unsigned LEB128 of 32 bits (core specification 2.0, 5.2.2).
func (r *reader) u32() uint32 {
	if r.pos < len(r.b) && r.b[r.pos] < 0x80 {
		r.pos++
		return uint32(r.b[r.pos-1])
	}
	var v uint32
	for shift := 0; shift < 35; shift += 7 {
		c := r.byte()
		if shift == 28 && c > 0x0f {
			r.fail("an integer is too large")
			return 0
		}
		v |= uint32(c&0x7f) << shift
		if c < 0x80 {
			return v
		}
	}
	return v
}

// signed reads a signed LEB128 of bits bits, at most 64.
func (r *reader) signed(bits int) int64 {
	var v int64
	for shift := 0; ; shift += 7 {
		c := r.byte()
		if r.err != nil {
			return 0
		}
		last := shift+7 >= bits
		if last {
			// The bits of the last byte beyond the type must repeat the sign.
			used := bits - shift
			top := int8(c<<1) >> used // arithmetic: all bits from the sign on
			if c >= 0x80 || top != 0 && top != -1 {
				r.fail("an integer is too large")
				return 0
			}
		}
		v |= int64(c&0x7f) << shift
		if c < 0x80 {
			if shift+7 < 64 && c&0x40 != 0 {
				v |= -1 << (shift + 7)
			}
			return v
		}
	}
}

// count reads how many things follow, each of at least one byte, and holds the
// number to most.
func (r *reader) count(what string, most int) int {
	n := r.u32()
	if r.err != nil {
		return 0
	}
	if uint64(n) > uint64(most) {
		r.fail("%d %s: at most %d are allowed", n, what, most)
		return 0
	}
	if uint64(n) > uint64(r.left()) {
		r.fail("%d %s in %d bytes", n, what, r.left())
		return 0
	}
	return int(n)
}

func (r *reader) name() string {
	n := r.u32()
	if r.err == nil && n > maxName {
		r.fail("a name of %d bytes: at most %d are allowed", n, maxName)
	}
	p := r.bytes(int(n))
	if !utf8.Valid(p) {
		r.fail("a name is not UTF-8")
	}
	return string(p)
}

func appendU32(b []byte, v uint32) []byte {
	for v >= 0x80 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}

func appendS64(b []byte, v int64) []byte {
	for {
		c := byte(v & 0x7f)
		v >>= 7
		if v == 0 && c&0x40 == 0 || v == -1 && c&0x40 != 0 {
			return append(b, c)
		}
		b = append(b, c|0x80)
	}
}

func appendName(b []byte, s string) []byte {
	return append(appendU32(b, uint32(len(s))), s...)
}
