package serve

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/door"
	"github.com/weir-edge/weir/edge/mcp"
)

// heartbeat is how long an open stream may be silent until it carries a comment,
// and a call until it becomes a stream. It is looked for once a second, so that
// nothing is silent for longer than 15 s.
const heartbeat = 14 * time.Second

var (
	errEnded    = errors.New("the exchange has ended")
	errNoStream = errors.New("the client accepts no stream")
	comment     = []byte(":\n\n")
)

// stream is the way back to the client of one POST. It becomes a stream of
// events with the first thing that precedes the answer; without any, the
// answer is plain JSON.
type stream struct {
	x       *exchange
	conn    *door.Conn
	headers []byte         // lines of the edge's own that go into the head, such as CORS; each with its CRLF
	asked   *edge.HTTP     // what programs are asked about the head with; nil where none is
	able    bool           // the client accepts a stream
	answer  *edge.Response // in place of the text of an answer that is not in one piece
	last    bool           // the connection closes after this answer

	mu      sync.Mutex
	number  uint64 // of the exchange that it serves
	used    bool   // somebody was told or asked something on it, or may be yet
	begun   bool
	ended   bool
	err     error
	buf     []byte
	written time.Time
	log     *eventLog          // of a legacy session's stream
	out     func([]byte) error // instead of the connection, for HTTP with SSE
}

// way is the way back as it is handed out. A stream serves one exchange after
// the other; whoever still has the way of an earlier one finds it closed, and
// can reach no other client by it.
type way struct {
	s      *stream
	number uint64
}

var _ edge.Client = way{}

// Send puts a notification on the stream. A client that accepts none misses
// it: it said so.
func (w way) Send(m *mcp.Message) error {
	err := w.event(m)
	if errors.Is(err, errNoStream) {
		return nil
	}
	return err
}

// Ask puts questions to a legacy client as requests on the stream of its call.
func (w way) Ask(ctx context.Context, questions map[string]edge.Question) (map[string]edge.Answer, error) {
	s := w.session()
	if s == nil {
		return nil, edge.Errorf(edge.NoMethod, "ask", "this client cannot be asked")
	}
	return s.ask(ctx, questions, w.event)
}

// session returns the session of a client that can be asked, and marks the
// stream as used; nil for any other.
func (w way) session() *session {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	if w.s.number != w.number || w.s.ended || !w.s.able || w.s.x.s == nil {
		return nil
	}
	w.s.used = true
	return w.s.x.s
}

func (w way) event(m *mcp.Message) error {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	if w.s.number != w.number {
		return errEnded
	}
	w.s.used = true
	if err := w.s.begin(); err != nil {
		return err
	}
	return w.s.put(m.Raw)
}

// keep has the stream serve no further exchange.
func (s *stream) keep() {
	s.mu.Lock()
	s.used = true
	s.mu.Unlock()
}

// free reports whether the stream may serve another exchange: its work for the
// last has ended, and nobody was told or asked anything on it. Its owner asks.
func (s *stream) free() bool { return s.x == nil }

// forget ends the work for an exchange; s.mu is held.
func (s *stream) forget() {
	s.x, s.conn, s.headers, s.asked, s.able, s.last, s.answer = nil, nil, nil, nil, false, false, nil
	s.begun, s.ended, s.err, s.buf, s.log, s.out = false, false, nil, nil, nil, nil
	s.number++
}

// begin writes the head of the stream, unless it has been; s.mu is held.
func (s *stream) begin() error {
	switch {
	case s.ended:
		return errEnded
	case s.err != nil && s.log != nil:
		return nil // the client may come back for it
	case s.err != nil:
		return s.err
	case s.out != nil || s.begun:
		return nil
	case !s.able:
		return errNoStream
	}
	if s.asked != nil {
		lines, err := s.x.server.beginning(s.asked)
		if s.asked = nil; err != nil {
			s.able = false // the answer is asked about, too, and tells the client
			return errNoStream
		}
		s.headers = append(s.headers, lines...)
	}
	s.begun = true
	s.conn.Narrow()
	s.buf = append(s.buf[:0], "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache, no-transform\r\nX-Accel-Buffering: no\r\nTransfer-Encoding: chunked\r\n"...)
	s.buf = append(s.buf, s.headers...)
	if s.last {
		s.buf = append(s.buf, "Connection: close\r\n"...)
	}
	s.buf = append(s.buf, "\r\n"...)
	if s.x.s != nil {
		s.log = s.x.s.openLog(s.x.Request.IDText())
		if primes(s.x.s.Version) {
			s.buf = door.AppendChunk(s.buf, s.log.prime())
		}
	}
	return nil
}

