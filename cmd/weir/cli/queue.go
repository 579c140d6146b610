package cli

import (
	"bytes"
	"io"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
)

const (
	// queueRoom bounds what waits for a reader, in bytes, beside what is being written.
	queueRoom = 1 << 20
	// queueWait is how long a line waits for room, so that one who reads slowly loses nothing. Once
	// it was in vain nobody waits until room is there.
	queueWait = 250 * time.Millisecond
)

// Queue is a stream of lines. Who writes there hardly waits for who reads: a terminal that is held
// (Ctrl-S), a pager or a broken log driver would else stop the process. One goroutine writes, in
// order; what finds no room is dropped, and counted where it is missing.
type Queue struct {
	to   io.Writer
	tell func(w io.Writer, dropped uint64)
	wait time.Duration // queueWait
	done chan struct{} // closed when nothing is written any more

	mu      sync.Mutex
	more    sync.Cond
	room    chan struct{} // closed when what waits is taken
	waiting []byte
	missing uint64 // lines dropped since the last one that waits
	dropped uint64 // lines dropped at all
	closed  bool
}

// NewQueue returns one before a stream. tell writes a line there that says how many are missing.
// Close ends it.
func NewQueue(to io.Writer, tell func(w io.Writer, dropped uint64)) *Queue {
	q := &Queue{to: to, tell: tell, wait: queueWait, done: make(chan struct{}), room: make(chan struct{})}
	q.more.L = &q.mu
	go q.run()
	return q
}

// Write takes one line, or several that belong together. It never fails.
func (q *Queue) Write(line []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	full := func() bool { return len(q.waiting) > 0 && len(q.waiting)+len(line) > queueRoom }
	if full() && q.missing == 0 && !q.closed {
		over := time.After(q.wait)
		for late := false; full() && !late && q.missing == 0 && !q.closed; {
			room := q.room
			q.mu.Unlock()
			select {
			case <-room:
			case <-over:
				late = true
			}
			q.mu.Lock()
		}
	}
	if full() || q.missing > 0 || q.closed {
		q.missing++
		q.dropped++
		return len(line), nil
	}
	q.waiting = append(q.waiting, line...)
	q.more.Signal()
	return len(line), nil
}

func (q *Queue) run() {
	defer close(q.done)
	var text []byte
	for closed := false; !closed; {
		q.mu.Lock()
		for len(q.waiting) == 0 && !q.closed {
			q.more.Wait()
		}
		text, q.waiting = q.waiting, text[:0]
		missing := q.missing
		q.missing, closed = 0, q.closed
		close(q.room)
		q.room = make(chan struct{})
		q.mu.Unlock()
		if missing > 0 {
			more := bytes.NewBuffer(text)
			q.tell(more, missing)
			text = more.Bytes()
		}
		_, _ = q.to.Write(text) // there is nobody to tell
	}
}

// Close waits until everything is written, for as long as most: who does not read until then is
// not waited for. What is written later is dropped.
func (q *Queue) Close(most time.Duration) {
	q.mu.Lock()
	q.closed = true
	q.more.Signal()
	q.mu.Unlock()
	select {
	case <-q.done:
	case <-time.After(most):
	}
}

// Collect is edge.Collector.Collect.
func (q *Queue) Collect(m edge.Emitter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	m.Counter("weir_log_dropped", "Lines of the process's log that were dropped, since nobody read them.", float64(q.dropped))
}

// Fd is that of the stream, by which a terminal is known.
func (q *Queue) Fd() uintptr {
	if f, is := q.to.(interface{ Fd() uintptr }); is {
		return f.Fd()
	}
	return ^uintptr(0)
}
