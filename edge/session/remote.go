package session

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/relay"
)

// reader is who reads on where a stream broke: a stream of this edge, or a
// client at another one.
type reader interface {
	event(id string, raw []byte) error
	end(answered bool) // nothing more will come; the last event was the answer, or there is none
	replaced()         // what comes goes to another reader
}

// followed has a client at another edge read on where a stream here broke.
func (ss *Sessions) followed(ctx context.Context, t *Store, l relay.Message) {
	back := relay.Message{From: ss.o.Relay.Node, Stream: l.Stream}
	s := ss.known(l.Session)
	var log *Log
	var after uint64
	if s != nil {
		log, after = s.Find(l.Event)
		if log != nil && log.Settled(false) {
			log, after = s.Find(l.Event)
		}
	}
	if log == nil {
		back.Kind, back.Error = relay.KindError, relay.FaultOf(ErrLostEvents())
		_ = t.Send(l.From, back, nil) // who waits asks whether this edge is alive
		return
	}
	back.Kind = relay.KindTaken
	if t.Send(l.From, back, log.request) != nil || ctx.Err() != nil { // who asked may have given this edge up
		return
	}
	away := &remoteReader{ss: ss, t: t, node: l.From, who: l.Session, head: back, done: make(chan struct{})}
	log.Resume(away, after)
	select {
	case <-ctx.Done():
	case <-away.done:
	}
	log.Left(away)
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

// remoteReader is a client at another edge that reads on.
type remoteReader struct {
	ss   *Sessions
	t    *Store
	node string
	who  string
	head relay.Message
	once sync.Once

	done   chan struct{} // closed when nothing more will come
	status int           // why not; set before done is closed
}

// event posts an event. After one that may be missing none follows: the client
// comes again for it.
func (r *remoteReader) event(id string, raw []byte) error {
	l := r.head
	l.Kind, l.Event = relay.KindEvent, id
	err := r.t.SendFor(r.t.Life, r.node, r.who, l, raw)
	if err != nil {
		r.over(doneReplaced)
	}
	return err
}

func (r *remoteReader) end(answered bool) {
	status := 0
	if answered {
		status = doneAnswered
	}
	r.over(status)
}

func (r *remoteReader) replaced() { r.over(doneReplaced) }

// Why nothing more comes of a stream, apart from a call without an answer.
const (
	doneAnswered = 200
	doneReplaced = 205 // the client may come again
)

// over has followed tell that nothing more comes.
func (r *remoteReader) over(status int) {
	r.once.Do(func() {
		r.status = status
		close(r.done)
	})
}

// Remote is a stream that began at another edge and is read on here.
type Remote struct {
	ss      *Sessions
	t       *Store
	node    string
	who     string
	key     string        // of the session
	stream  string        // its name, which its events' ids begin with
	last    uint64        // number of the last event that the client has
	replies *relay.Stream // nil while nobody is asked for what follows
	events  []logged
	head    logHead
}

// OpenRemote finds the stream of another edge that an event id belongs to. What
// the store has of it is there at once, whether that edge answers or not.
func (ss *Sessions) OpenRemote(s *Session, node, eventID, who string) (*Remote, error) {
	stream, after, ok := eventOf(eventID)
	if !ok {
		return nil, ErrLostEvents()
	}
	if d := ss.openHanded(s, node, stream, after, who); d != nil {
		return d, nil
	}
	t := s.stored.store.Load()
	if t == nil {
		return nil, ErrLostEvents()
	}
	d := &Remote{ss: ss, t: t, node: node, who: who, key: s.stored.key, stream: stream, last: after}
	whole, ok, err := d.read()
	switch {
	case err != nil:
		return nil, relay.ErrAway()
	case ok && whole:
		return d, nil
	case ok && d.head.Answered:
		return nil, ErrLostEvents()
	}
	if !ok { // not even that the edge is one
		if at, err := ss.hasBeenAt(t, s, node); err != nil {
			return nil, relay.ErrAway()
		} else if !at {
			return nil, ErrLostEvents()
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
	return nil, ErrLostEvents()
}

// hasBeenAt reports whether the store names an edge among those of a session: no
// other is looked for in a client's name.
func (ss *Sessions) hasBeenAt(t *Store, s *Session, node string) (bool, error) {
	if r := s.stored.last.Load(); r != nil && slices.Contains(r.Nodes, node) {
		return true, nil
	}
	text, err := t.Head(context.Background(), s.stored.key, headBytes)
	r := readHead(text)
	return r != nil && slices.Contains(r.Nodes, node), err
}

// openHanded is OpenRemote for a stream of another process of this place: what
// that has handed over, or the rest of it while it is there. It returns nil when
// it is neither.
func (ss *Sessions) openHanded(s *Session, node, stream string, after uint64, who string) *Remote {
	if ss.mail == nil {
		return nil
	}
	d := &Remote{ss: ss, t: ss.mail, node: node, who: who, key: Key(s.ID), stream: stream, last: after}
	handed := func() bool {
		whole, ok, err := d.read()
		return err == nil && ok && whole
	}
	if handed() && d.head.Answered {
		return d
	}
	if ss.mail.Alive(node) && d.ask() == nil {
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
func (d *Remote) read() (whole, ok bool, err error) {
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
func (d *Remote) ask() (err error) {
	if d.t.Silent(d.node) {
		return relay.ErrHolderGone()
	}
	if d.replies, err = d.ss.o.Relay.Open(relay.NewName(), d.who); err != nil {
		return err
	}
	head := relay.Message{Kind: relay.KindFollow, From: d.ss.o.Relay.Node, Stream: d.replies.Name, Session: d.key, Event: eventID(d.stream, d.last)}
	if err = d.t.Send(d.node, head, nil); err != nil && edge.KindOf(err) != edge.Overload {
		err = relay.ErrAway()
	} else { // the box of an edge that is gone may be full
		var first relay.Delivered
		if first, err = d.t.First(d.t.Life, d.replies, d.node); err == nil {
			d.head.Request = first.Body
		}
	}
	if err != nil {
		d.Close()
	}
	return err
}

// Close ends the reading.
func (d *Remote) Close() {
	if d.replies == nil {
		return
	}
	d.replies.Close()
	_ = d.t.Send(d.node, relay.Message{Kind: relay.KindLeave, From: d.ss.o.Relay.Node, Stream: d.replies.Name}, nil) // it notices by itself, only later
	d.replies = nil
}

// Pass writes the rest of the stream to a client until there is no more: first
// what the store has, then what its edge has, then how the call ended that went
// with its edge.
func (d *Remote) Pass(o *Stream) {
	defer edge.Contain(d.ss.o.Log, "resume")
	defer o.Close()
	defer d.Close()
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
	if d.replies == nil {
		if err := d.ask(); errors.Is(err, relay.ErrGone) {
			d.lost(o)
			return
		} else if err != nil { // its edge has it no more, or is busy; the client may come again
			return
		}
	}
	for {
		one, err := d.t.Next(ctx, d.replies, d.node, d.t.Hushed)
		switch {
		case ctx.Err() != nil || one.Kind == relay.KindDone && one.Status != 0:
			return
		case err != nil && !errors.Is(err, relay.ErrGone):
			return // the client reads too slowly, or this edge was held up; the client may come again
		case one.Kind == relay.KindError: // its edge has given this one up
			return
		case err != nil || one.Kind == relay.KindDone:
			d.lost(o)
			return
		case one.Kind == relay.KindEvent:
			_, number, ok := eventOf(one.Event)
			if !ok || number > d.last+1 || o.event(one.Event, one.Body) != nil {
				return // what was lost on the way is there when the client comes again
			}
			d.last = number
		}
	}
}

// replay writes the events that were read. It reports false when the client has
// left.
func (d *Remote) replay(o *Stream) bool {
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
func (d *Remote) lost(o *Stream) {
	if _, _, err := d.read(); err != nil || !d.replay(o) || d.head.Answered {
		return
	}
	number, err := d.t.fail(context.Background(), d.key, d.stream, d.last+1)
	if err != nil {
		return // nobody knows what becomes of it; the client may come again
	}
	_ = o.event(eventID(d.stream, max(number, d.last+1)), goneAnswer(d.head.Request))
}
