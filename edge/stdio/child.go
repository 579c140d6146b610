package stdio

import (
	"bytes"
	"errors"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

const (
	// afterStdin is how long a server whose stdin was closed may take until it is asked
	// to end by a signal (2025-11-25, basic/lifecycle, shutdown).
	afterStdin = 2 * time.Second

	// killed is how long a server that was killed may take to be gone.
	killed = time.Second

	// leftovers is how long after its end what a server has said last is waited for, and lastWords how
	// long it is read while there is more.
	leftovers = 250 * time.Millisecond
	lastWords = 2 * time.Second

	// maxBatch is how many messages a server's batch may have.
	maxBatch = 1000
)

var (
	errOver = errors.New("the server has ended")
	errFull = errors.New("the server does not read what it is sent: try again")
)

// child is one process of the server, and the edge.Stream of its owner.
type child struct {
	b    *Bridge
	h    *edge.Owner
	proc Process
	w    *writer
	log  *logbook

	began time.Time
	spoke atomic.Bool   // it has sent a message
	lines atomic.Uint64 // that were read from stdout
	used  atomic.Uint64 // what the bridge's count of uses was when it was used last

	mu     sync.Mutex
	why    string        // why it was ended; "" where it has not been
	kind   edge.Kind     // of the error of its calls then
	asked  bool          // it is being ended
	ending chan struct{} // closed then
	within time.Duration // from its end of stdin until it is killed

	unread chan struct{} // closed when the server has closed its stdin

	listeners listeners

	several atomic.Int32 // answers over several lines that are told of soon

	deaf atomic.Bool // the owner is told nothing more: it has closed the stream, or knows of the end

	done chan struct{} // closed when all of it is gone

	// What follows belongs to the bridge's watch.

	atTick  uint64    // used, when the watch looked last
	resting time.Time // since when it has not been used
	stuckAt uint64    // of the writer's attempts
	stuckBy time.Time // when that was seen first
	pinged  time.Time // when it was asked for a sign of life; zero while it is not
	failed  int       // such questions without an answer in a row

	ping atomic.Uint64 // the id of such a question that waits; 0 for none
}

// newChild begins to speak with a process.
func newChild(b *Bridge, h *edge.Owner, p Process, began time.Time) *child {
	c := &child{
		b: b, h: h, proc: p, log: newLogbook(&b.Config), began: began, kind: edge.Unavailable, within: b.Timeout,
		ending: make(chan struct{}), unread: make(chan struct{}), done: make(chan struct{}), resting: began,
	}
	c.w = newWriter(p.Stdin(), b.MaxMessage, b.Stuck, func() { c.end("stuck: it does not read what it is sent", edge.Unavailable, 0) })
	c.w.broken = sync.OnceFunc(func() { close(c.unread) })
	c.listeners.log, c.listeners.send = b.Log, func(raw []byte) error { return c.Send(raw, nil) }
	return c
}

// run is the life of the process.
func (c *child) run() {
	read, printed, exited := make(chan struct{}), make(chan struct{}), make(chan Exit, 1)
	go func() {
		defer close(read)
		defer edge.Contain(c.b.Log, "stdout")
		c.read()
	}()
	go func() {
		defer close(printed)
		if r := c.proc.Stderr(); r != nil {
			defer edge.Contain(c.b.Log, "stderr")
			c.log.read("stderr", r)
		}
	}()
	go func() { exited <- c.proc.Wait() }()

	var exit Exit
	known := true
	select {
	case exit = <-exited:
	case <-read: // a server that says nothing more is of no use
		exit, known = c.without("stdout", exited)
	case <-c.unread: // nor is one that hears nothing more
		exit, known = c.without("stdin", exited)
	case <-c.ending:
		exit, known = c.finish(exited)
	}
	c.proc.Kill() // what it has left behind, and may hold its pipes
	last := time.Now().Add(lastWords)
	for _, one := range []struct {
		over  <-chan struct{}
		lines *atomic.Uint64
		close func() error
	}{{read, &c.lines, c.proc.Stdout().Close}, {printed, &c.log.lines, c.closeStderr}} {
		for more := true; more; {
			before := one.lines.Load()
			select {
			case <-one.over:
				more = false
			case <-time.After(leftovers):
				more = one.lines.Load() != before && time.Now().Before(last)
			}
		}
		_ = one.close()
		<-one.over
	}
	go c.w.close() // a descriptor that blocks may hold it up
	c.log.end()
	c.over(exit, known)
	c.listeners.close()
	close(c.done)
}

// without ends a process that has closed one of its streams. One that ends by itself, and so
// has closed them all, says better how.
func (c *child) without(stream string, exited <-chan Exit) (exit Exit, ended bool) {
	select {
	case exit = <-exited:
		return exit, true
	case <-time.After(leftovers):
		c.end("closed its "+stream, edge.Unavailable, c.b.Timeout)
		return c.finish(exited)
	}
}

func (c *child) closeStderr() error {
	if r := c.proc.Stderr(); r != nil {
		return r.Close()
	}
	return nil
}

// finish ends the process in order: its stdin is closed, and what does not end then is
// asked and made to. It reports false where even that does not end it.
func (c *child) finish(exited <-chan Exit) (exit Exit, ended bool) {
	go c.w.finish()
	c.mu.Lock()
	within := c.within
	c.mu.Unlock()
	last := time.NewTimer(within)
	defer last.Stop()
	ask := time.NewTimer(min(afterStdin, within))
	defer ask.Stop()
	for {
		select {
		case exit = <-exited:
			return exit, true
		case <-ask.C:
			c.proc.Terminate()
		case <-last.C:
			c.proc.Kill()
			select {
			case exit = <-exited:
				return exit, true
			case <-time.After(killed):
				return Exit{Code: -1, Reason: "it cannot be killed"}, false
			}
		}
	}
}

// end has the process ended, within a time from the end of its stdin. why is for the log
// and, where calls are under way, for their errors, which are of a kind.
func (c *child) end(why string, kind edge.Kind, within time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked {
		return
	}
	c.asked, c.why, c.kind, c.within = true, why, kind, within
	close(c.ending)
}

// leaving reports whether the process is being ended.
func (c *child) leaving() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked
}