// put writes an event, with the head before it if that has not been written.
func (s *stream) put(raw []byte) error {
	if s.out != nil {
		s.err = s.out(raw)
		return s.err
	}
	id := ""
	if s.log != nil {
		id = s.log.add(raw)
		if s.err != nil {
			return nil
		}
	}
	s.buf = door.AppendEvent(s.buf, "message", id, raw)
	return s.flush()
}

func (s *stream) flush() error {
	_, err := s.conn.Send(s.buf)
	s.buf = s.buf[:0]
	if cap(s.buf) > 64<<10 {
		s.buf = nil
	}
	s.written = s.conn.Now()
	if err != nil {
		s.err, s.used = err, true
		if s.log == nil {
			go s.x.Cancel() // whoever works for this client may stop; it may hold locks of its own
			return err
		}
	}
	return nil
}

// beat writes a comment when the stream has been silent for a heartbeat, and
// makes a stream of a call that has been silent for so long.
func (w way) beat(now time.Time) {
	s := w.s
	if !s.mu.TryLock() {
		return // something is being written: the stream is not silent, or its client does not read
	}
	defer s.mu.Unlock()
	if s.number != w.number || s.out != nil || now.Sub(s.written) < heartbeat || s.begin() != nil || s.err != nil {
		return
	}
	s.buf = door.AppendChunk(s.buf, comment)
	_ = s.flush()
}

// end writes the answer if the exchange has become a stream, or if the client
// accepts nothing else. It reports whether it has: then the server must not
// answer. raw is nil for an exchange without an answer.
func (s *stream) end(raw []byte, only bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.out == nil && !s.begun && (!only || raw == nil || s.begin() != nil) {
		if s.ended = true; !s.used {
			s.forget()
		}
		return false
	}
	defer func() { s.ended = true }()
	if s.answer != nil {
		raw = s.answer.Whole()
	}
	if s.out != nil {
		if raw != nil && s.err == nil {
			s.err = s.out(raw)
		}
		return true
	}
	if raw != nil && s.log != nil && s.log.settled(true) {
		raw = nil // the client was told that the call has failed
	}
	if raw != nil {
		_ = s.put(raw)
	}
	if s.log != nil {
		s.log.finish(s.conn.Now(), raw != nil)
	}
	if s.err == nil {
		s.buf = append(s.buf, "0\r\n\r\n"...)
		_ = s.flush()
	}
	return true
}

// outlet is a long-lived stream of a legacy session: a GET, or the one stream
// of HTTP with SSE. Its connection has been taken over from the HTTP server.
type outlet struct {
	edge   *Edge
	s      *session
	holder string         // whom it is counted for
	server string         // that it is of
	who    *edge.Identity // who opened it
	conn   *door.Conn
	done   chan struct{} // closed when the stream ends

	written atomic.Int64 // when, in Unix milliseconds; whoever asks must not wait for a client that does not read

	mu    sync.Mutex
	head  []byte // of the answer; goes out before anything else, and is nil then
	ended bool
}

var _ edge.Client = (*outlet)(nil)

// Send puts a notification on the stream.
func (o *outlet) Send(m *mcp.Message) error { return o.write("message", m.Raw) }

// Ask puts questions to the client as requests on the stream.
func (o *outlet) Ask(ctx context.Context, questions map[string]edge.Question) (map[string]edge.Answer, error) {
	return o.s.ask(ctx, questions, func(m *mcp.Message) error { return o.write("message", m.Raw) })
}

func (o *outlet) write(name string, data []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.put(func() error { return o.conn.SendEvent(name, data) })
}

// chunk writes a chunk.
func (o *outlet) chunk(chunk []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.putChunk(chunk)
}

// putChunk is chunk for whoever holds o.mu.
func (o *outlet) putChunk(chunk []byte) error {
	return o.put(func() error { _, err := o.conn.Send(chunk); return err })
}

