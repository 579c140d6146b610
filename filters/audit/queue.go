package audit

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/weir-edge/weir/filters/audit/mask"
)

// Bounds of the queue.
const (
	room    = 4 << 20               // bytes that wait for the file
	chunk   = 512 << 10             // bytes that are not kept waiting
	linger  = 10 * time.Millisecond // how long a record may wait for others to be written with
	again   = 100 * time.Millisecond
	patient = 5 * time.Second // the longest wait between two attempts at a file that fails
	remind  = time.Minute     // between two words about it in the process log
	lastly  = time.Second     // for a writer that was told to give up
)

// queue takes records without ever waiting for the file. One goroutine, which
// ends with close, writes them: many at once, in the order in which they came.
//
// A record that finds no room is lost, and counted; where records are missing
// in the file, a line says how many. A file that fails is tried again and
// again, from where it failed, so that what had room is not lost as long as it
// gets better before the end.
type queue struct {
	part  *Part
	log   *slog.Logger
	now   func() time.Time
	file  file // the writer's
	lines lines

	wake  chan struct{} // there is something to do
	hurry chan struct{} // and it does not wait for more
	quit  chan struct{} // closed when the writer is to give up
	done  chan struct{} // closed when it has ended

	mu      sync.Mutex
	pending batch
	gap     uint64    // records lost since the last line of pending
	since   time.Time // the first of those
	asked   bool      // the file is to be reopened
	closed  bool
	gone    bool // nobody waits for the writer any longer
	count   Counters
	writing file // the file, for who ends a write
}

// batch is lines of text. Some are no records.
type batch struct {
	text    []byte
	records uint64
	others  []int // where they begin
}

func (b *batch) reset() { b.text, b.records, b.others = b.text[:0], 0, b.others[:0] }

// after is how many records begin at or behind a place in the text.
func (b *batch) after(at int) uint64 {
	n := uint64(bytes.Count(b.text[at:], []byte{'\n'}))
	for _, o := range b.others {
		if o >= at {
			n--
		}
	}
	return n
}

func newQueue(p *Part, f file, log *slog.Logger, now func() time.Time) *queue {
	q := &queue{
		part: p, log: log, now: now, file: f, writing: f,
		wake: make(chan struct{}, 1), hurry: make(chan struct{}, 1),
		quit: make(chan struct{}), done: make(chan struct{}),
	}
	go q.run()
	return q
}

// add queues one record, which it copies.
func (q *queue) add(line []byte) {
	q.mu.Lock()
	q.count.Recorded++
	if n := len(q.pending.text); q.closed || n > 0 && n+len(line) > room {
		q.count.Lost++
		if q.gap++; q.gap == 1 {
			q.since = q.now()
		}
		q.mu.Unlock()
		return
	}
	before := len(q.pending.text)
	q.tell()
	q.pending.text = append(q.pending.text, line...)
	q.pending.records++
	now := len(q.pending.text)
	q.mu.Unlock()
	if before == 0 {
		signal(q.wake)
	}
	if before < chunk && now >= chunk {
		signal(q.hurry)
	}
}

// tell records in the log itself how many records are missing here.
func (q *queue) tell() {
	if q.gap == 0 {
		return
	}
	p := &q.pending
	p.others = append(p.others, len(p.text))
	b := append(p.text, `{"time":"`...)
	b = q.now().UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, `","level":"AUDIT","msg":"audit_lost","type":"audit_lost","component":`...)
	b = mask.AppendText(b, q.part.component)
	b = append(b, `,"since":"`...)
	b = q.since.UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, `","lost":`...)
	b = strconv.AppendUint(b, q.gap, 10)
	p.text = append(b, "}\n"...)
	q.gap = 0
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (q *queue) reopen() {
	q.mu.Lock()
	q.asked = true
	q.mu.Unlock()
	signal(q.wake)
	signal(q.hurry)
}

func (q *queue) counters() Counters {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.count
}

func (q *queue) close(ctx context.Context) {
	q.mu.Lock()
	first := !q.closed
	q.closed = true
	q.mu.Unlock()
	if !first {
		<-q.done
		return
	}
	signal(q.wake)
	signal(q.hurry)
	select {
	case <-q.done:
		return
	case <-ctx.Done():
	}
	close(q.quit)
	q.mu.Lock()
	_ = q.writing.SetWriteDeadline(time.Unix(1, 0)) // a file without deadlines cannot be hurried
	q.mu.Unlock()
	t := time.NewTimer(lastly)
	defer t.Stop()
	select {
	case <-q.done:
	case <-t.C:
		// The write never comes back, and its goroutine ends with the process.
		q.mu.Lock()
		q.gone = true
		q.count.Lost = q.count.Recorded - q.count.Written
		lost := q.count.Lost
		q.mu.Unlock()
		q.log.Error("audit: closed with records lost", "lost", lost, "server", q.part.server)
	}
}

