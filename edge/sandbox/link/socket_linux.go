package link

import (
	"errors"
	"io"
	"slices"

	"golang.org/x/sys/unix"
)

// Reader reads frames from a Unix stream socket, and the descriptors beside them.
type Reader struct {
	// Receive is recvmsg(2), with MSG_CMSG_CLOEXEC.
	Receive func(p, oob []byte) (n, oobn, flags int, err error)

	// Streams says that streams take the place of descriptors: Next returns -1 for each.
	Streams bool

	oob  [64]byte // more than MaxDescriptors take, less than 254 do
	fds  []int
	body []byte
}

// Next returns the next message and its descriptors, which are the caller's. After an error
// there is no next one, and no descriptor is left.
func (r *Reader) Next() (Message, []int, error) {
	m, err := r.next()
	fds := r.fds
	r.fds = nil
	if err != nil {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
		return Message{}, nil, err
	}
	return m, fds, nil
}

func (r *Reader) next() (Message, error) {
	var p [headSize]byte
	if err := r.full(p[:]); err != nil {
		return Message{}, err
	}
	h, err := readHead(&p)
	if err != nil {
		return Message{}, err
	}
	// Descriptors travel with the first byte of their frame.
	if r.Streams {
		for range h.fds {
			r.fds = append(r.fds, -1)
		}
	}
	if len(r.fds) != h.fds {
		return Message{}, errFrame
	}
	r.body = slices.Grow(r.body[:0], h.body)[:h.body]
	if err := r.full(r.body); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return Message{}, err
	}
	if len(r.fds) != h.fds {
		return Message{}, errFrame
	}
	m, err := decode(h.kind, r.body)
	clear(r.body) // an environment has secrets
	if cap(r.body) > 64<<10 {
		r.body = nil
	}
	return m, err
}

// full fills p.
func (r *Reader) full(p []byte) error {
	for len(p) > 0 {
		n, oobn, flags, err := r.Receive(p, r.oob[:])
		if oobn > 0 {
			if err := r.take(r.oob[:oobn]); err != nil {
				return err
			}
		}
		switch {
		case err != nil:
			return err
		case flags&unix.MSG_CTRUNC != 0:
			return errFrame
		case n == 0:
			return io.EOF
		}
		p = p[n:]
	}
	return nil
}

// take keeps the descriptors of a control message. All that are there are kept before an
// error, so that Next can close them.
func (r *Reader) take(oob []byte) error {
	all, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return errFrame
	}
	for i := range all {
		fds, e := unix.ParseUnixRights(&all[i])
		if e != nil {
			err = errFrame
		}
		r.fds = append(r.fds, fds...)
	}
	if len(r.fds) > MaxDescriptors {
		err = errFrame
	}
	return err
}

// Send writes m with descriptors, which stay the caller's, by way of sendmsg(2), which may
// take a part of what it is given.
func Send(send func(p, oob []byte) (int, error), m *Message, fds ...int) error {
	p, err := m.Append(nil, len(fds))
	if err != nil {
		return err
	}
	defer clear(p)
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	for rest := p; len(rest) > 0; {
		n, err := send(rest, oob)
		if err != nil {
			return err
		}
		rest, oob = rest[n:], nil
	}
	return nil
}