// put writes, unless the stream has ended; o.mu is held.
func (o *outlet) put(write func() error) error {
	if o.ended {
		return errEnded
	}
	o.written.Store(o.edge.door.Clock.Now().UnixMilli())
	var err error
	if o.head != nil {
		_, err = o.conn.Send(o.head)
		o.head = nil
	}
	if err == nil {
		err = write()
	}
	if err != nil {
		o.finish()
	}
	return err
}

// silent reports whether the stream is due a heartbeat.
func (o *outlet) silent(now time.Time) bool {
	return now.UnixMilli()-o.written.Load() >= heartbeat.Milliseconds()
}

func (o *outlet) beat(now time.Time) {
	if !o.silent(now) || !o.mu.TryLock() {
		return
	}
	defer o.mu.Unlock()
	_ = o.putChunk(door.AppendChunk(nil, comment))
}

// goodbye is how long a client may take to read the end of its stream.
const goodbye = time.Second

// close ends the stream in order. A client that does not read, and whoever
// writes to it, is not waited for longer than goodbye.
func (o *outlet) close() {
	_ = o.conn.SetWriteDeadline(time.Now().Add(goodbye))
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.ended {
		_ = o.putChunk([]byte("0\r\n\r\n"))
		o.finish()
	}
}

// finish marks the end; o.mu is held.
func (o *outlet) finish() {
	if !o.ended {
		o.ended = true
		close(o.done)
		_ = o.conn.SetReadDeadline(time.Unix(1, 0)) // wakes the goroutine that waits for the client to leave
	}
}

// streamPlace is a place among the long-lived streams of a client, and what the
// stream in it begins with.
type streamPlace struct {
	edge   *Edge
	holder string // whom it is counted for: see Edge.holder
	server string
	who    *edge.Identity
	lines  []byte // of the head, besides those that all streams have
	filled bool   // a stream has it, which gives it back
}

// placeForStream takes a place for one more stream of a client.
func (e *Edge) placeForStream(h *head, server *server) (*streamPlace, error) {
	holder := e.holder(h)
	if !e.outlets.take(holder, e.settings.MaxStreams) {
		return nil, errStreams(e.settings.MaxStreams)
	}
	return &streamPlace{edge: e, holder: holder, server: server.name, who: h.who}, nil
}

// release gives back a place that has no stream.
func (p *streamPlace) release() {
	if !p.filled {
		p.edge.outlets.give(p.holder)
	}
}

// takeOver makes a long-lived stream of a GET. opened is called on it before the
// client sees that it is open, so that nothing that happens from then on is
// missed; the stream then lasts until the client leaves or it ends.
func (e *Edge) takeOver(ctx *fasthttp.RequestCtx, s *session, place *streamPlace, opened func(*outlet), closed func(*outlet)) {
	conn := ctx.Conn().(*door.Conn)
	conn.Narrow()
	// The connection ends with the stream, and the client must know it, or it
	// would send its next request there.
	head := []byte("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache, no-transform\r\nX-Accel-Buffering: no\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n")
	head = append(append(head, place.lines...), "\r\n"...)
	place.filled = true
	ctx.HijackSetNoResponse(true)
	ctx.Hijack(func(net.Conn) {
		o := &outlet{edge: e, s: s, holder: place.holder, server: place.server, who: place.who, conn: conn, head: head, done: make(chan struct{})}
		o.written.Store(e.door.Clock.Now().UnixMilli())
		if !e.outlets.add(o) {
			e.outlets.give(o.holder)
			closed(o)
			conn.Close()
			return
		}
		opened(o)
		if o.begin() != nil {
			o.over(closed)
			return
		}
		// The server holds what belonged to the request, and this stack, until
		// here; what waits for months is to hold neither.
		go o.await(closed)
	})
}

// begin writes the head, unless it went out before what came first.
func (o *outlet) begin() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.put(func() error { return nil })
}

// await ends the stream when the client leaves. Nothing is expected from it;
// what comes is thrown away.
func (o *outlet) await(closed func(*outlet)) {
	defer o.over(closed)
	for {
		var b [64]byte
		if _, err := o.conn.Conn.Read(b[:]); err != nil {
			return
		}
	}
}

// over is the end of the stream and of its connection.
func (o *outlet) over(closed func(*outlet)) {
	defer o.edge.outlets.remove(o)
	defer o.conn.Close()
	defer edge.Contain(o.edge.log, "stream")
	o.mu.Lock()
	o.finish()
	o.mu.Unlock()
	closed(o)
}

