package relay

import (
	"context"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
)

const (
	// maxStreams bounds the exchanges with other edges under way at a time, in each
	// direction, and maxWaiting the unread messages of one of them.
	maxStreams = 4096
	maxWaiting = 1024

	// maxWaitingBytes bounds the bytes of unread messages of all exchanges of this
	// edge, and maxHeld those of requests that it holds for other edges. One exchange
	// may have waitingBytes and one message more.
	waitingBytes    = 4 << 20
	maxWaitingBytes = 64 << 20
	maxHeld         = 64 << 20

	// maxEach is the divisor for one principal's part of the exchanges and of those
	// bytes: a quarter.
	maxEach = 4
)

// streams are the exchanges with other replicas that are under way.
type streams struct {
	mu      sync.Mutex
	waiting map[string]*Stream // of this edge's clients, by name
	bytes   int                // of their unread messages
	serving map[string]served  // of other edges', by edge and name
	held    int                // bytes of their requests

	// The portions of principals.
	waitingOf, servingOf map[string]portion
}

// portion is the part of one principal.
type portion struct{ number, bytes int }

// add adds to the portion of a principal.
func add(all *map[string]portion, who string, number, bytes int) {
	if *all == nil {
		*all = make(map[string]portion)
	}
	is := (*all)[who]
	is.number, is.bytes = is.number+number, is.bytes+bytes
	if is == (portion{}) {
		delete(*all, who)
		return
	}
	(*all)[who] = is
}

// served is an exchange of another edge that is served here.
type served struct {
	cancel context.CancelFunc
	who    string
	bytes  int
}

func errStreams() error {
	return edge.Errorf(edge.Overload, "relay", "too many exchanges with other replicas are under way; try again later")
}

// Stream is a reply stream: the replies to a message, until it ends.
type Stream struct {
	of   *streams
	Name string
	Who  string        // the client that it is for
	Wake chan struct{} // holds a value while messages are unread

	opened time.Time

	// The mu of streams guards the fields below.
	queue []Delivered
	bytes int
	over  bool // too many messages have come, and some are lost
}

// Delivered is one message of a stream.
type Delivered struct {
	Message
	Body []byte
}

// open opens a reply stream under a name, for a client.
func (t *streams) open(name, who string) (*Stream, error) {
	one := &Stream{of: t, Name: name, Who: who, Wake: make(chan struct{}, 1), opened: time.Now()}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiting) >= maxStreams || t.waitingOf[who].number >= maxStreams/maxEach {
		return nil, errStreams()
	}
	add(&t.waitingOf, who, 1, 0)
	if t.waiting == nil {
		t.waiting = make(map[string]*Stream)
	}
	t.waiting[name] = one
	return one, nil
}

// Close ends the stream.
func (one *Stream) Close() {
	t := one.of
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waiting[one.Name] != one {
		return
	}
	delete(t.waiting, one.Name)
	t.bytes -= one.bytes
	add(&t.waitingOf, one.Who, -1, -one.bytes)
	one.queue, one.bytes = nil, 0
}

// give adds a message to the stream of its name, if there is one.
func (t *streams) give(name string, m Message, body []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	one := t.waiting[name]
	if one == nil {
		return
	}
	whole := t.waitingOf[one.Who].bytes
	if one.over || len(one.queue) >= maxWaiting || one.bytes >= waitingBytes || t.bytes+len(body) > maxWaitingBytes || whole > 0 && whole+len(body) > maxWaitingBytes/maxEach {
		one.over = true // messages after a lost one are of no use
	} else {
		one.queue = append(one.queue, Delivered{m, body})
		one.bytes += len(body)
		t.bytes += len(body)
		add(&t.waitingOf, one.Who, 0, len(body))
	}
	select {
	case one.Wake <- struct{}{}:
	default:
	}
}

// spoil marks the stream of a name as having lost a message.
func (t *streams) spoil(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one := t.waiting[name]; one != nil {
		one.over = true
		select {
		case one.Wake <- struct{}{}:
		default:
		}
	}
}

// Take returns the next unread message, if there is one. over reports that messages
// after those are lost.
func (one *Stream) Take() (d Delivered, there, over bool) {
	t := one.of
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(one.queue) == 0 {
		return d, false, one.over
	}
	d, one.queue = one.queue[0], one.queue[1:]
	one.bytes -= len(d.Body)
	t.bytes -= len(d.Body)
	add(&t.waitingOf, one.Who, 0, -len(d.Body))
	return d, true, one.over
}

// serve registers an exchange of another edge. It reports false if it is registered
// already; full reports that there is no room.
func (t *streams) serve(name, who string, bytes int, cancel context.CancelFunc) (begins, full bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, there := t.serving[name]; there {
		return false, false
	}
	is := t.servingOf[who]
	if len(t.serving) >= maxStreams || t.held+bytes > maxHeld || is.number >= maxStreams/maxEach || is.bytes > 0 && is.bytes+bytes > maxHeld/maxEach {
		return false, true
	}
	if t.serving == nil {
		t.serving = make(map[string]served)
	}
	t.serving[name] = served{cancel, who, bytes}
	t.held += bytes
	add(&t.servingOf, who, 1, bytes)
	return true, false
}

func (t *streams) done(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one, there := t.serving[name]; there {
		delete(t.serving, name)
		t.held -= one.bytes
		add(&t.servingOf, one.who, -1, -one.bytes)
	}
}

// leave ends an exchange of another edge.
func (t *streams) leave(name string) {
	t.mu.Lock()
	one, there := t.serving[name]
	t.mu.Unlock()
	if there {
		one.cancel()
	}
}

// busy reports whether an exchange of another replica is served here.
func (t *streams) busy() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.serving) > 0
}
