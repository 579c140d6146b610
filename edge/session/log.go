package session

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/door"
	"github.com/weir-edge/weir/edge/mcp"
)

// A legacy client whose connection breaks in the middle of a stream may resume the stream
// with GET and the id of the last event that it saw (2025-11-25, basic/transports,
// resumability). The events of each stream are kept here, up to a limit for the session.

const (
	// logBytes and logStreams bound the logs of one session, holderBytes those of a
	// holder's sessions, and logsBytes those of all. logFor is how long a log is kept
	// after the answer.
	logBytes    = 256 << 10
	logStreams  = 64
	logsBytes   = 64 << 20
	holderBytes = logsBytes / 4
	logFor      = time.Minute

	// retryAfter is how long a client is told to wait before it resumes a stream, in
	// milliseconds.
	retryAfter = 1000
)

// Log is the events of one stream of a session.
//
// To write to a client that is back takes writing, which may be held for as long as that
// client likes, but not mu, since others wait for mu with the locks of the session and of
// the table held. The order is writing, the session's, mu.
type Log struct {
	s       *Session
	stream  string // its name in the session, with which its event ids begin
	key     string // in the store; "" without a store
	request []byte // id of the request, JSON text, if other edges may know of it

	writing sync.Mutex // held to write to the client that is back, in the order of the events

	mu     sync.Mutex
	events []logged
	first  uint64 // number of the oldest event that is kept
	next   uint64
	size   int
	done   bool // nothing more will come
	ended  time.Time
	out    reader // the client is back and reads on
	behind bool   // out has not had all events; whoever replays them also ends it
	moved  bool   // the client has come back: the connection that the stream began on has its end

	answered  bool // the last event is the answer
	forgotten bool
	failed    bool   // another edge has declared the call failed: that is the answer
	sure      bool   // the store knows that this edge answers the call
	written   bool   // the store has been told of it
	lapses    uint64 // of the edge's lease, when the log was opened
	handed    bool   // another process has all of it
}

type logged struct {
	number uint64
	raw    []byte
}

// OpenLog begins the log of a stream. Event ids are unique in the session and name their
// stream. request is the id of the request that the stream answers, JSON text.
func (s *Session) OpenLog(request []byte) *Log {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun++
	l := &Log{s: s, stream: strconv.FormatUint(s.begun, 10), next: 1, first: 1}
	if s.stored.node != "" {
		l.stream = s.stored.node + "." + l.stream
		l.request = append([]byte(nil), request...)
	}
	if s.stored.key != "" {
		l.key = logKey(s.stored.key, l.stream)
		if store := s.stored.store.Load(); store != nil {
			l.lapses = store.Lease.Count()
		}
		defer l.begin()
	}
	if s.over { // nobody will resume it
		l.forgotten = true
		return l
	}
	if len(s.logs) == logStreams {
		s.dropLog(s.oldest(nil))
	}
	s.logs = append(s.logs, l)
	return l
}

// dropLog forgets the log at i; s.mu is held.
func (s *Session) dropLog(i int) {
	l := s.logs[i]
	s.logs = append(s.logs[:i], s.logs[i+1:]...)
	if len(s.logs) == 0 {
		s.logs = nil // an idle session is small
	}
	l.mu.Lock()
	s.logged -= l.size
	s.keep(-l.size)
	l.events, l.size, l.first = nil, 0, l.next
	if store := s.stored.store.Load(); store != nil && !l.forgotten {
		store.writer.forget(l, l.key)
	}
	l.forgotten = true
	l.mu.Unlock()
}

// dropOld forgets the streams that ended before a moment.
func (s *Session) dropOld(before time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.logs) - 1; i >= 0; i-- {
		s.logs[i].mu.Lock()
		old := s.logs[i].done && s.logs[i].ended.Before(before)
		s.logs[i].mu.Unlock()
		if old {
			s.dropLog(i)
		}
	}
}

// oldest returns the index of the log that is forgotten first: the oldest of a stream that has
// ended, else the oldest of all, but not keep. It is -1 without one. s.mu is held.
func (s *Session) oldest(keep *Log) int {
	at := -1
	for i, l := range s.logs {
		if l == keep {
			continue
		}
		l.mu.Lock()
		done := l.done
		l.mu.Unlock()
		if done {
			return i
		}
		if at < 0 {
			at = i
		}
	}
	return at
}

// room makes room for n bytes by forgetting other streams of the session, as oldest has it. It
// reports false if that is not enough, and forgets none where it could not be.
func (s *Session) room(n int, keep *Log) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.logs, keep) {
		return false // nobody can resume it any longer
	}
	keep.mu.Lock()
	own := keep.size
	keep.mu.Unlock()
	if own+n > logBytes {
		return false
	}
	for s.logged+n > logBytes {
		i := s.oldest(keep)
		if i < 0 {
			return false
		}
		s.dropLog(i)
	}
	if s.keep(n) > logsBytes || s.holder != nil && s.holder.kept.Load() > holderBytes {
		s.keep(-n)
		return false
	}
	s.logged += n
	return true
}

// keep counts bytes for all sessions and for the holder's, and returns those of all.
func (s *Session) keep(n int) int64 {
	if s.holder != nil {
		s.holder.kept.Add(int64(n))
	}
	return s.of.kept.Add(int64(n))
}

// unlog gives room back.
func (s *Session) unlog(n int) {
	s.mu.Lock()
	s.logged -= n
	s.mu.Unlock()
	s.keep(-n)
}

// id returns the id of the event of a number.
func (l *Log) id(number uint64) string {
	return eventID(l.stream, number)
}

func eventID(stream string, number uint64) string {
	return stream + "-" + strconv.FormatUint(number, 10)
}

