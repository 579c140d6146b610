package session

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/door"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/relay"
)

// Heartbeat is how long an open stream may be silent before it carries a comment, and a call
// before it becomes a stream. It is checked once a second, so that nothing is silent for
// more than 15 s.
const Heartbeat = 14 * time.Second

var (
	errEnded = errors.New("the stream has ended")
	comment  = []byte(":\n\n")
)

// Stream is a long-lived stream of a legacy session: a GET, or the one stream
// of HTTP with SSE. Its connection has been taken over from the HTTP server.
type Stream struct {
	of     *Sessions
	s      *Session       // mu guards it
	holder string         // for limits: see edge.Holder
	Server string         // name
	Who    *edge.Identity // who opened it
	conn   *door.Conn
	done   chan struct{} // closed when the stream ends

	written atomic.Int64 // time of the last write, Unix milliseconds; read without mu, whose holder may wait for a slow client
	owed    atomic.Int64 // answers that are to be written yet
	closing atomic.Bool  // it ends after them

	mu    sync.Mutex
	head  []byte // of the answer; goes out before anything else, and is nil then
	ended bool
}

var _ edge.Client = (*Stream)(nil)

// Send puts a notification on the stream.
func (o *Stream) Send(m *mcp.Message) error { return o.Write("message", m.Raw) }

// Ask puts questions to the client as requests on the stream.
func (o *Stream) Ask(ctx context.Context, questions map[string]edge.Question) (map[string]edge.Answer, error) {
	return o.session().Ask(ctx, questions, func(m *mcp.Message) error { return o.Write("message", m.Raw) })
}

// session returns the session that the stream is of; nil before it has begun.
func (o *Stream) session() *Session {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.s
}

// Join gives a stream the session that its client began.
func (o *Stream) Join(s *Session) {
	o.mu.Lock()
	o.s = s
	o.mu.Unlock()
}

// Conn is the connection of the stream.
func (o *Stream) Conn() *door.Conn { return o.conn }

// Write writes an event.
func (o *Stream) Write(name string, data []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.put(func() error { return o.conn.SendEvent(name, data) })
}

// chunk writes a chunk.
func (o *Stream) chunk(chunk []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.putChunk(chunk)
}

// putChunk is chunk for whoever holds o.mu.
func (o *Stream) putChunk(chunk []byte) error {
	return o.put(func() error { _, err := o.conn.Send(chunk); return err })
}

