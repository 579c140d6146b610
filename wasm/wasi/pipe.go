package wasi

import (
	"io"
	"sync"
)

// PipeSize is how many bytes a pipe holds at most.
const PipeSize = 64 << 10

// Pipe is a standard stream of an instance: a bounded queue of bytes with one reader and one
// writer, of which the one is the instance and the other the host. Both of its ends may be
// closed by anybody at any time.
type Pipe struct {
	mu      sync.Mutex
	bytes   []byte
	from    int  // of bytes that were read already
	written bool // nothing more is written
	unread  bool // nothing more is read

	more chan struct{} // told when there is something to read, or nothing will ever be
	room chan struct{} // told when there is room, or nobody reads any more
}

// NewPipe returns an empty pipe.
func NewPipe() *Pipe {
	return &Pipe{more: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

func tell(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // told already
	}
}

// tryRead reads what is there. It reports false where there is nothing, and more may come.
func (p *Pipe) tryRead(b []byte) (n int, err error, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.unread:
		return 0, io.ErrClosedPipe, true
	case len(b) == 0:
		return 0, nil, true
	case p.from == len(p.bytes) && p.written:
		return 0, io.EOF, true
	case p.from == len(p.bytes):
		return 0, nil, false
	}
	n = copy(b, p.bytes[p.from:])
	if p.from += n; p.from == len(p.bytes) {
		p.bytes, p.from = nil, 0 // an instance that waits keeps no memory for it
	}
	tell(p.room)
	return n, nil, true
}

// tryWrite writes as much as there is room for. It reports false where there is none now.
func (p *Pipe) tryWrite(b []byte) (n int, err error, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.written || p.unread {
		return 0, io.ErrClosedPipe, true
	}
	if len(b) == 0 {
		return 0, nil, true
	}
	n = min(len(b), PipeSize-(len(p.bytes)-p.from))
	if n == 0 {
		return 0, nil, false
	}
	if p.from > 0 && len(p.bytes)+n > cap(p.bytes) {
		p.bytes = append(p.bytes[:0], p.bytes[p.from:]...)
		p.from = 0
	}
	p.bytes = append(p.bytes, b[:n]...)
	tell(p.more)
	return n, nil, true
}

// Read is io.Reader.Read, for the host. It waits until there is something.
func (p *Pipe) Read(b []byte) (int, error) {
	for {
		if n, err, ok := p.tryRead(b); ok {
			return n, err
		}
		<-p.more
	}
}

// Write is io.Writer.Write, for the host. It waits until there is room for all of it.
func (p *Pipe) Write(b []byte) (int, error) {
	done := 0
	for {
		n, err, ok := p.tryWrite(b[done:])
		done += n
		if err != nil || done == len(b) {
			return done, err
		}
		if !ok {
			<-p.room
		}
	}
}

// CloseWrite ends what is written: what is there can be read still.
func (p *Pipe) CloseWrite() {
	p.mu.Lock()
	p.written = true
	p.mu.Unlock()
	tell(p.more)
	tell(p.room)
}

// CloseRead gives up what was not read, and fails what is written from now on.
func (p *Pipe) CloseRead() {
	p.mu.Lock()
	p.unread, p.bytes, p.from = true, nil, 0
	p.mu.Unlock()
	tell(p.more)
	tell(p.room)
}

// readable is how many bytes there are to read; over says that no more will come.
func (p *Pipe) readable() (n int, over bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.bytes) - p.from, p.written || p.unread
}

// writable is how many bytes there is room for; over says that nobody reads them.
func (p *Pipe) writable() (n int, over bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return PipeSize - (len(p.bytes) - p.from), p.written || p.unread
}
