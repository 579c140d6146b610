package scripting

import (
	"encoding/binary"
	"errors"
	"fmt"

	"go.starlark.net/starlark"
)

// The bounds of a value, in both directions.
const (
	MaxDepth  = 100       // arrays and objects within each other
	MaxNodes  = 1_000_000 // values within a value, itself among them
	MaxDigits = 4096      // of an integer

	MaxText     = 64 << 10 // bytes of a program's text
	MaxData     = 1 << 20  // bytes of JSON: the data of a run
	MaxIn       = 4 << 20  // bytes of JSON: one answer
	MaxOut      = 1 << 20  // bytes of JSON: the arguments of one call, and what a run returns
	MaxMessage  = 2 << 10  // bytes of an error's text
	MaxFrames   = 20
	MaxLogs     = 64 << 10 // bytes
	MaxLogLines = 1000
)

// The wire form of a value is what passes between a host and the interpreter. It says what
// JSON says, in fewer instructions: lengths stand before what they measure, and numbers are
// binary. Each value begins with one of these bytes.
const (
	tagNone  byte = iota
	tagFalse      //
	tagTrue       //
	tagInt        // 8 bytes, little-endian
	tagBig        // 1 byte of sign (1 is negative), 4 of length, the magnitude big-endian
	tagFloat      // 8 bytes
	tagText       // 4 bytes of length, UTF-8
	tagList       // 4 bytes of count, values
	tagDict       // 4 bytes of count, keys (4 bytes of length, UTF-8) and values
)

// maxBig is the most bytes of a magnitude: 4,096 digits need 1,701.
const maxBig = 1704

var (
	errCut    = errors.New("the value is cut off")
	errDepth  = whole(fmt.Sprintf("deeper than %d", MaxDepth))
	errNodes  = whole(fmt.Sprintf("more than %d values", MaxNodes))
	errDigits = fmt.Errorf("an integer of more than %d digits", MaxDigits)
	errRange  = errors.New("number out of range")
)

// whole is an error about a value as a whole, not about a place in it.
type whole string

func (w whole) Error() string { return string(w) }

// keyAt is a key of a dict, and the value of the language that it is.
type keyAt struct {
	text  string
	value starlark.Value
}

// reader reads the wire form. What it returns of texts lies in the bytes it reads.
type reader struct {
	rest []byte
	left int // values that may still come

	// Of a decoder: the same bytes as a text, of which the texts of values are parts, and
	// the keys that were met, since those of a list of objects come again and again.
	text string
	keys map[string]starlark.Value
	last [8]keyAt // those of the last dicts, by their places

	meter *meter // of what the values take; nil where that is bounded otherwise
}

func (r *reader) tag() (byte, error) {
	if len(r.rest) == 0 {
		return 0, errCut
	}
	if r.left--; r.left < 0 {
		return 0, errNodes
	}
	t := r.rest[0]
	r.rest = r.rest[1:]
	return t, nil
}

func (r *reader) uint64() (uint64, error) {
	if len(r.rest) < 8 {
		return 0, errCut
	}
	n := binary.LittleEndian.Uint64(r.rest)
	r.rest = r.rest[8:]
	return n, nil
}

// count reads a length of what takes at least size bytes a piece.
func (r *reader) count(size int) (int, error) {
	if len(r.rest) < 4 {
		return 0, errCut
	}
	n := int64(binary.LittleEndian.Uint32(r.rest))
	r.rest = r.rest[4:]
	if n*int64(size) > int64(len(r.rest)) {
		return 0, errCut
	}
	return int(n), nil
}

func (r *reader) bytes() ([]byte, error) {
	n, err := r.count(1)
	if err != nil {
		return nil, err
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b, nil
}

func (r *reader) big() (negative bool, magnitude []byte, err error) {
	if len(r.rest) == 0 {
		return false, nil, errCut
	}
	negative = r.rest[0] == 1
	r.rest = r.rest[1:]
	if magnitude, err = r.bytes(); err == nil && len(magnitude) > maxBig {
		err = errDigits
	}
	return negative, magnitude, err
}

func appendBytes[T string | []byte](b []byte, s T) []byte {
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(s))), s...)
}

func appendInt(b []byte, n int64) []byte {
	return binary.LittleEndian.AppendUint64(append(b, tagInt), uint64(n))
}