// over tells everybody that the process is gone.
func (c *child) over(exit Exit, known bool) {
	c.mu.Lock()
	how := c.why
	if !c.asked {
		how = exit.String()
	}
	kind, asked := c.kind, c.asked
	c.mu.Unlock()
	c.b.ended(c, how, asked, known)
	if !c.deaf.Swap(true) {
		c.h.Ended(&edge.Error{Kind: kind, Op: "call", Err: &edge.Ended{How: how}})
	}
}

// Send is edge.Stream.Send.
func (c *child) Send(raw []byte, edits []mcp.Edit) error {
	c.used.Store(c.b.uses.Add(1))
	return c.w.send(raw, edits)
}

// Listen is edge.Stream.Listen.
func (c *child) Listen(raw []byte, edits []mcp.Edit) error {
	n, err := spliced(raw, edits)
	if err == nil {
		err = c.w.over()
	}
	if err != nil {
		return err
	}
	id := bytes.Clone(n.IDText())
	return c.listeners.add(nil, n, owner{
		hear: func(m *mcp.Message, _ bool) { c.h.Hear(m) },
		pass: c.listeners.send,
		done: func() {},
		fail: func(why error) { c.h.Failed(id, why) },
	})
}

// Unlisten is edge.Stream.Unlisten.
func (c *child) Unlisten(id []byte, why string) { c.listeners.remove(nil, id, why) }

// spliced is the message that edits make.
func spliced(raw []byte, edits []mcp.Edit) (*mcp.Message, error) {
	if len(edits) > 0 {
		raw = mcp.Splice(nil, raw, edits...)
	}
	n, err := mcp.Decode(raw)
	if err != nil {
		return nil, edge.Errorf(edge.Invalid, "send", "%w", err)
	}
	return n, nil
}