// put writes, unless the stream has ended; o.mu is held.
func (o *Stream) put(write func() error) error {
	if o.ended {
		return errEnded
	}
	o.written.Store(o.of.o.Clock.Now().UnixMilli())
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

// Silent reports whether the stream is due a heartbeat.
func (o *Stream) Silent(now time.Time) bool {
	return passed(now.UnixMilli(), o.written.Load(), Heartbeat)
}

// Beat writes a comment when the stream is due a heartbeat.
func (o *Stream) Beat(now time.Time) {
	if !o.Silent(now) || !o.mu.TryLock() {
		return
	}
	defer o.mu.Unlock()
	_ = o.putChunk(door.AppendChunk(nil, comment))
}

// goodbye bounds how long a client may take to read the end of its stream.
const goodbye = time.Second

// Close ends the stream in order. It waits for a client that does not read no longer than
// goodbye.
func (o *Stream) Close() {
	_ = o.conn.SetWriteDeadline(time.Now().Add(goodbye))
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.ended {
		_ = o.putChunk([]byte("0\r\n\r\n"))
		o.finish()
	}
}

// finish marks the end; o.mu is held.
func (o *Stream) finish() {
	if !o.ended {
		o.ended = true
		close(o.done)
		_ = o.conn.SetReadDeadline(time.Unix(1, 0)) // wakes the goroutine that waits for the client to leave
	}
}

// Place is a place among the long-lived streams of a client, and what the stream in
// it begins with.
type Place struct {
	Lines []byte // of the head, besides those that all streams have

	of     *Sessions
	holder string // whom it is counted for: see edge.Holder
	server string
	who    *edge.Identity
	filled bool // a stream has it, which gives it back
}

// Place takes a place for one more stream of a server's client, counted for a
// holder. The error is Overload when the holder has all of its places.
func (ss *Sessions) Place(holder, server string, who *edge.Identity) (*Place, error) {
	if err := ss.TakeStream(holder); err != nil {
		return nil, err
	}
	return &Place{of: ss, holder: holder, server: server, who: who}, nil
}

// TakeStream counts a long-lived stream of a holder that has no Place. The error is
// Overload when the holder has all of its places.
func (ss *Sessions) TakeStream(holder string) error {
	if !ss.Streams.take(holder, ss.o.Streams) {
		return edge.Errorf(edge.Overload, "door", "this client has %d streams open, which is the limit", ss.o.Streams)
	}
	return nil
}

// GiveStream ends TakeStream.
func (ss *Sessions) GiveStream(holder string) { ss.Streams.give(holder) }

// Holder is whom the place is counted for.
func (p *Place) Holder() string { return p.holder }

// Release gives back a place that has no stream.
func (p *Place) Release() {
	if !p.filled {
		p.of.Streams.give(p.holder)
	}
}

// TakeOver makes a long-lived stream of a GET, in its session; nil for one that has
// none yet. opened is called on it before the
// client sees that it is open, so that nothing that happens from then on is
// missed; the stream then lasts until the client leaves or it ends.
func (p *Place) TakeOver(ctx *fasthttp.RequestCtx, s *Session, opened func(*Stream), closed func(*Stream)) {
	conn := ctx.Conn().(*door.Conn)
	conn.Narrow()
	// The connection ends with the stream, and the client must know it, or it
	// would send its next request there.
	head := []byte("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache, no-transform\r\nX-Accel-Buffering: no\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n")
	head = append(append(head, p.Lines...), "\r\n"...)
	p.filled = true
	ctx.HijackSetNoResponse(true)
	ctx.Hijack(func(net.Conn) {
		o := &Stream{of: p.of, s: s, holder: p.holder, Server: p.server, Who: p.who, conn: conn, head: head, done: make(chan struct{})}
		o.written.Store(p.of.o.Clock.Now().UnixMilli())
		if !p.of.Streams.add(o) {
			p.of.Streams.give(o.holder)
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
func (o *Stream) begin() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.put(func() error { return nil })
}

// await ends the stream when the client leaves. Nothing is expected from it;
// what comes is thrown away.
func (o *Stream) await(closed func(*Stream)) {
	defer o.over(closed)
	for {
		var b [64]byte
		if _, err := o.conn.Conn.Read(b[:]); err != nil {
			return
		}
	}
}

// over ends the stream and its connection.
func (o *Stream) over(closed func(*Stream)) {
	defer o.of.Streams.remove(o)
	defer o.conn.Close()
	defer edge.Contain(o.of.o.Log, "stream")
	o.mu.Lock()
	o.finish()
	o.mu.Unlock()
	closed(o)
}

// EndStreams ends the streams that would last for ever, in order. One of the older
// transport with calls under way ends after them.
func (ss *Sessions) EndStreams() {
	var work sync.WaitGroup
	for _, o := range ss.Streams.List() {
		if !o.serves() {
			work.Go(o.Close)
		}
	}
	work.Wait()
}

// Owe notes that an answer is to be written to the stream yet, until done is called. It reports
// false where the stream is to end, and done does nothing: no further call begins at it.
func (o *Stream) Owe() (done func(), ok bool) {
	o.owed.Add(1)
	done = sync.OnceFunc(func() { o.owed.Add(-1) })
	if o.closing.Load() { // which is set before the answers are looked at
		done()
		return done, false
	}
	return done, true
}

// CloseAfterCalls is Close that waits until no call is under way whose answer goes to the
// stream: each has an end, and no further one begins.
func (o *Stream) CloseAfterCalls() {
	if o.closing.Swap(true) {
		return
	}
	tick := time.NewTicker(goodbye / 20)
	defer tick.Stop()
	for o.serves() {
		select {
		case <-tick.C:
		case <-o.done:
			return
		}
	}
	o.Close()
}

// serves reports whether calls are under way whose answers go to the stream, or have an answer
// that is being written.
func (o *Stream) serves() bool {
	if o.owed.Load() > 0 {
		return true
	}
	s := o.session()
	if s == nil || !s.older.Load() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.calls) > 0
}

// Streams are the open long-lived streams of the process.
type Streams struct {
	mu    sync.Mutex
	all   map[*Stream]struct{}
	count map[string]int // how many of a holder, of those too without a Place
	over  bool           // no further stream may begin
	none  chan struct{}  // closed with the last stream, once over
}

// add lists a stream that has a place. It reports false when no further stream may begin.
func (t *Streams) add(o *Stream) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return false
	}
	if t.all == nil {
		t.all = make(map[*Stream]struct{})
	}
	t.all[o] = struct{}{}
	return true
}

// End ends every stream and waits until the last one is gone.
func (t *Streams) End() {
	t.mu.Lock()
	t.over, t.none = true, make(chan struct{})
	none := t.none
	if len(t.all) == 0 {
		close(none)
	}
	t.mu.Unlock()
	for _, o := range t.List() {
		o.Close()
	}
	<-none
}

// take takes a place for a stream of a holder. It reports false if the holder has as many as
// it may.
func (t *Streams) take(holder string, most int) bool {
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
func (t *Streams) give(holder string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free(holder)
}

// free is give for whoever holds t.mu.
func (t *Streams) free(holder string) {
	if t.count[holder]--; t.count[holder] <= 0 {
		delete(t.count, holder)
	}
}

func (t *Streams) remove(o *Stream) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.all, o)
	t.free(o.holder)
	if t.over && len(t.all) == 0 {
		close(t.none)
	}
}