// run is the writer.
func (q *queue) run() {
	defer close(q.done)
	var b batch
	timer := time.NewTimer(linger)
	defer timer.Stop()
	var failing fault
	for {
		// 1. Wait for something, and then for more.
		<-q.wake
		timer.Reset(linger)
		select {
		case <-timer.C:
		case <-q.hurry:
		case <-q.quit:
		}

		// 2. Take all there is.
		b.reset()
		q.mu.Lock()
		if q.closed {
			q.tell()
		}
		b, q.pending = q.pending, b
		closed, asked := q.closed, q.asked
		q.asked = false
		q.mu.Unlock()

		// 3. Write it down, however often it takes.
		if asked {
			q.renew(&failing)
		}
		q.save(&b, &failing)
		if cap(b.text) > 2*room {
			b.text = nil // what one huge record needed is not kept
		}
		if closed {
			q.end(&failing)
			return
		}
	}
}

// end lets go of the file and tells what is missing. Nothing is added any more.
func (q *queue) end(failing *fault) {
	if err := q.file.Close(); err != nil {
		failing.note(q, "close", err)
	}
	if lost := q.counters().Lost; lost > 0 {
		q.log.Error("audit: closed with records lost", "lost", lost, "server", q.part.server)
	}
}

// save writes a batch. It returns when all of it is where people find it, or
// when it was told to give up.
func (q *queue) save(b *batch, failing *fault) {
	if len(b.text) == 0 {
		return
	}
	at, from := 0, 0 // what is written, and where the present file begins
	renew := func() bool {
		if !q.renew(failing) {
			return false
		}
		// Another file begins with a whole line.
		at = bytes.LastIndexByte(b.text[:at], '\n') + 1
		from = at
		return true
	}
	for at < len(b.text) {
		if q.file.place() == here || renew() {
			n, err := q.file.Write(b.text[at:])
			at += n
			switch {
			case err != nil:
				failing.note(q, "write", err)
			case q.file.place() != deleted:
				continue
			default:
				at = from // it went where nobody can find it
				if renew() {
					continue
				}
			}
		}
		if !q.pause(failing) {
			break
		}
		if q.wanted() {
			renew()
		}
	}
	lost := uint64(0)
	if at < len(b.text) {
		lost = b.after(bytes.LastIndexByte(b.text[:at], '\n') + 1)
	}
	q.mu.Lock()
	if !q.gone {
		q.count.Written += b.records - lost
		q.count.Lost += lost
	}
	q.mu.Unlock()
	if at == len(b.text) {
		failing.over(q)
	}
}

// wanted reports, once, whether the file is to be reopened.
func (q *queue) wanted() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	asked := q.asked
	q.asked = false
	return asked
}

// renew opens the file by its name once more, and reports whether it could.
func (q *queue) renew(failing *fault) bool {
	f, err := q.part.open(q.part.file)
	if err != nil {
		failing.note(q, "open", err)
		return false
	}
	if err := q.file.Close(); err != nil {
		q.log.Warn("audit: the file before", "err", err)
	}
	q.file = f
	q.mu.Lock()
	q.writing = f
	q.mu.Unlock()
	return true
}

// pause waits before another attempt, and reports whether there is to be one.
func (q *queue) pause(failing *fault) bool {
	failing.wait = min(max(2*failing.wait, again), patient)
	t := time.NewTimer(failing.wait)
	defer t.Stop()
	select {
	case <-q.quit:
		return false
	case <-t.C:
	case <-q.hurry: // the file may have been replaced, or the end is near
	}
	select {
	case <-q.quit:
		return false
	default:
		return true
	}
}

// fault is a file that fails, as the process log hears of it.
type fault struct {
	wait  time.Duration
	since time.Time // zero when all is well
	told  time.Time
}

func (f *fault) note(q *queue, what string, err error) {
	now := q.now()
	q.mu.Lock()
	q.count.Failures++
	lost := q.count.Lost
	q.mu.Unlock()
	if f.since.IsZero() {
		f.since = now
	}
	if now.Sub(f.told) >= remind {
		f.told = now
		q.log.Error("audit: records wait for the log", "err", fmt.Errorf("%s: %w", what, err), "lost", lost, "server", q.part.server)
	}
}

func (f *fault) over(q *queue) {
	f.wait = 0
	if f.since.IsZero() {
		return
	}
	q.log.Warn("audit: the log is written again", "after", q.now().Sub(f.since).Round(time.Millisecond), "lost", q.counters().Lost, "server", q.part.server)
	*f = fault{}
}
