// Package frame is how a run goes into the sandbox: the same code on both sides. Numbers
// are unsigned varints; a text begins with its length.
package frame

import (
	"encoding/binary"
	"errors"
)

// Input is a run.
type Input struct {
	Steps    uint64
	Parallel uint64
	Calls    uint64
	Memory   uint64 // bytes of the instance
	Program  []byte // as scripting.Program.Encode makes it
	Data     []byte // a binary value; nil for none
}

// Append appends the input to b.
func (in *Input) Append(b []byte) []byte {
	for _, n := range []uint64{in.Steps, in.Parallel, in.Calls, in.Memory} {
		b = binary.AppendUvarint(b, n)
	}
	return appendBytes(appendBytes(b, in.Program), in.Data)
}

// Read reads an input, whose texts are parts of b.
func (in *Input) Read(b []byte) error {
	r := reader{b: b}
	for _, n := range []*uint64{&in.Steps, &in.Parallel, &in.Calls, &in.Memory} {
		*n = r.number()
	}
	in.Program, in.Data = r.bytes(), r.bytes()
	return r.end()
}

var errFrame = errors.New("frame: malformed")

func appendBytes(b, part []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(part))), part...)
}

type reader struct {
	b   []byte
	bad bool
}

func (r *reader) number() uint64 {
	n, size := binary.Uvarint(r.b)
	if size <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[size:]
	return n
}

func (r *reader) bytes() []byte {
	n := r.number()
	if n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return nil
	}
	part := r.b[:n:n]
	r.b = r.b[n:]
	return part
}

func (r *reader) end() error {
	if r.bad || len(r.b) > 0 {
		return errFrame
	}
	return nil
}