// cancelled is the notification that nobody waits for a request of the id, JSON text.
func cancelled(id []byte, why string) []byte {
	params := append(append([]byte(`{"requestId":`), id...), `,"reason":`...)
	return mcp.AppendRequest(nil, nil, "notifications/cancelled", append(mcp.AppendString(params, why), '}'))
}

// Close is edge.Stream.Close. The process ends on its own time.
func (c *child) Close() error {
	c.deaf.Store(true)
	c.end("closed", edge.Gone, c.b.Timeout)
	return nil
}

// byteOrderMark begins the texts of some servers; a reader may pass over it (RFC 8259
// §8.1).
var byteOrderMark = []byte("\xef\xbb\xbf")

// read takes what the server says, up to its end.
func (c *child) read() {
	l := newLines(c.proc.Stdout(), c.b.MaxMessage, idWithin)
	m := new(mcp.Message)
	var s indented
	for {
		text, own, err := l.next()
		c.lines.Add(1)
		if head, tail, long := isLong(err); long {
			c.b.overlong.Add(1)
			if id := idOf(head, tail); id != nil {
				c.unanswered(id, edge.Errorf(edge.Unavailable, "call", "sent a message above %d bytes", c.b.MaxMessage))
			}
			c.log.event("a line above %d bytes on stdout was passed over", c.b.MaxMessage)
			continue
		}
		if err != nil {
			return
		}
		text = bytes.TrimPrefix(text, byteOrderMark)
		if s.add(text) {
			c.inSeveral(&s)
		}
		begin := bytes.TrimLeft(text, " \t\r")
		switch {
		case len(begin) == 0:
			continue
		case begin[0] != '{' && begin[0] != '[':
			c.log.stray(text, "")
			continue
		case !own:
			text = bytes.Clone(text)
		}
		c.take(m, text, l.cut)
	}
}

// indented is a message that a server writes over several lines, as indented JSON is: from a line
// that is only { to one that is only }. Of it there are its beginning and its end.
type indented struct {
	on         bool // a line of it is still to come
	told       bool // the log has it that such were written
	asks       bool // it has a method, and so is no answer
	answers    bool // it has a result or an error: other JSON that a server prints may have an id too
	indent     int  // of its own members
	head, tail []byte
}

// add takes a line, and reports whether it ends such a message.
func (s *indented) add(line []byte) bool {
	line = bytes.TrimRight(line, " \t\r")
	switch {
	case len(line) == 1 && line[0] == '{':
		s.on, s.asks, s.answers, s.head, s.tail = true, false, false, s.head[:0], s.tail[:0]
	case !s.on:
		return false
	}
	begin := bytes.TrimLeft(line, " \t")
	if len(s.head) == 1 {
		s.indent = len(line) - len(begin)
	}
	if len(line)-len(begin) == s.indent {
		s.asks = s.asks || bytes.HasPrefix(begin, []byte(`"method"`))
		s.answers = s.answers || bytes.HasPrefix(begin, []byte(`"result"`)) || bytes.HasPrefix(begin, []byte(`"error"`))
	}
	s.head = append(s.head, line[:min(len(line), idWithin-len(s.head))]...)
	s.tail = append(s.tail, line[max(0, len(line)-atEnd):]...)
	s.tail = append(s.tail[:0], s.tail[max(0, len(s.tail)-atEnd):]...)
	s.on = len(line) != 1 || line[0] != '}'
	return !s.on
}

// unlessRight is how long an answer in one line may take that follows one in several: some print
// what they send for people first.
const unlessRight = time.Second

// mostSeveral is how many such answers of one process wait for that; of more only the log has it.
const mostSeveral = 64