// eventOf takes an event id apart.
func eventOf(id string) (stream string, number uint64, ok bool) {
	stream, event, ok := strings.Cut(id, "-")
	number, err := strconv.ParseUint(event, 10, 63)
	return stream, number, ok && err == nil
}

// begin writes the log to the store before it has any events: its client may resume the
// stream at another edge before anything has come.
func (l *Log) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.write()
}

// write tells the writer of the store that the log has changed; l.mu is held.
func (l *Log) write() {
	if store := l.s.stored.store.Load(); store != nil && !l.forgotten {
		store.writer.note(l, !l.written)
		l.written = true
	}
}

// Add appends an event, sends it to a client that is back, and returns its id. moved says that the
// client has come back for the stream: the connection that it began on gets no more of it, as each
// message goes to one stream only (2025-11-25, basic/transports).
func (l *Log) Add(raw []byte) (id string, moved bool) {
	l.writing.Lock()
	defer l.writing.Unlock()
	room := l.s.room(len(raw), l)
	back := 0 // bytes to give back
	l.mu.Lock()
	if l.failed { // nothing comes after the answer
		id, moved := l.id(l.next), l.moved
		l.mu.Unlock()
		if room {
			l.s.unlog(len(raw))
		}
		return id, moved
	}
	number := l.next
	l.next++
	if room && !l.forgotten {
		l.events = append(l.events, logged{number, append([]byte(nil), raw...)})
		l.size += len(raw)
	} else {
		// From here on the stream cannot be resumed at an earlier event.
		back = l.size
		if room {
			back += len(raw)
		}
		l.events, l.size, l.first = nil, 0, l.next
	}
	out, moved := l.out, l.moved
	l.write()
	l.mu.Unlock()
	if back > 0 {
		l.s.unlog(back) // the lock of a session comes before those of its logs
	}
	if out != nil && out.event(l.id(number), raw) != nil {
		l.Left(out)
	}
	return l.id(number), moved
}

// Finish ends the log. answered says that the last event was the answer.
func (l *Log) Finish(now time.Time, answered bool) {
	l.mu.Lock()
	out := l.out
	if l.behind {
		out = nil // it is ended when it has had the rest
	}
	l.done, l.answered, l.out, l.ended = true, answered || l.failed, nil, now
	l.write()
	l.mu.Unlock()
	if out != nil {
		out.end(answered)
	}
}

// Find returns the log that an event id belongs to, and the number of the
// event; nil when there is none, or when events after it are lost.
func (s *Session) Find(eventID string) (*Log, uint64) {
	stream, after, ok := eventOf(eventID)
	if !ok {
		return nil, 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.logs {
		if l.stream != stream {
			continue
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if after+1 < l.first || after >= l.next {
			return nil, 0
		}
		return l, after
	}
	return nil, 0
}

// Resume replays the events after one to a stream, which then continues in place of the
// broken one. If an event is forgotten before the client has read it, the stream ends.
func (l *Log) Resume(o reader, after uint64) {
	l.mu.Lock()
	was := l.out
	l.mu.Unlock()
	if was != nil { // each message goes to one stream only (2025-11-25, basic/transports)
		go was.replaced() // nor does a client that no longer reads keep itself waiting
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	if l.out != nil && l.out != was { // which came meanwhile
		go l.out.replaced()
	}
	l.out, l.behind, l.moved = o, true, true
	if l.done {
		l.out = nil
	}
	next, ok := l.following(after)
	for ok && next.number > after {
		after = next.number
		l.mu.Unlock()
		err := o.event(l.id(after), next.raw)
		l.mu.Lock()
		if next, ok = l.following(after); err != nil {
			ok = false
		}
	}
	l.behind = false
	if !ok && l.out == o {
		l.out = nil
	}
	// It is ended by somebody else: it may be closing and waiting for this log.
	switch {
	case !ok:
		go o.replaced()
	case l.done:
		go o.end(l.answered)
	}
	l.mu.Unlock()
}

// following returns the event after one, none when there is none yet, and false
// when it is forgotten. l.mu is held.
func (l *Log) following(after uint64) (next logged, ok bool) {
	if after+1 < l.first {
		return logged{}, false
	}
	for _, e := range l.events {
		if e.number > after {
			return e, true
		}
	}
	return logged{}, true
}

// Left removes a stream that continued the log and broke in its turn.
func (l *Log) Left(o reader) {
	l.mu.Lock()
	if l.out == o {
		l.out = nil
	}
	l.mu.Unlock()
}

// Prime returns the first event of a stream, with an id and no data: by it a client can
// resume a stream on which nothing else arrived, and knows when to.
func (l *Log) Prime() []byte {
	return []byte("id: " + l.id(0) + "\nretry: " + strconv.Itoa(retryAfter) + "\ndata: \n\n")
}

// Primes reports whether clients of a revision understand such an event.
func Primes(version string) bool { return version == mcp.V2511 }

// end ends the stream, whose client has as long to read what it is owed as it had before. Its
// caller may hold a lock that who writes to the stream waits for.
func (o *Stream) end(bool) {
	go func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if !o.ended {
			_ = o.putChunk([]byte("0\r\n\r\n"))
			o.finish()
		}
	}()
}

// replaced ends the stream when another one goes on in its place.
func (o *Stream) replaced() { o.Close() }

// event writes a message with an id.
func (o *Stream) event(id string, raw []byte) error {
	return o.chunk(door.AppendEvent(nil, "message", id, raw))
}

// ErrLostEvents is the error for an event id that is not, or no longer, known.
func ErrLostEvents() error {
	return edge.Errorf(edge.Invalid, "resume", "Last-Event-ID is not of a stream that can be resumed")
}
