// Package turn does one write on a connection and the read of the reply in one step,
// with as few system calls as possible.
//
// A plain write and read each announce a system call to the scheduler, and the read
// first asks the kernel for a reply that cannot be there yet. A turn registers its wait
// with the poller before it writes, so that anything that arrives afterwards ends the
// wait. None of its system calls can block, so they are not announced to the scheduler,
// and with look, which makes sure that nothing had arrived before, it reads only once.
package turn

import (
	"errors"
	"io"
)

// most bounds the bytes that a turn writes. The longer the write, the longer a
// processor is in the kernel without the knowledge of the scheduler.
const most = 8 << 10

// ErrStale says that something had arrived before anything was written: the
// peer has closed the connection, or sent data unasked.
var ErrStale = errors.New("the other side is done with the connection")

// errShort says that only a part was written.
var errShort = errors.New("short write")

// Take writes out, waits, and reads into in. If look is set and data has arrived
// already, nothing is written and the error is ErrStale. The connection must be one
// that Of took, and no other goroutine may read from it or write to it meanwhile; closing it and its read deadline end the wait as they end a
// read.
//
// If out is too long for a turn, or the kernel does not take all of it at once, write
// writes the rest and may wait. Take then returns 0 bytes without an error, and the
// caller has to read.
func (t *Turn) Take(out, in []byte, look bool, write func([]byte) (int, error)) (n int, err error) {
	n, sent, err := t.take(out, in, look)
	if err != errShort {
		return n, err
	}
	_, err = write(out[sent:])
	return 0, err
}

// end turns a read of 0 bytes into io.EOF.
func end(n int) (int, error) {
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}
