package stdio

import (
	"bytes"
	"io"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

const (
	// maxWaiting and maxWaitingBytes bound what waits for a server that does not read:
	// one message may be larger if it waits alone.
	maxWaiting      = 64
	maxWaitingBytes = 4 << 20

	// piece is how much is written at a time of what waits, so that a server which reads
	// slowly is told from one that does not read.
	piece = 16 << 10

	// keepOut is up to which size the memory of a line is used for the next.
	keepOut = 64 << 10
)

// writer writes lines. Whoever sends one writes it as well, as far as the server takes it
// at once; what is left is written by a goroutine.
type writer struct {
	to    io.WriteCloser
	raw   syscall.RawConn // of to; nil for one that cannot be written without waiting
	limit int             // bytes of a message
	stuck time.Duration   // for which the server may take nothing
	cut   func()          // called when it has not for so long

	// broken is called when the server can take nothing more: it has closed the other end, or
	// has ended. It is nil for nobody.
	broken func()

	// attempts counts the beginnings and the ends of attempts: it stays odd while one does
	// not return, since whoever shares the descriptor has set it to blocking.
	attempts atomic.Uint64

	mu      sync.Mutex
	out     []byte   // the line that is being made
	waits   [][]byte // lines, and the rest of one, that the server has not taken
	waiting int      // bytes of them
	drains  bool     // a goroutine writes what waits
	closed  bool     // nothing more is taken
	shut    bool     // to is closed

	try   func(fd uintptr) bool // once, as a value
	tried []byte                // what it writes, and how much of that it has written
	wrote int
}

func newWriter(to io.WriteCloser, limit int, stuck time.Duration, cut func()) *writer {
	w := &writer{to: to, limit: limit, stuck: stuck, cut: cut}
	if c, ok := to.(syscall.Conn); ok {
		w.raw, _ = c.SyscallConn()
	}
	w.try = w.once
	return w
}

// line appends a message as one line: what ends a line in it stands between tokens, since
// no string has it, and may as well be a space (RFC 8259 §2).
func line(dst, raw []byte, edits []mcp.Edit) []byte {
	from := len(dst)
	dst = mcp.Splice(dst, raw, edits...)
	for _, end := range [...]byte{'\n', '\r'} {
		for b := dst[from:]; ; {
			i := bytes.IndexByte(b, end)
			if i < 0 {
				break
			}
			b[i] = ' '
			b = b[i+1:]
		}
	}
	return append(dst, '\n')
}

// send sends a message as edge.Stream.Send does.
func (w *writer) send(raw []byte, edits []mcp.Edit) error {
	size := len(raw)
	for i := range edits {
		size += len(edits[i].With)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closed:
		return edge.Errorf(edge.Unavailable, "send", "%w", errOver)
	case size > w.limit:
		return edge.Errorf(edge.TooLarge, "send", "a message above %d bytes", w.limit)
	case len(w.waits) >= maxWaiting, len(w.waits) > 0 && w.waiting+size > maxWaitingBytes:
		return &edge.Error{Kind: edge.Overload, Op: "send", After: time.Second, Err: errFull}
	}
	if len(w.waits) > 0 {
		w.wait(line(make([]byte, 0, size+1), raw, edits))
		return nil
	}
	if size >= keepOut { // at once, and not by steps
		w.out = make([]byte, 0, size+1)
	}
	w.out = line(w.out[:0], raw, edits)
	n := w.attempt(w.out)
	if n == len(w.out) {
		if cap(w.out) > keepOut {
			w.out = nil
		}
		return nil
	}
	if len(w.out)-n > keepOut {
		w.wait(w.out[n:])
		w.out = nil
		return nil
	}
	w.wait(bytes.Clone(w.out[n:]))
	return nil
}

// over returns the error of what is sent once the server has ended; nil before.
func (w *writer) over() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return edge.Errorf(edge.Unavailable, "send", "%w", errOver)
	}
	return nil
}

// attempt writes as much as the server takes without waiting; w.mu is held. What goes
// wrong shows when the rest is written.
func (w *writer) attempt(b []byte) int {
	if w.raw == nil {
		return 0
	}
	w.tried, w.wrote = b, 0
	w.attempts.Add(1)
	err := w.raw.Write(w.try)
	w.attempts.Add(1)
	w.tried = nil
	if err != nil {
		return 0
	}
	return w.wrote
}

// once is one attempt.
func (w *writer) once(fd uintptr) bool {
	for {
		n, err := write(fd, w.tried)
		if err == syscall.EINTR {
			continue
		}
		w.wrote = max(n, 0)
		return true
	}
}

// wait lets a line wait; w.mu is held.
func (w *writer) wait(b []byte) {
	w.waits = append(w.waits, b)
	w.waiting += len(b)
	if !w.drains {
		w.drains = true
		go w.drain()
	}
}

// drain writes what waits, until nothing does or the server is gone.
func (w *writer) drain() {
	idle := time.AfterFunc(w.stuck, w.cut)
	defer idle.Stop()
	for {
		w.mu.Lock()
		if w.shut || len(w.waits) == 0 {
			w.drains = false
			if w.closed && !w.shut {
				w.shut = true
				w.to.Close()
			}
			w.mu.Unlock()
			return
		}
		b := w.waits[0]
		w.mu.Unlock()
		n, err := w.to.Write(b[:min(len(b), piece)])
		if n > 0 {
			idle.Reset(w.stuck)
		}
		w.mu.Lock()
		if w.shut {
			w.mu.Unlock()
			continue
		}
		w.waiting -= n
		if w.waits[0] = b[n:]; n == len(b) {
			w.waits[0] = nil
			w.waits = w.waits[1:]
		}
		if err != nil {
			w.end()
			if w.broken != nil {
				w.broken()
			}
		}
		w.mu.Unlock()
	}
}

// end drops what waits and closes the stream; w.mu is held.
func (w *writer) end() {
	w.closed, w.waits, w.waiting = true, nil, 0
	if !w.shut {
		w.shut = true
		w.to.Close()
	}
}

// finish takes nothing more, and closes the stream when the server has taken what waits.
func (w *writer) finish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	if !w.drains {
		w.end()
	}
}

// close is finish without what waits.
func (w *writer) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end()
}
