package serve

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/relay"
)

// What a stream of a common session has carried lies in the store, too, so that
// a client whose edge is gone can read the rest of it at another one. A log is
// written there when it has changed, and not more often than keepEvery.

const keepEvery = 50 * time.Millisecond

// keeper writes logs of streams into a store.
type keeper struct {
	wake chan struct{} // holds one while there is something to write

	fresh chan struct{} // holds one while there is a log among it that the store does not have

	mu      sync.Mutex
	changed map[*eventLog]struct{}
	gone    []string // keys of logs that are forgotten
}

func newKeeper() *keeper {
	return &keeper{wake: make(chan struct{}, 1), fresh: make(chan struct{}, 1), changed: make(map[*eventLog]struct{})}
}

// note notes that a log has changed. One that the store does not have is written
// at once: by it another edge knows what the stream was of.
func (k *keeper) note(l *eventLog, fresh bool) {
	k.mu.Lock()
	k.changed[l] = struct{}{}
	k.mu.Unlock()
	k.rouse()
	if fresh {
		select {
		case k.fresh <- struct{}{}:
		default:
		}
	}
}

func (k *keeper) forget(l *eventLog, key string) {
	k.mu.Lock()
	delete(k.changed, l)
	k.gone = append(k.gone, key)
	k.mu.Unlock()
	k.rouse()
}

func (k *keeper) rouse() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// run writes until ctx ends, and then what is left.
func (k *keeper) run(ctx context.Context, t *shared) {
	pause := time.NewTimer(keepEvery)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			k.write(t)
			return
		case <-k.wake:
		}
		k.write(t)
		pause.Reset(keepEvery)
		select {
		case <-ctx.Done():
		case <-pause.C:
		case <-k.fresh:
		}
	}
}

// write writes what has changed. What the store does not take is lost to it: the
// edge that has the stream still has the log.
func (k *keeper) write(t *shared) {
	k.mu.Lock()
	changed, gone := k.changed, k.gone
	k.changed, k.gone = make(map[*eventLog]struct{}), nil
	k.mu.Unlock()
	for l := range changed {
		if key, text, ttl := l.stored(t.Cap); text != nil {
			_ = t.Put(context.Background(), key, text, ttl)
		}
	}
	for _, key := range gone {
		_ = t.Delete(context.Background(), key)
	}
}

// logHead is the first line of a log in the store.
type logHead struct {
	Request  []byte `json:"r"` // id of the request, JSON text
	Answered bool   `json:"a,omitempty"`
	First    uint64 `json:"f"` // number of the oldest event
}

// logKey is where a store has the log of a stream.
func logKey(session, stream string) string { return "log:" + digestText("log", session, stream) }

// stored is the log as the store has it; nil when it has been forgotten.
func (l *eventLog) stored(callCap time.Duration) (key string, text []byte, ttl time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.forgotten {
		return "", nil, 0
	}
	if ttl = logFor; !l.answered {
		ttl += callCap
	}
	return l.key, l.encode(), ttl
}

// text is the log as another process is handed it.
func (l *eventLog) text() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.encode()
}

// encode is the text of the log; l.mu is held.
func (l *eventLog) encode() []byte {
	head, err := json.Marshal(logHead{Request: l.request, Answered: l.answered, First: l.first})
	if err != nil {
		panic(err) // bytes and numbers always have a JSON form
	}
	text := append(head, '\n')
	for _, e := range l.events {
		text = binary.AppendUvarint(text, uint64(len(e.raw)))
		text = append(text, e.raw...)
	}
	return text
}

// pastOf reads a log that the store has: the events after one. ok is false for
// what is no log; whole is false when events between are missing, or when the
// event itself is, because the log does not reach back, or not on, so far.
func pastOf(text []byte, after uint64) (head logHead, events []logged, whole, ok bool) {
	at := bytes.IndexByte(text, '\n')
	if at < 0 || json.Unmarshal(text[:at], &head) != nil || head.First == 0 || len(head.Request) > 0 && !json.Valid(head.Request) {
		return head, nil, false, false
	}
	number := head.First
	for rest := text[at+1:]; len(rest) > 0; number++ {
		n, size := binary.Uvarint(rest)
		if size <= 0 || n > uint64(len(rest)-size) {
			return head, nil, false, false
		}
		if n > 0 && !json.Valid(rest[size:size+int(n)]) {
			return head, nil, false, false // nothing else may stand in a stream
		}
		if number > after {
			events = append(events, logged{number, rest[size : size+int(n)]})
		}
		rest = rest[size+int(n):]
	}
	return head, events, head.First <= after+1 && after < number, true
}

// reader is who reads on where a stream broke: a stream of this edge, or a
// client at another one.
type reader interface {
	event(id string, raw []byte) error
	end(answered bool) // nothing more will come; the last event was the answer, or there is none
	replaced()         // what comes goes to another reader
}

