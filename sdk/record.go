package weir

import "github.com/weir-edge/weir/sdk/abi"

// reader goes through the fields of a record. It is one function where package
// abi has several, because calls are what costs most in a Go guest.
type reader struct {
	b        []byte
	at       int // where the next field begins
	field    int
	number   uint64
	from, to int // the bytes of the field; from is 0 for a number
}

// next goes to the next field. It stops at the end, and where the record is
// malformed: the host does not send such.
func (r *reader) next() bool {
	b, at := r.b, r.at
	for {
		key, shift := uint64(0), 0
		for {
			if at >= len(b) {
				return false
			}
			c := b[at]
			at++
			key |= uint64(c&0x7f) << shift
			if c < 0x80 {
				break
			}
			if shift += 7; shift > 63 {
				return false
			}
		}
		skip := 0
		switch key & 7 {
		case 0, 2:
		case 1:
			skip = 8
		case 5:
			skip = 4
		default:
			return false
		}
		if skip > 0 {
			if at += skip; at > len(b) {
				return false
			}
			continue
		}
		n := uint64(0)
		for shift = 0; ; {
			if at >= len(b) {
				return false
			}
			c := b[at]
			at++
			n |= uint64(c&0x7f) << shift
			if c < 0x80 {
				break
			}
			if shift += 7; shift > 63 {
				return false
			}
		}
		r.field = int(key >> 3)
		if key&7 == 0 {
			r.number, r.from, r.to, r.at = n, 0, 0, at
			return true
		}
		if n > uint64(len(b)-at) {
			return false
		}
		r.number, r.from = 0, at
		at += int(n)
		r.to, r.at = at, at
		return true
	}
}

// data is the bytes of the field.
func (r *reader) data() []byte { return r.b[r.from:r.to] }

// short says whether a record begins with a field of bytes whose key and length
// are one byte each, as most are. Whoever finds the reader too slow reads those
// in place: a call costs a Go guest more.
func short(b []byte) bool { return len(b) > 1 && b[0]&0x87 == 2 && int(b[1]) <= min(len(b)-2, 0x7f) }

// first returns the first field of a number in a record.
func first(record []byte, field int) []byte {
	b := record
	for short(b) {
		n := 2 + int(b[1])
		if int(b[0]>>3) == field {
			return b[2:n]
		}
		b = b[n:]
	}
	r := reader{b: b}
	for r.next() {
		if r.field == field {
			return r.data()
		}
	}
	return nil
}

// arg is what an operation holds. What is empty is left out, which reads the
// same.
type arg struct {
	pointer, raw, name, text string
	code, index, item        uint64
}

// add writes an operation behind those of the call under way. The lengths of
// the two records around it come before what they measure: four bytes are left
// for each, as long as a number may be written, and filled in at last.
func add(op int, a *arg) {
	const most = 1 + 4 + 2 + 4 + 4*6 + 3*11 // bytes besides the texts
	b := call.out
	start := len(b)
	need := start + most + len(a.pointer) + len(a.raw) + len(a.name) + len(a.text)
	if need > cap(b) {
		grown := make([]byte, start, 2*need)
		copy(grown, b)
		b = grown
	}
	b = b[:need]
	at := start + 5
	if b[start] = abi.OpsOp<<3 | 2; op < 16 {
		b[at] = byte(op)<<3 | 2
		at++
	} else {
		b[at], b[at+1] = byte(op<<3)|0x82, byte(op>>4)
		at += 2
	}
	content := at + 4
	at = content
	if a.pointer != "" {
		at = putText(b, at, abi.ArgPointer, a.pointer)
	}
	if a.raw != "" {
		at = putText(b, at, abi.ArgRaw, a.raw)
	}
	if a.name != "" {
		at = putText(b, at, abi.ArgName, a.name)
	}
	if a.text != "" {
		at = putText(b, at, abi.ArgText, a.text)
	}
	if a.code|a.index|a.item != 0 {
		at = putNumber(b, at, abi.ArgCode, a.code)
		at = putNumber(b, at, abi.ArgIndex, a.index)
		at = putNumber(b, at, abi.ArgItem, a.item)
	}
	four(b[content-4:], at-content)
	four(b[start+1:], at-start-5)
	call.out = b[:at]
}

// four writes a number in four bytes.
func four(b []byte, n int) {
	_ = b[3]
	b[0], b[1], b[2], b[3] = byte(n)|0x80, byte(n>>7)|0x80, byte(n>>14)|0x80, byte(n>>21)&0x7f
}

func putText(b []byte, at, field int, s string) int {
	b[at] = byte(field)<<3 | 2
	at = put(b, at+1, uint64(len(s)))
	return at + copy(b[at:], s)
}

func putNumber(b []byte, at, field int, v uint64) int {
	if v == 0 {
		return at
	}
	b[at] = byte(field) << 3
	return put(b, at+1, v)
}

// put writes a number and returns where it ends.
func put(b []byte, at int, v uint64) int {
	for ; v >= 0x80; v >>= 7 {
		b[at] = byte(v) | 0x80
		at++
	}
	b[at] = byte(v)
	return at + 1
}