// inSeveral says of a message that was written over several lines that it was none (2025-11-25,
// basic/transports, stdio): to the log once, and to whoever waits for it.
func (c *child) inSeveral(s *indented) {
	if !s.told {
		s.told = true
		c.log.event("it writes JSON over several lines, as for people: a message has to be one line")
	}
	if id := bytes.Clone(idOf(s.head, s.tail)); id != nil && s.answers && !s.asks && c.several.Load() < mostSeveral {
		c.several.Add(1)
		time.AfterFunc(unlessRight, func() {
			defer c.several.Add(-1)
			c.unanswered(id, edge.Errorf(edge.Unavailable, "call", "%w", edge.ErrSeveralLines))
		})
	}
}

// take takes a line that may be a message, whose bytes are the owner's. Of one that is cut the
// end of the server says why it is no message.
func (c *child) take(m *mcp.Message, text []byte, cut bool) {
	err := mcp.Understand(m, text)
	if err == nil {
		c.hear(m)
		return
	}
	if errors.Is(err, mcp.ErrBatch) {
		parts, err := mcp.Split(text, maxBatch)
		if err != nil {
			c.log.stray(text, "")
			return
		}
		for _, part := range parts {
			if err := mcp.Understand(m, part.Of(text)); err != nil {
				c.odd(m, part.Of(text), err)
				continue
			}
			c.hear(m)
		}
		return
	}
	if cut {
		c.log.stray(text, "")
		return
	}
	c.odd(m, text, err)
}

// odd takes what is JSON perhaps, and for a reason no message. Nobody waits longer for an answer that
// cannot be read, such as one with bytes that are not UTF-8: what can be read of it says whose it was.
func (c *child) odd(m *mcp.Message, text []byte, reason error) {
	id := m.IDText()
	if id == nil && m.Method == "" {
		id = idIn(text)
	}
	why := ""
	if id != nil && m.Method == "" {
		why = "an answer on stdout is no message: " + reason.Error()
		c.unanswered(id, edge.Errorf(edge.Unavailable, "call", "answered with what is no message"))
	}
	c.log.stray(text, why)
}

// hear passes a message on to the owner, but for answers to the bridge itself.
func (c *child) hear(m *mcp.Message) {
	if !c.spoke.Load() {
		c.spoke.Store(true)
		c.b.spoke(c)
	}
	if id := plain(m.IDText()); len(id) == pingDigits && (m.Kind == mcp.Result || m.Kind == mcp.Failure) {
		if n, err := strconv.ParseUint(string(id), 10, 64); err == nil {
			c.ping.CompareAndSwap(n, 0) // else it comes too late
			return
		}
	}
	if !c.listeners.hear(m) {
		c.h.Hear(m)
	}
}

// unanswered tells whose request it was that the answer to it is none.
func (c *child) unanswered(id []byte, why error) {
	if !c.listeners.over(id, nil, why) {
		c.h.Failed(id, why)
	}
}

// idOf finds the id of an answer of which only the beginning and the end are there: nil as of
// idIn. Some write the result first, and what is no more than a member of it is followed by
// more than the end of the answer.
func idOf(head, tail []byte) []byte {
	method, id := mcp.Begins(head)
	if i := bytes.LastIndex(tail, []byte(`"id"`)); method == nil && id == nil && i >= 0 {
		if end := bytes.TrimRight(tail[i:], " \t\r"); bytes.IndexByte(end, '}') == len(end)-1 && bytes.IndexByte(end, '\\') < 0 {
			head = append([]byte{'{'}, end...)
		}
	}
	return idIn(head)
}

// idIn finds the id of an answer in its beginning: nil where there is none, and where it
// turns out to be a request or a notification first.
func idIn(head []byte) []byte {
	_, id := mcp.Begins(head)
	if n, err := strconv.ParseFloat(string(id), 64); err == nil && n >= 0 && n < 1<<53 && n == math.Trunc(n) {
		return strconv.AppendUint(nil, uint64(n), 10) // 7.0 is how some write it
	}
	return id
}