// outletSet is the open long-lived streams of the process.
type outletSet struct {
	mu    sync.Mutex
	all   map[*outlet]struct{}
	count map[string]int // how many of a holder, of those too that are no outlets
	over  bool           // no further stream may begin
	none  chan struct{}  // closed with the last stream, once over
}

// add lists a stream that has a place. It reports false when none may begin any
// longer.
func (t *outletSet) add(o *outlet) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return false
	}
	if t.all == nil {
		t.all = make(map[*outlet]struct{})
	}
	t.all[o] = struct{}{}
	return true
}

// end ends every stream and waits until the last is gone, and what ended with
// it is done.
func (t *outletSet) end() {
	t.mu.Lock()
	t.over, t.none = true, make(chan struct{})
	none := t.none
	if len(t.all) == 0 {
		close(none)
	}
	t.mu.Unlock()
	for _, o := range t.list() {
		o.close()
	}
	<-none
}

// take takes a place for a stream of a holder. It reports false when the holder
// has most of them already.
func (t *outletSet) take(holder string, most int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count[holder] >= most {
		return false
	}
	if t.count == nil {
		t.count = make(map[string]int)
	}
	t.count[holder]++
	return true
}

// give ends take.
func (t *outletSet) give(holder string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free(holder)
}

// free is give for whoever holds t.mu.
func (t *outletSet) free(holder string) {
	if t.count[holder]--; t.count[holder] <= 0 {
		delete(t.count, holder)
	}
}

func (t *outletSet) remove(o *outlet) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.all, o)
	t.free(o.holder)
	if t.over && len(t.all) == 0 {
		close(t.none)
	}
}

func (t *outletSet) list() []*outlet {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]*outlet, 0, len(t.all))
	for o := range t.all {
		out = append(out, o)
	}
	return out
}

func (t *outletSet) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.all)
}

// open puts a stream into its session. The first one begins to listen to the
// backends for what belongs to no call.
func (s *session) open(o *outlet, listen func(context.Context, edge.Client)) {
	for _, m := range s.opened(o, listen) {
		_ = o.Send(m) // a client that is gone asks when it is back
	}
}

// opened is open, and returns what the client missed while it had no stream.
func (s *session) opened(o *outlet, listen func(context.Context, edge.Client)) []*mcp.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || s.handed.Load() { // its client finds the session, and what hears for it, at the other process
		go o.close() // it locks the outlet, which may be closing and waiting for this session
		return nil
	}
	s.outlets = append(s.outlets, o)
	if s.hearing == nil && listen != nil && !s.mute {
		ctx, cancel := context.WithCancel(context.Background())
		s.hearing = cancel
		listen(ctx, newest{s})
	}
	return s.met()
}

// hearAgain has what listens for the session begin anew, if anything does.
func (s *session) hearAgain(listen func(context.Context, edge.Client)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hearing == nil {
		return
	}
	s.hearing()
	ctx, cancel := context.WithCancel(context.Background())
	s.hearing = cancel
	listen(ctx, newest{s})
}

// shut takes a stream out of its session.
func (s *session) shut(o *outlet) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, other := range s.outlets {
		if other == o {
			s.outlets = append(s.outlets[:i], s.outlets[i+1:]...)
			break
		}
	}
	if len(s.outlets) == 0 {
		s.outlets = nil
		if s.hearing != nil {
			s.hearing()
			s.hearing = nil
		}
	}
}

// newest is the way to a legacy client outside its calls: its newest stream.
// Each message goes to one stream only (2025-11-25, basic/transports).
type newest struct{ s *session }

func (n newest) outlet() *outlet {
	n.s.mu.Lock()
	defer n.s.mu.Unlock()
	if len(n.s.outlets) == 0 {
		return nil
	}
	return n.s.outlets[len(n.s.outlets)-1]
}

// Send puts a notification on the newest stream.
func (n newest) Send(m *mcp.Message) error {
	if o := n.outlet(); o != nil {
		return o.Send(m)
	}
	if n.s.miss(m) {
		return nil
	}
	return errEnded
}

// Ask puts questions on the newest stream.
func (n newest) Ask(ctx context.Context, questions map[string]edge.Question) (map[string]edge.Answer, error) {
	if o := n.outlet(); o != nil {
		return o.Ask(ctx, questions)
	}
	return nil, edge.Errorf(edge.NoMethod, "ask", "the client has no stream open")
}