// followed has a client at another edge read on where a stream here broke.
func (e *Edge) followed(ctx context.Context, t *shared, l relay.Message) {
	back := relay.Message{From: e.relay.Node, Stream: l.Stream}
	s := e.sessions.known(l.Session)
	var log *eventLog
	var after uint64
	if s != nil {
		log, after = s.find(l.Event)
		if log != nil && log.settled(false) {
			log, after = s.find(l.Event)
		}
	}
	if log == nil {
		back.Kind, back.Error = relay.KindError, relay.FaultOf(errLostEvents())
		_ = t.Send(l.From, back, nil) // who waits asks whether this edge is alive
		return
	}
	back.Kind = relay.KindTaken
	if t.Send(l.From, back, log.request) != nil || ctx.Err() != nil { // who asked may have given this edge up
		return
	}
	away := &awayReader{e: e, t: t, node: l.From, who: l.Session, head: back, done: make(chan struct{})}
	log.resume(away, after)
	select {
	case <-ctx.Done():
	case <-away.done:
	}
	log.left(away)
	select {
	case <-away.done:
	default:
		return
	}
	back.Kind, back.Status = relay.KindDone, away.status
	if ctx.Err() != nil {
		_ = t.Send(l.From, back, nil) // nobody may wait any more
		return
	}
	for t.Deliver(ctx, l.From, l.Session, back, nil) != nil && ctx.Err() == nil { // who waits learns it from nobody else
	}
}

// awayReader is a client at another edge that reads on.
type awayReader struct {
	e    *Edge
	t    *shared
	node string
	who  string
	head relay.Message
	once sync.Once

	done   chan struct{} // closed when nothing more will come
	status int           // why not; set before done is closed
}

// event posts an event. After one that may be missing none follows: the client
// comes again for it.
func (r *awayReader) event(id string, raw []byte) error {
	l := r.head
	l.Kind, l.Event = relay.KindEvent, id
	err := r.t.SendFor(r.t.Life, r.node, r.who, l, raw)
	if err != nil {
		r.over(doneReplaced)
	}
	return err
}

func (r *awayReader) end(answered bool) {
	status := 0
	if answered {
		status = doneAnswered
	}
	r.over(status)
}

func (r *awayReader) replaced() { r.over(doneReplaced) }

// Why nothing more comes of a stream, besides that its call has no answer.
const (
	doneAnswered = 200
	doneReplaced = 205 // the client may come again
)

// over has followed tell that nothing more comes.
func (r *awayReader) over(status int) {
	r.once.Do(func() {
		r.status = status
		close(r.done)
	})
}

// distant is a stream that began at another edge, as this one reads on in it.
type distant struct {
	e      *Edge
	t      *shared
	node   string
	who    string
	key    string        // of the session
	stream string        // its name, which its events' ids begin with
	last   uint64        // number of the last event that the client has
	thread *relay.Stream // nil while nobody is asked for what follows
	events []logged
	head   logHead
}

// openDistant finds the stream of another edge that an event id belongs to. What
// the store has of it is there at once, whether that edge answers or not.
func (e *Edge) openDistant(s *session, node, eventID, who string) (*distant, error) {
	stream, after, ok := eventOf(eventID)
	if !ok {
		return nil, errLostEvents()
	}
	if d := e.openHanded(s, node, stream, after, who); d != nil {
		return d, nil
	}
	t := s.common.store.Load()
	if t == nil {
		return nil, errLostEvents()
	}
	d := &distant{e: e, t: t, node: node, who: who, key: s.common.key, stream: stream, last: after}
	whole, ok, err := d.read()
	switch {
	case err != nil:
		return nil, relay.ErrAway()
	case ok && whole:
		return d, nil
	case ok && d.head.Answered:
		return nil, errLostEvents()
	}
	if !ok { // not even that the edge is one
		if at, err := e.hasBeenAt(t, s, node); err != nil {
			return nil, relay.ErrAway()
		} else if !at {
			return nil, errLostEvents()
		}
	}
	// The store has nothing of it, or not what the client has: its edge knows.
	if err = d.ask(); err == nil {
		d.events = nil
		return d, nil
	}
	switch {
	case !errors.Is(err, relay.ErrGone):
		return nil, err
	case ok: // what was lost was no answer
		return d, nil
	}
	return nil, errLostEvents()
}

// hasBeenAt reports whether the store names an edge among those of a session: no
// other is looked for in a client's name.
func (e *Edge) hasBeenAt(t *shared, s *session, node string) (bool, error) {
	if r := s.common.last.Load(); r != nil && slices.Contains(r.Nodes, node) {
		return true, nil
	}
	text, err := t.Head(context.Background(), s.common.key, headBytes)
	r := readHead(text)
	return r != nil && slices.Contains(r.Nodes, node), err
}

