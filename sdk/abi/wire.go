package abi

// Records are in the wire format of Protocol Buffers, of which two types are
// used: varints (0) and lengths with bytes (2). A reader skips fields that it
// does not know, the two fixed types (1 and 5) included.

// AppendUint appends field n with a number.
func AppendUint(b []byte, n int, v uint64) []byte {
	return appendVarint(appendVarint(b, uint64(n)<<3), v)
}

// AppendBytes appends field n with bytes, which may be a record.
func AppendBytes(b []byte, n int, p []byte) []byte {
	return append(appendVarint(appendVarint(b, uint64(n)<<3|2), uint64(len(p))), p...)
}

// AppendString appends field n with text.
func AppendString(b []byte, n int, s string) []byte {
	return append(appendVarint(appendVarint(b, uint64(n)<<3|2), uint64(len(s))), s...)
}

func appendVarint(b []byte, v uint64) []byte {
	for v >= 0x80 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}

// Reader goes through the fields of a record. Its zero value with B set is
// ready.
type Reader struct {
	B    []byte // what is left
	Num  int    // of the present field
	Uint uint64 // its value, of a number
	Data []byte // its value, of bytes: a part of B, nil for a number
	Bad  bool   // the record is malformed
}

// Next goes to the next field and says whether there is one. It stops at the
// first malformed one and sets Bad.
func (r *Reader) Next() bool {
	for len(r.B) > 0 && !r.Bad {
		key := r.varint()
		r.Uint, r.Data = 0, nil
		if key>>3 == 0 || key>>3 > 1<<29-1 {
			r.Bad = true
			return false
		}
		r.Num = int(key >> 3)
		switch key & 7 {
		case 0:
			r.Uint = r.varint()
			return !r.Bad
		case 2:
			n := r.varint()
			if r.Bad || n > uint64(len(r.B)) {
				r.Bad = true
				return false
			}
			r.Data, r.B = r.B[:n:n], r.B[n:]
			return true
		case 1:
			r.skip(8)
		case 5:
			r.skip(4)
		default:
			r.Bad = true
		}
	}
	return false
}

func (r *Reader) skip(n int) {
	if n > len(r.B) {
		r.Bad = true
		return
	}
	r.B = r.B[n:]
}

func (r *Reader) varint() uint64 {
	var v uint64
	for shift := uint(0); shift < 64; shift += 7 {
		if len(r.B) == 0 {
			break
		}
		c := r.B[0]
		r.B = r.B[1:]
		if shift == 63 && c > 1 {
			break
		}
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return v
		}
	}
	r.Bad = true
	return 0
}
