package serve

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge/mcp"
)

// What a stream of a common session has carried lies in the store, too, so that
// a client whose edge is gone can read the rest of it at another one. A log is
// written there when it has changed, and not more often than keepEvery.

const keepEvery = 50 * time.Millisecond

// keeper writes logs of streams into a store.
type keeper struct {
	wake chan struct{} // holds one while there is something to write

	mu      sync.Mutex
	changed map[*eventLog]struct{}
	gone    []string // keys of logs that are forgotten
}

func newKeeper() *keeper {
	return &keeper{wake: make(chan struct{}, 1), changed: make(map[*eventLog]struct{})}
}

func (k *keeper) note(l *eventLog) {
	k.mu.Lock()
	k.changed[l] = struct{}{}
	k.mu.Unlock()
	k.rouse()
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
		if key, text, ttl := l.stored(t.cap); text != nil {
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
	head, err := json.Marshal(logHead{Request: l.request, Answered: l.answered, First: l.first})
	if err != nil {
		panic(err) // bytes and numbers always have a JSON form
	}
	text = append(head, '\n')
	for _, e := range l.events {
		text = binary.AppendUvarint(text, uint64(len(e.raw)))
		text = append(text, e.raw...)
	}
	if ttl = logFor; !l.answered {
		ttl += callCap
	}
	return l.key, text, ttl
}

// pastOf reads a log that the store has: the events after one, and whether the
// last of them is the answer. ok is false when the log is not there or does not
// reach back so far.
func pastOf(text []byte, after uint64) (head logHead, events []logged, ok bool) {
	at := 0
	for at < len(text) && text[at] != '\n' {
		at++
	}
	if at == len(text) || json.Unmarshal(text[:at], &head) != nil || head.First == 0 || after+1 < head.First {
		return head, nil, false
	}
	number := head.First
	for rest := text[at+1:]; len(rest) > 0; number++ {
		n, size := binary.Uvarint(rest)
		if size <= 0 || n > uint64(len(rest)-size) {
			return head, nil, false
		}
		if number > after {
			events = append(events, logged{number, rest[size : size+int(n)]})
		}
		rest = rest[size+int(n):]
	}
	return head, events, after < number
}

// reader is who reads on where a stream broke: a stream of this edge, or a
// client at another one.
type reader interface {
	event(id string, raw []byte) error
	end(answered bool) // nothing more will come; the last event was the answer, or there is none
}

// followed has a client at another edge read on where a stream here broke.
func (e *Edge) followed(ctx context.Context, t *shared, l letter) {
	back := letter{From: e.node, Thread: l.Thread}
	s := e.sessions.known(l.Session)
	var log *eventLog
	var after uint64
	if s != nil {
		log, after = s.find(l.Event)
	}
	if log == nil {
		back.Kind, back.Error = letterError, wrongOf(errLostEvents())
		_ = t.post(l.From, back, nil) // who waits asks whether this edge is alive
		return
	}
	back.Kind = letterTaken
	if t.post(l.From, back, log.request) != nil {
		return
	}
	away := &awayReader{t: t, node: l.From, head: back, done: make(chan struct{})}
	log.resume(away, after)
	select {
	case <-ctx.Done():
	case <-away.done:
	}
	log.left(away)
}

// awayReader is a client at another edge that reads on.
type awayReader struct {
	t    *shared
	node string
	head letter
	once sync.Once
	done chan struct{}
}

func (r *awayReader) event(id string, raw []byte) error {
	l := r.head
	l.Kind, l.Event = letterEvent, id
	return r.t.post(r.node, l, raw)
}

func (r *awayReader) end(answered bool) {
	r.once.Do(func() {
		l := r.head
		l.Kind = letterDone
		if answered {
			l.Status = 200
		}
		_ = r.t.post(r.node, l, nil) // who waits asks whether this edge is alive
		close(r.done)
	})
}

// distant is a stream that began at another edge, as this one reads on in it.
type distant struct {
	e      *Edge
	t      *shared
	node   string
	thread *thread // nil when the edge is gone
	events []logged
	head   logHead
	key    string // of the session
	stream string // its name, which its events' ids begin with
	last   string // id of the last event that the client has
}

// openDistant finds the stream of another edge that an event id belongs to.
func (e *Edge) openDistant(s *session, node, eventID string) (*distant, error) {
	t := s.common.store.Load()
	if t == nil {
		return nil, errLostEvents()
	}
	d := &distant{e: e, t: t, node: node, key: s.common.key, last: eventID}
	if t.alive(node) {
		return d, d.ask(s, eventID)
	}
	stream, after, ok := eventOf(eventID)
	if !ok {
		return nil, errLostEvents()
	}
	text, err := t.Get(context.Background(), logKey(s.common.key, stream))
	if err != nil {
		return nil, errAway()
	}
	if d.head, d.events, ok = pastOf(text, after); !ok {
		return nil, errLostEvents()
	}
	d.stream = stream
	return d, nil
}

// ask asks the edge that has the stream for the rest of it.
func (d *distant) ask(s *session, eventID string) (err error) {
	if d.thread, err = d.e.threads.open(newName()); err != nil {
		return err
	}
	if err = d.t.post(d.node, letter{Kind: letterFollow, From: d.e.node, Thread: d.thread.name, Session: s.common.key, Event: eventID}, nil); err != nil {
		err = errAway()
	} else {
		ctx, cancel := context.WithTimeout(d.t.life, aliveFor)
		defer cancel()
		var first delivered
		if first, err = d.e.next(ctx, d.t, d.thread, d.node); err == nil && first.Kind != letterTaken {
			err = first.Error.err()
		}
		d.head.Request = first.body
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
	d.e.threads.close(d.thread)
	_ = d.t.post(d.node, letter{Kind: letterLeave, From: d.e.node, Thread: d.thread.name}, nil) // it notices by itself, only later
}

// pass writes the rest of the stream to a client until there is no more.
func (d *distant) pass(o *outlet) {
	defer o.close()
	ctx, cancel := context.WithCancel(d.t.life)
	defer cancel()
	go func() {
		select {
		case <-o.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	if d.thread == nil {
		d.replay(o)
		return
	}
	for {
		one, err := d.e.next(ctx, d.t, d.thread, d.node)
		switch {
		case ctx.Err() != nil || one.Kind == letterDone && one.Status == 200:
			return
		case err != nil || one.Kind == letterDone:
			d.lost(o)
			return
		case one.Kind == letterEvent:
			if o.event(one.Event, one.body) != nil {
				return
			}
			d.last = one.Event
		}
	}
}

// replay writes what the store has of a stream whose edge is gone. A call that
// was not answered then never will be.
func (d *distant) replay(o *outlet) {
	_, number, _ := eventOf(d.last)
	number++
	for _, one := range d.events {
		if o.event(eventID(d.stream, one.number), one.raw) != nil {
			return
		}
		number = one.number + 1
	}
	if !d.head.Answered {
		_ = o.event(eventID(d.stream, number), fail(mcp.Legacy, d.head.Request, errHolderGone()).body)
	}
}

// lost ends a stream whose edge went away while a client read on here: with what
// the store has besides, or with the failure of the call.
func (d *distant) lost(o *outlet) {
	var after uint64
	var ok bool
	if d.stream, after, ok = eventOf(d.last); !ok {
		return
	}
	text, err := d.t.Get(context.Background(), logKey(d.key, d.stream))
	head, events, ok := pastOf(text, after)
	if err != nil || !ok {
		head, events = logHead{Request: d.head.Request, First: after + 1}, nil
	}
	d.head, d.events = head, events
	d.replay(o)
}