// openHanded is openDistant for a stream of another process of this place: what
// that has handed over, or the rest of it while it is there. It returns nil when
// it is neither.
func (e *Edge) openHanded(s *session, node, stream string, after uint64, who string) *distant {
	if e.mail == nil {
		return nil
	}
	d := &distant{e: e, t: e.mail, node: node, who: who, key: keyOf(s.ID), stream: stream, last: after}
	handed := func() bool {
		whole, ok, err := d.read()
		return err == nil && ok && whole
	}
	if handed() && d.head.Answered {
		return d
	}
	if e.mail.Alive(node) && d.ask() == nil {
		d.events = nil
		return d
	}
	if handed() { // it may have handed it over just now, with its last words
		return d
	}
	return nil
}

// read reads what the store has of the stream after the last event that the
// client has. A call that was declared failed has failed, whatever its edge
// wrote down since.
func (d *distant) read() (whole, ok bool, err error) {
	text, err := d.t.Get(context.Background(), logKey(d.key, d.stream))
	if err != nil || text == nil {
		return false, false, err
	}
	head, events, whole, ok := pastOf(text, d.last)
	if !ok {
		return false, false, nil
	}
	failed, err := d.t.failed(context.Background(), d.key, d.stream)
	if err != nil {
		return false, false, err
	}
	if failed > 0 {
		for len(events) > 0 && events[len(events)-1].number >= failed {
			events = events[:len(events)-1]
		}
		if head.Answered = true; d.last < failed {
			events = append(events, logged{failed, goneAnswer(head.Request)})
			whole = whole || d.last+1 == failed
		}
	}
	d.head, d.events = head, events
	return whole, true, nil
}

// ask asks the edge that has the stream for what follows.
func (d *distant) ask() (err error) {
	if d.t.Silent(d.node) {
		return relay.ErrHolderGone()
	}
	if d.thread, err = d.e.relay.Open(relay.NewName(), d.who); err != nil {
		return err
	}
	head := relay.Message{Kind: relay.KindFollow, From: d.e.relay.Node, Stream: d.thread.Name, Session: d.key, Event: eventID(d.stream, d.last)}
	if err = d.t.Send(d.node, head, nil); err != nil && edge.KindOf(err) != edge.Overload {
		err = relay.ErrAway()
	} else { // the box of an edge that is gone may be full
		var first relay.Delivered
		if first, err = d.t.First(d.t.Life, d.thread, d.node); err == nil {
			d.head.Request = first.Body
		}
	}
	if err != nil {
		d.close()
	}
	return err
}

// close ends the reading.
func (d *distant) close() {
	if d.thread == nil {
		return
	}
	d.thread.Close()
	_ = d.t.Send(d.node, relay.Message{Kind: relay.KindLeave, From: d.e.relay.Node, Stream: d.thread.Name}, nil) // it notices by itself, only later
	d.thread = nil
}

// pass writes the rest of the stream to a client until there is no more: first
// what the store has, then what its edge has, then how the call ended that went
// with its edge.
func (d *distant) pass(o *outlet) {
	defer edge.Contain(d.e.log, "resume")
	defer o.close()
	defer d.close()
	ctx, cancel := context.WithCancel(d.t.Life)
	defer cancel()
	go func() {
		select {
		case <-o.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	if !d.replay(o) || d.head.Answered {
		return
	}
	if d.thread == nil {
		if err := d.ask(); errors.Is(err, relay.ErrGone) {
			d.lost(o)
			return
		} else if err != nil { // its edge has it no more, or is busy; the client may come again
			return
		}
	}
	for {
		one, err := d.t.Next(ctx, d.thread, d.node, d.t.Hushed)
		switch {
		case ctx.Err() != nil || one.Kind == relay.KindDone && one.Status != 0:
			return
		case err != nil && !errors.Is(err, relay.ErrGone):
			return // the client reads too slowly, and may come again
		case err != nil || one.Kind == relay.KindDone:
			d.lost(o)
			return
		case one.Kind == relay.KindEvent:
			_, number, ok := eventOf(one.Event)
			if !ok || o.event(one.Event, one.Body) != nil {
				return
			}
			d.last = number
		}
	}
}

// replay writes the events that were read. It reports false when the client has
// left.
func (d *distant) replay(o *outlet) bool {
	for _, one := range d.events {
		if o.event(eventID(d.stream, one.number), one.raw) != nil {
			return false
		}
		d.last = one.number
	}
	d.events = nil
	return true
}

// lost ends a stream whose edge is gone: with what the store has besides, and with
// the failure of a call that was not answered, which it never will be.
func (d *distant) lost(o *outlet) {
	if _, _, err := d.read(); err != nil || !d.replay(o) || d.head.Answered {
		return
	}
	number, err := d.t.fail(context.Background(), d.key, d.stream, d.last+1)
	if err != nil {
		return // nobody knows what becomes of it; the client may come again
	}
	_ = o.event(eventID(d.stream, max(number, d.last+1)), goneAnswer(d.head.Request))
}
