// Package turn takes a connection's part in an exchange in one go: what is to
// be said goes out, and then what the other side says comes in.
//
// Whoever writes and then reads tells the scheduler of every system call, and
// asks the kernel for an answer that cannot be there yet. A turn has the
// scheduler know of the wait before it writes, so that whatever comes afterwards
// ends the wait. None of its system calls can block, so that the scheduler need
// not hear of them, and where nothing may have come before, it reads once.
package turn

import (
	"errors"
	"io"
)

// most is how much a turn says, in bytes. The more there is, the longer the
// kernel has a processor that the scheduler does not know it has.
const most = 8 << 10

// ErrStale says that something had arrived before anything was written: the
// other side has closed the connection, or speaks unasked.
var ErrStale = errors.New("the other side is done with the connection")

// errShort says that not all of what was to be said has been.
var errShort = errors.New("short write")

// Take writes out, waits, and reads into in. With look nothing may have come
// before: where something has, nothing is written and the error is ErrStale. The
// connection must be one that Of took, and nobody else may read from it or write
// to it meanwhile; closing it and its read deadline end the wait as they end a
// read.
//
// What is too much for a turn, or for the kernel at that moment, is written by
// write, which may wait. The reading is left to the caller then: 0 bytes without
// an error.
func (t *Turn) Take(out, in []byte, look bool, write func([]byte) (int, error)) (n int, err error) {
	n, sent, err := t.take(out, in, look)
	if err != errShort {
		return n, err
	}
	_, err = write(out[sent:])
	return 0, err
}

// end is what a read of n bytes means.
func end(n int) (int, error) {
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}