// List returns the streams.
func (t *Streams) List() []*Stream {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]*Stream, 0, len(t.all))
	for o := range t.all {
		out = append(out, o)
	}
	return out
}

// Len returns how many streams there are.
func (t *Streams) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.all)
}

// Places returns how many places streams have, those of modern clients that listen too.
func (t *Streams) Places() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, of := range t.count {
		n += of
	}
	return n
}

// Open puts a stream into its session. The first one begins to listen to the
// backends for what belongs to no call.
func (s *Session) Open(o *Stream) {
	for _, m := range s.opened(o) {
		_ = o.Send(m) // a client that is gone asks again when it is back
	}
}

// opened is Open, and returns what the client missed while it had no stream.
func (s *Session) opened(o *Stream) []*mcp.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Its client begins another session, or finds this one, and what hears for it, at the
	// other process.
	if s.over || s.lost.Load() || s.handed.Load() {
		go o.Close() // it locks the stream, which may be closing and waiting for this session
		return nil
	}
	s.streams = append(s.streams, o)
	if s.hearing == nil && !s.mute {
		s.hear()
	}
	return s.met()
}

// hear begins to listen to the backends; s.mu is held.
func (s *Session) hear() {
	ctx, cancel := context.WithCancel(context.Background())
	s.hearing = cancel
	if host := s.of.o.Servers()[s.Server]; host != nil {
		host.Hear(ctx, &s.Session, s.opener(), &newest{s}) // another one each time: who ended listening is told from who began
	}
}

// opener is who opened the newest stream; nil where nobody asks. s.mu is held.
func (s *Session) opener() *edge.Identity {
	if len(s.streams) == 0 {
		return nil
	}
	return s.streams[len(s.streams)-1].Who
}

// HearAgain listens to the backends again, if the session listens.
func (s *Session) HearAgain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hearing == nil {
		return
	}
	s.hearing()
	s.hear()
}

// Shut takes a stream out of its session.
func (s *Session) Shut(o *Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, other := range s.streams {
		if other == o {
			s.streams = append(s.streams[:i], s.streams[i+1:]...)
			break
		}
	}
	if len(s.streams) == 0 {
		s.streams = nil
		if s.hearing != nil {
			s.hearing()
			s.hearing = nil
		}
	}
}

// newest is the edge.Client of a legacy session outside its calls: its newest stream. Each
// message goes to one stream only (2025-11-25, basic/transports).
type newest struct{ s *Session }

func (n newest) stream() *Stream {
	n.s.mu.Lock()
	defer n.s.mu.Unlock()
	for _, o := range slices.Backward(n.s.streams) {
		if !o.closing.Load() {
			return o
		}
	}
	return nil
}

// Send puts a notification on the newest stream.
func (n newest) Send(m *mcp.Message) error {
	if o := n.stream(); o != nil {
		return o.Send(m)
	}
	if n.s.miss(m) {
		return nil
	}
	return errEnded
}

// Ask puts questions on the newest stream.
func (n newest) Ask(ctx context.Context, questions map[string]edge.Question) (map[string]edge.Answer, error) {
	if o := n.stream(); o != nil {
		return o.Ask(ctx, questions)
	}
	return nil, edge.Errorf(edge.NoMethod, "ask", "the client has no stream open")
}

// Say writes to a stream the messages that other edges post for its client, until it ends. A
// client that reads too slowly loses the stream, since messages would be missing.
func (o *Stream) Say(one *relay.Stream) {
	for {
		d, there, over := one.Take()
		switch {
		case there:
			if o.Write("message", d.Body) != nil {
				return
			}
			continue
		case over:
			o.Close()
			return
		}
		select {
		case <-one.Wake:
		case <-o.done:
			return
		}
	}
}
